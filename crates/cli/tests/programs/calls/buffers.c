/* The results of calls with buffers at invalid addresses. A program's own faults
   must stay its own. The output is the same on a node and over the kernel. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static int here, there;

static void say(const char *name, long done)
{
    if (done < 0)
        printf("%s: %s\n", name, strerrorname_np(errno));
    else
        printf("%s: %ld\n", name, done);
    fflush(stdout);
}

static void pair(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, len) || listen(listener, 1) || getsockname(listener, (void *)&at, &len))
        exit(2);
    here = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(here, (void *)&at, len) || (there = accept(listener, NULL, NULL)) < 0)
        exit(2);
    close(listener);
}

/* Two pages, the second with other rights. */
static char *pages(int rights)
{
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, 'a', 2 * PAGE);
    if (rights < 0)
        munmap(at + PAGE, PAGE);
    else
        mprotect(at + PAGE, PAGE, rights);
    return at;
}

static void sends(const char *what, char *bad, size_t len)
{
    struct iovec parts[2] = { { "good", 4 }, { bad, len } };
    struct msghdr message = { .msg_iov = parts + 1, .msg_iovlen = 1 };
    struct mmsghdr messages = { .msg_hdr = message };
    printf("%s\n", what);
    say("send", send(here, bad, len, 0));
    say("write", write(here, bad, len));
    say("sendto", sendto(here, bad, len, 0, NULL, 0));
    say("writev", writev(here, parts, 2));
    say("sendmsg", sendmsg(here, &message, 0));
    say("sendmmsg", sendmmsg(here, &messages, 1, 0));
    say("nothing came", recv(there, parts, 1, MSG_DONTWAIT));
}

static void receives(const char *what, char *bad, size_t len)
{
    struct iovec parts[1] = { { bad, len } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 1 };
    char room[64];
    printf("%s\n", what);
    send(there, "bytes", 5, 0);
    say("recv", recv(here, bad, len, 0));
    say("read", read(here, bad, len));
    say("readv", readv(here, parts, 1));
    say("recvmsg", recvmsg(here, &message, 0));
    say("peek", recv(here, bad, len, MSG_PEEK));
    say("all is there", recv(here, room, sizeof room, 0));
}

static sigjmp_buf back;
static volatile sig_atomic_t handled;

static void jump(int signal, siginfo_t *info, void *context)
{
    (void)context;
    handled = signal;
    printf("handler: %d at %s\n", signal, info->si_addr == (void *)8 ? "8" : "elsewhere");
    fflush(stdout);
    siglongjmp(back, 1);
}

static void plain(int signal)
{
    handled = signal;
    siglongjmp(back, 1);
}

static void fault(void)
{
    if (sigsetjmp(back, 1) == 0)
        *(volatile int *)8 = 1;
}

/* How a child ends that runs this. */
static void child(const char *what, void (*act)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        act();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("%s: signal %d, status %d\n", what, WTERMSIG(status), WEXITSTATUS(status));
    fflush(stdout);
}

static void faults(void) { *(volatile int *)8 = 1; }

static void sent(void) { raise(SIGSEGV); }

static void ignored(void)
{
    signal(SIGSEGV, SIG_IGN);
    raise(SIGSEGV);
    faults();
}

static int overflow(int depth)
{
    volatile char bytes[1 << 14];
    bytes[0] = (char)depth;
    return depth < 0 ? 0 : overflow(depth + 1) + bytes[0];
}

static void overflows(void) { overflow(0); }

static void on_own_stack(int signal)
{
    (void)signal;
    _exit(7);
}

static void handles_overflow(void)
{
    stack_t own = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
    struct sigaction action = { .sa_handler = on_own_stack, .sa_flags = SA_ONSTACK };
    sigaltstack(&own, NULL);
    sigaction(SIGSEGV, &action, NULL);
    overflow(0);
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = jump, .sa_flags = SA_SIGINFO | SA_RESTART }, old;
    signal(SIGPIPE, SIG_IGN);
    /* Installed before the first connection. */
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGBUS, &action, NULL);
    pair();
    printf("former: %d\n", sigaction(SIGBUS, NULL, &old));
    printf("%d %#x %d\n", old.sa_sigaction == jump, old.sa_flags, sigismember(&old.sa_mask, SIGUSR1));
    sigaction(SIGSEGV, NULL, &old);
    printf("default: %d\n", old.sa_handler == SIG_DFL);

    char *none = pages(PROT_NONE) + PAGE, *gone = pages(-1) + PAGE, *constant = pages(PROT_READ) + PAGE;
    sends("no rights", none, 10);
    sends("no memory", gone, 10);
    sends("the end is missing", none - 20, 100);
    sends("long", none, PAGE);
    receives("no rights", none, 10);
    receives("no memory", gone, 10);
    receives("constant", constant, 10);
    receives("long", none, 100000);

    child("a fault", faults);
    child("a signal", sent);
    child("ignored", ignored);
    child("an overflow", overflows);
    child("a handled overflow", handles_overflow);

    sigaction(SIGSEGV, &action, &old);
    printf("former: %d\n", old.sa_handler == SIG_DFL);
    fault();
    signal(SIGSEGV, plain);
    sigaction(SIGSEGV, NULL, &old);
    printf("plain: %d %#x\n", old.sa_handler == plain, old.sa_flags);
    handled = 0;
    fault();
    printf("handled: %d\n", handled == SIGSEGV);
    sends("with a handler", none, 10);
    action.sa_flags |= SA_RESETHAND;
    sigaction(SIGSEGV, &action, NULL);
    fault();
    sigaction(SIGSEGV, NULL, &old);
    printf("for once: %d\n", old.sa_handler == SIG_DFL);
    sends("after all", none, 10);
    say("send", send(here, "whole", 5, 0));
    child("another fault", faults);
    return 0;
}
