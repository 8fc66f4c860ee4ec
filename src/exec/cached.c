/*
 * An execution either reads all of its rows at the cache point from the cache or computes all of them, so no
 * operator sees rows that need not be computed.
 *
 * The content of an entry: the components of fixed size one after the other, then those of varying shape,
 * each after a struct varying.
 */
#include "exec/cached.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cost_clock.h"
#include "base/thread.h"
#include "cache/cache.h"
#include "storage/file.h"

#define VALUE_ALIGN 16 /* alignment of varying values, and of the bytes before them */

struct varying {
    uint64_t size;
    int64_t ndim, dims[CW_MAX_NDIM];
};

#define VARYING_BYTES CW_ALIGN_UP(sizeof(struct varying), VALUE_ALIGN)

struct cw_cached {
    const struct cw_exec_env *env;
    unsigned leaf;
    const struct cw_cache_point *point;
    struct cw_cache *cache;
    struct cw_hash128 identity; /* hash of the cache point's identity and the source's context */
    char *meta;
    size_t fixed_bytes; /* bytes of an entry's components of fixed size, which come first */
    unsigned n_varying;
    uint8_t fixed[CW_MAX_COMPONENTS]; /* by component: whether its size is fixed */
    pthread_mutex_t mutex;
    /* the cache set used last; NULL: it could not be opened. The mutex guards this and the next two */
    struct cw_cache_set *set;
    struct cw_hash128 key;
    bool opened; /* true: set and key are the result of an attempt to open */
};

const struct cw_op *cw_cached_cache_point(const struct cw_cached *c)
{
    return c ? c->point->op : NULL;
}

static const struct cw_source *cached_source(const struct cw_cached *c)
{
    return c->env->sequence->sources[c->leaf];
}

/* ---- sets ---- */

/* Returns a description of the cached elements for people: JSON, which the caller frees. */
static char *cached_describe(const struct cw_program *g, const struct cw_cache_point *m)
{
    json_t *operators = json_array(), *components = json_object();
    char type[160];
    for (unsigned i = 0; g->ops[i] != m->op; i++) {
        json_t *o = cw_attrs_identity(g->ops[i]->desc, g->ops[i]->attrs);
        json_object_set_new(o, "op", json_string(g->ops[i]->desc->name));
        json_array_append_new(operators, o);
    }
    for (unsigned k = 0; k < m->n; k++)
        json_object_set_new(components, m->components[k].name,
                            json_string(cw_type_print(&m->components[k].type, type)));
    json_auto_t *meta = json_pack("{s:o, s:o, s:I}", "operators", operators, "components", components,
                                  "created", (json_int_t)time(NULL));
    return meta ? json_dumps(meta, JSON_INDENT(2)) : NULL;
}

/* Returns the key of the cache set of an epoch. It includes the keys of random draws before the cache point,
 * which may differ between epochs. */
static struct cw_hash128 cached_epoch_key(const struct cw_cached *c, const struct cw_epoch *e)
{
    const struct cw_program *g = &c->env->compiled->programs[c->leaf];
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    (void)XXH3_128bits_update(&state, &c->identity, sizeof(c->identity));
    for (unsigned i = 0; g->ops[i] != c->point->op; i++)
        if (g->ops[i]->desc->effects.random || g->ops[i]->desc->function)
            (void)XXH3_128bits_update(&state, &e->keys[g->ops[i]->position], sizeof(*e->keys));
    XXH128_hash_t h = XXH3_128bits_digest(&state);
    return (struct cw_hash128){.lo = h.low64, .hi = h.high64};
}

struct cw_cache_set *cw_cached_set(struct cw_cached *c, const struct cw_epoch *e, struct cw_error *err)
{
    struct cw_hash128 key = c->point->draws ? cached_epoch_key(c, e) : c->identity;
    struct cw_cache_set *set = NULL;
    CW_GUARD(&c->mutex);
    if (!c->opened || key.lo != c->key.lo || key.hi != c->key.hi) {
        cw_cache_set_unref(CW_STEAL(c->set));
        if (cw_cache_set_open(c->cache, key, c->meta, &c->set, err) < 0)
            c->set = NULL;
        c->key = key;
        c->opened = true;
    }
    if (c->set)
        set = cw_cache_set_ref(c->set);
    return set;
}

struct cw_cached *cw_cached_free(struct cw_cached *c)
{
    if (!c)
        return NULL;
    cw_cache_set_unref(c->set);
    pthread_mutex_destroy(&c->mutex);
    free(c->meta);
    free(c);
    return NULL;
}

int cw_cached_new(const struct cw_exec_env *env, unsigned leaf, const struct cw_cache_point *point,
                  struct cw_cache *cache, struct cw_cached **ret, struct cw_error *err)
{
    struct cw_cached *c = calloc(1, sizeof(*c));
    if (!c || !(c->meta = cached_describe(&env->compiled->programs[leaf], point))) {
        free(c);
        return cw_error_nomem(err, sizeof(*c), "a cache");
    }
    pthread_mutex_init(&c->mutex, NULL);
    c->env = env;
    c->leaf = leaf;
    c->point = point;
    c->cache = cache;
    const uint64_t parts[3] = {point->identity.lo, point->identity.hi, cached_source(c)->context};
    XXH128_hash_t h = XXH3_128bits(parts, sizeof(parts));
    c->identity = (struct cw_hash128){.lo = h.low64, .hi = h.high64};
    for (unsigned k = 0; k < point->n; k++) {
        c->fixed[k] = cw_type_fixed(&point->components[k].type);
        c->fixed_bytes += c->fixed[k] ? cw_type_bytes(&point->components[k].type) : 0;
        c->n_varying += !c->fixed[k];
    }
    *ret = c;
    return 0;
}

int cw_cached_check(struct cw_cached *c, struct cw_error *err)
{
    if (c->point->draws) /* the set depends on the epoch, which is not known yet */
        return 0;
    struct cw_cache_set *set = cw_cached_set(c, NULL, err);
    cw_cache_set_unref(set);
    return set ? 0 : err->status;
}

char *cw_cached_profile(struct cw_cached *c)
{
    struct cw_error ignored = {0};
    struct cw_cache_set *set = c->point->draws ? NULL : cw_cached_set(c, NULL, &ignored);
    char *text = set ? cw_cache_set_profile(set) : NULL;
    cw_cache_set_unref(set);
    return text;
}

void cw_cached_put_profile(struct cw_cached *c, const char *text)
{
    if (c->set && !c->point->draws)
        cw_cache_set_put_profile(c->set, text);
}

/* ---- looking up ---- */

/* Returns a hash that identifies the content of a row's file: its file key if that covers all of the content,
 * else the file's times too. */
static uint64_t content_key(const struct cw_source *source, uint64_t row, uint64_t file_key)
{
    bool partial = false;
    const struct cw_file *file = source->ops->file ? source->ops->file(source, row, &partial) : NULL;
    if (!partial)
        return file_key;
    struct cw_key k = {0};
    cw_key_u64(&k, file_key);
    cw_key_u64(&k, cw_file_stamp(file));
    return cw_key_hash(&k);
}

/* Sets the cache keys of n positions of the source. */
static void cached_keys(const struct cw_cached *c, const struct cw_ref *refs, size_t n,
                        struct cw_cache_key *ret)
{
    const struct cw_source *source = cached_source(c);
    const struct cw_program *g = &c->env->compiled->programs[c->leaf];
    for (size_t i = 0; i < n; i++) {
        struct cw_record_id id;
        source->ops->ids(source, &refs[i].row, 1, &id);
        id.pass = refs[i].pass;
        id.element = 0;
        ret[i] = (struct cw_cache_key){.file_key = content_key(source, refs[i].row, id.file_key),
                                       .row = id.row,
                                       .variant = c->point->draws ? cw_element_id(g, &id) : 0};
    }
}

/* As cw_cache_find, for n rows of the source. Entries of a file that was changed after it was indexed count
 * as not found: the file is read instead, which gives an error. */
static size_t cached_find(const struct cw_cached *c, struct cw_cache_set *set, const struct cw_epoch *e,
                          const struct cw_ref *refs, const struct cw_cache_key *keys, size_t n,
                          struct cw_cache_place *ret)
{
    const struct cw_source *source = cached_source(c);
    size_t found = cw_cache_find(set, keys, n, ret);
    bool partial;
    for (size_t i = 0; i < n && source->ops->file; i++) {
        struct cw_file *file = ret[i].segment ? source->ops->file(source, refs[i].row, &partial) : NULL;
        if (file && !cw_file_unchanged(file, e->epoch, partial)) {
            ret[i].segment = NULL;
            found--;
        }
    }
    return found;
}

size_t cw_cached_look_up(const struct cw_cached *c, struct cw_cache_set *set, const struct cw_epoch *e,
                         const struct cw_ref *refs, size_t n, uint8_t *found)
{
    struct cw_cache_key keys[CW_CACHED_LOOK_UP];
    struct cw_cache_place places[CW_CACHED_LOOK_UP];
    cached_keys(c, refs, n, keys);
    size_t n_found = cached_find(c, set, e, refs, keys, n, places);
    for (size_t k = 0; found && k < n; k++)
        found[k] = places[k].segment != NULL;
    return n_found;
}

/* ---- from the cache ---- */

/* Returns where the rows of a component of fixed size go: to their slots in the batch if these are known,
 * else to memory of the arena. */
static uint8_t *fetch_place(struct cw_exec *x, const struct cw_component *m, struct cw_error *err)
{
    const struct cw_program *g = x->program;
    for (unsigned k = 0; x->dest.data && k < g->n_outputs; k++)
        if (g->outputs[k].value == m->value && cw_exec_slot(&x->dest, k))
            return cw_exec_slot(&x->dest, k);
    return cw_arena_alloc(&x->arena, x->block.n * cw_type_bytes(&m->type), err);
}

/* Makes columns, and sets where the content of each entry is read to. 1: an entry does not have the size that
 * this pipeline writes. */
static int fetch_prepare(struct cw_exec *x, struct cw_cache_get *gets, uint8_t **tails, struct cw_error *err)
{
    const struct cw_cached *c = x->variant->cached;
    size_t n = x->block.n, parts = c->point->n - c->n_varying + 1;
    struct iovec *v = cw_arena_alloc(&x->arena, n * parts * sizeof(*v), err);
    struct cw_column *columns = cw_arena_alloc(&x->arena, c->point->n * sizeof(*columns), err);
    uint8_t *status = cw_arena_alloc(&x->arena, n, err);
    if (!v || !columns || !status)
        return err->status;
    for (unsigned k = 0; k < c->point->n; k++) {
        const struct cw_component *m = &c->point->components[k];
        columns[k] = (struct cw_column){0};
        if (c->fixed[k]) {
            uint8_t *data = fetch_place(x, m, err);
            if (!data)
                return err->status;
            columns[k] = (struct cw_column){
                .dense = true, .data = data, .stride = cw_type_bytes(&m->type), .type = &m->type};
        } else {
            if (!(columns[k].rows = cw_arena_alloc(&x->arena, n * sizeof(*columns[k].rows), err)))
                return err->status;
            memset(columns[k].rows, 0, n * sizeof(*columns[k].rows));
        }
    }
    x->cache.columns = columns;
    x->cache.status = status;
    for (size_t i = 0; i < n; i++) {
        struct cw_cache_get *get = &gets[i];
        status[i] = get->place.dropped ? CW_ROW_DROPPED : CW_ROW_OK;
        get->v = v + i * parts;
        get->n_v = 0;
        tails[i] = NULL;
        if (get->place.dropped ? get->place.length != 0
            : c->n_varying     ? get->place.length < c->fixed_bytes
                               : get->place.length != c->fixed_bytes)
            return 1;
        if (get->place.dropped)
            continue;
        for (unsigned k = 0; k < c->point->n; k++)
            if (c->fixed[k])
                get->v[get->n_v++] = (struct iovec){.iov_base = columns[k].data + i * columns[k].stride,
                                                    .iov_len = columns[k].stride};
        if (!c->n_varying)
            continue;
        size_t tail = get->place.length - c->fixed_bytes;
        if (!(tails[i] = cw_arena_alloc(&x->arena, tail, err)))
            return err->status;
        get->v[get->n_v++] = (struct iovec){.iov_base = tails[i], .iov_len = tail};
    }
    return 0;
}

/* Sets the values of varying shape of a row from the `left` bytes at `at`. 1: the bytes do not have the form
 * that this pipeline writes. */
static int fetch_varying(const struct cw_exec *x, size_t row, uint8_t *at, size_t left)
{
    const struct cw_cached *c = x->variant->cached;
    for (unsigned k = 0; k < c->point->n; k++) {
        struct varying v;
        if (c->fixed[k])
            continue;
        if (left < VARYING_BYTES)
            return 1;
        memcpy(&v, at, sizeof(v));
        if (v.size > left - VARYING_BYTES || v.ndim < 0 || v.ndim > CW_MAX_NDIM)
            return 1;
        struct cw_tensor *t = &x->cache.columns[k].rows[row];
        *t = (struct cw_tensor){.data = at + VARYING_BYTES, .size = v.size, .ndim = (int)v.ndim};
        memcpy(t->dims, v.dims, sizeof(t->dims));
        size_t taken = VARYING_BYTES + CW_ALIGN_UP(v.size, VALUE_ALIGN);
        if (taken > left)
            return 1;
        at += taken;
        left -= taken;
    }
    return 0;
}

/* Reads the rows, all of which the cache has. 1: the read would block; 2: they can't be read after all; 3:
 * not within the patience. */
static int fetch_rows(struct cw_exec *x, struct cw_cache_get *gets, struct cw_error *err)
{
    const struct cw_cached *c = x->variant->cached;
    size_t n = x->block.n;
    uint8_t **tails = cw_arena_alloc(&x->arena, n * sizeof(*tails), err);
    if (!tails)
        return err->status;
    int status = fetch_prepare(x, gets, tails, err);
    if (status != 0)
        return status == 1 ? 2 : status;
    /* note the lengths, because reading changes the order of gets */
    size_t *lengths = cw_arena_alloc(&x->arena, n * sizeof(*lengths), err);
    if (!lengths)
        return err->status;
    for (size_t i = 0; i < n; i++)
        lengths[i] = gets[i].place.length;
    status = cw_cache_read(x->cache.set, gets, n, &x->arena, x->cache.patience_ns, err);
    for (size_t i = 0; i < n && status == 0 && c->n_varying; i++)
        if (tails[i] && fetch_varying(x, i, tails[i], lengths[i] - c->fixed_bytes) != 0)
            status = 2;
    return status;
}

void cw_cached_forget(struct cw_exec *x)
{
    cw_cache_set_unref(x->cache.set);
    x->cache = (struct cw_exec_cache){.use = x->cache.use, .patience_ns = x->cache.patience_ns};
}

int cw_cached_fetch(struct cw_exec *x, struct cw_error *err)
{
    struct cw_cached *c = x->variant->cached;
    size_t n = x->block.n;
    struct cw_error ignored = {0};
    cw_cached_forget(x);
    if (!(x->cache.set = cw_cached_set(c, x->epoch, &ignored)))
        return 0;
    const struct cw_ref *refs = x->plan->refs + x->at;
    struct cw_cache_key *keys = cw_arena_alloc(&x->arena, n * sizeof(*keys), err);
    struct cw_cache_place *places = cw_arena_alloc(&x->arena, n * sizeof(*places), err);
    struct cw_cache_get *gets = cw_arena_alloc(&x->arena, n * sizeof(*gets), err);
    uint8_t *kept = cw_arena_alloc(&x->arena, n, err);
    if (!keys || !places || !gets || !kept)
        return err->status;
    cached_keys(c, refs, n, keys);
    size_t found = cached_find(c, x->cache.set, x->epoch, refs, keys, n, places);
    x->cache.n_looked = n;
    x->cache.n_found = found;
    for (size_t i = 0; i < n; i++)
        gets[i] = (struct cw_cache_get){.key = keys[i], .place = places[i]};
    uint64_t start = cw_cost_now_ns();
    bool readable = found == n && x->cache.use == CW_CACHE_USE_READ;
    int status = readable ? fetch_rows(x, gets, err) : 2;
    if (status == 0) {
        x->cache.hit = true;
        for (size_t i = 0; i < n; i++)
            x->cache.content_bytes += places[i].length;
        x->cache.content_rows = n;
        return 0;
    }
    if (status == 1) {
        cw_cached_forget(x);
        cw_arena_reset(&x->arena, cw_exec_scratch_keep(x->arena.budget));
        return 1;
    }
    if (status < 0)
        return status;
    if (status == 3)
        x->cache.late_ns = cw_cost_now_ns() - start;
    if (readable) /* wrong entries were removed: look the rows up again, so that they are written anew */
        cached_find(c, x->cache.set, x->epoch, refs, keys, n, places);
    for (size_t i = 0; i < n; i++)
        kept[i] = places[i].segment != NULL;
    x->cache.kept = kept;
    return 0;
}

void cw_cached_put_hits(struct cw_exec *x)
{
    const struct cw_cache_point *m = x->variant->cached->point;
    for (unsigned k = 0; k < m->n; k++)
        x->block.columns[m->components[k].value] = x->cache.columns[k];
    for (size_t i = 0; i < x->block.n; i++) {
        x->block.status[i] = x->cache.status[i];
        x->block.all_ok &= x->cache.status[i] == CW_ROW_OK;
    }
}

/* ---- to the cache ---- */

static bool keep_has_fault(const struct cw_exec *x, size_t row)
{
    for (const struct cw_exec_fault *f = x->faults; f; f = f->next)
        if (f->row == row)
            return true;
    return false;
}

static size_t keep_bytes(const struct cw_cached *c, const struct cw_block *from, size_t row)
{
    size_t bytes = c->fixed_bytes;
    for (unsigned k = 0; k < c->point->n; k++)
        if (!c->fixed[k])
            bytes += VARYING_BYTES +
                     CW_ALIGN_UP(cw_block_row(from, c->point->components[k].value, row).size, VALUE_ALIGN);
    return bytes;
}

static void keep_write(const struct cw_cached *c, const struct cw_block *from, size_t row, uint8_t *at)
{
    for (unsigned k = 0; k < c->point->n; k++)
        if (c->fixed[k]) {
            struct cw_tensor t = cw_block_row(from, c->point->components[k].value, row);
            if (t.size)
                memcpy(at, t.data, t.size);
            at += t.size;
        }
    for (unsigned k = 0; k < c->point->n; k++)
        if (!c->fixed[k]) {
            struct cw_tensor t = cw_block_row(from, c->point->components[k].value, row);
            struct varying v = {.size = t.size, .ndim = t.ndim};
            memcpy(v.dims, t.dims, sizeof(v.dims));
            memset(at, 0, VARYING_BYTES);
            memcpy(at, &v, sizeof(v));
            at += VARYING_BYTES;
            if (t.size)
                memcpy(at, t.data, t.size);
            memset(at + t.size, 0, CW_ALIGN_UP(t.size, VALUE_ALIGN) - t.size);
            at += CW_ALIGN_UP(t.size, VALUE_ALIGN);
        }
}

/* Writes an entry for row `row` of x: row i of c; or, if c is NULL, that a filter dropped the row. */
static void keep_row(struct cw_exec *x, size_t row, const struct cw_block *c, size_t i, uint64_t cost_ns)
{
    const struct cw_cached *cached = x->variant->cached;
    size_t bytes = c ? keep_bytes(cached, c, i) : 0;
    struct cw_cache_slot slot;
    struct cw_cache_key key;
    cached_keys(cached, cw_exec_ref(x, row), 1, &key);
    uint8_t *to = cw_cache_reserve(x->cache.set, &key, bytes, !c, cost_ns, &slot);
    x->cache.content_rows++;
    x->cache.content_bytes += bytes;
    if (!to)
        return;
    if (c)
        keep_write(cached, c, i, to);
    cw_cache_commit(&slot);
    x->cache.n_kept++;
}

void cw_cached_keep(struct cw_exec *x, const struct cw_block *c, const uint32_t *map)
{
    if (!x->cache.kept)
        return;
    if (c == &x->block) /* a flat_map after the cache point may make other rows of these */
        cw_cached_keep_dropped(x);
    uint64_t cost_ns = (cw_cost_now_ns() - x->started_ns) / CW_MAX(c->n, 1);
    for (size_t i = 0; i < c->n; i++) {
        size_t row = map ? map[i] : i;
        if (c->status[i] != CW_ROW_OK || x->cache.kept[row])
            continue;
        x->cache.kept[row] = 1; /* marked, whatever happens to the row later */
        cw_cache_missed(x->cache.set, 1);
        if (keep_has_fault(x, row))
            continue;
        keep_row(x, row, c, i, cost_ns);
    }
}

void cw_cached_keep_dropped(struct cw_exec *x)
{
    if (!x->cache.kept || x->cache.kept_dropped || x->variant->cached->point->counts)
        return;
    x->cache.kept_dropped = true;
    uint64_t cost_ns = (cw_cost_now_ns() - x->started_ns) / CW_MAX(x->block.n, 1);
    for (size_t i = 0; i < x->block.n; i++) {
        if (x->block.status[i] != CW_ROW_DROPPED || x->cache.kept[i] || keep_has_fault(x, i))
            continue;
        x->cache.kept[i] = 1;
        cw_cache_missed(x->cache.set, 1);
        keep_row(x, i, NULL, 0, cost_ns);
    }
}
