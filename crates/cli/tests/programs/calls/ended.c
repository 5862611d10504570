// A handler of SIGCHLD that waits for children allocates no memory, since it may run in the middle of malloc.
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
static __thread volatile sig_atomic_t handles;
static volatile sig_atomic_t taken, ended;

void *malloc(size_t size) {
    taken += handles;
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    taken += handles;
    return __libc_calloc(number, size);
}

static void handle(int number) {
    (void)number;
    handles = 1;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ended++;
    handles = 0;
}

static struct sockaddr_in address = {.sin_family = AF_INET};
static int listener;

// A child that has its own connection ends.
static void *see_one_end(void *has) {
    int before = ended;
    int child = fork();
    if (!child) {
        int one = socket(AF_INET, SOCK_STREAM, 0);
        _exit(has && connect(one, (struct sockaddr *)&address, sizeof address));
    }
    if (has)
        close(accept(listener, NULL, NULL));
    while (ended == before)
        usleep(1000);
    return NULL;
}

int main(void) {
    signal(SIGCHLD, handle);
    see_one_end(NULL);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof address;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    bind(listener, (struct sockaddr *)&address, length);
    listen(listener, 9);
    getsockname(listener, (struct sockaddr *)&address, &length);
    see_one_end(&address);
    // The next handler belongs to another thread.
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    pthread_t thread;
    pthread_create(&thread, NULL, see_one_end, &address);
    pthread_sigmask(SIG_BLOCK, &children, NULL);
    pthread_join(thread, NULL);
    printf("%d ended, %d taken\n", (int)ended, (int)taken);
    return 0;
}
