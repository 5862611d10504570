/* Bytes that the kernel or libc moves between connections and files or pipes of the kernel. */

#include "ends.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <time.h>
#include <wchar.h>

static int listens;

static void fails(const char *what, long result)
{
    say(what, result < 0 ? -errno : result);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Files that end before the requested length: no byte of them is held back. */
static void file_ends(void)
{
    size_t sizes[] = {10, 5000, 65536, 70000, 150000};
    for (int each = 0; each < 5; each++)
        for (int again = 0; again < 2; again++) {
            int ends[2], file = MUST(memfd_create("file", 0));
            char *bytes = calloc(1, sizes[each]);
            pair(listens, ends);
            MUST(write(file, bytes, sizes[each]));
            MUST(lseek(file, 0, SEEK_SET));
            /* The kernel also sends the end of a file at once; a delay would be 200 ms. */
            double began = now(), last = 0;
            size_t sent = 0, got = 0;
            ssize_t more;
            do {
                sent += more = MUST(sendfile(ends[0], file, NULL, 1 << 20));
            } while (again && more > 0);
            say("sent", sent);
            while (got < sent)
                got += MUST(recv(ends[1], bytes, sizes[each], 0));
            last = now() - began;
            say("late", last > 0.15);
            close(ends[0]);
            close(ends[1]);
            close(file);
            free(bytes);
        }
}

static void pipes(void)
{
    int ends[2], pipes[2], nowhere = MUST(open("/dev/null", O_WRONLY));
    char bytes[8] = "";
    off_t place = 0;
    pair(listens, ends);
    MUST(pipe(pipes));
    MUST(send(ends[1], "hello", 5, MSG_NOSIGNAL));
    fails("at a place", sendfile(pipes[1], ends[0], &place, 5));
    fails("sendfile", sendfile(pipes[1], ends[0], NULL, 100));
    say("read", MUST(read(pipes[0], bytes, 5)));
    say("the same", !strcmp(bytes, "hello"));
    fails("sendfile", sendfile(nowhere, ends[0], NULL, 100));
    fails("sendfile", sendfile(ends[1], ends[0], NULL, 100));
    fails("sendfile", sendfile(pipes[0], ends[0], NULL, 100));
    fails("the wrong end", splice(ends[0], NULL, pipes[0], NULL, 10, SPLICE_F_NONBLOCK));
    fails("the wrong end", splice(pipes[1], NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK));
    fails("nothing", splice(pipes[0], NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK));
    MUST(fcntl(pipes[0], F_SETFL, O_NONBLOCK));
    fails("nothing", splice(pipes[0], NULL, ends[0], NULL, 10, 0));
    /* Bytes that cannot be sent stay in the pipe. */
    signal(SIGPIPE, SIG_IGN);
    MUST(shutdown(ends[0], SHUT_WR));
    MUST(write(pipes[1], "hello", 5));
    fails("broken", splice(pipes[0], NULL, ends[0], NULL, 10, 0));
    say("still there", read(pipes[0], bytes, 5));
    /* No writer or reader is left. */
    close(pipes[1]);
    fails("no writer", splice(pipes[0], NULL, ends[0], NULL, 10, 0));
    close(pipes[0]);
    MUST(pipe(pipes));
    close(pipes[0]);
    fails("no reader", splice(ends[0], NULL, pipes[1], NULL, 10, 0));
    fails("no reader", sendfile(pipes[1], ends[0], NULL, 10));
    close(pipes[1]);
    close(ends[0]);
    close(ends[1]);
}

/* A stream on a connection becomes one on a file. */
static void opened_again(const char *path)
{
    int ends[2];
    char bytes[8] = "";
    pair(listens, ends);
    FILE *stream = fdopen(ends[0], "w");
    fputs("hello", stream);
    FILE *again = freopen(path, "w", stream);
    say("opened", again != NULL ? 0 : errno);
    say("received", recv(ends[1], bytes, 5, MSG_WAITALL));
    say("the same", !strcmp(bytes, "hello"));
    say("end", recv(ends[1], bytes, 1, 0));
    if (again != NULL) {
        say("number", fileno(again) == ends[0]);
        say("wide", fputws(L"hello", again) >= 0);
        say("closed", fclose(again));
    }
    close(ends[1]);
}

static void streams(void)
{
    int ends[2];
    char bytes[8] = "";
    opened_again("/dev/null");
    opened_again("/nowhere/at/all");
    opened_again(NULL);
    /* The standard stream, twice. */
    int former = MUST(dup(1));
    fflush(stdout);
    for (int turn = 0; turn < 2; turn++) {
        pair(listens, ends);
        MUST(dup2(ends[0], 1));
        close(ends[0]);
        fputs("hello", stdout);
        int is_open = freopen("/dev/null", "w", stdout) != NULL;
        fputs("nobody", stdout);
        fflush(stdout);
        ssize_t got = recv(ends[1], bytes, 6, MSG_WAITALL);
        MUST(dup2(former, 1));
        close(ends[1]);
        say("opened", is_open);
        say("received", got);
    }
}

ssize_t __read(int, void *, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __send(int, const void *, size_t, int);
int __connect(int, const struct sockaddr *, socklen_t);
int __poll(struct pollfd *, nfds_t, int);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __close(int);
int __dup2(int, int);
int __fcntl(int, int, ...);

/* libc's functions by their alternative names. */
static void other_names(void)
{
    int ends[2];
    char bytes[8] = "";
    struct timeval limit = {20, 0};
    fd_set set;
    ends[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(__connect(ends[0], (struct sockaddr *)&here, sizeof here));
    ends[1] = MUST(accept(listens, NULL, NULL));
    say("sent", MUST(__send(ends[0], "one", 3, MSG_NOSIGNAL)));
    say("sent", MUST(__write(ends[0], "lo", 2)));
    struct pollfd polled = {ends[1], POLLIN, 0};
    say("polled", __poll(&polled, 1, 20000));
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    say("selected", __select(ends[1] + 1, &set, NULL, NULL, &limit));
    int copy = MUST(__dup2(ends[1], 100));
    say("received", MUST(__read(copy, bytes, 5)));
    say("the same", !strcmp(bytes, "hello"));
    MUST(__fcntl(copy, F_SETFL, O_NONBLOCK));
    fails("nothing", __read(ends[1], bytes, 5));
    MUST(__close(copy));
    MUST(__close(ends[0]));
    polled.revents = 0;
    poll(&polled, 1, 20000);
    say("end", __read(ends[1], bytes, 5));
    MUST(__close(ends[1]));
}

int main(int count, char **words)
{
    listens = listener();
    if (count > 1 && !strcmp(words[1], "files"))
        file_ends();
    else if (count > 1 && !strcmp(words[1], "pipes"))
        pipes();
    else if (count > 1 && !strcmp(words[1], "streams"))
        streams();
    else
        other_names();
    say("over", 0);
    return 0;
}
