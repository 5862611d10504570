/* Threads that are cancelled during calls, and threads with the smallest stacks. */

#include "ends.h"

#include <sys/stat.h>

static int listens, ends[2];
static volatile int cleaned;

enum call { RECV, READ, ACCEPT, POLL, SELECT, EPOLL, OPEN, SEND, CALLS };

static void clean(void *words)
{
    (void)words;
    cleaned++;
}

/* Waits in a call forever. */
static void *waiting(void *which)
{
    static unsigned char bytes[1 << 20];
    enum call call = (enum call)(long)which;
    struct pollfd polled = {ends[1], POLLIN, 0};
    struct epoll_event event = {EPOLLIN, {.fd = ends[1]}};
    int epoll = -1;
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[1], &set);
    if (call == EPOLL) {
        epoll = MUST(epoll_create1(0));
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    }
    pthread_cleanup_push(clean, NULL);
    for (;;)
        switch (call) {
        case RECV:
            recv(ends[1], bytes, 1, 0);
            break;
        case READ:
            read(ends[1], bytes, 1);
            break;
        case ACCEPT:
            accept(listens, NULL, NULL);
            break;
        case POLL:
            poll(&polled, 1, -1);
            break;
        case SELECT:
            select(ends[1] + 1, &set, NULL, NULL, NULL);
            break;
        case EPOLL:
            epoll_wait(epoll, &event, 1, -1);
            break;
        case OPEN:
            open("nobody-writes", O_RDONLY);
            break;
        default:
            send(ends[0], bytes, sizeof bytes, MSG_NOSIGNAL);
        }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Is cancelled, and another thread continues with the connection. */
static void cancels(void)
{
    listens = listener();
    MUST(mkfifo("nobody-writes", 0600));
    for (long call = 0; call < CALLS; call++) {
        for (int turn = 0; turn < 20; turn++) {
            pthread_t thread;
            void *result;
            pair(listens, ends);
            MUST(-pthread_create(&thread, NULL, waiting, (void *)call));
            /* At once, during the sleep, or in between. */
            usleep(turn % 5 * (call == SEND ? 2000 : 700));
            MUST(-pthread_cancel(thread));
            MUST(-pthread_join(thread, &result));
            if (result != PTHREAD_CANCELED)
                say("ended in another way", call);
            if (call != SEND) {
                char byte = 0;
                MUST(send(ends[0], "y", 1, 0));
                if (recv(ends[1], &byte, 1, 0) != 1 || byte != 'y')
                    say("lost", call);
            }
            close(ends[1]);
            close(ends[0]);
        }
        say("cancelled", call);
    }
    say("cleaned", cleaned <= 20 * CALLS);
    pair(listens, ends);
    exchange(ends);
}

/* A thread that has disabled cancellation gets its bytes. */
static void *protected(void *words)
{
    char bytes[6] = "";
    int before;
    (void)words;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    say("received", recv(ends[1], bytes, 5, MSG_WAITALL));
    pthread_setcancelstate(before, NULL);
    pthread_testcancel();
    say("goes on", 1);
    return NULL;
}

static void protects(void)
{
    pthread_t thread;
    void *result;
    listens = listener();
    pair(listens, ends);
    MUST(-pthread_create(&thread, NULL, protected, NULL));
    usleep(20000);
    MUST(-pthread_cancel(thread));
    usleep(20000);
    MUST(send(ends[0], "hello", 5, 0));
    MUST(-pthread_join(thread, &result));
    say("cancelled", result == PTHREAD_CANCELED);
    exchange(ends);
}

static void *small(void *words)
{
    int own[2];
    (void)words;
    pair(listens, own);
    struct pollfd polled = {own[1], POLLIN, 0};
    MUST(send(own[0], "hello", 5, MSG_NOSIGNAL));
    say("polled", poll(&polled, 1, -1));
    exchange(own);
    return NULL;
}

static void stacks(void)
{
    pthread_attr_t least;
    listens = listener();
    pthread_attr_init(&least);
    MUST(-pthread_attr_setstacksize(&least, PTHREAD_STACK_MIN));
    for (int turn = 0; turn < 3; turn++) {
        pthread_t thread;
        MUST(-pthread_create(&thread, &least, small, NULL));
        pthread_join(thread, NULL);
    }
}

/* Its first connection is its first call on any socket. */
static void *first(void *words)
{
    (void)words;
    listens = listener();
    return small(NULL);
}

static void begins(void)
{
    pthread_attr_t least;
    pthread_t thread;
    pthread_attr_init(&least);
    MUST(-pthread_attr_setstacksize(&least, PTHREAD_STACK_MIN));
    MUST(-pthread_create(&thread, &least, first, NULL));
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "cancel"))
        cancels();
    else if (!strcmp(what, "protect"))
        protects();
    else if (!strcmp(what, "stack"))
        stacks();
    else if (!strcmp(what, "begin"))
        begins();
    else
        return 2;
    say("over", 0);
    return 0;
}
