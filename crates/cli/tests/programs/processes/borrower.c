// Children that borrow the memory of their parent, which has a connection.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static int mine, theirs;

static void say(const char *what) {
    char bytes[200];
    size_t had = 0;
    // The received bytes end with a newline.
    while (had < sizeof bytes - 1) {
        ssize_t more = read(theirs, bytes + had, 1);
        if (more <= 0 || bytes[had++] == '\n')
            break;
    }
    bytes[had] = 0;
    printf("%s: %s", what, had ? bytes : "nothing\n");
}

static int ended(pid_t child) {
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int begin(void *argument) {
    *(volatile int *)argument += 1;
    struct timespec span = {0, 100000000};
    nanosleep(&span, 0);
    if (dup2(mine, 1) != 1)
        _exit(9);
    execlp("sh", "sh", "-c", "echo from clone", (char *)0);
    _exit(8);
}

static volatile int stop;
static void *busy(void *argument) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return argument;
    while (!stop) {
        int copy = dup(mine);
        if (copy < 0 || write(pair[0], "x", 1) != 1 || close(copy))
            return argument;
        char byte;
        if (read(pair[1], &byte, 1) != 1)
            return argument;
    }
    return 0;
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof at;
    bind(listener, (void *)&at, len), listen(listener, 1), getsockname(listener, (void *)&at, &len);
    mine = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connect(mine, (void *)&at, len);
    theirs = accept4(listener, 0, 0, SOCK_CLOEXEC);
    fcntl(listener, F_SETFD, FD_CLOEXEC);
    setvbuf(stdout, 0, _IOFBF, 1 << 16);

    volatile int seen = 0;
    pid_t child = vfork();
    if (!child) {
        seen = 7;
        execl("/nonexistent", "x", (char *)0);
        seen += errno;
        _exit(3);
    }
    printf("written by the child: %d, ended %d\n", seen, ended(child));

    // The child has its own numbers, and its bytes follow its own changes of them.
    child = vfork();
    if (!child) {
        if (dup2(mine, 50) != 50 || close(mine) || write(mine, "?", 1) != -1 || errno != EBADF)
            _exit(1);
        if (write(50, "by a copy\n", 10) != 10)
            _exit(2);
        int high = fcntl(50, F_DUPFD, 60);
        if (high < 60 || close_range(50, 50, 0) || write(high, "by another\n", 11) != 11)
            _exit(3);
        _exit(0);
    }
    printf("numbers: %d\n", ended(child));
    say("copied"), say("again");
    printf("parent's: %d %d\n", write(50, "?", 1) == -1 && errno == EBADF, fcntl(mine, F_GETFD));
    if (write(mine, "parent\n", 7) != 7)
        return 1;
    say("goes on");

    // As servers do that start another program with the connection.
    child = vfork();
    if (!child) {
        dup2(mine, 0), dup2(mine, 1), dup2(mine, 2);
        execlp("sh", "sh", "-c", "echo from exec; cat /nonexistent/it", (char *)0);
        _exit(1);
    }
    printf("another program: %d\n", ended(child));
    say("by exec"), say("its errors");
    child = vfork();
    if (!child) {
        dup2(mine, 2);
        execl("/nonexistent/program", "x", (char *)0);
        if (write(2, "cannot be executed\n", 19) != 19)
            _exit(1);
        _exit(5);
    }
    printf("no program: %d\n", ended(child));
    say("by the child");

    // A grandchild, and a child that is killed.
    child = vfork();
    if (!child) {
        pid_t inner = vfork();
        if (!inner) {
            dup2(mine, 1);
            execlp("sh", "sh", "-c", "echo from the inner", (char *)0);
            _exit(1);
        }
        _exit(ended(inner) + 20);
    }
    printf("a child's child: %d\n", ended(child));
    say("inner");
    child = vfork();
    if (!child) {
        dup2(mine, 51);
        kill(getpid(), SIGKILL);
    }
    printf("killed: %d\n", ended(child));

    char *stack = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    child = clone(begin, stack + (1 << 18), CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)&seen);
    clock_gettime(CLOCK_MONOTONIC, &after);
    double waited = after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9;
    printf("cloned: waited %d, seen %d, ended %d\n", waited >= 0.1, seen, ended(child));
    say("by clone");

    // Meanwhile other threads change numbers.
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        pthread_create(&threads[at], 0, busy, (void *)&stop);
    int failed = 0;
    for (int round = 0; round < 40; round++) {
        child = vfork();
        if (!child) {
            dup2(mine, 1);
            execlp("echo", "echo", "round", (char *)0);
            _exit(1);
        }
        failed += ended(child) != 0;
        char line[7] = {0};
        failed += recv(theirs, line, 6, MSG_WAITALL) != 6 || strcmp(line, "round\n");
    }
    stop = 1;
    for (int at = 0; at < 2; at++) {
        void *told;
        pthread_join(threads[at], &told);
        failed += told != 0;
    }
    printf("beside threads: %d failed\n", failed);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, mine, 1);
    char *words[] = {"echo", "from spawn", 0};
    if (posix_spawnp(&child, "echo", &actions, 0, words, environ))
        child = -1;
    printf("spawned: %d\n", ended(child));
    say("by spawn");
    printf("system: %d\n", system("exit 4") >> 8);
    FILE *said = popen("echo from popen", "r");
    char line[100] = "";
    printf("popen: %s", fgets(line, sizeof line, said));
    printf("closed: %d\n", pclose(said));
    if (write(mine, "at last\n", 8) != 8)
        return 1;
    say("at last");
    return 0;
}
