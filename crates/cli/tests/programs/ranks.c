/* Messages of many sizes that ranks exchange over MPI, all of them checked on arrival. The
   first rank reports the exchange; a rank that finds a wrong byte reports it and aborts. */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

/* A byte that reveals missing, repeated or misplaced pieces. */
static unsigned char at(size_t place, unsigned key)
{
    unsigned mixed = (unsigned)place * 2654435761u + key * 40503u;
    return mixed >> 24 ^ mixed >> 9;
}

static void fill(unsigned char *bytes, size_t length, unsigned key)
{
    for (size_t place = 0; place < length; place++)
        bytes[place] = at(place, key);
}

static void check(const unsigned char *bytes, size_t length, unsigned key, const char *what)
{
    for (size_t place = 0; place < length; place++)
        if (bytes[place] != at(place, key)) {
            printf("rank %d: %s: wrong byte at %zu of %zu\n", rank, what, place, length);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
}

static unsigned char *room(size_t length)
{
    unsigned char *bytes = malloc(length ? length : 1);
    if (!bytes)
        MPI_Abort(MPI_COMM_WORLD, 4);
    return bytes;
}

static void say(const char *what, size_t length)
{
    if (rank == 0) {
        printf("%s %zu\n", what, length);
        fflush(stdout);
    }
}

/* Exchanges between all pairs of ranks, one pair after the other. */
static void ping_pong(size_t length)
{
    unsigned char *there = room(length), *back = room(length);
    for (int one = 0; one < ranks; one++)
        for (int other = one + 1; other < ranks; other++)
            for (unsigned turn = 0; turn < 3; turn++) {
                if (rank == one) {
                    fill(there, length, turn);
                    MPI_Send(there, length, MPI_BYTE, other, 1, MPI_COMM_WORLD);
                    MPI_Recv(back, length, MPI_BYTE, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    check(back, length, turn + 100, "ping-pong");
                } else if (rank == other) {
                    MPI_Recv(there, length, MPI_BYTE, one, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    check(there, length, turn, "ping-pong");
                    fill(back, length, turn + 100);
                    MPI_Send(back, length, MPI_BYTE, one, 2, MPI_COMM_WORLD);
                }
            }
    free(there);
    free(back);
    say("ping-pong", length);
}

/* Many at once in both directions, received in another order than sent. */
static void crossing(size_t length)
{
    enum { DEPTH = 16 };
    MPI_Request requests[2 * DEPTH];
    unsigned char *out = room(DEPTH * length), *in = room(DEPTH * length);
    int next = (rank + 1) % ranks, former = (rank + ranks - 1) % ranks;
    for (int each = 0; each < DEPTH; each++) {
        int taken = DEPTH - 1 - each;
        fill(out + each * length, length, rank * DEPTH + each);
        MPI_Irecv(in + taken * length, length, MPI_BYTE, former, taken, MPI_COMM_WORLD, &requests[each]);
    }
    for (int each = 0; each < DEPTH; each++)
        MPI_Isend(out + each * length, length, MPI_BYTE, next, each, MPI_COMM_WORLD, &requests[DEPTH + each]);
    MPI_Waitall(2 * DEPTH, requests, MPI_STATUSES_IGNORE);
    for (int each = 0; each < DEPTH; each++)
        check(in + each * length, length, former * DEPTH + each, "crossing");
    free(out);
    free(in);
    say("crossing", length);
}

static void all_reduce(size_t count)
{
    int *mine = (int *)room(count * sizeof(int)), *sum = (int *)room(count * sizeof(int));
    for (size_t place = 0; place < count; place++)
        mine[place] = (int)(place % 1000) * (rank + 1);
    MPI_Allreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (size_t place = 0; place < count; place++)
        if (sum[place] != (int)(place % 1000) * ranks * (ranks + 1) / 2)
            MPI_Abort(MPI_COMM_WORLD, 5);
    free(mine);
    free(sum);
    say("allreduce", count);
}

static void all_to_all(size_t length)
{
    unsigned char *out = room(ranks * length), *in = room(ranks * length);
    for (int to = 0; to < ranks; to++)
        fill(out + to * length, length, rank * 64 + to);
    MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        check(in + from * length, length, from * 64 + rank, "alltoall");
    free(out);
    free(in);
    say("alltoall", length);
}

/* The last rank is killed while all others wait for its messages. */
static void lose_one(void)
{
    unsigned char byte;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1)
        kill(getpid(), SIGKILL);
    MPI_Recv(&byte, 1, MPI_BYTE, ranks - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("a message of a killed rank", 1);
}

/* MPI_Finalize of MPICH over UCX 1.13 flushes each connection over TCP, which the rank at its
   other end has to answer, and that one may wait for all others already: so some runs never
   end, over the kernel as well. Here the first rank ends them all when all have come so far. */
static void leave(void)
{
    if (rank == 0) {
        say("end", 0);
        MPI_Abort(MPI_COMM_WORLD, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int count, char **words)
{
    static const size_t lengths[] = {0, 1, 7, 640, 4095, 65536, 65537, 1000003};
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    say("ranks", ranks);
    for (size_t each = 0; each < sizeof lengths / sizeof *lengths; each++) {
        ping_pong(lengths[each]);
        crossing(lengths[each] / 4);
        all_reduce(lengths[each] / 4);
        all_to_all(lengths[each]);
    }
    if (count > 1 && !strcmp(words[1], "lose"))
        lose_one();
    MPI_Barrier(MPI_COMM_WORLD);
    if (count > 1 && !strcmp(words[1], "leave"))
        leave();
    MPI_Finalize();
    say("end", 0);
    return 0;
}
