/*
 * The iterator of the C interface: wraps an iterator of the engine, and gives its batches to the caller. The
 * engine lives as long as the iterator or any batch, because the batches are in the engine's memory.
 */
#include "api/cachew_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/patience.h"
#include "session/caching.h"
#include "remote/remote.h"
#include "session/report.h"
#include "session/tuning.h"
#include "host/host.h"
#include "dataset/mixing.h"

void cw_api_engine_unref(struct cw_api_engine *e)
{
    if (atomic_fetch_sub(&e->refs, 1) == 1) {
        cw_local_deinit(&e->local);
        free(e);
    }
}

int cachew_set_python(const char *python, const char *program, struct cachew_error **err)
{
    struct cw_error e = {0};
    int r = cw_host_set_python(python, program, &e);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

/* Sets the error for an option with a wrong number. good: the number is right, so there is no error. */
static int option_check(const char *name, int64_t value, bool good, const char *expected,
                        struct cw_error *err)
{
    char text[32];
    if (good)
        return 0;
    snprintf(text, sizeof(text), "%" PRIi64, value);
    return cw_error_value(err, CW_E_OPTION, name, text, expected, "option %s is %" PRIi64 ": expected %s",
                          name, value, expected);
}

int cw_api_read_options(const struct cachew_options *given, struct cachew_options *o, struct cw_error *err)
{
    if (given) {
        int r = option_check("size", (int64_t)given->size,
                             given->size >= offsetof(struct cachew_options, index_dir) && given->size <= 4096,
                             "sizeof(struct cachew_options), as CACHEW_OPTIONS_INIT sets it", err);
        if (r < 0)
            return r;
        memcpy(o, given, CW_MIN(given->size, sizeof(*o)));
    }
    o->world_size = CW_MAX(o->world_size, 1);

    const struct {
        const char *name;
        int64_t value, least, most;
        const char *expected;
    } bounds[] = {
        {"seed", o->seed, -1, INT64_MAX, "an integer of at least 0, or -1"},
        {"epochs", o->epochs, -1, INT64_MAX, "an integer of at least 0, or -1"},
        {"first_epoch", o->first_epoch, 0, INT64_MAX, "an integer of at least 0"},
        {"threads", o->threads, 0, 1024, "at most 1024"},
        {"credits", o->credits, 0, CW_MAX_CREDITS, "at most 4096"},
        {"rank", o->rank, 0, (int64_t)o->world_size - 1, "less than world_size"},
    };

    int r = 0;
    for (size_t i = 0; r >= 0 && i < CW_COUNT_OF(bounds); i++)
        r = option_check(bounds[i].name, bounds[i].value,
                         bounds[i].value >= bounds[i].least && bounds[i].value <= bounds[i].most,
                         bounds[i].expected, err);
    return r;
}

/* Refuses a first_epoch that is not less than epochs. (A state after the last epoch is accepted: its run is
 * over.) */
static int option_check_first_epoch(int64_t first, uint64_t epochs, struct cw_error *err)
{
    char expected[64];
    if (first == 0 || (uint64_t)first < epochs)
        return 0;
    snprintf(expected, sizeof(expected), "less than epochs, %" PRIu64, epochs);
    return option_check("first_epoch", first, false, expected, err);
}

static size_t option_memory(const struct cachew_options *o)
{
    return o->memory ? o->memory : cw_rank_share().memory;
}

int cw_api_open(const struct cachew_pipeline *p, const struct cachew_options *o, struct cw_local *l,
                unsigned *ret_threads, struct cw_error *err)
{
    *ret_threads = o->threads ? o->threads : cw_rank_share().cpus;
    if (!o->threads)
        cw_tuning_threads(l, *ret_threads);
    if (!o->memory)
        cw_tuning_memory(l, option_memory(o));
    l->as_written = !o->optimize;
    int r = cw_api_compile(p, l, err);
    if (r < 0)
        return r;
    l->interrupt = o->interrupt;
    return cw_local_open(l, o->index_dir, *ret_threads, option_memory(o), err);
}

static int option_transport(const char *name, enum cw_transport *ret, struct cw_error *err)
{
    for (*ret = CW_TRANSPORT_AUTO; name && *ret <= CW_TRANSPORT_TCP; ++*ret)
        if (strcmp(name, cw_transport_name(*ret)) == 0)
            return 0;
    if (!name)
        return 0;
    return cw_error_value(err, CW_E_OPTION, "transport", name, "\"auto\", \"shm\", \"unix\" or \"tcp\"",
                          "option transport is \"%.40s\": expected \"auto\", \"shm\", \"unix\" or \"tcp\"",
                          name);
}

/* Makes *ret, the TLS configuration of the options, new; NULL: no TLS. */
static int option_tls(const struct cachew_options *o, struct cw_tls **ret, struct cw_error *err)
{
    const struct cw_tls_files files = {.certificate = o->tls_cert, .key = o->tls_key, .authority = o->tls_ca};
    *ret = NULL;
    if (!o->tls_cert != !o->tls_key) {
        const char *missing = o->tls_cert ? "tls_key" : "tls_cert",
                   *there = o->tls_cert ? "tls_cert" : "tls_key";
        return cw_error_value(
            err, CW_E_OPTION, missing, "NULL", "a PEM file",
            "option %s is missing: a certificate needs its key and vice versa, and %s was given", missing,
            there);
    }
    return o->tls_ca || o->tls_cert ? cw_tls_new(&files, false, ret, err) : 0;
}

/* Parses an option that is one of two words, or NULL. *ret: whether it is the second word. */
static int option_choice(const char *option, const char *given, const char *first, const char *second,
                         bool *ret, struct cw_error *err)
{
    char expected[64];
    *ret = given && strcmp(given, second) == 0;
    if (!given || *ret || strcmp(given, first) == 0)
        return 0;
    snprintf(expected, sizeof(expected), "\"%s\" or \"%s\"", first, second);
    return cw_error_value(err, CW_E_OPTION, option, given, expected, "option %s is \"%.40s\": expected %s",
                          option, given, expected);
}

static int option_delivery(const struct cachew_options *o, struct cw_iterator_options *io,
                           struct cw_error *err)
{
    int r = option_choice("order", o->order, "exact", "any", &io->unordered, err);
    if (r >= 0)
        r = option_choice("guarantee", o->guarantee, "exactly-once", "at-most-once", &io->at_most_once, err);
    if (!o->order)
        io->unordered = io->at_most_once;
    return r;
}

int cw_api_open_service(const struct cachew_options *o, const struct cw_iterator_options *io,
                        const json_t *state, struct cw_local *l, struct cw_error *err)
{
    char anonymous[64];
    const char *own = getenv("CACHEW_TOKEN");
    snprintf(anonymous, sizeof(anonymous), "anonymous-%d-%" PRIx64, (int)getpid(), cw_now_ns());
    struct cw_remote_options remote = {
        .service = o->service,
        .job = o->job ? o->job : anonymous,
        .rank = o->rank,
        .world_size = o->world_size,
        .seed = io->seed,
        .epochs = io->epochs,
        .first_epoch = io->first_epoch,
        .unordered = io->unordered,
        .at_most_once = io->at_most_once,
        .token = o->token      ? o->token
                 : own && *own ? own
                               : NULL,
        .timeout_ns = o->open_timeout_s < 0   ? 0
                      : o->open_timeout_s > 0 ? (uint64_t)(CW_MIN(o->open_timeout_s, 1e9) * 1e9)
                                              : UINT64_C(60000000000),
        .absent_ns = o->open_timeout_s == 0 ? cw_patience_start_ns() : 0,
        .note = o->note,
        .note_arg = o->note_arg,
        .interrupt = o->interrupt,
        .credits = o->credits,
        .cut = o->cut,
    };
    if (!o->job && o->world_size > 1)
        return cw_error_value(err, CW_E_OPTION, "job", "NULL", "a name",
                              "option job is missing: with a world_size of %u, the ranks find each other by "
                              "the name of their job",
                              o->world_size);
    int r = cw_patience_check(err);
    if (r >= 0)
        r = option_transport(o->transport, &remote.transport, err);
    if (r >= 0)
        r = option_tls(o, &remote.tls, err);
    if (r >= 0)
        r = cw_local_remote(l, &remote, state, err);
    cw_tls_unref(remote.tls);
    return r;
}

/* Sets *ret to the iterator's options. The pipeline (`written`) gives defaults for seed and epochs. */
static int engine_iterator_options(const struct cachew_options *o, const struct cw_pipeline *written,
                                   unsigned threads, struct cw_iterator_options *ret, struct cw_error *err)
{
    *ret = (struct cw_iterator_options){
        .seed = (uint64_t)(o->seed >= 0 ? o->seed : CW_MAX(written->default_seed, 0)),
        .epochs = (uint64_t)(o->epochs >= 0                 ? o->epochs
                             : written->default_epochs >= 0 ? written->default_epochs
                                                            : 1),
        .rank = o->rank,
        .world_size = o->world_size,
        .first_epoch = (uint64_t)o->first_epoch,
        .runner = {.threads = threads,
                   .more_threads = o->threads == 0,
                   .memory = option_memory(o),
                   .batches_are_users = true,
                   .optimize = o->optimize != 0},
    };
    int r = option_delivery(o, ret, err);
    return r < 0 || o->state ? r : option_check_first_epoch(o->first_epoch, ret->epochs, err);
}

static void engine_note_mixing(void *options, const struct cw_mixing *m)
{
    const struct cachew_options *o = options;
    o->note(o->note_arg, m->says);
}

static int engine_open(const struct cachew_pipeline *p, const struct cachew_options *o, struct cw_local *l,
                       struct cw_error *err)
{
    unsigned threads = 0;
    json_t *state = NULL;
    int r = o->state ? cw_state_parse("state", o->state, strlen(o->state), &state, err) : 0;
    if (r >= 0)
        r = o->service ? cw_api_compile(p, l, err) : cw_api_open(p, o, l, &threads, err);
    if (r >= 0 && o->service && o->cache_dir)
        r = cw_error_value(err, CW_E_OPTION, "cache_dir", o->cache_dir, "none with a service",
                           "option cache_dir is \"%.200s\": expected none with a service, since only its "
                           "workers have caches",
                           o->cache_dir);
    if (r >= 0) {
        struct cw_iterator_options options;
        r = engine_iterator_options(o, l->pipeline, threads, &options, err);
        const struct cw_caching caching = {.dir = o->cache_dir, .where = o->cache, .quota = o->cache_bytes};
        if (r >= 0 && !o->service)
            r = cw_caching_open(l, &caching, &options.runner, err);
        if (r >= 0 && l->cache && o->note)
            cw_caching_warn(l->compiled, o->note, o->note_arg);
        /* a resumed run gets no note: its user got it when the run began */
        if (r >= 0 && !o->service && o->note && !state && o->first_epoch == 0)
            cw_mixing_each(l->sequence, engine_note_mixing, (void *)(uintptr_t)o);
        if (r >= 0)
            r = o->service ? cw_api_open_service(o, &options, state, l, err)
                           : cw_local_iterate(l, &options, state, err);
    }
    json_decref(state);
    l->interrupt = NULL; /* the caller's flag is valid in this call only */
    return r;
}

int cachew_iterator_open(const struct cachew_pipeline *p, const struct cachew_options *options,
                         struct cachew_iterator **ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    struct cachew_iterator *it = calloc(1, sizeof(*it));
    struct cw_api_engine *engine = calloc(1, sizeof(*engine));
    int r = it && engine ? cw_api_read_options(options, &o, &e)
                         : cw_error_nomem(&e, sizeof(*it), "an iterator");
    if (r >= 0)
        r = engine_open(p, &o, &engine->local, &e);
    if (r < 0) {
        if (engine)
            cw_local_deinit(&engine->local);
        free(engine);
        free(it);
        return cw_api_fail(r, &e, err);
    }
    atomic_init(&engine->refs, 1);
    it->engine = engine;
    *ret = it;
    return 0;
}

/* Converts a timeout to ns; 0 means no limit. */
static uint64_t seconds_to_ns(double seconds)
{
    if (seconds < 0 || isnan(seconds) || seconds > 1e9)
        return 0; /* no limit */
    return CW_MAX((uint64_t)(seconds * 1e9), 1);
}

int cachew_iterator_offer(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                          struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_batch *b;
    if (it->failed.status)
        return cw_api_fail(it->failed.status, &it->failed, err);
    cachew_iterator_accept(it);
    int r = cw_local_offer(&it->engine->local, seconds_to_ns(timeout_s), &b, &e);
    if (r == 1)
        return 1;
    if (r == 0)
        r = cw_api_batch_new(it->engine, b, ret, &e);
    if (r >= 0)
        return 0;
    if (r != CW_E_DEADLINE && r != CW_E_INTERRUPTED) {
        it->failed = e;
        it->failed.status = r;
    }
    return cw_api_fail(r, &e, err);
}

void cachew_iterator_accept(struct cachew_iterator *it)
{
    cw_iterator_accept(it->engine->local.iterator);
}

int cachew_iterator_next(struct cachew_iterator *it, double timeout_s, struct cachew_batch **ret,
                         struct cachew_error **err)
{
    int r = cachew_iterator_offer(it, timeout_s, ret, err);
    if (r == 0)
        cachew_iterator_accept(it);
    return r;
}

static char *json_take_text(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    return text;
}

/* Makes l->iterator, which has a position but computes no batches. */
static int position_open(const struct cachew_pipeline *p, const struct cachew_options *o, struct cw_local *l,
                         struct cw_error *err)
{
    unsigned threads;
    struct cw_producer *producer;
    struct cw_iterator_options options;
    json_auto_t *state = NULL;
    int r = o->state ? cw_state_parse("state", o->state, strlen(o->state), &state, err) : 0;
    if (r >= 0 && o->service)
        r = cw_error_value(
            err, CW_E_OPTION, "service", o->service, "none",
            "option service is \"%.200s\": expected none, since the data are at the workers; open "
            "an iterator to get its state",
            o->service);
    if (r >= 0)
        r = cw_api_open(p, o, l, &threads, err);
    if (r >= 0)
        r = engine_iterator_options(o, l->pipeline, threads, &options, err);
    if (r >= 0)
        r = cw_producer_none(l->sequence, options.seed, &producer, err);
    if (r >= 0)
        r = cw_iterator_over(producer, &options, state, &l->iterator, err);
    return r;
}

int cachew_pipeline_state(const struct cachew_pipeline *p, const struct cachew_options *options, char **ret,
                          struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_local l = {0};
    struct cachew_options o = CACHEW_OPTIONS_INIT;
    int r = cw_api_read_options(options, &o, &e);
    if (r >= 0)
        r = position_open(p, &o, &l, &e);
    if (r >= 0 && !(*ret = json_take_text(cw_iterator_state(l.iterator))))
        r = cw_error_nomem(&e, 0, "a state");
    cw_local_deinit(&l);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

char *cachew_iterator_state(const struct cachew_iterator *it)
{
    return json_take_text(cw_iterator_state(it->engine->local.iterator));
}

void cachew_iterator_interrupt(struct cachew_iterator *it, int on)
{
    cw_iterator_interrupt(it->engine->local.iterator, on != 0);
}

static json_t *engine_profile(const struct cw_local *l, size_t held)
{
    json_t *o = cw_report_profile(l);
    if (o)
        json_object_set_new(o, "batches_held", json_integer((json_int_t)held));
    if (o)
        json_object_set_new(o, "tuning", cw_tuning_json(l));
    if (o && l->cache)
        json_object_set_new(o, "cache", cw_caching_report(l));
    if (o && l->remote) {
        json_object_set_new(o, "links", cw_remote_links(l->remote));
        json_object_set_new(o, "cut", json_integer(cw_remote_cut(l->remote)));
        json_object_set_new(o, "lost_ranges", json_integer((json_int_t)cw_remote_lost(l->remote)));
    }
    return o;
}

static json_t *engine_quarantine(const struct cw_local *l, uint64_t *ret_skipped, uint64_t *ret_replaced)
{
    const struct cw_quarantined *q = cw_iterator_quarantined(l->iterator, ret_skipped, ret_replaced);
    json_t *list = json_array();
    for (; q && list; q = q->next)
        if (json_array_append_new(list, cw_report_quarantined(l->compiled, q)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

char *cachew_iterator_profile(const struct cachew_iterator *it)
{
    return json_take_text(engine_profile(&it->engine->local, cachew_iterator_held(it)));
}

char *cachew_iterator_quarantine(const struct cachew_iterator *it, uint64_t *ret_skipped,
                                 uint64_t *ret_replaced)
{
    uint64_t skipped, replaced;
    char *text = json_take_text(engine_quarantine(&it->engine->local, &skipped, &replaced));
    if (ret_skipped)
        *ret_skipped = skipped;
    if (ret_replaced)
        *ret_replaced = replaced;
    return text;
}

size_t cachew_iterator_held(const struct cachew_iterator *it)
{
    return atomic_load(&it->engine->refs) - 1;
}

void cachew_iterator_free(struct cachew_iterator *it)
{
    if (!it)
        return;
    if (cachew_iterator_held(it) > 0) /* the engine outlives the iterator */
        cw_iterator_leave(it->engine->local.iterator);
    cw_api_engine_unref(it->engine);
    free(it);
}
