/* A session takes a pipeline from its text to its batches, in this process. struct cw_local owns everything
 * that this needs. cli/, api/, explain/ and remote/ use it. */
#include "session/local.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cache/cache.h"
#include "session/autocache.h"
#include "ops/table.h"
#include "optimize/order.h"
#include "policy/cache_stats.h"
#include "storage/file.h"

static int setting_error(const char *setting, const char *why, struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, "set", setting, "PATH=VALUE, for example 2.size=64",
                          "--set %s: %s; expected PATH=VALUE, for example 2.size=64", setting, why);
}

/* Sets a value in a pipeline. In PATH, numbers are indexes of lists (operators count from 0), and everything
 * else is a key. */
static int apply_setting(json_t *root, const char *setting, struct cw_error *err)
{
    const char *equals = strchr(setting, '=');
    if (!equals || equals == setting)
        return setting_error(setting, equals ? "has no PATH" : "has no =VALUE", err);
    _cleanup_free_ char *path = strndup(setting, (size_t)(equals - setting));
    if (!path)
        return cw_error_nomem(err, 0, "a setting");
    json_t *at = json_object_get(root, "pipeline"), *value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
    if (!value && !(value = json_string(equals + 1)))
        return setting_error(setting, "VALUE is neither JSON nor UTF-8", err);
    char *save = NULL, *part = strtok_r(path, ".", &save);
    if (part &&
        (strcmp(part, "on_error") == 0 || strcmp(part, "order") == 0 || strcmp(part, "defaults") == 0))
        at = root;
    int r = part ? 0 : setting_error(setting, "has no PATH", err);
    while (part && r >= 0) {
        char *next = strtok_r(NULL, ".", &save), *end;
        unsigned long i = strtoul(part, &end, 10);
        if (json_is_array(at)) {
            if (*end || i >= json_array_size(at))
                r = setting_error(setting, "PATH has an index that its list does not have", err);
            else if (next)
                at = json_array_get(at, i);
            else
                json_array_set(at, i, value);
        } else if (json_is_object(at)) {
            if (!next)
                json_object_set(at, part, value);
            else if (!(at = json_object_get(at, part)))
                r = setting_error(setting, "PATH has a key that does not exist", err);
        } else {
            r = setting_error(setting, "PATH names a part of a value that is neither a list nor an object",
                              err);
        }
        part = next;
    }
    json_decref(value);
    return r;
}

int cw_local_compile(struct cw_local *l, const json_t *root, const char *base_dir, struct cw_error *err)
{
    l->root = json_incref((json_t *)(uintptr_t)root);
    int r = cw_pipeline_from_json(cw_ops(), root, base_dir, &l->pipeline, err);
    return r < 0 ? r : cw_order_compile(l->pipeline, !l->as_written, &l->compiled, err);
}

json_t *cw_local_root_as_run(const struct cw_local *l)
{
    json_t *root = json_copy(l->root), *list = json_array(), *written = json_object_get(l->root, "pipeline");
    const struct cw_chain *chain = &l->pipeline->chain;
    int failed = 0;
    for (size_t i = 0; i < chain->n; i++)
        failed |= json_array_append(
            list, json_array_get(written, chain->nodes[i].written - chain->nodes[0].written));
    failed |= json_object_set_new(root, "pipeline", list);
    failed |= json_object_set_new(root, "order", json_string("written"));
    if (failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

static int local_parse(struct cw_local *l, const char *text, size_t size, const char *base_dir,
                       const char *const *settings, size_t n_settings, struct cw_error *err)
{
    json_error_t je;
    json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return cw_error_set(err, CW_E_PIPELINE, "not valid JSON: line %d, column %d: %s", je.line, je.column,
                            je.text);
    int r = 0;
    for (size_t i = 0; i < n_settings && r >= 0; i++)
        r = apply_setting(root, settings[i], err);
    if (r >= 0)
        r = cw_local_compile(l, root, base_dir, err);
    return r;
}

int cw_local_load(struct cw_local *l, const char *file, const char *const *settings, size_t n_settings,
                  struct cw_error *err)
{
    size_t size;
    _cleanup_free_ char *text = NULL, *copy = strdup(file);
    if (!copy)
        return cw_error_nomem(err, 0, "a path");
    int r = cw_read_file(file, CW_MAX_PIPELINE_BYTES, &text, &size, err);
    if (r < 0)
        return r;
    r = local_parse(l, text, size, dirname(copy), settings, n_settings, err);
    if (r < 0)
        cw_error_file(err, file);
    return r;
}

int cw_local_parse(struct cw_local *l, const char *text, size_t size, const char *base_dir,
                   struct cw_error *err)
{
    return local_parse(l, text, size, base_dir, NULL, 0, err);
}

char *cw_index_dir(void)
{
    const char *own = getenv("CACHEW_INDEX_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    struct cw_text t = {0};
    if (own)
        cw_text_add(&t, "%s", own);
    else if (xdg && *xdg)
        cw_text_add(&t, "%s/cachew/index", xdg);
    else if (home && *home)
        cw_text_add(&t, "%s/.cache/cachew/index", home);
    return t.size ? t.data : NULL;
}

static int local_interrupted(void *arg)
{
    const volatile int *flag = arg;
    return *flag;
}

int cw_local_open(struct cw_local *l, const char *index_dir, unsigned threads, size_t memory,
                  struct cw_error *err)
{
    _cleanup_free_ char *own = index_dir ? NULL : cw_index_dir();
    struct cw_source_env env = {
        .base_dir = l->pipeline->base_dir,
        .index_dir = index_dir ? index_dir : own,
        .data_roots = l->data_roots,
        .n_data_roots = l->n_data_roots,
        .threads = (int)threads,
        .memory = memory,
        .cancelled = l->interrupt ? local_interrupted : NULL,
        .cancel_arg = (void *)(uintptr_t)l->interrupt,
    };
    return cw_sequence_open(l->compiled, &env, &l->sequence, err);
}

static void expected_init(struct cw_expected *e, const json_t *state, const struct cw_iterator_options *o)
{
    const char *handed = json_string_value(json_object_get(state, "handed_out"));
    *e = (struct cw_expected){.epoch = o->first_epoch,
                              .g = o->rank,
                              .received = handed ? strtoull(handed, NULL, 16) : 0,
                              .options = *o};
    if (state) {
        e->epoch = (uint64_t)json_integer_value(json_object_get(state, "epoch"));
        e->g += (uint64_t)json_integer_value(json_object_get(state, "g"));
    }
}

static int expected_check(struct cw_expected *e, const struct cw_batch *b, struct cw_error *err)
{
    uint64_t ranks = e->options.world_size;
    if (b->epoch > e->epoch) {
        e->epoch = b->epoch;
        e->g = e->options.rank;
        e->received = 0;
    }
    /* In order any, a lost batch is noticed when a batch arrives that is too far after it. */
    for (; e->received & 1 ||
           (e->options.at_most_once && b->g > e->g && (b->g - e->g) / ranks >= CW_ROUNDS_AHEAD);
         e->received >>= 1)
        e->g += ranks;
    uint64_t ahead = b->g < e->g ? UINT64_MAX : (b->g - e->g) / ranks;
    bool good = b->epoch == e->epoch && ahead < (e->options.unordered ? CW_ROUNDS_AHEAD : 1) &&
                (b->g - e->g) % ranks == 0 && !(e->received >> ahead & 1);
    if (!good)
        return cw_error_set(
            err, CW_E_BUG,
            "batches came out of order, which is a defect of Cachew (please report it): batch %" PRIu64
            " of epoch %" PRIu64 " came, expected batch %" PRIu64 " of epoch %" PRIu64,
            b->g, b->epoch, e->g, e->epoch);
    e->received |= UINT64_C(1) << ahead;
    return 0;
}

/* Makes the sources of cached elements keep the identity of their data, under which entries are stored. */
static int local_hold_sources(const struct cw_local *l, struct cw_error *err)
{
    int r = 0;
    for (unsigned i = 0; i < l->compiled->n_programs && r >= 0; i++) {
        const struct cw_program *g = &l->compiled->programs[i];
        struct cw_source *s = l->sequence->sources[g->leaf];
        if (cw_cache_point_choose(g, CW_CACHE_POINT_AUTO) && s->ops->hold)
            r = s->ops->hold(s, g->ops[0], l->interrupt ? local_interrupted : NULL,
                             (void *)(uintptr_t)l->interrupt, err);
    }
    return r;
}

void cw_local_probe_reading(struct cw_local *l, uint64_t memory)
{
    if (!l->reading_probe && (l->reading_probe = cw_reading_probe_new(l->sequence, memory)))
        l->reading = cw_reading_wait(l->reading_probe);
}

int cw_local_iterate(struct cw_local *l, const struct cw_iterator_options *o, const json_t *state,
                     struct cw_error *err)
{
    struct cw_iterator_options own = *o;
    own.runner.read_in = o->world_size == 1; /* with several ranks, this process reads few of the records */
    int r = o->runner.cache ? local_hold_sources(l, err) : 0;
    if (r >= 0)
        cw_local_probe_reading(l, o->runner.memory);
    if (r >= 0)
        r = cw_iterator_new(l->sequence, &own, state, &l->iterator, err);
    if (r >= 0)
        expected_init(&l->expected, state, o);
    struct cw_cache_stats stats = {0};
    if (r >= 0 && o->runner.adaptive)
        cw_runner_cache_stats(cw_iterator_runner(l->iterator), &stats);
    if (stats.n > 0)
        l->autocache = cw_autocache_new(l, o);
    return r;
}

int cw_local_over(struct cw_local *l, struct cw_producer *producer, const struct cw_iterator_options *o,
                  const json_t *state, struct cw_error *err)
{
    int r = cw_iterator_over(producer, o, state, &l->iterator, err);
    if (r >= 0)
        expected_init(&l->expected, state, o);
    return r;
}

int cw_local_offer(struct cw_local *l, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    if (l->autocache)
        cw_autocache_requested(l->autocache);
    int r = cw_iterator_offer(l->iterator, timeout_ns ? cw_now_ns() + timeout_ns : 0, ret, err);
    if (r == 0 && (r = expected_check(&l->expected, *ret, err)) < 0)
        cw_iterator_release(l->iterator, *ret);
    if (r == 0 && l->autocache)
        cw_autocache_received(l->autocache, *ret);
    return r;
}

int cw_local_next(struct cw_local *l, uint64_t timeout_ns, struct cw_batch **ret, struct cw_error *err)
{
    int r = cw_local_offer(l, timeout_ns, ret, err);
    if (r == 0)
        cw_iterator_accept(l->iterator);
    return r;
}

void cw_local_deinit(struct cw_local *l)
{
    cw_autocache_free(l->autocache);
    cw_iterator_free(l->iterator);
    cw_cache_close(l->cache);
    cw_reading_probe_free(l->reading_probe);
    cw_sequence_free(l->sequence);
    cw_compiled_free(l->compiled);
    cw_pipeline_unref(l->pipeline);
    json_decref(l->root);
    *l = (struct cw_local){0};
}
