/* Several writers share a socket with a slow reader. Each record arrives complete, and those of a
   writer in order. Arguments: the length of a record, records for each writer, and parts of a record. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 6

static int here, there, parts, waits;
static size_t len, number;

static void write_all(uint32_t writer)
{
    char record[4096];
    for (uint32_t count = 0; count < number; count++) {
        uint32_t head[2] = { writer, count };
        memset(record, 'a' + (int)writer, len);
        memcpy(record, head, sizeof head);
        struct iovec vector[3];
        for (int part = 0; part < parts; part++) {
            size_t from = len * (size_t)part / (size_t)parts, to = len * (size_t)(part + 1) / (size_t)parts;
            vector[part] = (struct iovec){ record + from, to - from };
        }
        ssize_t written;
        while ((written = writev(here, vector, parts)) < 0 && errno == EAGAIN) {
            struct pollfd room = { here, POLLOUT, 0 };
            poll(&room, 1, -1);
        }
        if (written != (ssize_t)len) {
            printf("%zd of %zu bytes\n", written, len);
            exit(1);
        }
    }
}

static void *run(void *writer)
{
    write_all((uint32_t)(uintptr_t)writer);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t at_len = sizeof at;
    int room = 16384, listener = socket(AF_INET, SOCK_STREAM, 0);
    if (argc < 5)
        return 2;
    len = strtoul(argv[1], NULL, 10);
    number = strtoul(argv[2], NULL, 10);
    parts = atoi(argv[3]);
    waits = atoi(argv[4]);
    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (bind(listener, (void *)&at, at_len) || listen(listener, 1) || getsockname(listener, (void *)&at, &at_len))
        return 2;
    here = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(here, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (connect(here, (void *)&at, at_len) || (there = accept(listener, NULL, NULL)) < 0)
        return 2;
    if (!waits)
        fcntl(here, F_SETFL, O_NONBLOCK);

    pid_t children[2];
    for (uint32_t child = 0; child < 2; child++)
        if ((children[child] = fork()) == 0) {
            write_all(child);
            _exit(0);
        }
    pthread_t threads[WRITERS];
    for (uintptr_t writer = 2; writer < WRITERS; writer++)
        pthread_create(&threads[writer], NULL, run, (void *)writer);

    uint32_t next[WRITERS] = { 0 };
    char record[4096], expected[4096];
    for (size_t count = 0; count < number * WRITERS; count++) {
        uint32_t head[2];
        /* Reads pieces of another length, so that there is often room for a part of a record. */
        for (size_t got = 0; got < len;) {
            size_t piece = len - got < 700 ? len - got : 700;
            ssize_t received = recv(there, record + got, piece, 0);
            if (received <= 0)
                return 3;
            got += (size_t)received;
        }
        memcpy(head, record, sizeof head);
        if (head[0] >= WRITERS || head[1] != next[head[0]]) {
            printf("record %zu is %u's %u\n", count, head[0], head[1]);
            return 1;
        }
        next[head[0]]++;
        memset(expected, 'a' + (int)head[0], len);
        if (memcmp(record + sizeof head, expected + sizeof head, len - sizeof head)) {
            printf("record %zu is mixed\n", count);
            return 1;
        }
    }
    for (int writer = 2; writer < WRITERS; writer++)
        pthread_join(threads[writer], NULL);
    for (int child = 0; child < 2; child++)
        waitpid(children[child], NULL, 0);
    printf("all are whole\n");
    return 0;
}
