/* cachew cache: lists, checks, fills and empties a cache directory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "cache/admin.h"
#include "cache/cache.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/verb.h"
#include "session/caching.h"

struct cache {
    struct cli_pipeline common;
    struct cw_caching caching;
    bool repair, all;
    const char *verb, *dir, *key; /* key: the first characters of the names of sets; NULL: all sets */
};

static json_t *cache_set_json(const struct cw_cache_listed *s)
{
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b, s:I}", "set", s->key,
                          "path", s->path, "bytes", (json_int_t)s->bytes, "segments", (json_int_t)s->segments,
                          "entries", (json_int_t)s->entries, "content_bytes", (json_int_t)s->content,
                          "stored_bytes", (json_int_t)s->stored, "unfinished", (json_int_t)s->unfinished,
                          "compute_s", (double)s->cost_us * 1e-6, "in_use", s->used, "pinned", s->pinned,
                          "last_used", (json_int_t)s->used_at_s);
    json_auto_t *meta = s->meta ? json_loads(s->meta, 0, NULL) : NULL;
    if (o && meta)
        json_object_set(o, "meta", meta);
    return o;
}

/* The compression ratio: bytes of the entries divided by bytes stored. */
static double cache_ratio(uint64_t content, uint64_t stored)
{
    return stored ? (double)content / (double)stored : 1;
}

/* Prints "tfrecord, parse_example, decode_image". */
static void cache_print_operators(const struct cw_cache_listed *s)
{
    size_t i;
    const json_t *op;
    json_auto_t *meta = s->meta ? json_loads(s->meta, 0, NULL) : NULL;
    json_array_foreach(json_object_get(meta, "operators"), i, op)
    {
        const char *name = json_string_value(json_object_get(op, "op"));
        char shown[CW_TEXT_SHOWN];
        cw_text_show(shown, sizeof(shown), name ? name : "?");
        printf("%s%s", i ? ", " : "  ", shown);
    }
    printf("\n");
}

static int cache_ls(struct cache *x, const struct cw_cache_list *l, struct cw_error *err)
{
    if (x->common.json) {
        json_t *sets = json_array();
        for (size_t i = 0; i < l->n; i++)
            json_array_append_new(sets, cache_set_json(&l->sets[i]));
        return cli_print(sets);
    }
    printf("%-32s %10s %9s %6s  %-16s %s\n", "set", "size", "entries", "ratio", "last used", "");
    for (size_t i = 0; i < l->n; i++) {
        const struct cw_cache_listed *s = &l->sets[i];
        time_t at = (time_t)s->used_at_s;
        struct tm local;
        char when[32] = "", size[32];
        if (at)
            strftime(when, sizeof(when), "%Y-%m-%d %H:%M", localtime_r(&at, &local));
        printf("%s %10s %9" PRIu64 " %6.2f  %-16s %s%s\n", s->key, cw_text_bytes((double)s->bytes, size),
               s->entries, cache_ratio(s->content, s->stored), when, s->used ? "in use " : "",
               s->pinned ? "pinned" : "");
        cache_print_operators(s);
    }
    return 0;
}

static int cache_stat(struct cache *x, const struct cw_cache_list *l, struct cw_error *err)
{
    struct cw_cache_listed all = {0};
    json_int_t used = 0, pinned = 0;
    for (size_t i = 0; i < l->n; i++) {
        const struct cw_cache_listed *s = &l->sets[i];
        all.bytes += s->bytes;
        all.segments += s->segments;
        all.entries += s->entries;
        all.content += s->content;
        all.stored += s->stored;
        all.cost_us += s->cost_us;
        used += s->used;
        pinned += s->pinned;
    }
    double compute_s = (double)all.cost_us * 1e-6;
    char size[32];
    if (x->common.json)
        return cli_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "sets", (json_int_t)l->n,
                                   "bytes", (json_int_t)all.bytes, "segments", (json_int_t)all.segments,
                                   "entries", (json_int_t)all.entries, "content_bytes",
                                   (json_int_t)all.content, "stored_bytes", (json_int_t)all.stored, "in_use",
                                   used, "pinned", pinned, "compute_s", compute_s));
    printf("%zu sets (%" JSON_INTEGER_FORMAT " in use, %" JSON_INTEGER_FORMAT " pinned), %s in %" PRIu64
           " segments (files), %" PRIu64
           " entries (cached elements; compression ratio %.2f) that took %.1f s to compute\n",
           l->n, used, pinned, cw_text_bytes((double)all.bytes, size), all.segments, all.entries,
           cache_ratio(all.content, all.stored), compute_s);
    return 0;
}

static int cache_verify(struct cache *x, const struct cw_cache_list *l, struct cw_error *err)
{
    struct cw_cache_verified v = {0};
    for (size_t i = 0; i < l->n; i++) {
        int r = cw_cache_verify(&l->sets[i], x->repair, &v, err);
        if (r < 0)
            return r;
    }
    int code = v.bad_segments && !x->repair ? 1 : 0;
    if (x->common.json)
        return cli_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:b}", "segments", (json_int_t)v.segments,
                                   "entries", (json_int_t)v.entries, "bytes", (json_int_t)v.bytes,
                                   "bad_segments", (json_int_t)v.bad_segments, "bad_entries",
                                   (json_int_t)v.bad_entries, "repaired", x->repair)) |
               code;
    printf("%" PRIu64 " segments (cache files) with %" PRIu64 " entries are undamaged; %" PRIu64
           " segments are damaged, with at least %" PRIu64 " damaged entries%s\n",
           v.segments, v.entries, v.bad_segments, v.bad_entries,
           x->repair && v.bad_segments ? "; these segments were removed" : "");
    return code;
}

/* Removes a set, or all sets except those that are pinned. */
static int cache_rm(struct cache *x, const struct cw_cache_list *l, struct cw_error *err)
{
    bool all = !x->key || !*x->key;
    uint64_t removed = 0, bytes = 0, used = 0, pinned = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (all && l->sets[i].pinned) {
            pinned++;
            continue;
        }
        int r = cw_cache_remove(x->dir, &l->sets[i], err);
        if (r < 0)
            return r;
        removed += r == 0;
        used += r == 1;
        bytes += r == 0 ? l->sets[i].bytes : 0;
    }
    if (x->common.json)
        return cli_print(json_pack("{s:I, s:I, s:I, s:I}", "removed", (json_int_t)removed, "bytes",
                                   (json_int_t)bytes, "in_use", (json_int_t)used, "pinned",
                                   (json_int_t)pinned));
    char size[32];
    printf("removed %" PRIu64 " %s, %s", removed, removed == 1 ? "set" : "sets",
           cw_text_bytes((double)bytes, size));
    if (used)
        printf("; %" PRIu64 " in use by a run %s", used, used == 1 ? "stays" : "stay");
    if (pinned)
        printf("; %" PRIu64 " pinned %s", pinned, pinned == 1 ? "set stays" : "sets stay");
    printf("\n");
    return 0;
}

/* Of `pin` and `unpin`. */
static int cache_pin(struct cache *x, const struct cw_cache_list *l, struct cw_error *err)
{
    int r = 0;
    for (size_t i = 0; i < l->n && r == 0; i++)
        r = cw_cache_pin(&l->sets[i], strcmp(x->verb, "pin") == 0, err);
    return r;
}

/* The number of entries that the store's thread has handled: written, or refused. */
static uint64_t cache_n_written(const struct cw_cache *c)
{
    struct cw_cache_facts f;
    cw_cache_facts(c, &f);
    return f.kept + f.refused;
}

/* Takes the batches of one epoch. While the queue of entries to write is full, a batch may take longer than
 * --wait. That is an error only if no entry was written meanwhile. */
static int cache_warm_epoch(struct cache *x, struct cw_iterator_options *o, struct cw_error *err)
{
    struct cw_local *l = &x->common.local;
    struct cw_batch *b;
    int r = cw_iterator_new(l->sequence, o, NULL, &l->iterator, err);
    while (r == 0) {
        uint64_t before = cache_n_written(l->cache);
        r = cw_iterator_next(l->iterator, (uint64_t)(x->common.wait_s * 1e9), &b, err);
        if (r == 0)
            cw_iterator_release(l->iterator, b);
        else if (r == CW_E_DEADLINE && cache_n_written(l->cache) != before)
            r = 0;
    }
    l->iterator = cw_iterator_free(l->iterator);
    return r < 0 ? r : 0;
}

static int cache_warm(struct cache *x, struct cw_error *err)
{
    struct cw_local *l = &x->common.local;
    struct cw_iterator_options o = {
        .epochs = 1,
        .world_size = 1,
        .runner = {.threads = (unsigned)x->common.threads,
                   .more_threads = !x->common.threads_given,
                   .memory = x->common.memory,
                   .optimize = !x->common.no_optimize},
    };
    struct cw_cache_facts facts = {0};
    if (!x->caching.dir)
        return cw_error_value(
            err, CW_E_OPTION, "cache-dir", "", "a directory",
            "cachew cache warm PIPELINE needs --cache-dir DIR, the cache directory to fill");
    int r = cli_pipeline_load(&x->common, err);
    o.seed = x->common.seed;
    if (r >= 0 && !l->compiled->n_cache_points)
        r = cw_error_set(err, CW_E_OPTION,
                         "%s has neither the operator autocache nor cache: expected one of them, at the "
                         "place whose elements are to be cached",
                         x->common.file);
    x->caching.waits = true;
    if (r >= 0)
        r = cw_caching_open(l, &x->caching, &o.runner, err);
    if (r >= 0 && !l->cache)
        r = cw_error_value(err, CW_E_OPTION, "cache", x->caching.where,
                           "auto, or the number of a cache point",
                           "--cache %s would cache nothing: expected auto, or the number of a cache point "
                           "(an operator cache or autocache, counted from 0)",
                           x->caching.where);
    o.runner.adaptive = false; /* keep all elements, however slow storage is */
    if (r >= 0)
        r = cli_pipeline_open(&x->common, err);
    if (r >= 0) {
        l->compiled->grouping.full_only =
            false; /* keep elements that this epoch leaves out, as other epochs deliver them */
        r = cache_warm_epoch(x, &o, err);
    }
    if (r >= 0)
        r = cw_cache_flush(l->cache, err);
    if (r < 0)
        return r;
    l->cache = cw_cache_close_facts(l->cache, &facts);
    uint64_t no_room = facts.refused + facts.skipped;
    if (x->common.json)
        return cli_print(json_pack("{s:I, s:I, s:I, s:I, s:I}", "kept", (json_int_t)facts.kept, "there",
                                   (json_int_t)facts.hits, "refused", (json_int_t)no_room, "evicted",
                                   (json_int_t)facts.evicted, "bytes", (json_int_t)facts.bytes_written));
    char size[32];
    printf("%" PRIu64 " entries written, %s; %" PRIu64 " were cached before; %" PRIu64
           " were left out for lack of space",
           facts.kept, cw_text_bytes((double)facts.bytes_written, size), facts.hits, no_room);
    if (facts.evicted)
        printf("; %" PRIu64
               " segments (cache files) were removed to make room, maybe with some of these entries",
               facts.evicted);
    printf("\n");
    return 0;
}

static const struct {
    const char *name;
    bool narrow; /* the verb needs a set, or --all */
    int (*run)(struct cache *x, const struct cw_cache_list *l, struct cw_error *err);
} cache_verbs[] = {
    {"ls", false, cache_ls}, {"stat", false, cache_stat}, {"verify", false, cache_verify},
    {"rm", true, cache_rm},  {"pin", true, cache_pin},    {"unpin", true, cache_pin},
};

static int cache_dispatch(struct cache *x, struct cw_error *err)
{
    struct cw_cache_list l = {0};
    size_t v = 0;
    while (v < CW_COUNT_OF(cache_verbs) && strcmp(cache_verbs[v].name, x->verb) != 0)
        v++;
    if (strcmp(x->verb, "warm") == 0)
        return cache_warm(x, err);
    if (v == CW_COUNT_OF(cache_verbs))
        return cw_error_value(
            err, CW_E_OPTION, "verb", x->verb, "ls, stat, rm, verify, warm, pin or unpin",
            "cachew cache %.60s: expected ls, stat, rm, verify, pin or unpin with DIR, or warm PIPELINE",
            x->verb);
    bool narrow = cache_verbs[v].narrow;
    if (narrow && (!x->key || !*x->key) && !x->all)
        return cw_error_set(err, CW_E_OPTION,
                            "cachew cache %s %s needs a set: expected the first characters of a set's name, "
                            "as `cachew cache ls` shows it, or --all",
                            x->verb, x->dir);
    int r = cw_cache_list(x->dir, x->key, &l, err);
    if (r >= 0 && x->key && !l.n)
        r = cw_error_set(
            err, CW_E_OPTION,
            "%s has no cached set whose name begins with \"%.40s\": `cachew cache ls` lists their names",
            x->dir, x->key);
    else if (r >= 0 && narrow && x->key && l.n > 1)
        r = cw_error_set(err, CW_E_OPTION,
                         "%zu sets of %s begin with \"%.40s\": expected more characters, so that only one "
                         "set's name begins with them, or --all",
                         l.n, x->dir, x->key);
    else if (r >= 0)
        r = cache_verbs[v].run(x, &l, err);
    cw_cache_list_deinit(&l);
    return r;
}

static int cache_main(int argc, char **argv, struct cw_error *err)
{
    struct cache x = {0};
    const struct cli_option options[] = {
        {"all", CLI_FLAG, &x.all, NULL,
         "pin, unpin: apply to all sets; rm: remove all sets that are neither pinned nor in use by a run"},
        {"repair", CLI_FLAG, &x.repair, NULL,
         "verify: remove damaged segments (files of a set) with all their entries"},
        {"cache-dir", CLI_TEXT, &x.caching.dir, "DIR", "warm: fill the cache directory DIR (required)"},
        {"cache", CLI_TEXT, &x.caching.where, "WHERE",
         "warm: cache the elements at this cache point (operator cache or autocache), counted from 0; auto "
         "(default): at the last one that can be used"},
        CLI_CACHE_BYTES_OPTION(&x.caching.quota, "warm: "),
        CLI_PIPELINE_OPTIONS(&x.common, "warm: run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_cache, options, argc, argv, err);
    if (r == 0) {
        x.verb = argv[1];
        x.common.file = x.dir = argv[2];
        x.key = argv[3];
        r = cache_dispatch(&x, err);
    }
    cli_pipeline_deinit(&x.common);
    return r;
}

const struct cli_verb cli_verb_cache = {
    .name = "cache",
    .arguments = "ls|stat|rm|verify|pin|unpin DIR [SET], or warm PIPELINE ",
    .min_args = 2,
    .max_args = 3,
    .summary = "list, check, fill or empty a directory of cached elements",
    .details =
        "A set is all elements in DIR that were cached after the same computation. SET is the beginning of a "
        "set's name, as ls shows it.\n\n  ls                       list the sets\n  stat                     "
        "print the sums over all sets\n  verify                   read all cached elements and check them; "
        "exit with 1 if any is damaged\n  rm                       remove a set (SET) or all sets (--all), "
        "unless a run uses them\n  pin, unpin               protect a set (SET) or all sets (--all) from "
        "being removed to make room, or end that protection\n  warm PIPELINE            compute the elements "
        "of a pipeline and write them to the directory of --cache-dir",
    .run = cache_main,
};
