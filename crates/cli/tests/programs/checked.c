/* Serves each connection in its own thread, or is the client of such a
   server. For tools that check every memory access, or memory leaks. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LENGTH = 300000 };

static void *answer(void *peer)
{
    int fd = *(int *)peer, epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    char *bytes = malloc(LENGTH);
    long got;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    while (epoll_wait(epoll, &event, 1, -1) == 1 && (got = read(fd, bytes, LENGTH)) > 0)
        for (long sent = 0, now; sent < got; sent += now)
            if ((now = write(fd, bytes + sent, got - sent)) < 0)
                abort();
    free(bytes);
    close(epoll);
    close(fd);
    return NULL;
}

static void *say(void *peer)
{
    char *bytes = malloc(LENGTH);
    memset(bytes, 'x', LENGTH);
    if (send(*(int *)peer, bytes, LENGTH, 0) != LENGTH)
        abort();
    shutdown(*(int *)peer, SHUT_WR);
    free(bytes);
    return NULL;
}

int main(int count, char **words)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    int fd = socket(AF_INET, SOCK_STREAM, 0), peer, one = 1;
    pthread_t thread;
    if (count == 2) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 1))
            return 1;
        peer = accept(fd, NULL, NULL);
        pthread_create(&thread, NULL, answer, &peer);
    } else {
        inet_pton(AF_INET, words[2], &at.sin_addr);
        if (connect(fd, (struct sockaddr *)&at, sizeof at))
            return 2;
        pthread_create(&thread, NULL, say, &fd);
        char *bytes = malloc(LENGTH);
        long total = 0, got;
        while ((got = recv(fd, bytes, LENGTH, 0)) > 0)
            total += got;
        free(bytes);
        printf("%ld bytes\n", total);
    }
    pthread_join(thread, NULL);
    close(fd);
    return 0;
}
