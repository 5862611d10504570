/* Invalid descriptor numbers, and calls that the kernel refuses: they change nothing. */

#include "ends.h"
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static void fails(const char *what, long result)
{
    say(what, result < 0 ? -errno : result);
}

/* Every call on a descriptor that takes another number. */
static void with_number(int listens, int end, int epoll, int number)
{
    int copies[] = {end, listens, epoll};
    struct epoll_event event = {EPOLLIN, {.fd = 0}};
    for (int each = 0; each < 3; each++) {
        fails("dup2", dup2(number, copies[each]));
        fails("dup3", dup3(number, copies[each], O_CLOEXEC));
        fails("fcntl", fcntl(copies[each], F_DUPFD, number));
    }
    fails("dup2 to it", dup2(end, number));
    fails("close", close(number));
    fails("splice", splice(end, NULL, number, NULL, 10, SPLICE_F_NONBLOCK));
    fails("splice to it", splice(number, NULL, end, NULL, 10, SPLICE_F_NONBLOCK));
    fails("tee", tee(end, number, 10, SPLICE_F_NONBLOCK));
    fails("sendfile", sendfile(end, number, NULL, 10));
    fails("sendfile to it", sendfile(number, end, NULL, 10));
    fails("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, number, &event));
    fails("epoll_ctl of it", epoll_ctl(number, EPOLL_CTL_ADD, end, &event));
    fails("epoll_wait", epoll_wait(number, &event, 1, 0));
    fails("accept", accept(number, NULL, NULL));
    fails("connect", connect(number, (struct sockaddr *)&here, sizeof here));
    fails("listen", listen(number, 1));
    fails("send", send(number, "x", 1, 0));
    fails("recv", recv(number, &event, 1, 0));
    fails("close", close(number));
}

/* The bits of F_GETFL that a program sees. */
static void shows(int end)
{
    say("waits not", (MUST(fcntl(end, F_GETFL)) & O_NONBLOCK) != 0);
}

/* Flags and offsets that a socket does not support. */
static void not_known(int end)
{
    char byte = 'x';
    struct iovec part = {&byte, 1}, none = {&byte, 0};
    for (int flags = 1 << 12; flags > 0; flags <<= 1) {
        fails("written", pwritev2(end, &part, 1, -1, flags));
        fails("read", preadv2(end, &part, 1, -1, flags));
    }
    fails("nothing", pwritev2(end, &none, 1, -1, 1 << 20));
    fails("at a place", pwritev2(end, &part, 1, 5, 0));
    fails("before all", pwritev2(end, &part, 1, -5, 0));
    fails("at a place", preadv2(end, &part, 1, 5, 0));
    fails("before all", preadv2(end, &part, 1, -5, 0));
}

/* Messages of which only the first is valid, and earlier errors. */
static void messages(const int ends[2])
{
    long page = MUST(sysconf(_SC_PAGESIZE));
    char *pages = (char *)MUST(mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct mmsghdr *last = (struct mmsghdr *)(pages + page) - 1;
    char byte = 'x';
    struct iovec part = {&byte, 1};
    MUST(mprotect(pages + page, page, PROT_NONE));
    last->msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    fails("sent", sendmmsg(ends[0], last, 3, MSG_NOSIGNAL));
    fails("sent", sendmmsg(ends[0], last + 1, 3, MSG_NOSIGNAL));
    struct pollfd polled = {ends[1], POLLIN, 0};
    MUST(poll(&polled, 1, -1));
    fails("received", recvmmsg(ends[1], last, 3, MSG_DONTWAIT, NULL));
    fails("received", recvmmsg(ends[1], last + 1, 3, MSG_DONTWAIT, NULL));
    fails("flags", sendmsg(ends[0], &last->msg_hdr, MSG_NOSIGNAL | (int)(1u << 31)));
    fails("flags", recvmsg(ends[1], &last->msg_hdr, MSG_DONTWAIT | (int)(1u << 31)));
    last->msg_hdr.msg_control = &byte;
    last->msg_hdr.msg_controllen = 1 << 24;
    fails("control", sendmsg(ends[0], &last->msg_hdr, MSG_NOSIGNAL));
    MUST(munmap(pages, 2 * page));
}

static void refused(int listens, int ends[2], const int other[2])
{
    struct rlimit limit, less;
    fails("flags", dup3(other[0], ends[0], O_APPEND));
    fails("the same", dup3(ends[0], ends[0], 0));
    fails("the same", dup2(ends[0], ends[0]));
    /* A number from before a lower limit. */
    int high = MUST(fcntl(ends[0], F_DUPFD, 900));
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    less = limit;
    less.rlim_cur = 900;
    MUST(setrlimit(RLIMIT_NOFILE, &less));
    fails("above", dup2(other[0], high));
    fails("above", fcntl(other[0], F_DUPFD, high));
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    say("sent", MUST(send(high, "x", 1, MSG_NOSIGNAL)));
    close(high);

    int both[] = {ends[0], listens};
    for (int each = 0; each < 2; each++) {
        fails("direct", fcntl(both[each], F_SETFL, O_NONBLOCK | O_DIRECT));
        shows(both[each]);
        MUST(fcntl(both[each], F_SETFL, O_NONBLOCK));
        fails("direct", fcntl(both[each], F_SETFL, O_DIRECT));
        shows(both[each]);
        MUST(fcntl(both[each], F_SETFL, 0));
    }
    char byte;
    say("received", recv(ends[1], &byte, 1, 0));
}

/* A thread with its own descriptor table closes all. */
static void *parted(void *way)
{
    if (way == NULL) {
        MUST(unshare(CLONE_FILES));
        closefrom(3);
    } else {
        MUST(close_range(3, ~0u, CLOSE_RANGE_UNSHARE));
    }
    return NULL;
}

static void parts(int listens)
{
    int ends[2][2];
    pthread_t thread;
    pair(listens, ends[0]);
    pair(listens, ends[1]);
    for (int way = 0; way < 2; way++) {
        say("began", pthread_create(&thread, NULL, parted, way ? &thread : NULL));
        say("over", pthread_join(thread, NULL));
        exchange(ends[way]);
    }
}

int main(void)
{
    int numbers[] = {-1, -2, -2147483647 - 1, 2147483647};
    int listens = listener(), ends[2], other[2], epoll = MUST(epoll_create1(0));
    struct epoll_event event = {EPOLLIN, {.fd = 0}};
    pair(listens, ends);
    pair(listens, other);
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[1], &event));
    for (int each = 0; each < 4; each++)
        with_number(listens, ends[0], epoll, numbers[each]);
    not_known(ends[0]);
    messages(ends);
    refused(listens, ends, other);
    /* All of them are unchanged. */
    MUST(send(ends[0], "x", 1, MSG_NOSIGNAL));
    say("told", epoll_wait(epoll, &event, 1, -1));
    MUST(recv(ends[1], &numbers, 1, 0));
    exchange(ends);
    exchange(other);
    pair(listens, ends);
    exchange(ends);
    parts(listens);
    say("over", 0);
    return 0;
}
