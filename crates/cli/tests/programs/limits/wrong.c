/* Calls with invalid memory, and messages with connections in them. */

#include "ends.h"
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

static int listens;

static void fails(const char *what, long result)
{
    say(what, result < 0 ? -errno : result);
}

/* Every call on a connection that moves bytes, with an invalid address for the bytes. */
static void buffers(int end, void *wrong)
{
    struct iovec part = {wrong, 5};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    fails("send", send(end, wrong, 5, MSG_NOSIGNAL));
    fails("write", write(end, wrong, 5));
    fails("writev", writev(end, &part, 1));
    fails("sendto", sendto(end, wrong, 5, MSG_NOSIGNAL, NULL, 0));
    fails("sendmsg", sendmsg(end, &message, MSG_NOSIGNAL));
    fails("recv", recv(end, wrong, 5, 0));
    fails("read", read(end, wrong, 5));
    fails("readv", readv(end, &part, 1));
    fails("recvfrom", recvfrom(end, wrong, 5, 0, NULL, NULL));
    fails("recvmsg", recvmsg(end, &message, 0));
}

/* Every call on a connection, with an invalid address for any other argument. */
static void calls(int end, void *wrong)
{
    struct iovec good = {"hello", 5};
    struct epoll_event event = {EPOLLIN, {.u64 = 1}};
    int value = 1, epoll = MUST(epoll_create1(0));
    socklen_t length = sizeof value;
    struct pollfd polled = {end, POLLIN, 0};
    struct timeval none = {0, 0};
    fd_set set;

    fails("writev", writev(end, wrong, 1));
    fails("sendmsg", sendmsg(end, wrong, MSG_NOSIGNAL));
    fails("sendmmsg", sendmmsg(end, wrong, 1, MSG_NOSIGNAL));
    fails("readv", readv(end, wrong, 1));
    fails("recvmsg", recvmsg(end, wrong, 0));
    fails("recvmmsg", recvmmsg(end, wrong, 1, 0, NULL));
    fails("getsockopt", getsockopt(end, SOL_SOCKET, SO_ERROR, wrong, &length));
    fails("getsockopt", getsockopt(end, SOL_SOCKET, SO_ERROR, &value, wrong));
    fails("setsockopt", setsockopt(end, SOL_SOCKET, SO_KEEPALIVE, wrong, sizeof value));
    length = sizeof here;
    fails("getsockname", getsockname(end, wrong, &length));
    fails("getsockname", getsockname(end, (struct sockaddr *)&here, wrong));
    fails("getpeername", getpeername(end, wrong, &length));
    fails("ioctl", ioctl(end, FIONREAD, wrong));
    fails("ioctl", ioctl(end, FIONBIO, wrong));
    fails("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, end, wrong));
    fails("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, end, &event));
    fails("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_MOD, end, wrong));
    fails("epoll_wait", epoll_wait(epoll, wrong, 1, 0));
    fails("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_MOD, end, &event));
    fails("epoll_wait", epoll_wait(epoll, wrong, 1, 0));
    fails("epoll_pwait", epoll_pwait(epoll, &event, 1, 0, wrong));
    fails("poll", poll(wrong, 1, 0));
    fails("ppoll", ppoll(&polled, 1, NULL, wrong));
    FD_ZERO(&set);
    FD_SET(end, &set);
    fails("select", select(end + 1, wrong, NULL, NULL, &none));
    fails("writes", writev(end, &good, 1));
    close(epoll);
}

static void opening(void *wrong)
{
    int made = MUST(socket(AF_INET, SOCK_STREAM, 0));
    fails("bind", bind(made, wrong, sizeof here));
    fails("connect", connect(made, wrong, sizeof here));
    int last = connected();
    fails("accept", accept(listens, wrong, wrong));
    close(last);
    close(made);
}

static void try_all(void *wrong, int buffers_too, int offset_too)
{
    int ends[2], file = MUST(open("/bin/sh", O_RDONLY));
    pair(listens, ends);
    MUST(send(ends[0], "hello hello", 11, MSG_NOSIGNAL));
    struct pollfd polled = {ends[1], POLLIN, 0};
    MUST(poll(&polled, 1, -1));
    if (buffers_too)
        buffers(ends[1], wrong);
    if (offset_too)
        fails("sendfile", sendfile(ends[1], file, wrong, 5));
    calls(ends[1], wrong);
    char bytes[12] = "";
    say("still there", recv(ends[1], bytes, 11, MSG_WAITALL));
    say("came", recv(ends[0], bytes, 5, MSG_WAITALL));
    say("the same", !strcmp(bytes, "hello hello"));
    opening(wrong);
    close(ends[0]);
    close(ends[1]);
    close(file);
}

static void addresses(void)
{
    void *wrong[] = {(void *)-1L, (void *)8, (void *)(1L << 63)};
    for (int each = 0; each < 3; each++)
        try_all(wrong[each], 1, 1);
}

/* Memory that a program could have. The sent and received bytes must be valid. */
static void mapped(void)
{
    long page = MUST(sysconf(_SC_PAGESIZE));
    char *pages = (char *)MUST(mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    MUST(mprotect(pages + page, page, PROT_READ | PROT_WRITE));
    MUST(mprotect(pages + 2 * page, page, PROT_NONE));
    say("constant", 0);
    try_all(pages, 0, 0);
    say("nobody's", 0);
    try_all(pages + 2 * page, 0, 1);
    say("at the end", 0);
    try_all(pages + 2 * page - 2, 0, 1);
}

enum { MESSAGES = 2 };

/* A child answers on connections that arrive in several messages of one call. */
static void passed(void)
{
    int pairs[MESSAGES][2], over[2], status;
    struct mmsghdr messages[MESSAGES];
    struct iovec parts[MESSAGES];
    char rooms[MESSAGES][CMSG_SPACE(sizeof(int))] = {0}, bytes[MESSAGES][1] = {"0", "1"};
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, over));
    memset(messages, 0, sizeof messages);
    for (int each = 0; each < MESSAGES; each++) {
        parts[each] = (struct iovec){bytes[each], 1};
        messages[each].msg_hdr = (struct msghdr){.msg_iov = &parts[each],
                                                 .msg_iovlen = 1,
                                                 .msg_control = rooms[each],
                                                 .msg_controllen = sizeof rooms[each]};
    }
    pid_t child = MUST(fork());
    if (child == 0) {
        close(over[0]);
        MUST(recvmmsg(over[1], messages, MESSAGES, 0, NULL));
        for (int each = 0; each < MESSAGES; each++) {
            int end;
            memcpy(&end, CMSG_DATA(CMSG_FIRSTHDR(&messages[each].msg_hdr)), sizeof end);
            send_all(end, 100000);
            close(end);
        }
        _exit(0);
    }
    close(over[1]);
    for (int each = 0; each < MESSAGES; each++) {
        pair(listens, pairs[each]);
        struct cmsghdr *header = CMSG_FIRSTHDR(&messages[each].msg_hdr);
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &pairs[each][1], sizeof(int));
    }
    say("messages", MUST(sendmmsg(over[0], messages, MESSAGES, 0)));
    for (int each = 0; each < MESSAGES; each++) {
        close(pairs[each][1]);
        say("received", receive_all(pairs[each][0]));
    }
    MUST(waitpid(child, &status, 0));
    say("child", status);
}

int main(int count, char **words)
{
    listens = listener();
    if (count > 1 && !strcmp(words[1], "passed"))
        passed();
    else if (count > 1 && !strcmp(words[1], "mapped"))
        mapped();
    else
        addresses();
    say("over", 0);
    return 0;
}
