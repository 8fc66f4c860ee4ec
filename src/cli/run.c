/* cachew run: pulls batches, hashes, logs, dumps, keeps state. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/machine.h"
#include "base/patience.h"
#include "base/text.h"
#include "cli/common.h"
#include "cli/output.h"
#include "cli/tls.h"
#include "cli/watch.h"
#include "session/autocache.h"
#include "session/caching.h"
#include "session/report.h"
#include "session/tuning.h"
#include "host/host.h"
#include "dataset/mixing.h"
#include "storage/file.h"

/* So often it is looked, before the first batch, what is known by then. */
#define SAY_NS UINT64_C(20000000)

struct run {
    /* options */
    struct cli_common common;
    const char *state, *log, *dump, *save, *quarantine, *guarantee, *order, *sharding, *service, *job,
        *transport, *token_file, *trace;
    char own_job[512];
    struct cli_tls tls;
    struct cw_caching caching;
    uint64_t epochs, batches, rank, world_size, state_every, credits;
    bool epochs_given, batches_given, digest, progress;
    /* while it runs */
    struct cw_log log_file;
    FILE *quarantine_file;
    struct cw_trace *tracing;
    struct cw_hash128 sum, set_sum;
    uint64_t n_batches, n_elements, n_bytes, first_ns, start_ns, last_ns;
    double first_batch_s;
    unsigned n_announced;
    bool state_written; /* at the end */
    bool reading_said;
    struct cli_watch watch;
    /* NULL before the first batch is asked for: then there is nothing to keep, and a signal ends the process
     */
    _Atomic(struct cw_iterator *) iterator;
};

/* The watcher's thread. */
static void on_signal(void *arg, int number, bool again)
{
    struct run *x = arg;
    struct cw_iterator *iterator = atomic_load(&x->iterator);
    if (!iterator)
        fprintf(stderr, "cachew: ended by %s\n", cli_signal_name(number));
    if (!iterator || again) /* a second one does not wait for the state */
        _exit(128 + number);
    cw_iterator_interrupt(iterator, true);
}

static double cpu_seconds(void)
{
    double s = 0;
    for (int i = 0; i < 2; i++) {
        struct rusage u;
        if (getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &u) == 0)
            s += (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
                 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    }
    return s;
}

/* ---- what is reported ---- */

static json_t *counts(const struct run *x)
{
    double seconds = x->start_ns ? (double)((x->last_ns ? x->last_ns : cw_now_ns()) - x->start_ns) * 1e-9 : 0;
    uint64_t skipped = 0, replaced = 0;
    if (x->common.local.iterator)
        cw_iterator_quarantined(x->common.local.iterator, &skipped, &replaced);
    json_t *o = json_pack("{s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I}", "batches",
                          (json_int_t)x->n_batches, "elements", (json_int_t)x->n_elements, "bytes",
                          (json_int_t)x->n_bytes, "seconds", seconds, "elements_per_s",
                          seconds > 0 ? (double)x->n_elements / seconds : 0.0, "seed",
                          (json_int_t)x->common.seed, "cpu_s", cpu_seconds(), "peak_rss_bytes",
                          (json_int_t)cw_peak_rss(), "skipped", (json_int_t)skipped, "replaced",
                          (json_int_t)replaced, "threads", (json_int_t)x->common.threads);
    if (o && x->n_batches)
        json_object_set_new(o, "first_batch_s", json_real(x->first_batch_s));
    if (o && x->digest) {
        char text[33];
        cw_hash128_print(x->sum, text);
        json_object_set_new(o, "digest", json_string(text));
        cw_hash128_print(x->set_sum, text);
        json_object_set_new(o, "set_digest", json_string(text));
    }
    if (o && x->common.local.iterator) {
        json_t *profile = cw_report_profile(&x->common.local);
        json_object_set(o, "operators", json_object_get(profile, "operators"));
        json_object_set(o, "bottleneck", json_object_get(profile, "bottleneck"));
        json_decref(profile);
        json_object_set_new(o, "tuning", cw_tuning_json(&x->common.local));
        if (x->common.local.cache)
            json_object_set_new(o, "cache", cw_caching_report(&x->common.local));
    }
    if (o && x->common.local.remote) {
        json_object_set_new(o, "links", cw_remote_links(x->common.local.remote));
        json_object_set_new(o, "lost_ranges",
                            json_integer((json_int_t)cw_remote_lost(x->common.local.remote)));
    }
    return o;
}

/* Of a run that came to its end. What failed or was ended may wait for storage for long, when it is closed:
 * that is told first. */
static json_t *last_counts(struct run *x)
{
    json_t *o = counts(x);
    cw_caching_end(&x->common.local, json_object_get(o, "cache"));
    return o;
}

static int write_state(const struct run *x, struct cw_error *err)
{
    json_auto_t *state = cw_iterator_state(x->common.local.iterator);
    _cleanup_free_ char *text = state ? json_dumps(state, JSON_INDENT(1)) : NULL;
    if (!text)
        return cw_error_nomem(err, 0, "the state");
    return cw_put(x->state, text, strlen(text), err);
}

static int read_state(const char *path, json_t **ret, struct cw_error *err)
{
    struct cw_stat st;
    char name[320];
    size_t size;
    _cleanup_free_ char *text = NULL;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return 0;
    int r = cw_stat(path, &st, err);
    if (r >= 0)
        r = cw_read_file(path, 1 << 20, &text, &size, err);
    if (r < 0)
        return r;
    cw_error_file(err, path);
    snprintf(name, sizeof(name), "state %.300s", path);
    return cw_state_parse(name, text, size, ret, err);
}

static const char *bottleneck(const json_t *profile)
{
    const char *name = json_string_value(json_object_get(profile, "bottleneck"));
    return name ? name : "unknown";
}

/* ---- the loop ---- */

static int handle_batch(struct run *x, const struct cw_batch *b, struct cw_error *err)
{
    bool padding = b->flags & CW_RECORD_PADDING;
    struct cw_hash128 hash = {0, 0};
    int r = 0;
    if (x->digest || x->log)
        hash = cw_batch_hash(b);
    if (x->digest && !padding) {
        x->sum = cw_hash128_add(x->sum, hash);
        x->set_sum = cw_hash128_add(x->set_sum, cw_batch_set_hash(b));
    }
    if (x->log)
        r = cw_log_batch(&x->log_file, x->common.local.compiled, b, (unsigned)x->rank, hash, err);
    if (r >= 0 && x->dump)
        r = cw_dump_batch(x->dump, x->common.local.compiled, b, err);
    if (r >= 0 && x->save)
        r = cw_save_batch(x->save, b, x->n_batches, err);
    x->n_batches++;
    x->n_elements += padding ? 0 : b->n;
    for (unsigned k = 0; k < b->n_components; k++)
        x->n_bytes += b->components[k].size;
    return r;
}

static void progress(struct run *x, bool end)
{
    static uint64_t last_ns, last_elements;
    uint64_t now = cw_now_ns();
    if (!x->progress || (!end && now - last_ns < 200000000u))
        return;
    json_auto_t *profile = cw_report_profile(&x->common.local);
    double rate = last_ns ? (double)(x->n_elements - last_elements) / ((double)(now - last_ns) * 1e-9) : 0;
    fprintf(stderr, "\r\033[K%" PRIu64 " batches, %" PRIu64 " elements, %.0f elements/s, bottleneck: %s%s",
            x->n_batches, x->n_elements, rate, bottleneck(profile), end ? "\n" : "");
    last_ns = now;
    last_elements = x->n_elements;
}

/* What was decided about the cache since. */
static void announce(struct run *x)
{
    char *why;
    for (; x->common.local.autocache && (why = cw_autocache_why(x->common.local.autocache, x->n_announced));
         x->n_announced++) {
        fprintf(stderr, "cachew: cache: %s\n", why);
        free(why);
    }
}

/* Says, before the first batch, what another shuffle would gain, as soon as it is known how quick elements
 * are computed. */
static void say_reading(struct run *x)
{
    struct cw_runner *runner = cw_iterator_runner(x->common.local.iterator);
    double row_s = cw_runner_row_s(runner);
    char *says = row_s > 0 ? cw_reading_says(x->common.local.reading, cw_runner_threads(runner) / row_s)
                           : NULL;
    if (!says)
        return;
    fprintf(stderr, "cachew: %s\n", says);
    free(says);
    x->reading_said = true;
}

static int next_batch(struct run *x, struct cw_batch **ret, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(x->common.wait * 1e9),
             end_ns = wait_ns ? cw_now_ns() + wait_ns : UINT64_MAX, now;
    if (!x->common.local.reading || x->n_batches > 0)
        return cw_local_next(&x->common.local, wait_ns, ret, err);
    do {
        *err = (struct cw_error){0};
        now = cw_now_ns();
        int r = cw_local_next(&x->common.local, CW_MAX(CW_MIN(SAY_NS, end_ns - CW_MIN(end_ns, now)), 1), ret,
                              err);
        if (!x->reading_said)
            say_reading(x);
        if (r != CW_E_DEADLINE)
            return r;
    } while (cw_now_ns() < end_ns);
    return CW_E_DEADLINE;
}

static int loop(struct run *x, struct cw_error *err)
{
    int r = 0;
    x->start_ns = cw_now_ns();
    while (!x->batches_given || x->n_batches < x->batches) {
        struct cw_batch *b;
        cw_crash_turn(&x->watch.seen);
        if (atomic_load(&x->watch.seen))
            break;
        r = next_batch(x, &b, err);
        if (r < 0 && cw_remote_is_paused(err)) { /* somebody wants it so: no batch is late */
            *err = (struct cw_error){0};
            continue;
        }
        if (r != 0)
            break;
        x->last_ns = cw_now_ns();
        if (x->n_batches == 0)
            x->first_batch_s = cw_process_age();
        r = handle_batch(x, b, err);
        cw_iterator_release(x->common.local.iterator, b);
        if (r >= 0 && x->state && x->state_every && x->n_batches % x->state_every == 0)
            r = write_state(x, err);
        if (r < 0 || atomic_load(&x->watch.seen))
            break;
        progress(x, false);
        announce(x);
    }
    progress(x, true);
    return r == 1 ? 0 : r;
}

/* What can't be written is found before anything is computed. */
static int open_outputs(struct run *x, bool resumed, struct cw_error *err)
{
    int r = 0;
    if (x->dump)
        r = cw_output_dir("dump", x->dump, err);
    if (r >= 0 && x->save)
        r = cw_output_dir("save", x->save, err);
    if (r >= 0 && x->log)
        r = cw_log_open(&x->log_file, x->log, err);
    if (r >= 0 && x->quarantine)
        r = cw_quarantine_open(x->quarantine, resumed, &x->quarantine_file, err);
    return r;
}

static void on_note(void *unused CW_UNUSED, const char *text)
{
    fprintf(stderr, "cachew: %s\n", text);
}

static void on_mixing(void *unused, const struct cw_mixing *m)
{
    on_note(unused, m->says);
}

static int open_local(struct run *x, const json_t *state, struct cw_error *err)
{
    struct cw_iterator_options o = {
        .seed = x->common.seed,
        .epochs = x->epochs,
        .rank = (unsigned)x->rank,
        .world_size = (unsigned)x->world_size,
        .unordered = x->order && strcmp(x->order, "any") == 0,
        .runner = {.threads = (unsigned)x->common.threads,
                   .memory = x->common.memory,
                   .optimize = !x->common.no_optimize},
    };
    int r = cw_caching_open(&x->common.local, &x->caching, &o.runner, err);
    if (r >= 0)
        r = cli_common_open(&x->common, err);
    if (r >= 0)
        cw_mixing_each(x->common.local.sequence, on_mixing, NULL);
    if (r >= 0 && o.runner.cache)
        cw_caching_warn(x->common.local.compiled, on_note, NULL);
    return r < 0 ? r : cw_local_iterate(&x->common.local, &o, state, err);
}

/* The tf.data service's names: "dynamic" is how ranks share an epoch anyway; "off" makes each rank a job of
 * its own, with all of it. */
static int apply_sharding(struct run *x, struct cw_error *err)
{
    static const char *const fixed[] = {"static", "file", "data", "file_or_data", "hint"};
    bool is_fixed = false;
    if (!x->sharding || strcasecmp(x->sharding, "dynamic") == 0)
        return 0;
    for (size_t i = 0; i < CW_COUNT_OF(fixed); i++)
        is_fixed |= strcasecmp(x->sharding, fixed[i]) == 0;
    if (is_fixed || strcasecmp(x->sharding, "off") != 0)
        return cw_error_value(err, CW_E_OPTION, "sharding", x->sharding, "dynamic or off",
                              "--sharding %.40s: %sexpected dynamic or off", x->sharding,
                              is_fixed ? "which worker computes has no influence on what is delivered, so "
                                         "that there is nothing to be static; "
                                       : "");
    if (x->job && x->world_size > 1) {
        snprintf(x->own_job, sizeof(x->own_job), "%s/%" PRIu64, x->job, x->rank);
        x->job = x->own_job;
    }
    x->rank = 0;
    x->world_size = 1;
    return 0;
}

static int open_service(struct run *x, const json_t *state, struct cw_error *err)
{
    _cleanup_free_ char *token = NULL;
    char anonymous[64];
    int r = cli_token(x->token_file, &token, err);
    if (r >= 0)
        r = apply_sharding(x, err);
    if (r < 0)
        return r;
    if (!x->job && x->world_size > 1)
        return cw_error_set(err, CW_E_OPTION,
                            "--world-size %" PRIu64 " needs --job NAME: it is what the ranks have in common",
                            x->world_size);
    snprintf(anonymous, sizeof(anonymous), "anonymous-%d-%" PRIx64, (int)getpid(), cw_now_ns());
    struct cw_remote_options o = {
        .service = x->service,
        .job = x->job ? x->job : anonymous,
        .rank = (unsigned)x->rank,
        .world_size = (unsigned)x->world_size,
        .seed = x->common.seed,
        .epochs = x->epochs,
        .at_most_once = x->guarantee && strcmp(x->guarantee, "at-most-once") == 0,
        .unordered = x->order && strcmp(x->order, "any") == 0,
        .credits = (unsigned)x->credits,
        .transport = cli_transport(x->transport),
        .token = token,
        .trace = x->tracing,
        .timeout_ns = (uint64_t)(x->common.wait * 1e9),
        .absent_ns = cw_patience_start_ns(),
        .note = on_note,
    };
    if (!x->order) /* what is lost leaves gaps in the exact one */
        o.unordered = o.at_most_once;
    r = cli_tls_connecting(&x->tls, &o.tls, err);
    if (r >= 0)
        r = cw_local_remote(&x->common.local, &o, state, err);
    cw_tls_unref(o.tls);
    return r;
}

static int execute(struct run *x, struct cw_error *err)
{
    json_auto_t *state = NULL;
    int r = cli_common_load(&x->common, err);
    if (r >= 0 && x->state)
        r = cw_put_check(x->state, err);
    if (r >= 0 && x->state)
        r = read_state(x->state, &state, err);
    if (r < 0)
        return r;
    const struct cw_pipeline *p = x->common.local.pipeline;
    if (!x->epochs_given && p->default_epochs >= 0)
        x->epochs = (uint64_t)p->default_epochs;
    if (x->rank >= x->world_size)
        r = cw_error_set(err, CW_E_OPTION, "--rank %" PRIu64 ": expected less than --world-size %" PRIu64,
                         x->rank, x->world_size);
    if (r >= 0)
        r = open_outputs(x, state != NULL, err);
    if (r >= 0 && x->sharding && !x->service)
        r = cw_error_set(err, CW_E_OPTION, "--sharding %s needs --service", x->sharding);
    if (r >= 0 && x->trace && !x->service)
        r = cw_error_set(err, CW_E_OPTION,
                         "--trace %s needs --service: without one, explain says where the time goes",
                         x->trace);
    if (r >= 0 && x->trace)
        r = cw_trace_open(x->trace, "cachew run", CW_TRACE_BYTES, &x->tracing, err);
    if (r >= 0 && x->service && x->caching.dir)
        r = cw_error_set(err, CW_E_OPTION,
                         "--cache-dir %s with --service: workers have caches, clients have none",
                         x->caching.dir);
    if (r >= 0 && x->service)
        r = open_service(x, state, err);
    if (r >= 0 && !x->service)
        r = open_local(x, state, err);

    if (r >= 0) {
        atomic_store(&x->iterator, x->common.local.iterator);
        r = loop(x, err);
        if (x->state && (r >= 0 || r == CW_E_INTERRUPTED || r == CW_E_SERVICE || r == CW_E_DEADLINE)) {
            /* it may go on later */
            struct cw_error own = {0};
            int s = write_state(x, &own);
            x->state_written = s >= 0;
            if (s < 0) {
                *err = own;
                r = s;
            }
        }
    }
    return r;
}

static int write_quarantine(struct run *x, struct cw_error *err)
{
    uint64_t skipped, replaced;
    const struct cw_quarantined *q = cw_iterator_quarantined(x->common.local.iterator, &skipped, &replaced);
    if (skipped + replaced)
        fprintf(stderr, "cachew: %" PRIu64 " records skipped, %" PRIu64 " replaced%s%s%s\n", skipped,
                replaced, x->quarantine ? "; listed in " : "",
                x->quarantine ? x->quarantine : " (--quarantine FILE lists them with reasons)", "");
    return x->quarantine_file ? cw_quarantine_write(CW_STEAL(x->quarantine_file), x->quarantine,
                                                    x->common.local.compiled, q, err)
                              : 0;
}

/* Where batches might have come quicker. */
static void explain_links(const struct run *x)
{
    json_t *links = x->common.local.remote ? cw_remote_links(x->common.local.remote) : NULL, *link;
    size_t i;
    json_array_foreach(links, i, link)
    {
        const char *note = json_string_value(json_object_get(link, "note"));
        if (note)
            fprintf(stderr,
                    "cachew: batches of worker %" JSON_INTEGER_FORMAT
                    " are copied, its memory can't be shared: %s\n",
                    json_integer_value(json_object_get(link, "worker")), note);
    }
    json_decref(links);
}

/* With at-most-once. */
static void explain_lost(const struct run *x)
{
    const struct cw_producer *remote = x->common.local.remote;
    uint64_t n = remote ? cw_remote_lost(remote) : 0;
    if (n)
        fprintf(stderr,
                "cachew: %" PRIu64 " range%s lost with workers, and left out (--guarantee at-most-once)\n", n,
                n == 1 ? " was" : "s were");
}

static void report(const struct run *x)
{
    json_auto_t *c = counts(x);
    double seconds = json_number_value(json_object_get(c, "seconds"));
    printf("%" PRIu64 " batches, %" PRIu64 " elements in %.3f s: %.0f elements/s, bottleneck: %s\n",
           x->n_batches, x->n_elements, seconds, seconds > 0 ? (double)x->n_elements / seconds : 0.0,
           bottleneck(c));
    if (x->digest)
        printf("digest %s\nset_digest %s\n", json_string_value(json_object_get(c, "digest")),
               json_string_value(json_object_get(c, "set_digest")));
}

int cli_run(int argc, char **argv)
{
    static const char *const guarantees[] = {"exactly-once", "at-most-once", NULL}, *const orders[] = {
                                                                                        "exact", "any", NULL};
    struct run x = {.epochs = 1, .world_size = 1};
    struct cw_error err = {0};
    int code = 0;
    const struct cli_option options[] = {
        {"epochs", CLI_COUNT, &x.epochs, "N", "epochs (default: the pipeline's, else 1)", 0, INT64_MAX, NULL,
         &x.epochs_given},
        {"batches", CLI_COUNT, &x.batches, "N", "stop after N batches", 0, 0, NULL, &x.batches_given},
        {"rank", CLI_COUNT, &x.rank, "R", "batches g with g mod world-size = R (default 0)", 0, 1 << 20, NULL,
         NULL},
        {"world-size", CLI_COUNT, &x.world_size, "W", "ranks (default 1)", 1, 1 << 20, NULL, NULL},
        {"guarantee", CLI_TEXT, &x.guarantee, "G", "exactly-once (default) or at-most-once", 0, 0, guarantees,
         NULL},
        {"order", CLI_TEXT, &x.order, "O",
         "exact (default), or any: batches are handed out as they are ready", 0, 0, orders, NULL},
        {"sharding", CLI_TEXT, &x.sharding, "S",
         "of a service's job: dynamic (default), or off: each rank gets all", 0, 0, NULL, NULL},
        {"service", CLI_TEXT, &x.service, "HOST:PORT",
         "take the batches from the service whose dispatcher is there", 0, 0, NULL, NULL},
        {"job", CLI_TEXT, &x.job, "NAME", "of the job in the service, the same for all its ranks", 0, 0, NULL,
         NULL},
        {"credits", CLI_COUNT, &x.credits, "N",
         "batches to ask workers for ahead (default: 2 to 64, by their size)", 1, CW_MAX_CREDITS, NULL, NULL},
        {"transport", CLI_TEXT, &x.transport, "T", "from workers: auto (default), shm, unix or tcp", 0, 0,
         cli_transports, NULL},
        CLI_TOKEN_OPTION(&x.token_file),
        CLI_TLS_OPTIONS(&x.tls),
        {"trace", CLI_TEXT, &x.trace, "FILE",
         "write when batches of a service were asked for, received and handed out (Chrome's trace format)", 0,
         0, NULL, NULL},
        {"cache-dir", CLI_TEXT, &x.caching.dir, "DIR",
         "keep elements there where the pipeline has autocache or cache", 0, 0, NULL, NULL},
        {"cache", CLI_TEXT, &x.caching.where, "WHERE",
         "auto (default: cache, else the autocache that pays, or none), off, or the number of a cache point, "
         "from "
         "0",
         0, 0, NULL, NULL},
        {"cache-bytes", CLI_BYTES, &x.caching.quota, "BYTES",
         "what may lie in the directory (default: what is there, and half of what is free)", 1, 0, NULL,
         NULL},
        {"state", CLI_TEXT, &x.state, "FILE", "go on where FILE says, if it is there; replace it at the end",
         0, 0, NULL, NULL},
        {"state-every", CLI_COUNT, &x.state_every, "K", "replace it every K batches too", 0, 0, NULL, NULL},
        {"digest", CLI_FLAG, &x.digest, NULL, "hash everything delivered", 0, 0, NULL, NULL},
        {"log", CLI_TEXT, &x.log, "FILE", "append a JSON line per batch", 0, 0, NULL, NULL},
        {"dump", CLI_TEXT, &x.dump, "DIR", "write each batch as an .npz file", 0, 0, NULL, NULL},
        {"save", CLI_TEXT, &x.save, "DIR", "write the images of the first batches as contact sheets (PNG)", 0,
         0, NULL, NULL},
        {"quarantine", CLI_TEXT, &x.quarantine, "FILE",
         "list skipped and replaced records with reasons (JSON lines)", 0, 0, NULL, NULL},
        CLI_COMMON_OPTIONS(&x.common, "compute threads"),
        {0},
    };
    cli_common_init(&x.common);
    int r = cli_common_parse(&x.common, "run", options, argc, argv, &err);
    if (r == 1)
        return 0;
    if (r >= 0) {
        x.progress = isatty(STDERR_FILENO) && !x.common.json;
        cli_watch_start(&x.watch, on_signal, &x);
        r = execute(&x, &err);
        cli_watch_stop(&x.watch);
    }
    cw_host_shutdown(); /* the time that they took counts once they were waited for */
    int ended_by = atomic_load(&x.watch.seen);
    if (ended_by && r == CW_E_INTERRUPTED)
        r = 0;
    if (x.common.local.iterator) {
        struct cw_error own = {0};
        int q = write_quarantine(&x, &own);
        if (q < 0 && r >= 0) {
            err = own;
            r = q;
        }
    }
    explain_links(&x);
    explain_lost(&x);
    cw_log_close(&x.log_file);
    if (x.quarantine_file)
        fclose(x.quarantine_file);
    if (ended_by)
        fprintf(stderr, "cachew: ended by %s%s\n", cli_signal_name(ended_by),
                x.state_written ? "; the state is written" : "");
    if (r < 0) {
        json_t *c = counts(&x);
        code = cli_fail(&err, x.common.json, c);
        json_decref(c);
    } else if (ended_by) {
        code = 128 + ended_by;
        if (x.common.json)
            cli_print(counts(&x));
    } else if (x.common.json) {
        code = cli_print(last_counts(&x));
    } else {
        report(&x);
    }
    fflush(stdout); /* closing waits for storage */
    cli_common_deinit(&x.common);
    struct cw_error late = {0};
    if (cw_trace_close(x.tracing, &late) < 0) {
        fprintf(stderr, "cachew: %s\n", late.message);
        code = code ? code : 1;
    }
    return code;
}
