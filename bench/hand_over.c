/*
 * The consumer of the hand-over benchmarks, over the C interface: takes batches as fast as they come, and
 * looks at a word in each page of them if it is told to.
 *
 * usage: hand_over SERVICE PIPELINE [--plugin PATH] [--transport T] [--credits N] [--batches N] [--skip N]
 * [--touch] [--hold S] hand_over --memset BYTES [--threads N] [--seconds S]
 *
 * SERVICE "local": this process computes them itself. The time goes from batch number --skip (100) to the
 * last, which is held for S seconds. With --memset, what the memory of this machine allows: threads that
 * rewrite buffers of that size, as the operator `memory` (memory_op.c) does with `rewrite`. Prints a line of
 * JSON.
 */
#include <cachew/cachew.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

/* as many buffers as batches that are under way at least */
enum { PAGE = 4096, BUFFERS = 4, MAX_THREADS = 256 };

struct options {
    const char *service, *pipeline, *plugin, *transport;
    uint64_t credits, batches, skip, memset_bytes, threads;
    double seconds, hold;
    int touch;
};

static double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double clock_cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "hand_over: %s: %s\n", what, why);
    exit(1);
}

static void run_check(int result, const char *what, struct cachew_error *err)
{
    if (result < 0)
        die(what, cachew_error_message(err));
}

/* ---- batches ---- */

/* A word of each page: the bytes of an element are all the same, so it must be that of the first. */
static void batch_touch(const struct cachew_component *c)
{
    const uint8_t *bytes = c->data;
    for (size_t at = 0; at + sizeof(uint64_t) <= c->size; at += PAGE)
        if (memcmp(bytes + at, bytes, sizeof(uint64_t)) != 0)
            die("a batch", "it is not what the producer wrote");
}

/* The job goes on, and nobody asks for anything. Says so. */
static void job_hold(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    puts("{\"holding\": true}");
    fflush(stdout);
    nanosleep(&t, NULL);
}

static void job_take(const struct options *o)
{
    struct cachew_error *err = NULL;
    struct cachew_pipeline *p = NULL;
    struct cachew_iterator *it = NULL;
    struct cachew_batch *b = NULL;
    struct cachew_options options = CACHEW_OPTIONS_INIT;
    if (o->plugin)
        run_check(cachew_load_plugin(o->plugin, &err), o->plugin, err);
    run_check(cachew_pipeline_load(o->pipeline, &p, &err), o->pipeline, err);
    options.service = strcmp(o->service, "local") == 0 ? NULL : o->service;
    options.transport = o->transport;
    options.credits = (unsigned)o->credits;
    options.epochs = INT64_MAX;
    double submitted = clock_now_s(), first = 0, began = 0, began_cpu = 0;
    run_check(cachew_iterator_open(p, &options, &it, &err), o->service, err);
    uint64_t n = 0, bytes = 0;
    for (; n < o->batches; n++) {
        int r = cachew_iterator_next(it, 60, &b, &err);
        run_check(r, "a batch", err);
        if (r == 1)
            break;
        first = n == 0 ? clock_now_s() - submitted : first;
        const struct cachew_component *c = cachew_batch_component(b, 0);
        if (o->touch)
            batch_touch(c);
        bytes = c->size;
        if (n + 1 == o->batches && o->hold > 0)
            job_hold(o->hold);
        cachew_batch_release(b);
        if (n == o->skip) {
            began = clock_now_s();
            began_cpu = clock_cpu_s();
        }
    }
    if (n <= o->skip + 1)
        die(o->pipeline, "it has too few batches to measure");
    double took = clock_now_s() - began;
    uint64_t counted = n - 1 - o->skip;
    printf("{\"batches_per_s\": %.1f, \"bytes_per_s\": %.6g, \"batch_bytes\": %llu, \"first_batch_s\": %.6f, "
           "\"seconds\": %.4f, \"cpu_us_per_batch\": %.3f}\n",
           (double)counted / took, (double)counted * (double)bytes / took, (unsigned long long)bytes, first,
           took, (clock_cpu_s() - began_cpu) / (double)counted * 1e6);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
}

/* ---- memory alone ---- */

static struct options memory;

static void *memory_rewrite(void *arg)
{
    uint8_t *at[BUFFERS];
    double *bytes_per_s = arg;
    for (int i = 0; i < BUFFERS; i++) { /* shared memory, as batches are */
        at[i] = mmap(NULL, memory.memset_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at[i] == MAP_FAILED)
            die("memory", "there is not enough");
        memset(at[i], 1, memory.memset_bytes);
    }
    uint64_t n = 0;
    double began = clock_now_s(), took;
    do {
        memset(at[n % BUFFERS], (int)(n % 255), memory.memset_bytes);
        n++;
    } while ((took = clock_now_s() - began) < memory.seconds);
    *bytes_per_s = (double)n * (double)memory.memset_bytes / took;
    return NULL;
}

static void measure_memory(void)
{
    pthread_t threads[MAX_THREADS];
    double rates[MAX_THREADS], sum = 0;
    for (uint64_t i = 0; i < memory.threads; i++)
        if (pthread_create(&threads[i], NULL, memory_rewrite, &rates[i]))
            die("memory", "a thread can't be started");
    for (uint64_t i = 0; i < memory.threads; i++) {
        pthread_join(threads[i], NULL);
        sum += rates[i];
    }
    printf("{\"bytes_per_s\": %.6g, \"threads\": %llu}\n", sum, (unsigned long long)memory.threads);
}

/* ---- options ---- */

static int options_usage(void)
{
    fprintf(stderr, "usage: hand_over SERVICE PIPELINE [--plugin PATH] [--transport T] [--credits N] "
                    "[--batches N] [--skip N] [--touch] [--hold S]\n"
                    "       hand_over --memset BYTES [--threads N] [--seconds S]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct options o = {.batches = 10000, .skip = 100, .threads = 1, .seconds = 2};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (name[0] != '-') {
            if (o.service && o.pipeline)
                return options_usage();
            *(o.service ? &o.pipeline : &o.service) = name;
            continue;
        }
        if (strcmp(name, "--touch") == 0) {
            o.touch = 1;
            continue;
        }
        if (!value)
            return options_usage();
        i++;
        if (strcmp(name, "--plugin") == 0)
            o.plugin = value;
        else if (strcmp(name, "--transport") == 0)
            o.transport = value;
        else if (strcmp(name, "--credits") == 0)
            o.credits = strtoull(value, NULL, 10);
        else if (strcmp(name, "--batches") == 0)
            o.batches = strtoull(value, NULL, 10);
        else if (strcmp(name, "--skip") == 0)
            o.skip = strtoull(value, NULL, 10);
        else if (strcmp(name, "--memset") == 0)
            o.memset_bytes = strtoull(value, NULL, 10);
        else if (strcmp(name, "--threads") == 0)
            o.threads = strtoull(value, NULL, 10);
        else if (strcmp(name, "--seconds") == 0)
            o.seconds = strtod(value, NULL);
        else if (strcmp(name, "--hold") == 0)
            o.hold = strtod(value, NULL);
        else
            return options_usage();
    }
    if (o.memset_bytes && o.threads >= 1 && o.threads <= MAX_THREADS) {
        memory = o;
        measure_memory();
        return 0;
    }
    if (!o.service || !o.pipeline)
        return options_usage();
    job_take(&o);
    return 0;
}
