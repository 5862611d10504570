/* Few descriptors, very many descriptors, all of them closed at once, and no memory. */

#include "ends.h"

static void limit(int resource, rlim_t most)
{
    struct rlimit limit = {most, most};
    MUST(setrlimit(resource, &limit));
}

/* Makes connections until descriptors run out; a failed attempt loses no connection. */
static void few(void)
{
    int listens, numbers[64], made = 0, got = 0, right = 0, other[2];
    closefrom(3);
    listens = listener();
    /* The library already has what it needs. */
    pair(listens, other);
    limit(RLIMIT_NOFILE, 16);
    for (int number; made < 64 && (number = socket(AF_INET, SOCK_STREAM, 0)) >= 0;) {
        numbers[made++] = number;
        MUST(connect(number, (struct sockaddr *)&here, sizeof here));
    }
    say("no more", errno == EMFILE);
    say("accepted", accept(listens, NULL, NULL));
    say("none for it", errno == EMFILE);
    say("copied", dup(other[0]));
    say("none for it", errno == EMFILE);
    struct pollfd polled = {listens, POLLIN, 0};
    say("still there", poll(&polled, 1, 0));
    /* With some room, each is accepted after all, including connections that have ended meanwhile. */
    for (int turn = 0; turn < made; turn++) {
        char byte = 'a' + turn;
        MUST(send(numbers[turn], &byte, 1, MSG_NOSIGNAL));
    }
    close(numbers[0]);
    close(numbers[1]);
    for (int turn = 0; turn < made; turn++) {
        char byte = 0;
        int one = MUST(accept(listens, NULL, NULL));
        right += recv(one, &byte, 1, 0) == 1;
        got += byte - 'a' - turn;
        close(one);
    }
    say("missing", made - right);
    say("others instead", got);
    exchange(other);
}

/* Results of calls that need a descriptor when none is left. */
static void none(void)
{
    int listens = listener(), ends[2], other[2], last = -1;
    struct epoll_event event = {EPOLLIN, {.fd = 0}};
    pair(listens, ends);
    limit(RLIMIT_NOFILE, 400);
    for (int number; (number = dup(0)) >= 0;)
        last = number;
    say("accept", accept(listens, NULL, NULL) < 0 ? errno : 0);
    say("accept4", accept4(listens, NULL, NULL, SOCK_NONBLOCK) < 0 ? errno : 0);
    say("epoll_create", epoll_create(1) < 0 ? errno : 0);
    say("epoll_create1", epoll_create1(0) < 0 ? errno : 0);
    say("pipe", pipe(other) < 0 ? errno : 0);
    say("pipe2", pipe2(other, O_CLOEXEC) < 0 ? errno : 0);
    say("socket", socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
    say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, other) < 0 ? errno : 0);
    say("dup", dup(ends[0]) < 0 ? errno : 0);
    say("fcntl", fcntl(ends[0], F_DUPFD, 0) < 0 ? errno : 0);
    say("dup2", dup2(ends[0], 400) < 0 ? errno : 0);
    close(last);
    int epoll = MUST(epoll_create1(0));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    say("nothing", epoll_wait(epoll, &event, 1, 0));
    MUST(send(ends[0], "x", 1, 0));
    say("something", epoll_wait(epoll, &event, 1, -1));
}

/* The system has no room for another open file; strace injects this error while it is attached. */
static pid_t no_more_files(void)
{
    char me[16], line[200];
    snprintf(me, sizeof me, "%d", getpid());
    pid_t tracer = MUST(fork());
    if (tracer == 0) {
        closefrom(3);
        execlp("strace", "strace", "-qq", "-o", "/dev/null", "-p", me, "-e",
               "inject=accept,accept4,epoll_create,epoll_create1,eventfd,eventfd2,memfd_create,open,openat,"
               "pipe,pipe2,socket,socketpair:error=ENFILE",
               NULL);
        _exit(127);
    }
    for (int found = 0; found != tracer;) {
        FILE *status = fopen("/proc/self/status", "r");
        /* From then on the system refuses a second tracer. */
        for (found = 0; status != NULL && fgets(line, sizeof line, status);)
            if (sscanf(line, "TracerPid: %d", &found) == 1)
                break;
        if (status == NULL)
            break;
        fclose(status);
        MUST(waitpid(tracer, NULL, WNOHANG) == 0 ? 0 : -1);
    }
    return tracer;
}

/* The system itself has no room for another open file. */
static void none_of_the_system(void)
{
    int listens = listener(), ends[2], other[2], unused[2], status;
    pair(listens, ends);
    other[0] = connected();
    pid_t tracer = no_more_files();
    /* Accepting may work without: a node needs a descriptor for a connection, but no file. */
    say("epoll_create1", epoll_create1(0) < 0 ? errno : 0);
    say("pipe", pipe(unused) < 0 ? errno : 0);
    say("socket", socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0);
    struct pollfd polled = {listens, POLLIN, 0};
    say("still there", poll(&polled, 1, 0));
    exchange(ends);
    MUST(kill(tracer, SIGTERM));
    MUST(waitpid(tracer, &status, 0));
    other[1] = MUST(accept(listens, NULL, NULL));
    exchange(other);
}

/* The library starts with almost no descriptors, apart from those that the program started with. */
static void begins_with(const char *program, rlim_t most)
{
    closefrom(3);
    limit(RLIMIT_NOFILE, most);
    MUST(execl(program, program, "plain", NULL));
}

static void plain(void)
{
    int ends[2], listens = listener();
    for (int turn = 0; turn < 3; turn++) {
        pair(listens, ends);
        exchange(ends);
    }
}

/* Closes all descriptors that the program could have, and continues with new ones. */
static void all_closed(int way)
{
    int ends[2], last[2], listens = listener();
    char byte;
    pair(listens, ends);
    pair(listens, last);
    MUST(dup2(last[0], 1000));
    close(last[0]);
    switch (way) {
    case 0:
        MUST(close_range(3, ~0u, 0));
        break;
    case 1:
        for (int number = 3; number < 65536; number++)
            close(number);
        break;
    case 2:
        closefrom(3);
        break;
    }
    say("closed", recv(ends[1], &byte, 1, 0));
    say("as it should be", errno == EBADF);
    listens = listener();
    say("the lowest", listens);
    pair(listens, ends);
    exchange(ends);
}

/* Closes all but one end, in a child that has both. */
static void half_closed(void)
{
    int ends[2], status, listens = listener();
    char byte;
    pair(listens, ends);
    pid_t child = MUST(fork());
    if (child == 0) {
        MUST(dup2(ends[1], 3));
        MUST(close_range(4, ~0u, 0));
        say("sent", send(3, "x", 1, MSG_NOSIGNAL));
        _exit(0);
    }
    close(ends[1]);
    MUST(waitpid(child, &status, 0));
    say("child", status);
    say("received", recv(ends[0], &byte, 1, 0));
    say("end", recv(ends[0], &byte, 1, 0));
}

/* Uses numbers as high as the system allows. */
static void many(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    int ends[2], high[2], listens;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        MUST(getrlimit(RLIMIT_NOFILE, &limit));
    listens = listener();
    pair(listens, ends);
    for (int end = 0; end < 2; end++) {
        high[end] = MUST(fcntl(ends[end], F_DUPFD, (int)limit.rlim_cur - 2));
        close(ends[end]);
    }
    exchange(high);
}

/* Limits memory to little more than the program has now. */
static void memory(void)
{
    int ends[2], listens = listener();
    char line[200];
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (fgets(line, sizeof line, statm))
        pages = atol(line);
    fclose(statm);
    limit(RLIMIT_AS, (rlim_t)(pages + 64) * sysconf(_SC_PAGESIZE));
    for (int turn = 0; turn < 20; turn++) {
        pair(listens, ends);
        if (turn == 0)
            exchange(ends);
    }
    exchange(ends);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "few"))
        few();
    else if (!strcmp(what, "none"))
        none();
    else if (!strcmp(what, "full"))
        none_of_the_system();
    else if (!strcmp(what, "begins"))
        begins_with(words[0], 16);
    else if (!strcmp(what, "enough"))
        begins_with(words[0], 200);
    else if (!strcmp(what, "plain"))
        plain();
    else if (!strcmp(what, "closed"))
        for (int way = 0; way < 3; way++)
            all_closed(way);
    else if (!strcmp(what, "half"))
        half_closed();
    else if (!strcmp(what, "many"))
        many();
    else if (!strcmp(what, "memory"))
        memory();
    else
        return 2;
    say("over", 0);
    return 0;
}
