/* Connections that libc, or the kernel, reads and writes asynchronously. */

#include "ends.h"
#include <aio.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>

static void finish(struct aiocb *request, const char *what)
{
    const struct aiocb *list[] = {request};
    struct timespec limit = {20, 0};
    say("suspended", aio_suspend(list, 1, &limit));
    say(what, aio_error(request));
    say("bytes", aio_return(request));
}

/* One request to the kernel, and its result. */
static void submit(aio_context_t context, struct iocb request, const char *what, int other)
{
    struct iocb *list[] = {&request};
    struct io_event event = {0};
    struct timespec limit = {20, 0};
    MUST(syscall(SYS_io_submit, context, 1L, list));
    if (other >= 0)
        MUST(send(other, "hello", 5, MSG_NOSIGNAL));
    say("events", syscall(SYS_io_getevents, context, 1L, 1L, &event, &limit));
    /* The woken thread gets more events than it has asked for. */
    say(what, request.aio_lio_opcode == IOCB_CMD_POLL ? event.res & POLLIN : event.res);
}

/* Made by system calls, as libaio does. */
static void by_number(int listens)
{
    int ends[2];
    char bytes[6] = "";
    aio_context_t context = 0;
    pair(listens, ends);
    MUST(syscall(SYS_io_setup, 16L, &context));
    struct iocb waits = {.aio_fildes = ends[1], .aio_lio_opcode = IOCB_CMD_POLL, .aio_buf = POLLIN};
    submit(context, waits, "polled", ends[0]);
    struct iocb reads = {.aio_fildes = ends[1],
                         .aio_lio_opcode = IOCB_CMD_PREAD,
                         .aio_buf = (unsigned long)bytes,
                         .aio_nbytes = 5};
    submit(context, reads, "read", -1);
    say("the same", !memcmp(bytes, "hello", 5));
    struct iocb writes = reads;
    writes.aio_fildes = ends[0];
    writes.aio_lio_opcode = IOCB_CMD_PWRITE;
    submit(context, writes, "written", -1);
    say("received", MUST(recv(ends[1], bytes, 5, MSG_WAITALL)));
    struct iocb accepts = {.aio_fildes = listens, .aio_lio_opcode = IOCB_CMD_POLL, .aio_buf = POLLIN};
    int other = connected();
    submit(context, accepts, "polled", -1);
    close(other);
    close(MUST(accept(listens, NULL, NULL)));
    exchange(ends);
    say("none", syscall(SYS_io_submit, context, -1L, NULL) < 0 ? errno : 0);
    say("nowhere", syscall(SYS_io_submit, context, 1L, NULL) < 0 ? errno : 0);
    MUST(syscall(SYS_io_destroy, context));
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
        /* Other calls continue to work. */
        exchange(ends);
    }
    by_number(listens);
    say("over", 0);
    return 0;
}
