/* Streams of stdio on connections, and programs that are started in all possible ways. */

#include "ends.h"
#include <spawn.h>
#include <stdarg.h>

static int listens;

/* Writes two lines at one end of a connection, and reads the reply up to its end. */
static void hear(int end, pid_t child)
{
    char heard[4096];
    long length = 0, more = 0;
    int status = 0;
    MUST(write(end, "one\ntwo\n", 8));
    MUST(shutdown(end, SHUT_WR));
    while (length < (long)sizeof heard && (more = read(end, heard + length, sizeof heard - length)) > 0)
        length += more;
    if (child > 0)
        MUST(waitpid(child, &status, 0));
    fprintf(stderr, "%.*s", (int)length, heard);
    printf("heard %.*s\nthe end %ld status %d\n", (int)length, heard, more, status);
}

static void echo(FILE *from, FILE *to)
{
    char line[100];
    while (fgets(line, sizeof line, from))
        fprintf(to, "%zu %s", strlen(line), line);
    fflush(to);
}

/* A child's first descriptors become a connection after it has begun to write. */
static void inherited(void)
{
    int ends[2];
    pair(listens, ends);
    printf("pending ");
    pid_t child = MUST(fork());
    if (child == 0) {
        close(ends[0]);
        MUST(dup2(ends[1], 0));
        MUST(dup2(ends[1], 1));
        close(ends[1]);
        echo(stdin, stdout);
        exit(7);
    }
    close(ends[1]);
    hear(ends[0], child);
}

/* A child's standard output becomes a connection in all ways other than dup2. */
static void becomes(void)
{
    for (int way = 0; way < 6; way++) {
        pid_t child = MUST(fork());
        if (child == 0) {
            int made;
            FILE *to = NULL;
            if (way > 3)
                close(1);
            made = MUST(socket(AF_INET, SOCK_STREAM, 0));
            if (way == 0)
                to = fdopen(made, "w");
            if (way == 1)
                MUST(dup2(made, 1));
            MUST(connect(made, (struct sockaddr *)&here, sizeof here));
            if (way == 2 || way == 3)
                close(1);
            if (way == 2)
                MUST(dup(made));
            if (way == 3)
                MUST(fcntl(made, F_DUPFD_CLOEXEC, 1));
            if (way > 0)
                to = stdout;
            fprintf(to, "%d %d", way, fileno(to) == (way ? 1 : made));
            fflush(to);
            _exit(0);
        }
        int end = MUST(accept(listens, NULL, NULL)), status;
        char said[100];
        ssize_t length = 0, more;
        while ((more = read(end, said + length, sizeof said - length)) > 0)
            length += more;
        MUST(waitpid(child, &status, 0));
        printf("%.*s, the end %zd status %d\n", (int)length, said, more, status);
        fflush(stdout);
        close(end);
    }
    /* The next connection gets the number. */
    int kept = MUST(dup(1)), end = connected();
    close(1);
    int got = MUST(accept(listens, NULL, NULL));
    printf("accepted %d", got);
    fflush(stdout);
    char heard[100];
    ssize_t length = MUST(read(end, heard, sizeof heard));
    fprintf(stderr, "%.*s\n", (int)length, heard);
    MUST(dup2(kept, 1));
    close(kept);
    if (length != 10)
        _exit(1);
}

static void opened(void)
{
    int ends[2];
    pair(listens, ends);
    pid_t child = MUST(fork());
    if (child == 0) {
        close(ends[0]);
        FILE *from = fdopen(ends[1], "r"), *to = fdopen(MUST(dup(ends[1])), "w");
        echo(from, to);
        fclose(to);
        exit(fclose(from));
    }
    close(ends[1]);
    hear(ends[0], child);
}

static int through(int end, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vdprintf(end, format, arguments);
    va_end(arguments);
    return length;
}

/* Numbers of all kinds, more than there are registers for. */
static void printed(void)
{
    int ends[2];
    pair(listens, ends);
    say("dprintf", dprintf(ends[1], "%d %s %.1f %c %ld %x %.2f %s %.3f %d %.1f %.1f %.1f %.1f %.1f %s\n", 1, "two",
                           3.0, '4', 5L, 6, 7.0, "eight", 9.0, 10, 11.0, 12.0, 13.0, 14.0, 15.0, "sixteen"));
    say("vdprintf", through(ends[1], "%s %d %.1f\n", "through", 2, 3.0));
    say("long", dprintf(ends[1], "%2000d\n", 7));
    close(ends[1]);
    char heard[4096];
    long length = 0, more;
    while ((more = read(ends[0], heard + length, sizeof heard - length)) > 0)
        length += more;
    printf("%.*s %ld\n", (int)length, heard, more);
}

/* Starts, in one way, a program that writes through the connection. */
static void starts(const char *way, const char *program)
{
    int ends[2];
    char command[1000], descriptor[20];
    char *none[] = {"WORD=passed", NULL};
    pair(listens, ends);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    snprintf(descriptor, sizeof descriptor, "%d", ends[1]);
    snprintf(command, sizeof command, "%s started %d 2 3 4 5 6 7 8 9", program, ends[1]);
    pid_t child = MUST(fork());
    if (child == 0) {
        if (!strcmp(way, "execl"))
            execl(program, program, "started", descriptor, "2", "3", "4", "5", "6", "7", "8", "9", NULL);
        if (!strcmp(way, "execlp"))
            execlp(program, program, "started", descriptor, "2", "3", "4", "5", "6", "7", "8", "9", NULL);
        if (!strcmp(way, "execle"))
            execle(program, program, "started", descriptor, "2", "3", "4", "5", "6", "7", "8", "9", NULL, none);
        if (!strcmp(way, "system"))
            _exit(system(command) >> 8);
        if (!strcmp(way, "popen"))
            _exit(pclose(popen(command, "r")) >> 8);
        _exit(1);
    }
    close(ends[1]);
    hear(ends[0], child);
}

/* A program gets one of two connections, neither of which survives `exec` otherwise. */
static void spawned(const char *program)
{
    int ends[2], others[2];
    char *words[] = {(char *)program, "started", "50", NULL}, *none[] = {NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    pair(listens, ends);
    pair(listens, others);
    for (int each = 0; each < 2; each++) {
        fcntl(ends[each], F_SETFD, FD_CLOEXEC);
        fcntl(others[each], F_SETFD, FD_CLOEXEC);
    }
    MUST(-posix_spawn_file_actions_init(&actions));
    MUST(-posix_spawn_file_actions_adddup2(&actions, ends[1], 50));
    MUST(-posix_spawn(&child, program, &actions, NULL, words, none));
    MUST(-posix_spawn_file_actions_destroy(&actions));
    close(ends[1]);
    hear(ends[0], child);
    exchange(others);
}

/* The started program: it echoes the bytes of a descriptor, and prints its own arguments. */
static int started(int count, char **words)
{
    char bytes[100];
    ssize_t got;
    int end = atoi(words[2]), word = getenv("WORD") != NULL;
    while ((got = read(end, bytes, sizeof bytes)) > 0)
        if (write(end, bytes, got) != got)
            return 1;
    for (int each = 3; each < count; each++)
        if (write(end, words[each], 1) != 1)
            return 2;
    if (write(end, word ? "with" : "none", 4) != 4)
        return 3;
    return got < 0 ? 4 : 5;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "started"))
        return started(count, words);
    listens = listener();
    fcntl(listens, F_SETFD, FD_CLOEXEC);
    if (!strcmp(what, "inherited"))
        inherited();
    else if (!strcmp(what, "becomes"))
        becomes();
    else if (!strcmp(what, "opened"))
        opened();
    else if (!strcmp(what, "printed"))
        printed();
    else if (!strcmp(what, "spawned"))
        spawned(words[2]);
    else
        starts(what, words[2]);
    say("over", 0);
    return 0;
}
