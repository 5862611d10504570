/* Whether calls on a listener wait, as set past libc and by other processes. */

#include "ends.h"

#include <sys/ioctl.h>
#include <sys/syscall.h>

/* A system call that bypasses every library. */
static long past(long number, long first, long second, long third)
{
#if defined(__x86_64__)
    long done;
    __asm__ volatile("syscall" : "=a"(done) : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return done;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second, x2 __asm__("x2") = third;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

static void say_mode(const char *who, int number)
{
    int flags = MUST(fcntl(number, F_GETFL));
    say(who, !!(flags & O_NONBLOCK));
    say("other flags", flags & ~(O_NONBLOCK | O_RDWR));
}

/* The result of accept on a listener without clients. */
static void say_none(int listens)
{
    say("accepted", accept(listens, NULL, NULL));
    say("there is none", errno == EAGAIN);
}

/* Accepts a connection that arrives while it waits. */
static void wait_for_one(int listens)
{
    char byte;
    pid_t child = MUST(fork());
    if (child == 0) {
        usleep(100000);
        int end = connected();
        MUST(send(end, "x", 1, 0));
        _exit(0);
    }
    int end = MUST(accept(listens, NULL, NULL));
    say("received", MUST(recv(end, &byte, 1, 0)));
    MUST(waitpid(child, NULL, 0));
    close(end);
}

static void told_past_libc(void)
{
    int listens = listener(), on = 1, ends[2];
    pair(listens, ends);
    say("told", past(SYS_ioctl, listens, FIONBIO, (long)&on));
    say_mode("mode", listens);
    say_none(listens);
    exchange(ends);
}

/* Another program accepts from the inherited listener, and then sets it non-blocking. */
static void accepts(int listens)
{
    socklen_t length = sizeof here;
    MUST(getsockname(listens, (struct sockaddr *)&here, &length));
    say_mode("inherited", listens);
    wait_for_one(listens);
    MUST(fcntl(listens, F_SETFL, O_NONBLOCK));
    say_none(listens);
}

static void inherited(const char *program)
{
    int listens = listener(), status;
    char number[20];
    sprintf(number, "%d", listens);
    pid_t child = MUST(fork());
    if (child == 0)
        MUST(execl(program, program, "accepts", number, NULL));
    MUST(waitpid(child, &status, 0));
    say("child", status);
    say_mode("as the child left it", listens);
    say_none(listens);
    int off = 0;
    MUST(ioctl(listens, FIONBIO, &off));
    say_mode("waits again", listens);
    wait_for_one(listens);
}

static void *connect_later(void *unused)
{
    usleep(100000);
    connected();
    return unused;
}

/* A child that libc starts inherits a listener, and does not use it. */
static void shell(void)
{
    for (int with_pipe = 0; with_pipe < 2; with_pipe++) {
        pthread_t connects;
        int listens = listener();
        if (with_pipe)
            say("ended", pclose(popen("true; true", "r")));
        else
            say("ended", system("true; true"));
        say_mode("after a shell", listens);
        MUST(pthread_create(&connects, NULL, connect_later, NULL));
        say("waited for", accept(listens, NULL, NULL) >= 0);
        pthread_join(connects, NULL);
    }
    int listens = listener(), same = 0;
    FILE *lives = popen("read line", "w");
    usleep(300000);
    for (int count = 0; count < 20; count++) {
        struct sockaddr_in names[2];
        socklen_t length = sizeof here;
        int end = connected();
        int accepted = MUST(accept(listens, (struct sockaddr *)&names[0], &length));
        MUST(getsockname(end, (struct sockaddr *)&names[1], &length));
        same += names[0].sin_port == names[1].sin_port;
        close(end);
        close(accepted);
    }
    say("beside a shell", same);
    say("ended", pclose(lives) >= 0);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "past"))
        told_past_libc();
    else if (!strcmp(what, "inherited"))
        inherited(words[0]);
    else if (!strcmp(what, "shell"))
        shell();
    else if (!strcmp(what, "accepts"))
        accepts(atoi(words[2]));
    else
        return 2;
    say("over", 0);
    return 0;
}
