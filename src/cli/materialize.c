/* cachew materialize: writes the elements of a pipeline to files, or checks such files. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/run_outputs.h"
#include "cli/run_remote.h"
#include "cli/signals.h"
#include "cli/verb.h"
#include "host/host.h"
#include "session/materialize.h"

#define PROGRESS_NS UINT64_C(200000000)

struct materialize {
    struct cli_pipeline common;
    struct cw_materialize_options options;
    struct cli_outputs outputs; /* only quarantine is used */
    struct cli_remote remote;   /* only service, job and credentials are used */
    const char *format, *verify;
    bool progress;
    uint64_t progress_ns, elements, bytes;
    struct cli_signal_watch watch;
    /* NULL before the first request for a batch: until then a signal ends the process at once */
    _Atomic(struct cw_iterator *) iterator;
};

/* On the watcher's thread. */
static void materialize_on_signal(void *arg, int number, bool again)
{
    struct materialize *x = arg;
    struct cw_iterator *iterator = atomic_load(&x->iterator);
    if (!iterator || again)
        _exit(128 + number);
    cw_iterator_interrupt(iterator, true);
}

static void materialize_progress(const struct materialize *x, bool end)
{
    char size[32];
    fprintf(stderr, "\r\033[K%" PRIu64 " elements, %s%s", x->elements, cw_text_bytes((double)x->bytes, size),
            end ? "\n" : "");
}

/* cw_materialize_options.step */
static int materialize_step(void *arg, struct cw_local *l, uint64_t elements, uint64_t bytes)
{
    struct materialize *x = arg;
    atomic_store(&x->iterator, l->iterator);
    x->elements = elements;
    x->bytes = bytes;
    uint64_t now = x->progress ? cw_now_ns() : 0;
    if (x->progress && now - x->progress_ns >= PROGRESS_NS) {
        x->progress_ns = now;
        materialize_progress(x, false);
    }
    return atomic_load(&x->watch.seen);
}

/* cw_materialize_options.connect. Each run has a job of its own, so that a command that goes on finds it. */
static int materialize_connect(void *arg, struct cw_local *l CW_UNUSED, const char *run, const json_t *state,
                               struct cw_error *err)
{
    struct materialize *x = arg;
    const struct cli_ranks alone = {.epochs = 1, .world_size = 1};
    struct cli_remote remote = x->remote;
    _cleanup_free_ char *job = cw_materialize_job(x->remote.job, run);
    if (!job)
        return cw_error_nomem(err, 0, "a name");
    remote.job = job;
    return cli_remote_open(&remote, &x->common, &alone, state, err);
}

static int materialize_execute(struct materialize *x, json_t **ret, struct cw_error *err)
{
    struct cw_materialize_options *o = &x->options;
    o->iterate.runner = (struct cw_runner_options){.threads = (unsigned)x->common.threads,
                                                   .more_threads = !x->common.threads_given,
                                                   .memory = x->common.memory,
                                                   .optimize = !x->common.no_optimize};
    /* a range of elements may take any time */
    o->wait_ns = x->remote.service && !x->common.wait_given ? 0 : (uint64_t)(x->common.wait_s * 1e9);
    o->connect = x->remote.service ? materialize_connect : NULL;
    o->connect_arg = x;
    o->index_dir = x->common.index_dir;
    o->step = materialize_step;
    o->step_arg = x;
    if (x->verify)
        return cw_materialize_verify(x->verify, &x->common.local, o, ret, err);
    for (o->format = 0; strcmp(x->format, cw_shard_formats[o->format]) != 0;)
        o->format++;
    int r = cli_pipeline_load(&x->common, err);
    if (r >= 0)
        r = cli_outputs_open(&x->outputs, true, err);
    o->iterate.seed = x->common.seed;
    return r < 0 ? r : cw_materialize(&x->common.local, o, ret, err);
}

static int materialize_check(const struct materialize *x, struct cw_error *err)
{
    if (!x->verify && !x->common.file)
        return cw_error_set(err, CW_E_OPTION, "materialize: expected a pipeline file, or --verify DIR");
    if (x->verify && (x->common.file || x->options.dir))
        return cw_error_set(
            err, CW_E_OPTION,
            "materialize: --verify %s checks a directory, so there can be no %s: give one of the two",
            x->verify, x->common.file ? "pipeline file" : "--out");
    if (x->remote.service && (x->verify || x->outputs.quarantine))
        return cw_error_set(err, CW_E_OPTION,
                            "materialize: --%s can't be used with --service, whose workers %s: leave one out",
                            x->verify ? "verify" : "quarantine",
                            x->verify ? "only write" : "do not report the records that they skip");
    if (x->remote.job && !x->remote.service)
        return cw_error_set(err, CW_E_OPTION, "--job %s needs --service", x->remote.job);
    if (!x->verify && !x->options.dir)
        return cw_error_value(err, CW_E_OPTION, "out", "", "a directory",
                              "materialize: --out DIR is missing: expected the directory to write to");
    return 0;
}

/* Prints the result, or the error; returns the exit code. */
static int materialize_finish(const struct materialize *x, int r, json_t *result, const struct cw_error *err)
{
    int ended_by = atomic_load(&x->watch.seen);
    if (x->progress && x->elements)
        materialize_progress(x, true);
    if (r < 0 && ended_by && r == CW_E_INTERRUPTED) {
        fprintf(stderr, "cachew: ended by %s; the same command goes on after the last finished shard\n",
                cli_signal_name(ended_by));
        return 128 + ended_by;
    }
    if (r < 0)
        return cli_fail(err, x->common.json, NULL);
    if (x->common.json)
        return cli_print(json_incref(result));
    printf("%" JSON_INTEGER_FORMAT " shards, %" JSON_INTEGER_FORMAT " elements, %" JSON_INTEGER_FORMAT
           " bytes\nset_digest %s\n",
           json_integer_value(json_object_get(result, "shards")),
           json_integer_value(json_object_get(result, "elements")),
           json_integer_value(json_object_get(result, "bytes")),
           json_string_value(json_object_get(result, "set_digest")));
    return 0;
}

static int materialize_main(int argc, char **argv, struct cw_error *err)
{
    struct materialize x = {.format = cw_shard_formats[0], .options.shard_bytes = CW_SHARD_BYTES};
    struct cw_error late = {0};
    json_auto_t *result = NULL;
    const struct cli_option options[] = {
        {"out", CLI_TEXT, &x.options.dir, "DIR",
         "write the files to DIR; continue there if an earlier run was ended before it was complete"},
        {"format", CLI_TEXT, &x.format, "F",
         "write files of this format: cachew (default; the fastest to read back), tfrecord "
         "(tf.train.Example) or "
         "tar (WebDataset)",
         .choices = cw_shard_formats},
        {"shard-bytes", CLI_BYTES, &x.options.shard_bytes, "BYTES",
         "end a file with the element with which it has BYTES (default 256M)"},
        {"verify", CLI_TEXT, &x.verify, "DIR",
         "check DIR, written by an earlier run, instead: names, sizes and checksums of its files, and the "
         "digest of "
         "its elements"},
        {"service", CLI_TEXT, &x.remote.service, "HOST:PORT",
         "let the workers of the service whose dispatcher is at HOST:PORT compute the elements and write the "
         "files; they and this command must reach DIR under the same path"},
        {"job", CLI_TEXT, &x.remote.job, "NAME",
         "with --service, name the job NAME-RUN, where RUN identifies the contents of DIR (default "
         "materialize-RUN)"},
        CLI_CONNECT_OPTIONS(&x.remote.credentials),
        {"quarantine", CLI_TEXT, &x.outputs.quarantine, "FILE",
         "append the records that failed and were skipped or replaced to FILE, with reasons (JSON lines)"},
        CLI_PIPELINE_OPTIONS(&x.common, "run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_materialize, options, argc, argv, err);
    if (r > 0)
        return r;
    if (r == 0)
        r = materialize_check(&x, err);
    if (r == 0) {
        x.progress = isatty(STDERR_FILENO) && !x.common.json;
        cli_signal_watch_start(&x.watch, materialize_on_signal, &x);
        r = materialize_execute(&x, &result, err);
        cli_signal_watch_stop(&x.watch);
    }
    if (x.common.local.iterator && !x.verify) {
        int q = cli_outputs_quarantine(&x.outputs, &x.common.local, r < 0 ? &late : err);
        r = r < 0 ? r : q;
    }
    cli_outputs_close(&x.outputs);
    cw_host_shutdown();
    int code = materialize_finish(&x, r, result, err);
    cli_pipeline_deinit(&x.common);
    return code;
}

const struct cli_verb cli_verb_materialize = {
    .name = "materialize",
    .arguments = "PIPELINE ",
    .min_args = 0,
    .max_args = 1,
    .summary = "write the elements of a pipeline to files, which programs read without computing them again",
    .details = "Writes the elements of epoch 0 in their order; batches are taken apart. If the run is\n"
               "ended or fails, the same command continues after the last finished file. The operator\n"
               "materialized reads DIR, and so do other programs (docs/materialize.md). With --service, the\n"
               "workers write, and the elements do not pass through this command.",
    .run = materialize_main,
};
