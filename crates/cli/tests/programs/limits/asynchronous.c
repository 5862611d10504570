/* Connections that libc reads and writes beside the program. */

#include "ends.h"
#include <aio.h>

static void finish(struct aiocb *request, const char *what)
{
    const struct aiocb *list[] = {request};
    struct timespec limit = {20, 0};
    say("suspended", aio_suspend(list, 1, &limit));
    say(what, aio_error(request));
    say("bytes", aio_return(request));
}

int main(void)
{
    int listens = listener(), ends[2];
    for (int turn = 0; turn < 2; turn++) {
        char bytes[6] = "";
        pair(listens, ends);
        MUST(send(ends[0], "before", 6, MSG_NOSIGNAL));
        MUST(recv(ends[1], bytes, 6, MSG_WAITALL));
        struct aiocb reads = {.aio_fildes = ends[1], .aio_buf = bytes, .aio_nbytes = 5, .aio_lio_opcode = LIO_READ};
        struct aiocb writes = {
            .aio_fildes = ends[0], .aio_buf = "hello", .aio_nbytes = 5, .aio_lio_opcode = LIO_WRITE};
        struct aiocb *both[] = {&reads, NULL, &writes};
        if (turn == 0) {
            MUST(aio_read(&reads));
            MUST(aio_write(&writes));
        } else {
            MUST(lio_listio(LIO_NOWAIT, both, 3, NULL));
        }
        finish(&writes, "written");
        finish(&reads, "read");
        say("the same", !memcmp(bytes, "hello", 5));
        /* Other calls go on as they did. */
        exchange(ends);
    }
    say("over", 0);
    return 0;
}
