/* Instances of epoll that watch instances of epoll, and threads that wait meanwhile. */

#include "ends.h"
#include <sys/epoll.h>

static int listens;

static int made(void)
{
    return MUST(epoll_create1(0));
}

static int control(int epoll, int operation, int number, unsigned events)
{
    struct epoll_event event = {events, {.u64 = 1000 + number % 2}};
    return epoll_ctl(epoll, operation, number, &event) ? -errno : 0;
}

static void add(int epoll, int number, unsigned events)
{
    MUST(control(epoll, EPOLL_CTL_ADD, number, events));
}

/* The events available at once; 0: none. */
static int told(int epoll, int timeout)
{
    struct epoll_event events[4] = {0};
    int count = MUST(epoll_wait(epoll, events, 4, timeout));
    return count * 10000 + events[0].events;
}

static void soon(void)
{
    usleep(50000);
}

static void give(int end)
{
    MUST(send(end, "x", 1, MSG_NOSIGNAL));
    soon();
}

static void take(int end)
{
    char bytes[100];
    say("took", MUST(recv(end, bytes, sizeof bytes, 0)));
}

static void levels(void)
{
    int ends[2], inner = made(), outer = made(), outermost = made();
    pair(listens, ends);
    add(outer, inner, EPOLLIN);
    add(outermost, outer, EPOLLIN);
    add(inner, ends[1], EPOLLIN);
    say("nothing", told(outermost, 0) + told(outer, 0) + told(inner, 0));
    give(ends[0]);
    for (int turn = 0; turn < 2; turn++)
        say("told", told(outermost, -1) + told(outer, -1));
    struct pollfd polled = {outermost, POLLIN | POLLOUT, 0};
    say("polled", poll(&polled, 1, -1) * 1000 + polled.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(outer, &set);
    say("selected", select(outer + 1, &set, NULL, NULL, NULL));
    say("inside", told(inner, -1));
    take(ends[1]);
    say("nothing", told(outermost, 0) + told(outer, 0) + told(inner, 0));
    /* One of the kernel and one of the node. */
    int pipes[2];
    MUST(pipe(pipes));
    add(inner, pipes[0], EPOLLIN);
    MUST(write(pipes[1], "x", 1));
    say("pipe", told(outermost, -1));
    give(ends[0]);
    say("both", told(outermost, -1) + told(outer, -1));
    take(ends[1]);
    say("pipe", told(outermost, -1));
    char byte;
    MUST(read(pipes[0], &byte, 1));
    say("nothing", told(outermost, 0));
    close(ends[0]);
    soon();
    say("end", told(outermost, -1));
    say("removed", control(inner, EPOLL_CTL_DEL, ends[1], 0));
    say("nothing", told(outermost, 0));
    add(inner, ends[1], EPOLLIN);
    say("end", told(outermost, -1));
    close(inner);
    say("closed", told(outermost, 0) + told(outer, 0));
}

static void edges(void)
{
    int ends[2], inner = made(), outer = made(), once = made();
    pair(listens, ends);
    add(inner, ends[1], EPOLLIN);
    add(outer, inner, EPOLLIN | EPOLLET);
    add(once, inner, EPOLLIN | EPOLLONESHOT);
    give(ends[0]);
    say("edge", told(outer, 0));
    say("no more", told(outer, 0));
    give(ends[0]);
    say("another", told(outer, 0));
    say("no more", told(outer, 0));
    say("once", told(once, 0));
    say("no more", told(once, 0));
    give(ends[0]);
    say("no more", told(once, 0));
    say("changed", control(once, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLONESHOT));
    say("once", told(once, 0));
    take(ends[1]);
    say("changed", control(outer, EPOLL_CTL_MOD, inner, EPOLLIN));
    say("nothing", told(outer, 0));
    give(ends[0]);
    say("level", told(outer, 0) + told(outer, 0));
}

static void refused(void)
{
    int ends[2], chain[8];
    pair(listens, ends);
    chain[0] = made();
    add(chain[0], ends[1], EPOLLIN);
    for (int each = 1; each < 8; each++) {
        chain[each] = made();
        say("deeper", control(chain[each], EPOLL_CTL_ADD, chain[each - 1], EPOLLIN));
    }
    say("a circle", control(chain[0], EPOLL_CTL_ADD, chain[2], EPOLLIN));
    say("itself", control(chain[0], EPOLL_CTL_ADD, chain[0], EPOLLIN));
    say("twice", control(chain[1], EPOLL_CTL_ADD, chain[0], EPOLLIN));
    say("exclusive", control(made(), EPOLL_CTL_ADD, chain[0], EPOLLIN | EPOLLEXCLUSIVE));
    say("unknown", control(chain[3], EPOLL_CTL_MOD, chain[0], EPOLLIN));
    say("unknown", control(chain[3], EPOLL_CTL_DEL, chain[0], EPOLLIN));
    say("removed", control(chain[1], EPOLL_CTL_DEL, chain[0], EPOLLIN));
    say("removed", control(chain[1], EPOLL_CTL_DEL, chain[0], EPOLLIN));
    say("in", control(chain[1], EPOLL_CTL_ADD, chain[0], EPOLLIN));
    give(ends[0]);
    say("through", told(chain[4], 0));
}

static void *waits(void *epoll)
{
    struct epoll_event events[1];
    return (void *)MUST(epoll_wait(*(int *)epoll, events, 1, -1));
}

enum { WAITERS = 4 };

/* Threads already wait when an instance gets its first connection. */
static void meanwhile(int nested)
{
    int ends[WAITERS][2], pipes[2], inner = made(), outer = nested ? made() : inner;
    pthread_t threads[WAITERS];
    MUST(pipe(pipes));
    add(inner, pipes[0], EPOLLIN);
    if (nested)
        add(outer, inner, EPOLLIN);
    for (int each = 0; each < WAITERS; each++) {
        pair(listens, ends[each]);
        MUST(-pthread_create(&threads[each], NULL, waits, &outer));
    }
    soon();
    for (int each = 0; each < WAITERS; each++)
        add(inner, ends[each][1], EPOLLIN);
    soon();
    for (int each = 0; each < WAITERS; each++)
        give(ends[each][0]);
    for (int each = 0; each < WAITERS; each++) {
        void *count;
        MUST(-pthread_join(threads[each], &count));
        say("told", (long)count);
    }
    say("the kernel's", MUST(write(pipes[1], "x", 1)));
    say("all", told(inner, -1) / 10000);
}

/* Connections and a pipe with the same `data`: each of them is reported. */
static void of_one_name(void)
{
    int ends[WAITERS][2], pipes[2], epoll = made();
    struct epoll_event same = {EPOLLIN, {.u64 = 7}}, events[2 * WAITERS];
    MUST(pipe(pipes));
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &same));
    for (int each = 0; each < WAITERS; each++) {
        pair(listens, ends[each]);
        MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[each][1], &same));
        give(ends[each][0]);
    }
    MUST(write(pipes[1], "x", 1));
    for (int turn = 0; turn < 2; turn++) {
        say("one", MUST(epoll_wait(epoll, events, 1, -1)));
        say("all", MUST(epoll_wait(epoll, events, 2 * WAITERS, -1)));
    }
}

static void *waits_for_ever(void *epoll)
{
    waits(epoll);
    return NULL;
}

/* One of the waiting threads is cancelled. */
static void cancelled(void)
{
    int ends[2], epoll = made();
    pthread_t threads[2];
    void *result;
    for (int each = 0; each < 2; each++)
        MUST(-pthread_create(&threads[each], NULL, each ? waits : waits_for_ever, &epoll));
    soon();
    MUST(-pthread_cancel(threads[0]));
    MUST(-pthread_join(threads[0], &result));
    say("cancelled", result == PTHREAD_CANCELED);
    pair(listens, ends);
    add(epoll, ends[1], EPOLLIN);
    give(ends[0]);
    MUST(-pthread_join(threads[1], &result));
    say("told", (long)result);
    take(ends[1]);
    say("nothing", told(epoll, 10));
}

static void inherited(void)
{
    int ends[2], status, inner = made(), outer = made();
    pair(listens, ends);
    add(inner, ends[1], EPOLLIN);
    add(outer, inner, EPOLLIN);
    give(ends[0]);
    say("told", told(outer, -1));
    pid_t child = MUST(fork());
    if (child == 0) {
        say("told", told(outer, -1));
        take(ends[1]);
        say("nothing", told(outer, 0));
        give(ends[0]);
        say("told", told(outer, -1));
        _exit(0);
    }
    MUST(waitpid(child, &status, 0));
    say("child", status);
    say("told", told(outer, -1));
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    listens = listener();
    if (!strcmp(what, "levels"))
        levels();
    else if (!strcmp(what, "edges"))
        edges();
    else if (!strcmp(what, "refused"))
        refused();
    else if (!strcmp(what, "meanwhile")) {
        meanwhile(0);
        meanwhile(1);
    } else if (!strcmp(what, "of one name"))
        of_one_name();
    else if (!strcmp(what, "cancelled"))
        cancelled();
    else
        inherited();
    say("over", 0);
    return 0;
}
