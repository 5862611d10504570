/* An echo server that first names its client. It waits by its own system
 * calls: for connections, too ("polled"), or for bytes only ("accepted").
 * It may register what it waits for with libc ("registered"). */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By an instruction outside of any program or library, as code
 * generated at run time has. */
static long (*call)(long number, long a, long b, long c, long d);

static void make_call(void)
{
#if defined(__x86_64__)
    static const unsigned char code[] = {
        0x48, 0x89, 0xf8, /* mov rax, rdi */
        0x48, 0x89, 0xf7, /* mov rdi, rsi */
        0x48, 0x89, 0xd6, /* mov rsi, rdx */
        0x48, 0x89, 0xca, /* mov rdx, rcx */
        0x4d, 0x89, 0xc2, /* mov r10, r8 */
        0x4d, 0x31, 0xc0, /* xor r8, r8 */
        0x0f, 0x05, /* syscall */
        0xc3, /* ret */
    };
#else
    static const unsigned code[] = {
        0xaa0003e8, /* mov x8, x0 */
        0xaa0103e0, /* mov x0, x1 */
        0xaa0203e1, /* mov x1, x2 */
        0xaa0303e2, /* mov x2, x3 */
        0xaa0403e3, /* mov x3, x4 */
        0xd2800004, /* mov x4, 0 */
        0xd4000001, /* svc 0 */
        0xd65f03c0, /* ret */
    };
#endif
    void *made = mmap(NULL, sizeof code, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    mprotect(made, sizeof code, PROT_READ | PROT_EXEC);
    __builtin___clear_cache(made, (char *)made + sizeof code);
    call = (long (*)(long, long, long, long, long))made;
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

/* Waits until the descriptor is readable. */
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
    make_call();
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
