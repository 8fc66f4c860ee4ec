/*
 * A client that lives long and has one job after the other, for tests. usage: jobs_tool SERVICE TRANSPORT
 *
 * Each line of stdin is a job, "NAME SEED BATCHES PIPELINE": the pipeline file is run under this name, and
 * the job left after so many batches (0: at its end). Answers with a line: how many batches there were and
 * the sum of their hashes, or "error" and why. Ends with stdin.
 */
#include <cachew/cachew.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_S 3600 /* for a batch: only a hang takes so long */

struct job {
    char name[256], pipeline[1024];
    int64_t seed;
    uint64_t batches;
};

static int take(struct cachew_iterator *it, const struct job *j, uint64_t *ret_n,
                struct cachew_hash *ret_digest, struct cachew_error **err)
{
    struct cachew_batch *b;
    int r = 0;
    while (r == 0 && (j->batches == 0 || *ret_n < j->batches)) {
        r = cachew_iterator_next(it, WAIT_S, &b, err);
        if (r != 0)
            break;
        *ret_digest = cachew_hash_add(*ret_digest, cachew_batch_hash(b));
        ++*ret_n;
        cachew_batch_release(b);
    }
    return r < 0 ? r : 0;
}

static void run(const char *service, const char *transport, const struct job *j)
{
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_error *err = NULL;
    struct cachew_pipeline *p = NULL;
    struct cachew_iterator *it = NULL;
    struct cachew_hash digest = {0};
    uint64_t n = 0;
    char text[33];
    o.service = service;
    o.transport = transport;
    o.job = j->name;
    o.seed = j->seed;
    o.open_timeout_s = WAIT_S;
    int r = cachew_pipeline_load(j->pipeline, &p, &err);
    if (r == 0)
        r = cachew_iterator_open(p, &o, &it, &err);
    if (r == 0)
        r = take(it, j, &n, &digest, &err);
    cachew_iterator_free(it);
    cachew_pipeline_free(p);
    cachew_hash_print(digest, text);
    if (r == 0)
        printf("%" PRIu64 " %s\n", n, text);
    else
        printf("error %s\n", cachew_error_message(err));
    cachew_error_free(err);
}

int main(int argc, char **argv)
{
    char line[2048];
    struct job j;
    if (argc != 3) {
        fprintf(stderr, "usage: jobs_tool SERVICE TRANSPORT < JOBS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "%255s %" SCNd64 " %" SCNu64 " %1023[^\n]", j.name, &j.seed, &j.batches,
                   j.pipeline) != 4)
            printf("error expected NAME SEED BATCHES PIPELINE: %s", line);
        else
            run(argv[1], argv[2], &j);
    }
    return 0;
}
