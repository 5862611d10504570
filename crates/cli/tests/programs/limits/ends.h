/* Both ends of a program's connections with itself, and checks of their bytes. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

static void say(const char *what, long value)
{
    printf("%s %ld\n", what, value);
    fflush(stdout);
}

#define MUST(call)                                                                                           \
    ({                                                                                                       \
        long must_ = (long)(call);                                                                           \
        if (must_ < 0) {                                                                                     \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, strerror(errno));                           \
            fflush(stdout);                                                                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
        must_;                                                                                               \
    })

static struct sockaddr_in here;

/* Makes a listener, whose address is `here` from now on. */
static int UNUSED listener(void)
{
    socklen_t length = sizeof here;
    int made = MUST(socket(AF_INET, SOCK_STREAM, 0));
    here = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    MUST(bind(made, (struct sockaddr *)&here, sizeof here));
    MUST(getsockname(made, (struct sockaddr *)&here, &length));
    MUST(listen(made, 64));
    return made;
}

static int UNUSED connected(void)
{
    int made = MUST(socket(AF_INET, SOCK_STREAM, 0));
    MUST(connect(made, (struct sockaddr *)&here, sizeof here));
    return made;
}

/* Both ends of a connection. */
static void UNUSED pair(int listener, int ends[2])
{
    ends[0] = connected();
    ends[1] = MUST(accept(listener, NULL, NULL));
}

/* A byte that reveals missing, repeated or misplaced pieces. */
static unsigned char at(size_t place)
{
    unsigned mixed = (unsigned)place * 2654435761u;
    return mixed >> 24 ^ mixed >> 9;
}

enum { PIECE = 16384 };

/* Sends `len` bytes, however often a signal arrives. */
static size_t UNUSED send_all(int end, size_t length)
{
    unsigned char *bytes = malloc(PIECE);
    size_t sent = 0;
    while (sent < length) {
        size_t now = length - sent < PIECE ? length - sent : PIECE;
        for (size_t place = 0; place < now; place++)
            bytes[place] = at(sent + place);
        ssize_t done = send(end, bytes, now, MSG_NOSIGNAL);
        if (done < 0 && errno != EINTR && errno != EAGAIN)
            break;
        sent += done > 0 ? done : 0;
    }
    free(bytes);
    return sent;
}

/* How many of the received bytes are right; `from` is the position of the first. */
static size_t UNUSED right(const unsigned char *bytes, size_t from, size_t length)
{
    size_t place = 0;
    while (place < length && bytes[place] == at(from + place))
        place++;
    return place;
}

/* Receives up to the end. -1: a byte is wrong. */
static long UNUSED receive_all(int end)
{
    unsigned char *bytes = malloc(PIECE);
    long got = 0, wrong = 0;
    while (!wrong) {
        ssize_t now = recv(end, bytes, PIECE, 0);
        if (now == 0)
            break;
        if (now < 0 && errno != EINTR && errno != EAGAIN)
            wrong = -errno;
        if (now > 0 && right(bytes, got, now) != (size_t)now)
            wrong = -1;
        got += now > 0 ? now : 0;
    }
    free(bytes);
    return wrong ? wrong : got;
}

/* Whether the other end receives the bytes of one end, and then the end of the stream. */
static void UNUSED exchange(int ends[2])
{
    char bytes[8] = "";
    say("sent", MUST(send(ends[0], "hello", 5, MSG_NOSIGNAL)));
    say("received", MUST(recv(ends[1], bytes, 5, MSG_WAITALL)));
    say("back", MUST(send(ends[1], "hello", 5, MSG_NOSIGNAL)));
    say("received", MUST(recv(ends[0], bytes, 5, MSG_WAITALL)));
    say("the same", !strcmp(bytes, "hello"));
    close(ends[0]);
    say("end", recv(ends[1], bytes, 1, 0));
    close(ends[1]);
}
