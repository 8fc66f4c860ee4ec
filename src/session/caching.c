/* The cache of a run in this process: opens it, chooses the cache point, and makes JSON about both. cli/ and
 * api/ call it. */
#include "session/caching.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/notice.h"
#include "cache/cache.h"
#include "session/autocache.h"

static int caching_cache_point(const struct cw_compiled *c, const char *where, int64_t *ret,
                               struct cw_error *err)
{
    char *end, expected[64];
    long long n = strtoll(where, &end, 10);
    if (strcmp(where, "auto") == 0) {
        *ret = CW_CACHE_POINT_AUTO;
        return 0;
    }
    if (*where >= '0' && *where <= '9' && !*end && n < c->n_cache_points) {
        *ret = n;
        return 0;
    }
    if (c->n_cache_points)
        snprintf(expected, sizeof(expected), "auto, off, or the number of a cache point: 0 to %u",
                 c->n_cache_points - 1);
    else
        snprintf(expected, sizeof(expected), "auto or off: the pipeline has no cache point");
    return cw_error_value(err, CW_E_OPTION, "cache", where, expected, "--cache %.40s: expected %s", where,
                          expected);
}

double cw_write_rate(struct cw_write_rate *rate, const struct cw_cache_facts *now)
{
    if (now->write_ns > rate->ns) {
        double last = (double)(now->bytes_written - rate->bytes) * 1e9 / (double)(now->write_ns - rate->ns);
        rate->bytes_per_s = rate->bytes_per_s > 0 ? (rate->bytes_per_s + last) / 2 : last;
    }
    rate->bytes = now->bytes_written;
    rate->ns = now->write_ns;
    return rate->bytes_per_s;
}

bool cw_caching_open_to(const struct cw_compiled *c)
{
    bool any = false;
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_cache_point *m = cw_cache_point_choose(&c->programs[i], CW_CACHE_POINT_AUTO);
        if (m && m->forced)
            return false;
        any |= m != NULL;
    }
    return any;
}

/* Tells the user, once per process, that an operator `cache` keeps nothing. */
static void caching_tell_unused(const struct cw_compiled *c)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    for (unsigned i = 0; i < c->n_programs; i++) {
        const struct cw_cache_point *m = cw_cache_point_choose(&c->programs[i], CW_CACHE_POINT_AUTO);
        if (m && m->forced && !atomic_flag_test_and_set(&told))
            cw_notice("cachew: the operator cache keeps no elements, because this run has no cache "
                      "directory: give one (--cache-dir DIR; in Python cache_dir=), or turn the cache off "
                      "(--cache off; in Python cache=\"off\")");
    }
}

int cw_caching_open(struct cw_local *l, const struct cw_caching *c, struct cw_runner_options *o,
                    struct cw_error *err)
{
    const char *where = c->where ? c->where : "auto";
    bool off = strcmp(where, "off") == 0;
    int64_t number = CW_CACHE_POINT_AUTO;
    int r = off ? 0 : caching_cache_point(l->compiled, where, &number, err);
    if (r < 0 || off)
        return r;
    if (!c->dir) {
        if (!c->where && !c->quota) {
            caching_tell_unused(l->compiled);
            return 0;
        }
        return cw_error_value(err, CW_E_OPTION, "cache-dir", "", "a directory",
                              "--cache and --cache-bytes need a cache: expected --cache-dir DIR as well");
    }
    const struct cw_cache_options options = {.dir = c->dir, .quota = c->quota, .waits = c->waits};
    r = cw_cache_open(&options, &l->cache, err);
    if (r < 0)
        return err->status = CW_E_OPTION; /* an error of the option, since no data are read yet */
    o->cache = l->cache;
    o->cache_point = number;
    o->adaptive = number == CW_CACHE_POINT_AUTO && cw_caching_open_to(l->compiled);
    return 0;
}

json_t *cw_caching_cache_points(const struct cw_compiled *c)
{
    json_t *list = json_array();
    for (unsigned k = 0; k < c->n_programs; k++)
        for (unsigned i = 0; i < c->programs[k].n_cache_points; i++) {
            const struct cw_cache_point *m = &c->programs[k].cache_points[i];
            /* after a concat several programs have the cache point; if one of them can't use it, the reason
             * is that program's */
            bool known = false;
            for (size_t j = 0; j < json_array_size(list); j++) {
                json_t *o = json_array_get(list, j);
                if (json_integer_value(json_object_get(o, "number")) != m->number)
                    continue;
                known = true;
                if (m->inert)
                    json_object_set_new(o, "inert", json_string(m->inert));
            }
            if (known)
                continue;
            json_t *o = json_pack("{s:i, s:s, s:i, s:b}", "number", (int)m->number, "op", m->op->desc->name,
                                  "position", (int)m->op->position, "draws", m->draws);
            if (o && m->inert)
                json_object_set_new(o, "inert", json_string(m->inert));
            json_array_append_new(list, o);
        }
    return list;
}

void cw_caching_warn(const struct cw_compiled *c, void (*note)(void *arg, const char *text), void *arg)
{
    size_t i;
    const json_t *m;
    char text[256];
    json_auto_t *list = cw_caching_cache_points(c);
    json_array_foreach(list, i, m)
    {
        const char *inert = json_string_value(json_object_get(m, "inert"));
        snprintf(text, sizeof(text), "%.40s (operator %d) is not used: %.160s",
                 json_string_value(json_object_get(m, "op")),
                 (int)json_integer_value(json_object_get(m, "position")), inert ? inert : "");
        if (inert)
            note(arg, text);
    }
}

static json_t *caching_counts_json(const struct cw_cache_facts *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:f, s:I, s:I}", "hits",
                     (json_int_t)f->hits, "misses", (json_int_t)f->misses, "bad", (json_int_t)f->bad, "gone",
                     (json_int_t)f->gone, "late", (json_int_t)f->late, "kept", (json_int_t)f->kept, "skipped",
                     (json_int_t)f->skipped, "refused", (json_int_t)f->refused, "bytes_read",
                     (json_int_t)f->bytes_read, "read_s", (double)f->read_ns * 1e-9, "bytes_written",
                     (json_int_t)f->bytes_written, "bytes_stored", (json_int_t)f->bytes_stored, "write_s",
                     (double)f->write_ns * 1e-9, "published", (json_int_t)f->published, "evicted",
                     (json_int_t)f->evicted);
}

json_t *cw_caching_report(const struct cw_local *l)
{
    struct cw_cache_facts f;
    if (!l->cache)
        return NULL;
    cw_cache_facts(l->cache, &f);
    json_t *o = caching_counts_json(&f);
    if (o && l->autocache)
        cw_autocache_report(l->autocache, o);
    return o;
}

void cw_caching_end(struct cw_local *l, json_t *report)
{
    struct cw_cache_facts f;
    if (!l->cache)
        return;
    l->autocache = cw_autocache_free(l->autocache);
    l->iterator = cw_iterator_free(l->iterator);
    l->cache = cw_cache_close_facts(l->cache, &f);
    json_auto_t *all = caching_counts_json(&f);
    json_object_update(report, all);
}
