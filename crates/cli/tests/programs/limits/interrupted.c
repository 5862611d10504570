/* Signals: at every point of transfers, on alternate stacks, and with handlers that never return. */

#include "ends.h"
#include <setjmp.h>

static volatile sig_atomic_t came;

static void handler(int signal)
{
    (void)signal;
    came++;
}

static void install(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    MUST(sigaction(SIGALRM, &action, NULL));
}

static void timer(long micros)
{
    struct itimerval every = {{0, micros}, {0, micros}};
    MUST(setitimer(ITIMER_REAL, &every, NULL));
}

/* Receives by another way of waiting each time. */
static long receive_variously(int end)
{
    static unsigned char bytes[65536];
    long got = 0;
    int epoll = MUST(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.fd = end}};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, end, &event));
    for (unsigned turn = 0;; turn++) {
        struct pollfd polled = {end, POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(end, &set);
        int ready = 1;
        switch (turn % 4) {
        case 0:
            ready = poll(&polled, 1, -1);
            break;
        case 1:
            ready = epoll_wait(epoll, &event, 1, -1);
            break;
        case 2:
            ready = select(end + 1, &set, NULL, NULL, NULL);
            break;
        }
        if (ready < 0) {
            if (errno != EINTR)
                return -errno;
            continue;
        }
        if (ready == 0)
            return -2;
        ssize_t now = recv(end, bytes, 1 + turn * 977 % sizeof bytes, 0);
        if (now == 0)
            break;
        if (now < 0 && errno != EINTR)
            return -errno;
        if (now > 0 && right(bytes, got, now) != (size_t)now)
            return -1;
        got += now > 0 ? now : 0;
    }
    close(epoll);
    return got;
}

enum { LENGTH = 6000000 };

static void *sender(void *end)
{
    size_t sent = send_all(*(int *)end, LENGTH);
    shutdown(*(int *)end, SHUT_WR);
    return (void *)sent;
}

/* Signals reach all threads, inside and outside of calls. */
static void transfers(int flags)
{
    int ends[2], listens = listener();
    install(handler, flags);
    for (int turn = 0; turn < 3; turn++) {
        pthread_t thread;
        void *sent;
        pair(listens, ends);
        timer(100);
        MUST(-pthread_create(&thread, NULL, sender, &ends[0]));
        say("received", receive_variously(ends[1]));
        pthread_join(thread, &sent);
        timer(0);
        say("sent", (long)sent);
        close(ends[0]);
        close(ends[1]);
    }
    say("signals came", came > 3);
}

static sigjmp_buf before;

static void jump(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

/* Leaves every waiting call by a jump. The connection still works. */
static void jumps(void)
{
    static volatile int turn, ends[2], listens, epoll;
    static volatile long jumped;
    unsigned char bytes[100];
    int made[2];
    listens = listener();
    pair(listens, made);
    ends[0] = made[0], ends[1] = made[1];
    epoll = MUST(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.fd = ends[1]}};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    install(jump, 0);
    for (turn = 0; turn < 60; turn++) {
        if (sigsetjmp(before, 1)) {
            jumped++;
            continue;
        }
        struct pollfd polled = {ends[1], POLLIN, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(ends[1], &set);
        struct itimerval once = {{0, 0}, {0, 2000}};
        MUST(setitimer(ITIMER_REAL, &once, NULL));
        switch (turn % 5) {
        case 0:
            recv(ends[1], bytes, sizeof bytes, 0);
            break;
        case 1:
            poll(&polled, 1, -1);
            break;
        case 2:
            epoll_wait(epoll, &event, 1, -1);
            break;
        case 3:
            select(ends[1] + 1, &set, NULL, NULL, NULL);
            break;
        case 4:
            accept(listens, NULL, NULL);
            break;
        }
        printf("nobody jumped\n");
    }
    say("jumped", jumped);
    close(epoll);
    /* Closes first the connection that was left by jumps: nothing must hold it. */
    made[0] = ends[1], made[1] = ends[0];
    exchange(made);
    pair(listens, made);
    exchange(made);
}

static int own[2];

/* A handler on a small alternate stack, which uses both ends of a connection. */
static void talker(int signal)
{
    char byte = 'x';
    (void)signal;
    if (send(own[0], &byte, 1, 0) == 1 && recv(own[1], &byte, 1, 0) == 1 && byte == 'x')
        came++;
}

static void *talking(void *words)
{
    stack_t stack = {.ss_size = SIGSTKSZ, .ss_sp = malloc(SIGSTKSZ)};
    (void)words;
    MUST(sigaltstack(&stack, NULL));
    for (int turn = 0; turn < 100; turn++)
        raise(SIGALRM);
    stack.ss_flags = SS_DISABLE;
    MUST(sigaltstack(&stack, NULL));
    free(stack.ss_sp);
    return NULL;
}

static void talks(void)
{
    int listens = listener();
    pthread_t thread;
    pthread_attr_t small;
    pair(listens, own);
    install(talker, SA_ONSTACK);
    talking(NULL);
    say("talked", came);
    pthread_attr_init(&small);
    MUST(-pthread_attr_setstacksize(&small, PTHREAD_STACK_MIN));
    MUST(-pthread_create(&thread, &small, talking, NULL));
    pthread_join(thread, NULL);
    say("talked", came);
    exchange(own);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "restart"))
        transfers(SA_RESTART);
    else if (!strcmp(what, "end"))
        transfers(0);
    else if (!strcmp(what, "jump"))
        jumps();
    else if (!strcmp(what, "talk"))
        talks();
    else
        return 2;
    say("over", 0);
    return 0;
}
