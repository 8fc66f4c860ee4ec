/*
 * What the kernel by itself allows in the benchmark of kept elements: files that are in memory, read in
 * pieces as large as an element, by some threads, each round a buffer as large as a batch. Nothing is looked
 * at. ORDER is "shuffled", one piece here and one there, as a job that shuffles reads them; or "stored", each
 * file from its beginning to its end.
 *
 * usage: raw_read THREADS PASSES PIECE_BYTES BATCH ORDER FILE...
 *
 * Prints one JSON line. A read that fails ends the program.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 256 };

struct run {
    int fd;
    off_t at;
    long n;
}; /* pieces, one behind the other, that a thread reads */

static size_t piece, batch; /* immutable once the threads run, like the next ones */
static struct run *runs;
static long n_runs, n_jobs;
static atomic_long next_job;
static atomic_uint_fast64_t n_bytes;

__attribute__((noreturn)) static void die(const char *what, const char *which)
{
    fprintf(stderr, "raw_read: %s: %s\n", which, what);
    exit(1);
}

static void *reader_run(void *unused)
{
    (void)unused;
    uint8_t *buffer = malloc(piece * batch);
    size_t slot = 0;
    if (!buffer)
        die("out of memory", "a batch");
    for (size_t i = 0; i < piece * batch; i += 4096)
        buffer[i] = 1; /* pages are there when the clock counts: a batch's are, too */
    for (long job; (job = atomic_fetch_add(&next_job, 1)) < n_jobs;) {
        const struct run *r = &runs[job % n_runs];
        uint64_t done = 0;
        for (long i = 0; i < r->n; i++, slot = (slot + 1) % batch) {
            const ssize_t n = pread(r->fd, buffer + slot * piece, piece, r->at + (off_t)done);
            if (n < 0)
                die("can't be read", "a piece");
            done += (uint64_t)n;
        }
        atomic_fetch_add(&n_bytes, done);
    }
    free(buffer);
    return NULL;
}

/* In files' order: each of them at once, or in pieces. */
static void find_runs(char **files, int n_files, bool in_pieces)
{
    for (int i = 0; i < n_files; i++) {
        const int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
            die("can't be opened", files[i]);
        const long pieces = (long)((size_t)st.st_size / piece), n = in_pieces ? pieces : 1;
        runs = realloc(runs, (size_t)(n_runs + n + 1) * sizeof(*runs));
        if (!runs)
            die("out of memory", files[i]);
        for (long k = 0; k < n; k++)
            runs[n_runs++] = (struct run){fd, (off_t)(k * (long)piece), in_pieces ? 1 : pieces};
    }
}

static void runs_shuffle(void)
{
    unsigned short seed[3] = {1, 2, 3};
    for (long i = n_runs - 1; i > 0; i--) {
        const long k = (long)(erand48(seed) * (double)(i + 1));
        const struct run r = runs[i];
        runs[i] = runs[k];
        runs[k] = r;
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    if (argc < 7 || (strcmp(argv[5], "shuffled") != 0 && strcmp(argv[5], "stored") != 0))
        die("expected THREADS PASSES PIECE_BYTES BATCH shuffled|stored FILE...", "arguments");
    const long n_threads = atol(argv[1]), passes = atol(argv[2]);
    piece = (size_t)atol(argv[3]);
    batch = (size_t)atol(argv[4]);
    if (n_threads < 1 || n_threads > MAX_THREADS || passes < 1 || piece < 1 || batch < 1)
        die("expected numbers from 1 on, and at most 256 threads", "arguments");
    const bool shuffled = strcmp(argv[5], "shuffled") == 0;
    find_runs(argv + 6, argc - 6, shuffled);
    if (shuffled)
        runs_shuffle();
    if (n_runs == 0)
        die("no file has a piece", "arguments");
    n_jobs = passes * n_runs;
    const double begin = now_s();
    for (long i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, reader_run, NULL) != 0)
            die("can't be started", "a thread");
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    const double seconds = now_s() - begin;
    printf("{\"bytes\": %llu, \"seconds\": %.4f, \"bytes_per_s\": %.0f}\n", (unsigned long long)n_bytes,
           seconds, (double)n_bytes / seconds);
    return 0;
}
