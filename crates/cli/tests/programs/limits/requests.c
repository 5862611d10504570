/* One connection for each request, without end: a server with one thread,
   and a client. The client makes as many requests as each input line says. */

#include "ends.h"

enum { REQUEST = 200 };

static void serve(unsigned short port)
{
    unsigned char bytes[REQUEST];
    int listens = MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
    MUST(setsockopt(listens, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    here = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    MUST(bind(listens, (struct sockaddr *)&here, sizeof here));
    MUST(listen(listens, 64));
    for (;;) {
        int end = MUST(accept(listens, NULL, NULL));
        if (recv(end, bytes, REQUEST, MSG_WAITALL) == REQUEST)
            send(end, bytes, REQUEST, MSG_NOSIGNAL);
        close(end);
    }
}

static void request(void)
{
    unsigned char bytes[REQUEST];
    int end = connected();
    if (send_all(end, REQUEST) != REQUEST || recv(end, bytes, REQUEST, MSG_WAITALL) != REQUEST ||
        right(bytes, 0, REQUEST) != REQUEST || recv(end, bytes, 1, 0) != 0) {
        printf("no answer, or another one\n");
        exit(1);
    }
    close(end);
}

int main(int count, char **words)
{
    long requests;
    if (count == 2)
        serve(atoi(words[1]));
    here = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    inet_pton(AF_INET, words[1], &here.sin_addr);
    while (scanf("%ld", &requests) == 1) {
        for (long turn = 0; turn < requests; turn++)
            request();
        say("requests", requests);
    }
    return 0;
}
