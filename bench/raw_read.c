/*
 * What the kernel by itself allows in the benchmark of kept elements: files that are in memory, read in pieces as large as an element, by some threads, each round a
 * buffer as large as a batch. Nothing is looked at.
 *
 * usage: raw_read THREADS PASSES PIECE_BYTES BATCH FILE...
 *
 * Prints one JSON line. A read that fails ends the program.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 256 };

static size_t piece, batch; /* immutable once the threads run, like the next ones */
static char **files;
static long n_files, n_jobs;
static atomic_long next_job;
static atomic_uint_fast64_t n_bytes;

__attribute__((noreturn)) static void die(const char *what, const char *which)
{
    fprintf(stderr, "raw_read: %s: %s\n", which, what);
    exit(1);
}

static uint64_t read_file(const char *path, uint8_t *buffer)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t at = 0;
    ssize_t n;
    if (fd < 0)
        die("can't be opened", path);
    for (size_t slot = 0; (n = pread(fd, buffer + slot * piece, piece, (off_t)at)) > 0; slot = (slot + 1) % batch)
        at += (uint64_t)n;
    if (n < 0)
        die("can't be read", path);
    close(fd);
    return at;
}

static void *run(void *unused)
{
    (void)unused;
    uint8_t *buffer = malloc(piece * batch);
    if (!buffer)
        die("out of memory", "a batch");
    for (size_t i = 0; i < piece * batch; i += 4096)
        buffer[i] = 1; /* pages are there when the clock counts: a batch's are, too */
    for (long job; (job = atomic_fetch_add(&next_job, 1)) < n_jobs;)
        atomic_fetch_add(&n_bytes, read_file(files[job % n_files], buffer));
    free(buffer);
    return NULL;
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
    if (argc < 6)
        die("expected THREADS PASSES PIECE_BYTES BATCH FILE...", "arguments");
    const long n_threads = atol(argv[1]), passes = atol(argv[2]);
    piece = (size_t)atol(argv[3]);
    batch = (size_t)atol(argv[4]);
    files = argv + 5;
    n_files = argc - 5;
    n_jobs = passes * n_files;
    if (n_threads < 1 || n_threads > MAX_THREADS || passes < 1 || piece < 1 || batch < 1)
        die("expected numbers from 1 on, and at most 256 threads", "arguments");
    const double begin = now_s();
    for (long i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, run, NULL) != 0)
            die("can't be started", "a thread");
    for (long i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    const double seconds = now_s() - begin;
    printf("{\"bytes\": %llu, \"seconds\": %.4f, \"bytes_per_s\": %.0f}\n", (unsigned long long)n_bytes, seconds, (double)n_bytes / seconds);
    return 0;
}
