/* Echoes on two connections at once, behind a system call filter. The filter
 * kills the process for any call but those that the program itself makes. */
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ALLOW(name) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int count, char **words) {
    (void)count;
    int listener = socket(AF_INET, SOCK_STREAM, 0), watch = epoll_create1(0), open = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) return 1;
    for (; open < 2; open++) {
        struct epoll_event event = {.events = EPOLLIN};
        event.data.fd = accept(listener, NULL, NULL);
        if (epoll_ctl(watch, EPOLL_CTL_ADD, event.data.fd, &event)) return 2;
        if (write(event.data.fd, "before\n", 7) != 7) return 3;
    }
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(read), ALLOW(write), ALLOW(epoll_wait), ALLOW(close), ALLOW(exit_group),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 4;
    if (words[2] ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter)
                 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 5;
    while (open) {
        struct epoll_event events[2];
        int ready = epoll_wait(watch, events, 2, -1);
        if (ready < 1) return 6;
        for (int i = 0; i < ready; i++) {
            char bytes[4096];
            ssize_t got = read(events[i].data.fd, bytes, sizeof bytes);
            for (ssize_t sent = 0, some; sent < got; sent += some)
                if ((some = write(events[i].data.fd, bytes + sent, got - sent)) < 0) return 7;
            if (got <= 0) {
                close(events[i].data.fd);
                open--;
            }
        }
    }
    return 42;
}
