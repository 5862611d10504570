/* Two ranks that send one another messages of one length, as MPI libraries are measured: a
   ping-pong, or windows of messages that the other rank answers with one.

   Arguments: ping-pong|stream BYTES WARM-UP-NS SPAN-NS FILE ENGINE. The first rank writes what both
   have counted to the file, as words and numbers, a line each. Then both wait for whoever ends
   them: MPI_Finalize of MPICH over UCX may not come to its end, over the kernel as well. ENGINE is
   the process beside the rank whose time is told besides, or 0. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 64, MOST_TIMES = 1 << 20, COUNTS = 5 };

static int rank;
static char *buffer;
static int length;

/* Round trips in nanoseconds. */
static uint32_t *times;
static long taken;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* User and system time in microseconds, switches of both kinds, and an engine's nanoseconds. */
static void used(long *counts, int engine)
{
    struct rusage usage;
    clockid_t clock;
    struct timespec time = {0};
    if (engine && !clock_getcpuclockid(engine, &clock))
        clock_gettime(clock, &time);
    counts[4] = time.tv_sec * 1000000000 + time.tv_nsec;
    getrusage(RUSAGE_SELF, &usage);
    counts[0] = usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec;
    counts[1] = usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec;
    counts[2] = usage.ru_nvcsw;
    counts[3] = usage.ru_nivcsw;
}

/* In each message the first rank says whether another one follows. */
static int ping_pong(int goes_on)
{
    if (rank == 0) {
        buffer[0] = goes_on;
        MPI_Send(buffer, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(buffer, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        goes_on = buffer[0];
        MPI_Send(buffer, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return goes_on;
}

static int stream(int goes_on)
{
    MPI_Request requests[WINDOW];
    char answer = 0;
    if (rank == 0) {
        buffer[0] = goes_on;
        for (int each = 0; each < WINDOW; each++)
            MPI_Isend(buffer, length, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[each]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        MPI_Recv(&answer, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int each = 0; each < WINDOW; each++)
            MPI_Irecv(buffer + (size_t)each * length, length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &requests[each]);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        goes_on = buffer[0];
        MPI_Send(&answer, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
    return goes_on;
}

/* Turns for that long by the first rank's clock; returns their number. */
static long turns(int (*turn)(int), uint64_t span)
{
    uint64_t begin = now(), end = begin + span, last = begin;
    long count = 0;
    int goes_on = 1;
    taken = 0;
    while (goes_on) {
        goes_on = turn(last < end);
        uint64_t then = now();
        if (taken < MOST_TIMES)
            times[taken++] = then - last > UINT32_MAX ? UINT32_MAX : then - last;
        last = then;
        count++;
    }
    return count;
}

int main(int words, char **word)
{
    MPI_Init(&words, &word);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (words != 7)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int is_stream = !strcmp(word[1], "stream"), engine = atoi(word[6]);
    int (*turn)(int) = is_stream ? stream : ping_pong;
    length = atoi(word[2]);
    buffer = calloc(WINDOW, length);
    times = calloc(MOST_TIMES, sizeof *times);
    if (length < 1 || !buffer || !times)
        MPI_Abort(MPI_COMM_WORLD, 3);
    turns(turn, strtoull(word[3], NULL, 10));
    long before[COUNTS], after[COUNTS], all[2 * COUNTS];
    used(before, engine);
    uint64_t begin = now();
    long count = turns(turn, strtoull(word[4], NULL, 10));
    uint64_t span = now() - begin;
    used(after, engine);
    for (int each = 0; each < COUNTS; each++)
        after[each] -= before[each];
    MPI_Gather(after, COUNTS, MPI_LONG, all, COUNTS, MPI_LONG, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        FILE *said = fopen(word[5], "w");
        if (!said)
            MPI_Abort(MPI_COMM_WORLD, 4);
        fprintf(said, "messages %ld\nspan_ns %llu\n", is_stream ? count * WINDOW : 2 * count,
                (unsigned long long)span);
        for (long *one = all; one < all + 2 * COUNTS; one += COUNTS)
            fprintf(said, "rank %ld %ld %ld %ld %ld\n", one[0], one[1], one[2], one[3], one[4]);
        for (long each = 0; each < taken && !is_stream; each++)
            fprintf(said, "time %u\n", times[each]);
        fprintf(said, "end\n");
        fclose(said);
    }
    for (;;)
        pause();
}
