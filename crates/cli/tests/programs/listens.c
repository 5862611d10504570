/* Tells each client the server's view of it, behind a system call filter. The
 * filter kills the process for any call but those that the program itself makes. */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static const char *text(const struct sockaddr_in *end, char *into)
{
    sprintf(into, "%s:%d", inet_ntoa(end->sin_addr), ntohs(end->sin_port));
    return into;
}

int main(int count, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    int listener = socket(AF_INET, SOCK_STREAM, 0), turns = count > 2 ? atoi(words[2]) : 1;
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) return 1;
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(accept), ALLOW(poll), ALLOW(close), ALLOW(getpeername),
        ALLOW(getsockname), ALLOW(setsockopt), ALLOW(brk), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 3;
    for (; turns > 0; turns--) {
        struct sockaddr_in told, peer, own;
        socklen_t lengths[3] = {sizeof told, sizeof peer, sizeof own};
        struct pollfd waits = {listener, POLLIN, 0};
        char line[200], bytes[4096], ends[3][40];
        ssize_t got;
        int yes = 1;
        /* The program waits for the first client by accept alone. */
        if (turns % 2 && poll(&waits, 1, -1) != 1) return 4;
        int one = accept(listener, (struct sockaddr *)&told, &lengths[0]);
        if (one < 0) return 5;
        if (setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes)) return 6;
        if (getpeername(one, (struct sockaddr *)&peer, &lengths[1])) return 7;
        if (getsockname(one, (struct sockaddr *)&own, &lengths[2])) return 8;
        int length = sprintf(line, "%s %s %s\n", text(&told, ends[0]), text(&peer, ends[1]), text(&own, ends[2]));
        if (write(one, line, length) != length) return 9;
        while ((got = read(one, bytes, sizeof bytes)) > 0)
            for (ssize_t sent = 0, some; sent < got; sent += some)
                if ((some = write(one, bytes + sent, got - sent)) < 0) return 10;
        if (got < 0) return 11;
        close(one);
    }
    close(listener);
    return 42;
}
