/*
 * A training job with a known demand, over the C interface: takes a batch, is busy for a step, takes the
 * next.
 *
 * usage: trainer SERVICE PIPELINE JOB STEP_S:SECONDS...
 *
 * Steps of so many seconds, for so long; then of another length. Prints lines of JSON: that steps of another
 * length begin; and once a second, and at the end, where it is, how many batches it took since the last line,
 * and how long it waited for them. The first batch does not count: it has to wait for a worker that opens the
 * data.
 */
#include <cachew/cachew.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double clock_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "trainer: %s: %s\n", what, why);
    exit(1);
}

static void run_check(int result, const char *what, struct cachew_error **err)
{
    if (result < 0)
        die(what, cachew_error_message(*err));
}

static void sleep_until(double at)
{
    double left = at - clock_now_s();
    if (left <= 0)
        return;
    struct timespec t = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    nanosleep(&t, NULL);
}

struct line {
    double began, waited;
    uint64_t n;
};

static void line_print(struct line *l, double since, double step)
{
    printf("{\"t\": %.3f, \"step_s\": %g, \"seconds\": %.3f, \"batches\": %llu, \"waited_s\": %.4f}\n",
           clock_now_s() - since, step, clock_now_s() - l->began, (unsigned long long)l->n, l->waited);
    fflush(stdout);
    *l = (struct line){.began = clock_now_s()};
}

/* Steps of one length. 1: there are no more batches. */
static int trainer_run(struct cachew_iterator *it, double step, double seconds, double since)
{
    struct cachew_error *err = NULL;
    struct cachew_batch *b = NULL;
    struct line l = {.began = clock_now_s()};
    double end = clock_now_s() + seconds;
    int r = 0;
    while (r == 0 && clock_now_s() < end) {
        double asked = clock_now_s();
        r = cachew_iterator_next(it, 120, &b, &err);
        run_check(r, "a batch", &err);
        double came = clock_now_s();
        if (r != 0)
            break;
        l.n++;
        l.waited += came - asked;
        cachew_batch_release(b);
        sleep_until(came + step);
        if (clock_now_s() - l.began >= 1)
            line_print(&l, since, step);
    }
    line_print(&l, since, step);
    return r;
}

int main(int argc, char **argv)
{
    struct cachew_error *err = NULL;
    struct cachew_pipeline *p = NULL;
    struct cachew_iterator *it = NULL;
    struct cachew_batch *b = NULL;
    struct cachew_options options = CACHEW_OPTIONS_INIT;
    if (argc < 5)
        die("usage", "trainer SERVICE PIPELINE JOB STEP_S:SECONDS...");
    run_check(cachew_pipeline_load(argv[2], &p, &err), argv[2], &err);
    options.service = argv[1];
    options.job = argv[3];
    run_check(cachew_iterator_open(p, &options, &it, &err), argv[1], &err);
    run_check(cachew_iterator_next(it, 120, &b, &err), "the first batch", &err);
    cachew_batch_release(b);
    double since = clock_now_s(), step, seconds;
    for (int i = 4; i < argc; i++) {
        if (sscanf(argv[i], "%lf:%lf", &step, &seconds) != 2 || step < 0 || seconds <= 0)
            die(argv[i], "expected STEP_S:SECONDS");
        printf("{\"phase\": %d}\n", i - 4);
        fflush(stdout);
        if (trainer_run(it, step, seconds, since) != 0)
            break;
    }
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
    return 0;
}
