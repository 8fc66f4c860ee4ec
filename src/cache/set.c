/* The life of a cache set: a directory with the cached elements of one cache point of a pipeline. Owns struct
 * cw_cache_set: its files, index, reference count, and profile (measurements kept for later runs). The
 * store's thread makes and frees sets; runs hold references. */
#include "cache/set.h"

#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/thread.h"
#include "cache/internal.h"

struct cw_cache_set *cw_cache_set_new(struct cw_cache *c, struct cw_hash128 key, const char *meta,
                                      struct cw_error *err)
{
    _cleanup_free_ char *copy = strdup(meta);
    struct cw_cache_set *s = copy ? malloc(sizeof(*s)) : NULL;
    if (!s) {
        cw_error_nomem(err, sizeof(*s), "a cache");
        return NULL;
    }
    *s = (struct cw_cache_set){
        .cache = c,
        .key = key,
        .meta = CW_STEAL(copy),
        .refs = 1,
        .dir_fd = -1,
        .used_fd = -1,
        .opened_ns = cw_now_ns(),
        .touched_ns = cw_now_ns(),
        .writing.direct_fd = -1,
        .index = CW_CACHE_INDEX,
    };
    cw_hash128_print(key, s->name);
    return s;
}

void cw_cache_set_free(struct cw_cache_set *s)
{
    cw_closep(&s->used_fd);
    cw_closep(&s->dir_fd);
    cw_cache_index_deinit(&s->index);
    cw_map_deinit(&s->names);
    free(s->writing.rows);
    free(s->meta);
    free(s->profile);
    free(s);
}

struct cw_cache_set *cw_cache_set_ref(struct cw_cache_set *s)
{
    CW_GUARD(&s->cache->monitor.mutex);
    s->refs++;
    return s;
}

void cw_cache_set_unref(struct cw_cache_set *s)
{
    if (!s)
        return;
    struct cw_cache_monitor *m = &s->cache->monitor;
    CW_GUARD(&m->mutex);
    /* one reference is left, that of the store's thread: wake that thread, which frees the set */
    if (--s->refs == 1)
        pthread_cond_signal(&m->work);
}

size_t cw_cache_find(struct cw_cache_set *s, const struct cw_cache_key *keys, size_t n,
                     struct cw_cache_place *ret)
{
    return cw_cache_index_find(&s->index, keys, n, ret);
}

char *cw_cache_set_profile(struct cw_cache_set *s)
{
    CW_GUARD(&s->cache->monitor.mutex);
    return s->profile ? strdup(s->profile) : NULL;
}

void cw_cache_set_put_profile(struct cw_cache_set *s, const char *text)
{
    char *copy = strdup(text);
    if (!copy) /* without a profile, later runs measure again */
        return;
    CW_GUARD(&s->cache->monitor.mutex);
    free(s->profile);
    s->profile = copy;
    s->profile_changed = true;
}
