/* A client that says to libc what it waits for, and waits by system calls of its own. It asks a
 * server thrice, and then another one who is not there. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call.h"

static int set;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(int operation, int fd, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.fd = fd };
    if (epoll_ctl(set, operation, fd, &event))
        die("epoll_ctl");
}

static void await(int fd, uint32_t events)
{
    struct epoll_event event;
    long count;
    while ((count = call(SYS_epoll_pwait, set, (long)&event, 1, 20000)) != 1)
        if (count != -EINTR) {
            printf("nothing came for %x: %ld\n", events, count);
            exit(1);
        }
    if (event.data.fd != fd || !(event.events & (events | EPOLLERR | EPOLLHUP)))
        printf("told of %d: %x\n", event.data.fd, event.events);
}

/* Whether the connection came about. */
static int begin(const char *address, const char *port, int *fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    inet_pton(AF_INET, address, &at.sin_addr);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (connect(*fd, (struct sockaddr *)&at, sizeof at) == 0 || errno != EINPROGRESS)
        die("connect");
    watch(EPOLL_CTL_ADD, *fd, EPOLLOUT);
    await(*fd, EPOLLOUT);
    getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error)
        printf("%s\n", strerror(error));
    return error == 0;
}

static void ask(const char *address, const char *port, int size)
{
    static char bytes[65536];
    int fd;
    long total = 0, sum = 0;
    if (!begin(address, port, &fd))
        exit(1);
    int length = sprintf(bytes, "%d\n", size);
    if (send(fd, bytes, length, 0) != length)
        die("send");
    watch(EPOLL_CTL_MOD, fd, EPOLLIN);
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EAGAIN) {
            await(fd, EPOLLIN);
            continue;
        }
        if (got < 0)
            die("recv");
        if (got == 0)
            break;
        for (ssize_t at = 0; at < got; at++)
            sum += (total + at) % 251 * (unsigned char)bytes[at];
        total += got;
    }
    printf("%ld bytes, %ld\n", total, sum);
    close(fd);
}

int main(int count, char **words)
{
    int fd;
    (void)count;
    set = epoll_create1(0);
    ask(words[1], words[2], 6);
    ask(words[1], words[2], 1000000);
    ask(words[1], words[2], 0);
    if (begin(words[1], words[3], &fd))
        printf("somebody is there\n");
    return 0;
}
