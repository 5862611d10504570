/* A server that echoes, and says first who its client is. What it waits for, it waits for by
 * system calls of its own: for connections, too ("polled"), or only for bytes ("accepted"). What
 * that is, it may say to libc ("registered"). */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(long number, long a, long b, long c, long d)
{
    long result;
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    result = x0;
#endif
    return result;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int set, registered;

static void watch(int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    if (registered) {
        if (fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) || epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
            die("epoll_ctl");
        return;
    }
    if (call(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK, 0) < 0)
        die("fcntl");
    if (call(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, (long)&event) < 0)
        die("epoll_ctl");
}

/* Until the descriptor is readable. */
static int next(void)
{
    struct epoll_event event;
    long count;
    while ((count = call(SYS_epoll_pwait, set, (long)&event, 1, -1)) != 1)
        if (count != -EINTR)
            die("epoll_pwait");
    return event.data.fd;
}

static void echo(int fd)
{
    static char bytes[65536];
    for (;;) {
        ssize_t length = read(fd, bytes, sizeof bytes);
        if (length < 0 && errno == EAGAIN) {
            next();
            continue;
        }
        if (length <= 0)
            break;
        for (ssize_t sent = 0, more; sent < length; sent += more)
            if ((more = write(fd, bytes + sent, length - sent)) < 0) {
                if (errno != EAGAIN)
                    die("write");
                more = 0;
            }
    }
    close(fd);
}

int main(int count, char **words)
{
    (void)count;
    registered = strcmp(words[1], "registered") == 0;
    int polled = registered || strcmp(words[1], "polled") == 0;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(words[2])) };
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 10))
        die("listen");
    set = registered ? epoll_create1(0) : call(SYS_epoll_create1, 0, 0, 0, 0);
    if (polled)
        watch(listener);
    for (;;) {
        if (polled)
            next();
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        int fd = accept(listener, (struct sockaddr *)&from, &length);
        if (fd < 0)
            die("accept");
        dprintf(fd, "%s %d\n", inet_ntoa(from.sin_addr), ntohs(from.sin_port));
        watch(fd);
        echo(fd);
    }
}
