/* Processes that give up the identity by which their node knows them, and the programs that they start then. */

#include "ends.h"
#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>

extern char **environ;

static int listens;

static void become_nobody(void)
{
    MUST(setgroups(0, NULL));
    MUST(setgid(65534));
    MUST(setuid(65534));
}

/* Whether bytes pass in both directions. */
static int talk(int ends[2])
{
    char bytes[11] = "";
    MUST(send(ends[0], "hello", 5, MSG_NOSIGNAL));
    MUST(recv(ends[1], bytes, 5, MSG_WAITALL));
    MUST(send(ends[1], "again", 5, MSG_NOSIGNAL));
    MUST(recv(ends[0], bytes + 5, 5, MSG_WAITALL));
    return !strcmp(bytes, "helloagain");
}

/* A child's work with inherited and new sockets. */
static void use(int inherited[2])
{
    int ends[2];
    say("inherited", talk(inherited));
    pair(listens, ends);
    exchange(ends);
    int own = listener();
    pair(own, ends);
    exchange(ends);
    close(own);
}

static void await(pid_t child)
{
    int status;
    MUST(waitpid(child, &status, 0));
    say("child", status);
}

/* A child, and the child of an ended process. */
static void have_children(int inherited[2])
{
    int told[2];
    char byte;
    struct sockaddr_in before = here;
    pid_t child = MUST(fork());
    if (child == 0) {
        use(inherited);
        _exit(0);
    }
    await(child);
    here = before;
    MUST(pipe(told));
    child = MUST(fork());
    if (child == 0) {
        pid_t parent = getpid();
        if (MUST(fork()) > 0)
            _exit(0);
        while (getppid() == parent)
            usleep(1000);
        use(inherited);
        _exit(0);
    }
    close(told[1]);
    say("told", MUST(read(told[0], &byte, 1)));
    await(child);
    say("still there", talk(inherited));
}

enum { THREADS = 3, CHILDREN = 20 };

static int stops;

static void *talks(void *ends)
{
    while (!__atomic_load_n(&stops, __ATOMIC_RELAXED))
        if (!talk(ends))
            return "wrong";
    return NULL;
}

/* Children of a thread, while other threads are in the middle of calls. */
static void have_children_between_threads(void)
{
    pthread_t threads[THREADS];
    int talked_over[THREADS][2];
    pid_t children[CHILDREN];
    int ends[2], good = 0, status;
    for (int each = 0; each < THREADS; each++)
        pair(listens, talked_over[each]);
    for (int each = 0; each < THREADS; each++)
        MUST(-pthread_create(&threads[each], NULL, talks, talked_over[each]));
    for (int each = 0; each < CHILDREN; each++) {
        pair(listens, ends);
        children[each] = MUST(fork());
        if (children[each] == 0)
            _exit(!talk(ends));
        close(ends[0]);
        close(ends[1]);
    }
    for (int each = 0; each < CHILDREN; each++) {
        MUST(waitpid(children[each], &status, 0));
        good += status == 0;
    }
    say("good", good);
    __atomic_store_n(&stops, 1, __ATOMIC_RELAXED);
    for (int each = 0; each < THREADS; each++) {
        void *said;
        MUST(-pthread_join(threads[each], &said));
        say("wrong", said != NULL);
    }
}

/* Starts a program that echoes its standard input. */
static pid_t start(int way, int end)
{
    char *words[] = {"cat", NULL};
    pid_t child;
    if (way == 2) {
        posix_spawn_file_actions_t actions;
        MUST(-posix_spawn_file_actions_init(&actions));
        MUST(-posix_spawn_file_actions_adddup2(&actions, end, 0));
        MUST(-posix_spawn_file_actions_adddup2(&actions, end, 1));
        MUST(-posix_spawn(&child, "/bin/cat", &actions, NULL, words, environ));
        MUST(-posix_spawn_file_actions_destroy(&actions));
        return child;
    }
    child = MUST(way == 1 ? vfork() : fork());
    if (child == 0) {
        if (dup2(end, 0) < 0 || dup2(end, 1) < 0)
            _exit(1);
        execve("/bin/cat", words, environ);
        _exit(2);
    }
    return child;
}

static void start_programs(void)
{
    for (int way = 0; way < 3; way++) {
        char bytes[6] = "";
        int ends[2];
        pair(listens, ends);
        fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        pid_t child = start(way, ends[1]);
        close(ends[1]);
        MUST(send(ends[0], "hello", 5, MSG_NOSIGNAL));
        MUST(recv(ends[0], bytes, 5, MSG_WAITALL));
        say("the same", !strcmp(bytes, "hello"));
        MUST(shutdown(ends[0], SHUT_WR));
        say("end", recv(ends[0], bytes, 1, 0));
        await(child);
        close(ends[0]);
    }
}

static int leave_root(void *unused)
{
    (void)unused;
    _exit(syscall(SYS_chroot, "/proc/self/fdinfo/") || chdir("/"));
}

/* As Chromium's sandbox begins: a child that shares all but its thread's storage gives up the root of
 * both, and no directory is to be open that would lead out. */
static void enter_sandbox(int ends[2])
{
    static char storage[1 << 16], stack[1 << 16];
    int kinds = CLONE_VM | CLONE_FS | CLONE_VFORK | CLONE_SETTLS | SIGCHLD;
    DIR *numbers = opendir("/proc/self/fd");
    long directories = 0, refused = 0;
    int open[1024], many = 0;
    await(MUST(clone(leave_root, stack + sizeof stack, kinds, NULL, NULL, storage + sizeof storage / 2, NULL)));
    say("root", access("/proc", F_OK));
    for (struct dirent *entry; (entry = readdir(numbers)) && many < 1024;) {
        struct stat about;
        open[many] = atoi(entry->d_name);
        if (open[many] <= 2 || open[many] == dirfd(numbers) || entry->d_name[0] == '.')
            continue;
        MUST(fstat(open[many++], &about));
        directories += S_ISDIR(about.st_mode);
    }
    say("directories", directories);
    use(ends);
    for (int at = 0; at < many; at++)
        refused += close(open[at]) != 0;
    say("refused", refused);
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    int ends[2];
    listens = listener();
    pair(listens, ends);
    if (!strcmp(what, "sandbox")) {
        enter_sandbox(ends);
        say("over", 0);
        return 0;
    }
    if (!strcmp(what, "root"))
        MUST(chroot("."));
    become_nobody();
    say("parent", talk(ends));
    if (!strcmp(what, "threads"))
        have_children_between_threads();
    else if (!strcmp(what, "programs"))
        start_programs();
    else
        have_children(ends);
    exchange(ends);
    say("over", 0);
    return 0;
}
