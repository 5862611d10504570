/* Attributes of a connection and of its descriptor do not pass to later ones. Also
   the results of calls with unusual addresses, options, interfaces and urgent data. */

#include "ends.h"
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

enum { RCVTIMEO_NEW = 66, SNDTIMEO_NEW = 67, F_SETSIG_ = 10, F_GETSIG_ = 11 };

/* The result of a call, or its negative error. */
#define SAID(call)                                                                                           \
    ({                                                                                                       \
        errno = 0;                                                                                           \
        long said_ = (long)(call);                                                                           \
        say(#call, said_ < 0 ? -errno : said_);                                                              \
        said_;                                                                                               \
    })

static int option(int end, int level, int name)
{
    int value = -99;
    socklen_t length = sizeof value;
    return getsockopt(end, level, name, &value, &length) ? -errno : value;
}

static void set(int end, int level, int name, int value)
{
    setsockopt(end, level, name, &value, sizeof value);
}

static void both_ended(int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

static int has_marks(int end)
{
    struct stat status;
    MUST(fstat(end, &status));
    int flags = fcntl(end, F_GETFL) & (O_APPEND | O_NOATIME);
    return flags || fcntl(end, F_GETOWN) || fcntl(end, F_GETSIG_) || status.st_uid == 5 || (status.st_mode & 0777) == 0751;
}

/* Attributes of closed connections do not pass to later connections. */
static void later(void)
{
    static const int names[] = {SO_TIMESTAMP, 35 /* SO_TIMESTAMPNS */, SO_TIMESTAMPING, 40 /* SO_RXQ_OVFL */,
                                SO_PEEK_OFF, SO_LOCK_FILTER, 45 /* SO_SELECT_ERR_QUEUE */, 63, 64, 65};
    int listens = listener(), ends[2], others = 0;
    for (unsigned name = 0; name < sizeof names / sizeof *names; name++) {
        int before[2];
        pair(listens, ends);
        before[0] = option(ends[0], SOL_SOCKET, names[name]);
        int value = names[name] == SO_TIMESTAMPING || names[name] == 65 ? 8 /* of what is received */ : 1;
        set(ends[0], SOL_SOCKET, names[name], value);
        set(ends[1], SOL_SOCKET, names[name], value);
        printf("%d is %d, and then %d and %d\n", names[name], before[0], option(ends[0], SOL_SOCKET, names[name]),
               option(ends[1], SOL_SOCKET, names[name]));
        both_ended(ends);
        for (int turn = 0; turn < 6; turn++) {
            pair(listens, ends);
            others += option(ends[0], SOL_SOCKET, names[name]) != before[0];
            others += option(ends[1], SOL_SOCKET, names[name]) != before[0];
            both_ended(ends);
        }
    }
    say("options of others", others);
    others = 0;
    for (int what = 0; what < 5; what++) {
        pair(listens, ends);
        for (int end = 0; end < 2; end++) {
            if (what == 0)
                fcntl(ends[end], F_SETOWN, getpid());
            if (what == 1)
                fcntl(ends[end], F_SETSIG_, SIGUSR1);
            if (what == 2)
                fcntl(ends[end], F_SETFL, O_APPEND | O_NOATIME);
            if (what == 3)
                say("owned", fchown(ends[end], 5, 5));
            if (what == 4)
                say("locked", flock(ends[end], LOCK_EX | LOCK_NB));
        }
        both_ended(ends);
        for (int turn = 0; turn < 6; turn++) {
            pair(listens, ends);
            others += has_marks(ends[0]) + has_marks(ends[1]);
            both_ended(ends);
        }
    }
    say("marks of others", others);
}

static void timeouts(void)
{
    int listens = listener(), ends[2];
    struct timeval span = {0, 70000};
    long spans[2] = {0, 50000};
    socklen_t length = sizeof spans;
    char byte;
    pair(listens, ends);
    SAID(setsockopt(ends[0], SOL_SOCKET, RCVTIMEO_NEW, spans, sizeof spans));
    alarm(5);
    SAID(recv(ends[0], &byte, 1, 0));
    alarm(0);
    SAID(getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, spans, &length));
    printf("%ld s %ld us\n", spans[0], spans[1]);
    SAID(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &span, sizeof span));
    SAID(getsockopt(ends[0], SOL_SOCKET, SNDTIMEO_NEW, spans, &length));
    printf("%ld s %ld us\n", spans[0], spans[1]);
    SAID(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, spans, 8));
    SAID(setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, spans, -1));
    /* A listener's later options apply to its later connections. */
    span.tv_usec = 60000;
    SAID(setsockopt(listens, SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    pair(listens, ends);
    SAID(getsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, spans, &length));
    printf("%ld s %ld us\n", spans[0], spans[1]);
    alarm(5);
    SAID(recv(ends[1], &byte, 1, 0));
    alarm(0);
}

static void devices(void)
{
    int ends[2], listens = listener();
    ends[0] = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SAID(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "", 0));
    SAID(setsockopt(ends[0], SOL_SOCKET, SO_BINDTODEVICE, "\0\0\0", 4));
    MUST(connect(ends[0], (struct sockaddr *)&here, sizeof here));
    ends[1] = MUST(accept(listens, NULL, NULL));
    exchange(ends);
    for (int what = 0; what < 3; what++) {
        struct ifreq request = {.ifr_name = "lo"};
        struct ifconf all = {0};
        pair(listens, ends);
        int of = what == 0 ? ends[0] : what == 1 ? ends[1] : listens;
        SAID(ioctl(of, SIOCGIFADDR, &request));
        say("address", ((struct sockaddr_in *)&request.ifr_addr)->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        SAID(ioctl(of, SIOCGIFNETMASK, &request));
        SAID(ioctl(of, SIOCGIFFLAGS, &request));
        say("flags", request.ifr_flags & (IFF_UP | IFF_LOOPBACK));
        SAID(ioctl(of, SIOCGIFINDEX, &request));
        say("index", request.ifr_ifindex);
        SAID(ioctl(of, SIOCGIFMTU, &request));
        SAID(ioctl(of, SIOCGIFCONF, &all));
        say("some", all.ifc_len > 0);
        SAID(ioctl(of, SIOCGIFADDR, NULL));
        strcpy(request.ifr_name, "none");
        SAID(ioctl(of, SIOCGIFADDR, &request));
        SAID(ioctl(of, 0x89e0, &request));
        both_ended(ends);
    }
}

static void addresses(void)
{
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}, mapped = there;
    struct sockaddr_in nowhere = {.sin_family = AF_INET, .sin_addr = {htonl(0xc0000201)}};
    socklen_t length = sizeof there;
    int ends[2], listens = listener(), of_ipv6 = MUST(socket(AF_INET6, SOCK_STREAM, 0)), on = 1;
    MUST(bind(of_ipv6, (struct sockaddr *)&there, length));
    MUST(listen(of_ipv6, 5));
    MUST(getsockname(of_ipv6, (struct sockaddr *)&there, &length));
    int four = MUST(socket(AF_INET, SOCK_STREAM, 0)), six = MUST(socket(AF_INET6, SOCK_STREAM, 0));
    SAID(connect(four, (struct sockaddr *)&there, sizeof there));
    SAID(connect(four, (struct sockaddr *)&there, sizeof here));
    SAID(connect(four, (struct sockaddr *)&here, 8));
    SAID(connect(six, (struct sockaddr *)&here, sizeof here));
    SAID(connect(six, (struct sockaddr *)&here, sizeof there));
    SAID(connect(six, NULL, 0));
    SAID(connect(six, NULL, sizeof there));
    MUST(setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
    mapped.sin6_port = here.sin_port;
    mapped.sin6_addr.s6_addr32[2] = htonl(0xffff);
    mapped.sin6_addr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
    mapped.sin6_addr.s6_addr32[0] = mapped.sin6_addr.s6_addr32[1] = 0;
    SAID(connect(six, (struct sockaddr *)&mapped, sizeof mapped));
    /* Without its scope. */
    SAID(connect(six, (struct sockaddr *)&there, 24));
    SAID(connect(four, (struct sockaddr *)&here, sizeof here));
    int connected[] = {four, six};
    for (int end = 0; end < 2; end++) {
        int of = connected[end];
        length = 0;
        SAID(bind(of, NULL, 0));
        SAID(bind(of, NULL, 16));
        SAID(bind(of, (struct sockaddr *)&here, 8));
        SAID(bind(of, (struct sockaddr *)&here, sizeof here));
        SAID(bind(of, (struct sockaddr *)&there, sizeof there));
        SAID(bind(of, (struct sockaddr *)&nowhere, sizeof nowhere));
        SAID(connect(of, NULL, 0));
        SAID(connect(of, (struct sockaddr *)&here, sizeof here));
        SAID(getsockname(of, NULL, &length));
        say("length", length);
        length = 16;
        SAID(getpeername(of, NULL, &length));
        struct sockaddr_storage peer = {0};
        length = sizeof peer;
        SAID(getsockopt(of, SOL_SOCKET, SO_PEERNAME, &peer, &length));
        length = 16;
        SAID(getsockopt(of, SOL_SOCKET, SO_PEERNAME, &peer, &length));
        say("peer's family", peer.ss_family);
        say("form", option(of, IPPROTO_IPV6, IPV6_ADDRFORM));
        SAID(send(of, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL));
        SAID(sendto(of, "x", 1, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&here, sizeof here));
    }
    pair(listens, ends);
    here.sin_port = 0;
    SAID(connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&here, sizeof here));
}

/* A refused socket is like a new one. */
static void refused(void)
{
    struct sockaddr_in none, there;
    socklen_t length = sizeof none;
    char byte;
    int on = 1, listens = listener(), holds = MUST(socket(AF_INET, SOCK_STREAM, 0));
    there = none = here;
    none.sin_port = 0;
    MUST(bind(holds, (struct sockaddr *)&none, sizeof none));
    MUST(getsockname(holds, (struct sockaddr *)&none, &length));
    for (int later = 0; later < 2; later++) {
        int end = MUST(socket(AF_INET, SOCK_STREAM | (later ? SOCK_NONBLOCK : 0), 0));
        struct pollfd state = {end, POLLIN | POLLOUT | POLLRDHUP, 0};
        SAID(connect(end, (struct sockaddr *)&none, sizeof none));
        if (later) {
            poll(&state, 1, 1000);
            say("state", state.revents);
            SAID(connect(end, (struct sockaddr *)&there, sizeof there));
        }
        poll(&state, 1, 0);
        say("state", state.revents);
        SAID(recv(end, &byte, 1, MSG_DONTWAIT));
        SAID(send(end, "x", 1, MSG_NOSIGNAL));
        SAID(getpeername(end, (struct sockaddr *)&here, &length));
        say("error", option(end, SOL_SOCKET, SO_ERROR));
        MUST(getsockname(end, (struct sockaddr *)&here, &length));
        say("port", here.sin_port != 0);
        MUST(ioctl(end, FIONBIO, &(int){0}));
        SAID(connect(end, (struct sockaddr *)&there, sizeof there));
        say("accepted", MUST(accept(listens, NULL, NULL)) >= 0);
    }
    int again = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    SAID(connect(again, (struct sockaddr *)&none, sizeof none));
    there.sin_port = 0;
    SAID(bind(again, (struct sockaddr *)&there, sizeof there));
    SAID(listen(again, 5));
}

static void *waits(void *end)
{
    char byte;
    errno = 0;
    return (void *)(long)(recv((int)(long)end, &byte, 1, 0) < 0 ? -errno : 0);
}

static void *polls(void *end)
{
    struct pollfd state = {(int)(long)end, POLLIN, 0};
    return (void *)(long)poll(&state, 1, 20000);
}

/* A thread waits for a connection that another thread dissolves. */
static void dissolved(void)
{
    int listens = listener(), ends[2];
    void *(*way[])(void *) = {waits, polls};
    for (int which = 0; which < 2; which++) {
        struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
        pthread_t thread;
        void *said;
        pair(listens, ends);
        MUST(pthread_create(&thread, NULL, way[which], (void *)(long)ends[1]));
        usleep(100000);
        SAID(connect(ends[1], &nowhere, sizeof nowhere));
        pthread_join(thread, &said);
        say("told", (long)said);
        say("peer", recv(ends[0], &said, 1, 0) < 0 ? errno : 0);
    }
}

static void urgent(void)
{
    int listens = listener(), ends[2], mark;
    char one[1] = "", rest[8] = "";
    struct iovec parts[] = {{one, 1}, {rest, 8}};
    for (int way = 0; way < 4; way++) {
        struct pollfd state;
        pair(listens, ends);
        state = (struct pollfd){ends[1], POLLIN | POLLPRI | POLLRDBAND, 0};
        MUST(send(ends[0], "ab", 2, MSG_OOB));
        poll(&state, 1, 5000);
        usleep(20000);
        say("told", state.revents & ~POLLIN);
        state.events = POLLRDBAND;
        say("of a band", poll(&state, 1, 10));
        if (way > 0)
            MUST(send(ends[0], "cd", 2, 0));
        usleep(20000);
        if (way < 2)
            SAID(readv(ends[1], parts, 2));
        else
            SAID(recv(ends[1], rest, 8, MSG_DONTWAIT));
        MUST(ioctl(ends[1], SIOCATMARK, &mark));
        say("at the mark", mark);
        if (way == 3)
            SAID(recv(ends[1], rest, 1, MSG_OOB));
        SAID(recv(ends[1], rest, 8, MSG_DONTWAIT));
        MUST(ioctl(ends[1], SIOCATMARK, &mark));
        say("at the mark", mark);
        SAID(recv(ends[1], rest, 1, MSG_OOB));
        both_ended(ends);
    }
}

static void peeked(void)
{
    int listens = listener(), ends[2];
    char bytes[8] = "";
    pair(listens, ends);
    say("at first", option(ends[1], SOL_SOCKET, SO_PEEK_OFF));
    set(ends[1], SOL_SOCKET, SO_PEEK_OFF, 1);
    MUST(send(ends[0], "abcdef", 6, 0));
    usleep(20000);
    for (int turn = 0; turn < 4; turn++) {
        memset(bytes, 0, sizeof bytes);
        SAID(recv(ends[1], bytes, 2, MSG_PEEK | MSG_DONTWAIT));
        printf("%s, at %d\n", bytes, option(ends[1], SOL_SOCKET, SO_PEEK_OFF));
    }
    memset(bytes, 0, sizeof bytes);
    SAID(recv(ends[1], bytes, 2, 0));
    printf("%s, at %d\n", bytes, option(ends[1], SOL_SOCKET, SO_PEEK_OFF));
    struct timeval span = {0, 50000};
    MUST(setsockopt(ends[1], SOL_SOCKET, SO_RCVTIMEO, &span, sizeof span));
    SAID(recv(ends[1], bytes, 2, MSG_PEEK));
    shutdown(ends[0], SHUT_WR);
    usleep(20000);
    SAID(recv(ends[1], bytes, 2, MSG_PEEK));
    set(ends[1], SOL_SOCKET, SO_PEEK_OFF, -1);
    SAID(recv(ends[1], bytes, 8, MSG_PEEK));
}

/* Each registration gets the names of events that it asks for. */
static void events(void)
{
    static const unsigned asked[] = {EPOLLIN,    EPOLLRDNORM,    EPOLLIN | EPOLLRDNORM, EPOLLOUT, EPOLLWRNORM,
                                     EPOLLRDBAND, EPOLLOUT | EPOLLWRNORM | EPOLLET};
    enum { COUNT = sizeof asked / sizeof *asked };
    int listens = listener(), instance = MUST(epoll_create1(0)), outer = MUST(epoll_create1(0));
    struct epoll_event event = {.events = EPOLLIN}, told[COUNT];
    unsigned bits[COUNT] = {0};
    for (unsigned which = 0; which < COUNT; which++) {
        int ends[2];
        pair(listens, ends);
        event = (struct epoll_event){.events = asked[which], .data.u32 = which};
        MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ends[1], &event));
        MUST(send(ends[0], "x", 1, 0));
    }
    usleep(50000);
    for (int count = MUST(epoll_wait(instance, told, COUNT, 1000)); count > 0; count--)
        bits[told[count - 1].data.u32] = told[count - 1].events;
    for (unsigned which = 0; which < COUNT; which++)
        printf("%x: %x\n", asked[which], bits[which]);
    /* No client connects to the listener beside the connection. */
    int ends[2];
    pair(listens, ends);
    event.events = EPOLLIN;
    MUST(epoll_ctl(outer, EPOLL_CTL_ADD, ends[1], &event));
    MUST(epoll_ctl(outer, EPOLL_CTL_ADD, listens, &event));
    say("nothing", poll(&(struct pollfd){outer, POLLIN, 0}, 1, 0));
}

/* A node's name is not a number, and the result has the name that was asked for. */
static void names(const char *name)
{
    struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_family = AF_INET}, *found = NULL;
    struct addrinfo named = {.ai_flags = AI_CANONNAME, .ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    say("as a number", getaddrinfo(name, "80", &numeric, &found) == EAI_NONAME);
    say("as a name", getaddrinfo(name, "80", &named, &found));
    say("the same", found->ai_canonname && !strcmp(found->ai_canonname, name));
    freeaddrinfo(found);
    named.ai_flags = 0;
    say("without", getaddrinfo(name, "80", &named, &found));
    say("none", !found->ai_canonname);
    freeaddrinfo(found);
}

static void unmoved(int signal)
{
    (void)signal;
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    struct sigaction action = {.sa_handler = unmoved};
    MUST(sigaction(SIGALRM, &action, NULL));
    if (!strcmp(what, "later"))
        later();
    else if (!strcmp(what, "timeouts"))
        timeouts();
    else if (!strcmp(what, "devices"))
        devices();
    else if (!strcmp(what, "addresses"))
        addresses();
    else if (!strcmp(what, "refused"))
        refused();
    else if (!strcmp(what, "dissolved"))
        dissolved();
    else if (!strcmp(what, "urgent"))
        urgent();
    else if (!strcmp(what, "peeked"))
        peeked();
    else if (!strcmp(what, "events"))
        events();
    else if (!strcmp(what, "names"))
        names(words[2]);
    else
        return 2;
    say("over", 0);
    return 0;
}
