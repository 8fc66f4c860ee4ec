/* cachew run: pulls the batches of a pipeline, here or from a service, and keeps the state by which a later
 * run resumes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/run_outputs.h"
#include "cli/run_remote.h"
#include "cli/run_report.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "dataset/mixing.h"
#include "host/host.h"
#include "remote/remote.h"
#include "session/autocache.h"
#include "session/caching.h"
#include "storage/file.h"

#define STATE_MOST (1 << 20) /* bytes of a state file */
/* Interval, before the first batch, at which run_advise is tried again: the advice needs the measured time of
 * an element. */
#define ADVICE_NS UINT64_C(20000000)

struct run {
    struct cli_pipeline common;
    struct cli_ranks ranks;
    struct cli_remote remote;
    struct cli_outputs outputs;
    struct cw_caching caching;
    const char *state; /* --state; NULL: none */
    uint64_t batches, state_every;
    bool epochs_given, batches_given;
    struct cli_counts counts;
    unsigned n_announced; /* decisions about the cache that were printed */
    bool advised;         /* the advice about reading was printed */
    bool state_written;   /* at the end */
    struct cli_signal_watch watch;
    /* NULL before the first request for a batch. Until then there is no state to write, and a signal ends the
     * process at once. */
    _Atomic(struct cw_iterator *) iterator;
};

/* On the watcher's thread. */
static void run_on_signal(void *arg, int number, bool again)
{
    struct run *x = arg;
    struct cw_iterator *iterator = atomic_load(&x->iterator);
    if (!iterator)
        fprintf(stderr, "cachew: ended by %s\n", cli_signal_name(number));
    if (!iterator || again) /* a second signal does not wait for the state */
        _exit(128 + number);
    cw_iterator_interrupt(iterator, true);
}

/* ---- the state ---- */

static int state_write(const struct run *x, struct cw_error *err)
{
    json_auto_t *state = cw_iterator_state(x->common.local.iterator);
    _cleanup_free_ char *text = state ? json_dumps(state, JSON_INDENT(1)) : NULL;
    if (!text)
        return cw_error_nomem(err, 0, "the state");
    return cw_put(x->state, text, strlen(text), err);
}

/* Leaves *ret unchanged if the file does not exist. */
static int state_read(const char *path, json_t **ret, struct cw_error *err)
{
    char name[320];
    size_t size;
    _cleanup_free_ char *text = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return 0;
    int r = cw_read_file(path, STATE_MOST, &text, &size, err);
    if (r < 0)
        return r;
    cw_error_file(err, path);
    snprintf(name, sizeof(name), "state %.300s", path);
    return cw_state_parse(name, text, size, ret, err);
}

/* ---- messages during the run ---- */

/* Prints decisions about the cache that were made since the last call. */
static void run_announce(struct run *x)
{
    char *why;
    for (; x->common.local.autocache && (why = cw_autocache_why(x->common.local.autocache, x->n_announced));
         x->n_announced++) {
        fprintf(stderr, "cachew: cache: %s\n", why);
        free(why);
    }
}

/* Prints what another shuffle would gain, once the compute time of an element has been measured. */
static void run_advise(struct run *x)
{
    struct cw_runner *runner = cw_iterator_runner(x->common.local.iterator);
    double row_s = cw_runner_row_s(runner);
    _cleanup_free_ char *advice =
        row_s > 0 ? cw_reading_says(x->common.local.reading, cw_runner_threads(runner) / row_s) : NULL;
    if (advice)
        cli_note(NULL, advice);
    x->advised = advice != NULL;
}

static void run_on_mixing(void *unused, const struct cw_mixing *m)
{
    cli_note(unused, m->says);
}

/* ---- the loop ---- */

static int run_next(struct run *x, struct cw_batch **ret, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(x->common.wait_s * 1e9),
             end_ns = wait_ns ? cw_now_ns() + wait_ns : UINT64_MAX, now;
    if (!x->common.local.reading || x->counts.n_batches > 0)
        return cw_local_next(&x->common.local, wait_ns, ret, err);
    do {
        *err = (struct cw_error){0};
        now = cw_now_ns();
        int r = cw_local_next(&x->common.local, CW_MAX(CW_MIN(ADVICE_NS, end_ns - CW_MIN(end_ns, now)), 1),
                              ret, err);
        if (!x->advised)
            run_advise(x);
        if (r != CW_E_DEADLINE)
            return r;
    } while (cw_now_ns() < end_ns);
    return CW_E_DEADLINE;
}

static int run_loop(struct run *x, struct cw_error *err)
{
    int r = 0;
    x->counts.start_ns = cw_now_ns();
    while (!x->batches_given || x->counts.n_batches < x->batches) {
        struct cw_batch *b;
        uint64_t nth = x->counts.n_batches;
        cw_crash_turn(&x->watch.seen);
        if (atomic_load(&x->watch.seen))
            break;
        r = run_next(x, &b, err);
        if (r < 0 && cw_remote_is_paused(err)) { /* a user paused the job: no batch is late */
            *err = (struct cw_error){0};
            continue;
        }
        if (r != 0)
            break;
        cli_counts_add(&x->counts, b);
        r = cli_outputs_add(&x->outputs, x->common.local.compiled, b, (unsigned)x->ranks.rank, nth, err);
        cw_iterator_hashed(x->common.local.iterator, x->outputs.sum);
        cw_iterator_release(x->common.local.iterator, b);
        if (r >= 0 && x->state && x->state_every && x->counts.n_batches % x->state_every == 0)
            r = state_write(x, err);
        if (r < 0 || atomic_load(&x->watch.seen))
            break;
        cli_counts_progress(&x->counts, &x->common.local, false);
        run_announce(x);
    }
    cli_counts_progress(&x->counts, &x->common.local, true);
    return r == 1 ? 0 : r;
}

static int run_open_local(struct run *x, const json_t *state, struct cw_error *err)
{
    struct cw_local *local = &x->common.local;
    struct cw_iterator_options o = cli_pipeline_options(&x->common);
    o.epochs = x->ranks.epochs;
    o.rank = (unsigned)x->ranks.rank;
    o.world_size = (unsigned)x->ranks.world_size;
    o.unordered = cli_ranks_unordered(&x->ranks);
    int r = cw_caching_open(local, &x->caching, &o.runner, err);
    if (r >= 0)
        r = cli_pipeline_open(&x->common, err);
    if (r >= 0)
        cw_mixing_each(local->sequence, run_on_mixing, NULL);
    if (r >= 0 && o.runner.cache)
        cw_caching_warn(local->compiled, cli_note, NULL);
    return r < 0 ? r : cw_local_iterate(local, &o, state, err);
}

/* Opens pipeline, outputs and iterator, and resumes from the state if there is one. */
static int run_open(struct run *x, struct cw_error *err)
{
    json_auto_t *state = NULL;
    int r = cli_pipeline_load(&x->common, err);
    if (r >= 0 && x->state)
        r = cw_put_check(x->state, err);
    if (r >= 0 && x->state)
        r = state_read(x->state, &state, err);
    if (r < 0)
        return r;
    const struct cw_pipeline *p = x->common.local.pipeline;
    if (!x->epochs_given && p->default_epochs >= 0)
        x->ranks.epochs = (uint64_t)p->default_epochs;
    if (x->ranks.rank >= x->ranks.world_size)
        return cw_error_set(err, CW_E_OPTION, "--rank %" PRIu64 ": expected less than --world-size %" PRIu64,
                            x->ranks.rank, x->ranks.world_size);
    r = cli_outputs_open(&x->outputs, state != NULL, err);
    if (r >= 0)
        r = cli_remote_check(&x->remote, x->caching.dir, err);
    if (r < 0)
        return r;
    return x->remote.service ? cli_remote_open(&x->remote, &x->common, &x->ranks, state, err)
                             : run_open_local(x, state, err);
}

static int run_execute(struct run *x, struct cw_error *err)
{
    struct cw_error own = {0};
    int r = run_open(x, err);
    if (r < 0)
        return r;
    atomic_store(&x->iterator, x->common.local.iterator);
    r = run_loop(x, err);
    /* after the three errors below the run can be resumed, so its state is written */
    if (!x->state || (r < 0 && r != CW_E_INTERRUPTED && r != CW_E_SERVICE && r != CW_E_DEADLINE))
        return r;
    int s = state_write(x, &own);
    x->state_written = s >= 0;
    if (s >= 0)
        return r;
    *err = own;
    return s;
}

/* Prints the result, or the error; returns the exit code. */
static int run_finish(struct run *x, int r, int ended_by, const struct cw_error *err)
{
    if (ended_by)
        fprintf(stderr, "cachew: ended by %s%s\n", cli_signal_name(ended_by),
                x->state_written ? "; the file of --state was written" : "");
    if (r >= 0 && !x->common.json) {
        if (!ended_by)
            cli_counts_print(&x->counts, &x->common, &x->outputs);
        return ended_by ? 128 + ended_by : 0;
    }
    json_auto_t *result = cli_counts_json(&x->counts, &x->common, &x->outputs);
    if (r < 0)
        return cli_fail(err, x->common.json, result);
    if (!ended_by) /* closing the cache may wait for storage, so a run that a signal ended prints its result
                      first */
        cw_caching_end(&x->common.local, json_object_get(result, "cache"));
    int code = cli_print(json_incref(result));
    return ended_by ? 128 + ended_by : code;
}

static int run_main(int argc, char **argv, struct cw_error *err)
{
    static const char *const orders[] = {"exact", "any", NULL};
    struct run x = {.ranks = {.epochs = 1, .world_size = 1}};
    struct cw_error late = {0};
    const struct cli_option options[] = {
        {"epochs", CLI_COUNT, &x.ranks.epochs, "N",
         "run N epochs (default: the number in the pipeline file, else 1)", .max = INT64_MAX,
         .given = &x.epochs_given},
        {"batches", CLI_COUNT, &x.batches, "N", "stop after N batches", .given = &x.batches_given},
        {"rank", CLI_COUNT, &x.ranks.rank, "R",
         "take the batches of rank R: batch number g of an epoch if g mod W = R, with W from --world-size "
         "(default 0)",
         .max = 1 << 20},
        {"world-size", CLI_COUNT, &x.ranks.world_size, "W",
         "divide the batches of each epoch among W ranks, the processes of a training job (default 1)",
         .min = 1, .max = 1 << 20},
        {"order", CLI_TEXT, &x.ranks.order, "O",
         "deliver batches in this order: exact (default; in order of their numbers) or any (with --service: "
         "each as soon as it is ready)",
         .choices = orders},
        CLI_REMOTE_OPTIONS(&x.remote),
        {"cache-dir", CLI_TEXT, &x.caching.dir, "DIR",
         "cache computed elements in DIR for later epochs and runs; needs an operator autocache or cache in "
         "the pipeline"},
        {"cache", CLI_TEXT, &x.caching.where, "WHERE",
         "cache at this place: auto (default: at an operator cache, else at an autocache if that saves "
         "time), off (nowhere), or a number: at that one of these operators, counted from 0"},
        CLI_CACHE_BYTES_OPTION(&x.caching.quota, ""),
        {"state", CLI_TEXT, &x.state, "FILE",
         "resume at the position that FILE holds, if it exists; write the position reached to FILE at the "
         "end"},
        {"state-every", CLI_COUNT, &x.state_every, "K",
         "with --state: also write FILE after every K batches"},
        CLI_OUTPUT_OPTIONS(&x.outputs),
        CLI_PIPELINE_OPTIONS(&x.common, "run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_run, options, argc, argv, err);
    if (r > 0)
        return r;
    if (r == 0) {
        x.counts.progress = isatty(STDERR_FILENO) && !x.common.json;
        cli_signal_watch_start(&x.watch, run_on_signal, &x);
        r = run_execute(&x, err);
        cli_signal_watch_stop(&x.watch);
    }
    cw_host_shutdown(); /* cpu_s includes the host processes only after they were waited for */
    int ended_by = atomic_load(&x.watch.seen);
    if (ended_by && r == CW_E_INTERRUPTED)
        r = 0;
    if (x.common.local.iterator) {
        int q = cli_outputs_quarantine(&x.outputs, &x.common.local, r < 0 ? &late : err);
        r = r < 0 ? r : q;
    }
    cli_remote_report(&x.common.local);
    cli_outputs_close(&x.outputs);
    int code = run_finish(&x, r, ended_by, err);
    fflush(stdout); /* closing the pipeline may wait for storage */
    cli_pipeline_deinit(&x.common);
    cli_remote_end(&x.remote);
    late = (struct cw_error){0};
    if (cw_trace_close(x.remote.tracing, &late) < 0) {
        cli_note(NULL, late.message);
        code = code ? code : 1;
    }
    return code;
}

const struct cli_verb cli_verb_run = {
    .name = "run",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "run a pipeline: compute its batches and take them, as a training job would",
    .details = "Exit codes: 0 done; 1 the data or a record failed; 2 the pipeline, an option or a\nstate "
               "file is wrong; 3 the service can't be reached, or refused the request;\n4 a deadline passed; "
               "130 or 143 after SIGINT or SIGTERM, after the file of --state was written.",
    .run = run_main,
};
