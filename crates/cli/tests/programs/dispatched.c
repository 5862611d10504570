/* A program that makes its own system calls, except for the first socket, which
 * is libc's. It is an echo server ("serve", for a number of clients), its
 * client ("ask"), or tests other risks of intercepted calls ("rest"). If LARGE
 * is defined, threads begin before the library has searched the code ("late"). */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define call(number, ...) made(number, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define made(number, a, b, c, d, e, f, ...) \
    call_by((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

static inline __attribute__((always_inline)) long call_by(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(number)
                     : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return number;
}

static void say(const char *what, long is)
{
    printf("%s %ld\n", what, is);
    fflush(stdout);
}

static void need(long result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-result));
        exit(1);
    }
}

static struct sockaddr_in place(const char *address, const char *port)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };
    inet_pton(AF_INET, address, &at.sin_addr);
    return at;
}

static int stream(int flags)
{
    long fd = call(SYS_socket, AF_INET, SOCK_STREAM | flags, 0);
    need(fd, "socket");
    return fd;
}

static long set;

static void watch(int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    need(call(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static void serve(const char *port, int clients)
{
    int one = 1, listener = stream(SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct sockaddr_in at = place("0.0.0.0", port);
    need(call(SYS_setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), "setsockopt");
    need(call(SYS_bind, listener, &at, sizeof at), "bind");
    need(call(SYS_listen, listener, 10), "listen");
    watch(listener);
    while (clients > 0) {
        static char bytes[65536];
        struct epoll_event events[8];
        long count = call(SYS_epoll_pwait, set, events, 8, -1, 0, 8);
        need(count, "epoll_pwait");
        for (int at = 0; at < count; at++) {
            int fd = events[at].data.fd;
            if (fd == listener) {
                long got = call(SYS_accept4, listener, 0, 0, SOCK_NONBLOCK);
                need(got, "accept4");
                need(call(SYS_setsockopt, got, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), "nodelay");
                watch(got);
                continue;
            }
            long length = call(SYS_read, fd, bytes, sizeof bytes);
            for (long sent = 0, more; sent < length; sent += more) {
                struct pollfd writable = { .fd = fd, .events = POLLOUT };
                need(call(SYS_poll, &writable, 1, -1), "poll");
                more = call(SYS_sendto, fd, bytes + sent, length - sent, MSG_NOSIGNAL, 0, 0);
                if (more == -EAGAIN)
                    more = 0;
                need(more, "sendto");
            }
            if (length == 0) {
                call(SYS_close, fd);
                clients--;
            }
        }
    }
}

/* Whether all bytes come back. */
static long ask(struct sockaddr_in *to)
{
    static char sent[300000], got[sizeof sent];
    int fd = stream(SOCK_CLOEXEC);
    need(call(SYS_connect, fd, to, sizeof *to), "connect");
    need(call(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK), "fcntl");
    for (size_t at = 0; at < sizeof sent; at++)
        sent[at] = at * 7 + at / 256;
    size_t out = 0, in = 0;
    while (in < sizeof got) {
        struct pollfd ready = { .fd = fd, .events = out < sizeof sent ? POLLIN | POLLOUT : POLLIN };
        need(call(SYS_ppoll, &ready, 1, 0, 0, 8), "ppoll");
        if (ready.revents & POLLOUT) {
            long more = call(SYS_write, fd, sent + out, sizeof sent - out);
            out += more > 0 ? more : 0;
        }
        if (ready.revents & POLLIN) {
            long more = call(SYS_recvfrom, fd, got + in, sizeof got - in, 0, 0, 0);
            need(more, "recvfrom");
            in += more;
        }
    }
    call(SYS_shutdown, fd, SHUT_WR);
    call(SYS_fcntl, fd, F_SETFL, O_RDWR);
    long rest = call(SYS_read, fd, got + 1, 1);
    call(SYS_close, fd);
    return rest == 0 && memcmp(sent, got, sizeof sent) == 0;
}

static void *ask_in_thread(void *to)
{
    return (void *)ask(to);
}

/* The kernel's action, and the address of its return. */
struct action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

void give_back(void);
__asm__("give_back: mov $15, %eax\n syscall\n");

static volatile sig_atomic_t came;

static void note(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    came += call(SYS_getppid) > 0;
}

static void note_blocked(int signal)
{
    /* All signals are blocked here. */
    came += signal > 0 && call(SYS_gettid) > 0;
}

static long is_blocked(int signal)
{
    unsigned long mask = 0;
    need(call(SYS_rt_sigprocmask, SIG_BLOCK, 0, &mask, 8), "mask");
    return mask >> (signal - 1) & 1;
}

static void signals(void)
{
    struct action action = { note, SA_SIGINFO | 0x04000000, give_back, ~0ul }, old = { 0 };
    need(call(SYS_rt_sigaction, SIGUSR1, &action, 0, 8), "rt_sigaction");
    call(SYS_kill, getpid(), SIGUSR1);
    say("handled", came);
    call(SYS_rt_sigaction, SIGUSR1, 0, &old, 8);
    say("installed", old.handler == note && (old.flags & SA_SIGINFO));
    unsigned long all = ~0ul, none = 0;
    need(call(SYS_rt_sigprocmask, SIG_SETMASK, &all, 0, 8), "rt_sigprocmask");
    say("blocked", is_blocked(SIGUSR1) + is_blocked(SIGTERM));
    call(SYS_kill, getpid(), SIGUSR1);
    say("not yet", came);
    need(call(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8), "rt_sigprocmask");
    say("then", came);
    sigset_t full;
    sigfillset(&full);
    pthread_sigmask(SIG_SETMASK, &full, 0);
    say("blocked by libc", is_blocked(SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &full, 0);
    struct sigaction blocks = { .sa_handler = note_blocked };
    sigfillset(&blocks.sa_mask);
    sigaction(SIGUSR2, &blocks, 0);
    raise(SIGUSR2);
    say("in a handler that blocks all", came);
    say("wrong", call(SYS_rt_sigprocmask, 99, &all, 0, 8));
    say("outside", call(SYS_rt_sigprocmask, SIG_BLOCK, 1, 0, 8));
    struct sigaction own = { .sa_handler = note_blocked };
    sigaction(SIGSYS, &own, 0);
    raise(SIGSYS);
    say("its own", came);
    sigaction(SIGSYS, 0, &own);
    say("is told", own.sa_handler == note_blocked);
}

static int thread(void *word)
{
    call(SYS_write, 1, "a thread\n", 9);
    *(int *)word = 1;
    return 0;
}

static void children(struct sockaddr_in *to)
{
    int status;
    long child = call(SYS_fork);
    if (child == 0) {
        say("in a child", ask(to));
        call(SYS_exit_group, 7);
    }
    need(call(SYS_wait4, child, &status, 0, 0), "wait4");
    say("ended", WEXITSTATUS(status));
    child = call(SYS_vfork);
    if (child == 0) {
        char *words[] = { "sh", "-c", "exit 9", 0 };
        call(SYS_execve, "/bin/sh", words, environ);
        call(SYS_exit_group, 1);
    }
    need(call(SYS_wait4, child, &status, 0, 0), "wait4");
    say("became another", WEXITSTATUS(status));
    /* A thread as libc makes it. */
    char *stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int word = 0;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    need(clone(thread, stack + 65536, flags, &word), "clone");
    while (!*(volatile int *)&word)
        call(SYS_sched_yield);
}

#ifdef LARGE
__asm__(".text\n.zero 34000000\n");
#endif

static pthread_barrier_t all;

/* Threads wait for this that make their first connections at the same time. */
static void *wait_for_own(void *unused)
{
    (void)unused;
    struct sockaddr_in at = place("127.0.0.1", "0");
    socklen_t length = sizeof at;
    struct epoll_event event = { .events = EPOLLIN };
    pthread_barrier_wait(&all);
    long own = call(SYS_epoll_create1, 0);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (struct sockaddr *)&at, sizeof at);
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&at, &length);
    connect(client, (struct sockaddr *)&at, length);
    int got = accept(listener, 0, 0);
    need(call(SYS_epoll_ctl, own, EPOLL_CTL_ADD, got, &event), "epoll_ctl");
    send(client, "x", 1, 0);
    return (void *)call(SYS_epoll_wait, own, &event, 1, 10000);
}

static void late(void)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, 0, THREADS);
    for (int at = 0; at < THREADS; at++)
        pthread_create(&threads[at], 0, wait_for_own, 0);
    for (int at = 0; at < THREADS; at++) {
        void *told;
        pthread_join(threads[at], &told);
        say("told of", (long)told);
    }
}

int main(int count, char **words)
{
    (void)count;
    if (strcmp(words[1], "late") == 0) {
        late();
        return 0;
    }
    set = call(SYS_epoll_create1, 0);
    close(socket(AF_INET, SOCK_STREAM, 0));
    if (strcmp(words[1], "serve") == 0) {
        serve(words[2], atoi(words[3]));
        return 0;
    }
    struct sockaddr_in to = place(words[2], words[3]);
    say("alone", ask(&to));
    if (strcmp(words[1], "ask") == 0) {
        pthread_t threads[2];
        for (int at = 0; at < 2; at++) {
            void *answer;
            pthread_create(&threads[at], 0, ask_in_thread, &to);
            pthread_join(threads[at], &answer);
            say("in a thread", (long)answer);
        }
        return 0;
    }
    signals();
    children(&to);
    say("after all", ask(&to));
    say("no such call", call(100000));
    say("no ring", call(SYS_io_uring_setup, 8, 0) < 0);
    return 0;
}
