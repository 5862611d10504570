/* Processes that leave their parents or their memory behind. */

#include "ends.h"
#include <dlfcn.h>
#include <linux/sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int listens;

/* A server that answers one connection after the other, until its clients end. */
static void serve(int connections)
{
    char bytes[5];
    while (connections-- > 0) {
        int end = MUST(accept(listens, NULL, NULL));
        MUST(recv(end, bytes, 5, MSG_WAITALL));
        MUST(send(end, bytes, 5, MSG_NOSIGNAL));
        close(end);
    }
}

static void ask(void)
{
    char bytes[6] = "";
    int end = connected();
    MUST(send(end, "hello", 5, MSG_NOSIGNAL));
    say("received", recv(end, bytes, 5, MSG_WAITALL));
    say("the same", !strcmp(bytes, "hello"));
    say("end", recv(end, bytes, 1, 0));
    close(end);
}

/* A grandchild serves; it has made its listener itself, or inherited it. */
static void daemonise(int inherits)
{
    int told[2], status;
    MUST(pipe(told));
    if (inherits)
        listens = listener();
    pid_t child = MUST(fork());
    if (child == 0) {
        MUST(setsid());
        if (MUST(fork()) > 0)
            _exit(0);
        MUST(chdir("/"));
        umask(0);
        int kept = inherits ? listens : -1;
        for (int number = 3; number < 1024; number++)
            if (number != told[1] && number != kept)
                close(number);
        if (!inherits)
            listens = listener();
        MUST(write(told[1], &here, sizeof here));
        serve(2);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0));
    say("child", status);
    if (inherits)
        close(listens);
    MUST(read(told[0], &here, sizeof here));
    ask();
    ask();
}

/* Programs that a child executes while it shares its parent's memory. */
static void shared(void)
{
    int ends[2], status;
    char bytes[100] = "";
    listens = listener();
    pair(listens, ends);
    for (int turn = 0; turn < 3; turn++) {
        pid_t child = vfork();
        if (child == 0) {
            if (dup2(ends[1], 1) < 0)
                _exit(1);
            execl("/bin/echo", "echo", "hello", NULL);
            _exit(2);
        }
        MUST(waitpid(child, &status, 0));
        say("child", status);
        say("received", recv(ends[0], bytes, 6, MSG_WAITALL));
    }
    pid_t child = vfork();
    if (child == 0) {
        execl("/nowhere", "nowhere", NULL);
        _exit(3);
    }
    MUST(waitpid(child, &status, 0));
    say("there was none", WEXITSTATUS(status));
    say("shell", system("exit 4") >> 8);
    say("the same", !strcmp(bytes, "hello\n"));
    exchange(ends);
}

/* Forks past libc, as vsftpd and container runtimes do. */
static pid_t by_clone(void)
{
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static pid_t by_clone3(void)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    return syscall(SYS_clone3, &arguments, sizeof arguments);
}

/* A child has a connection whose copy the parent closes. */
static void given_to_child(pid_t (*forks)(void))
{
    int ends[2], status;
    char byte;
    pair(listens, ends);
    pid_t child = MUST(forks());
    if (child == 0) {
        MUST(recv(ends[1], &byte, 1, 0));
        MUST(send(ends[1], "x", 1, MSG_NOSIGNAL));
        _exit(5);
    }
    close(ends[1]);
    MUST(send(ends[0], "y", 1, MSG_NOSIGNAL));
    say("received", recv(ends[0], &byte, 1, 0));
    say("end", recv(ends[0], &byte, 1, 0));
    MUST(waitpid(child, &status, 0));
    say("child", WEXITSTATUS(status));
    close(ends[0]);
}

static void say_limits(struct rlimit limits)
{
    say("soft limit", limits.rlim_cur == RLIM_INFINITY ? -1 : (long)limits.rlim_cur);
    say("hard limit", limits.rlim_max == RLIM_INFINITY ? -1 : (long)limits.rlim_max);
}

/* Limits memory to that of a node, which a child maps too, as vsftpd's processes do. */
static void limited(void)
{
    struct rlimit most = {200 << 20, 300 << 20}, told;
    listens = listener();
    MUST(setrlimit(RLIMIT_AS, &most));
    given_to_child(fork);
    MUST(getrlimit(RLIMIT_AS, &told));
    say_limits(told);
    most.rlim_cur = 100 << 20;
    MUST(prlimit(getpid(), RLIMIT_AS, &most, &told));
    say_limits(told);
    MUST(syscall(SYS_prlimit64, 0, RLIMIT_AS, NULL, &told));
    say_limits(told);
    most.rlim_max = 50 << 20;
    say("more than the hard one", setrlimit(RLIMIT_AS, &most));
    say("why", errno);
    given_to_child(by_clone);
}

/* Functions looked up by programs that load a library or replace libc's functions. */
static void looked_up(void)
{
    void *handles[] = {RTLD_DEFAULT, RTLD_NEXT, dlopen("libc.so.6", RTLD_NOW), dlopen(NULL, RTLD_NOW)};
    listens = listener();
    for (int each = 0; each < 4; each++) {
        int ends[2];
        int (*make)(int, int, int) = (int (*)(int, int, int))dlsym(handles[each], "socket");
        int (*join)(int, const struct sockaddr *, socklen_t) =
            (int (*)(int, const struct sockaddr *, socklen_t))dlsym(handles[each], "connect");
        int (*take)(int, struct sockaddr *, socklen_t *) =
            (int (*)(int, struct sockaddr *, socklen_t *))dlsym(handles[each], "accept");
        ends[0] = MUST(make(AF_INET, SOCK_STREAM, 0));
        MUST(join(ends[0], (struct sockaddr *)&here, sizeof here));
        ends[1] = MUST(take(listens, NULL, NULL));
        exchange(ends);
    }
}

/* The child's first call on the connection shuts it down. */
static void shut(void)
{
    int ends[2], status;
    char byte;
    listens = listener();
    for (int how = 0; how < 3; how++) {
        pair(listens, ends);
        pid_t child = MUST(fork());
        if (child == 0) {
            MUST(shutdown(ends[0], how));
            _exit(0);
        }
        MUST(waitpid(child, &status, 0));
        say("child", status);
        say("received", recv(how == SHUT_WR ? ends[1] : ends[0], &byte, 1, 0));
        close(ends[0]);
        close(ends[1]);
    }
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "daemon")) {
        daemonise(0);
        daemonise(1);
    } else if (!strcmp(what, "shared"))
        shared();
    else if (!strcmp(what, "number")) {
        listens = listener();
        given_to_child(by_clone);
        given_to_child(by_clone3);
    } else if (!strcmp(what, "memory"))
        limited();
    else if (!strcmp(what, "lookup"))
        looked_up();
    else if (!strcmp(what, "shut"))
        shut();
    else {
        int ends[2];
        listens = listener();
        pair(listens, ends);
        exchange(ends);
    }
    say("over", 0);
    return 0;
}
