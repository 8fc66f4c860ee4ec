/*
 * Rows that stand at a cache point, from the cache and to it. A block is had from the cache as a whole or
 * computed as a whole, so that no operator ever sees rows that are not to be computed.
 *
 * The content of an entry: components of fixed type one after the other, then those of varying shape, each
 * behind a struct varying. No lock is held here.
 */
#include <string.h>

#include "engine/cached.h"

#include "base/cost_clock.h"

#define VALUE_ALIGN 16 /* of varying values, and of what is in front of them */

struct varying {
    uint64_t size;
    int64_t ndim, dims[CW_MAX_NDIM];
};

#define VARYING_BYTES CW_ALIGN_UP(sizeof(struct varying), VALUE_ALIGN)

/* ---- from the cache ---- */

/* Where a component of fixed type of a block's rows goes: its place in the batch, if it has one and that is
 * known, else memory of the block's. */
static uint8_t *dense_place(const struct cw_runner *r, struct block *b, const struct cw_component *m,
                            struct cw_error *err)
{
    const struct cw_program *g = b->program;
    for (unsigned k = 0; r->compiled->counted && r->layout.slab_bytes && k < g->n_outputs; k++)
        if (g->outputs[k].value == m->value && cw_segment_slots(r, &b->segments[0], k))
            return cw_segment_slots(r, &b->segments[0], k);
    return cw_arena_alloc(&b->arena, b->b.n * cw_type_bytes(&m->type), err);
}

/* Columns to be filled in, and where each entry's content goes. */
static int prepare(const struct cw_runner *r, struct block *b, struct cw_cache_get *gets, uint8_t **tails,
                   struct cw_error *err)
{
    const struct cached *c = b->way->cached;
    size_t n = b->b.n, parts = c->m->n - c->n_varying + 1;
    struct iovec *v = cw_arena_alloc(&b->arena, n * parts * sizeof(*v), err);
    b->hits = cw_arena_alloc(&b->arena, c->m->n * sizeof(*b->hits), err);
    b->hit_status = cw_arena_alloc(&b->arena, n, err);
    if (!v || !b->hits || !b->hit_status)
        return err->status;
    for (unsigned k = 0; k < c->m->n; k++) {
        const struct cw_component *m = &c->m->components[k];
        b->hits[k] = (struct cw_column){0};
        if (c->fixed[k]) {
            uint8_t *data = dense_place(r, b, m, err);
            if (!data)
                return err->status;
            b->hits[k] = (struct cw_column){
                .dense = true, .data = data, .stride = cw_type_bytes(&m->type), .type = &m->type};
        } else {
            if (!(b->hits[k].rows = cw_arena_alloc(&b->arena, n * sizeof(*b->hits[k].rows), err)))
                return err->status;
            memset(b->hits[k].rows, 0, n * sizeof(*b->hits[k].rows));
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct cw_cache_get *get = &gets[i];
        b->hit_status[i] = get->place.dropped ? CW_ROW_DROPPED : CW_ROW_OK;
        get->v = v + i * parts;
        get->n_v = 0;
        tails[i] = NULL;
        if (get->place.dropped ? get->place.length != 0
            : c->n_varying     ? get->place.length < c->fixed_bytes
                               : get->place.length != c->fixed_bytes)
            return 1; /* not what we write */
        if (get->place.dropped)
            continue;
        for (unsigned k = 0; k < c->m->n; k++)
            if (c->fixed[k])
                get->v[get->n_v++] = (struct iovec){.iov_base = b->hits[k].data + i * b->hits[k].stride,
                                                    .iov_len = b->hits[k].stride};
        if (!c->n_varying)
            continue;
        size_t tail = get->place.length - c->fixed_bytes;
        if (!(tails[i] = cw_arena_alloc(&b->arena, tail, err)))
            return err->status;
        get->v[get->n_v++] = (struct iovec){.iov_base = tails[i], .iov_len = tail};
    }
    return 0;
}

/* The values of varying shape of a row. 1: they are not what we write. */
static int read_varying(const struct cached *c, struct block *b, size_t row, uint8_t *at, size_t left)
{
    for (unsigned k = 0; k < c->m->n; k++) {
        struct varying v;
        if (c->fixed[k])
            continue;
        if (left < VARYING_BYTES)
            return 1;
        memcpy(&v, at, sizeof(v));
        if (v.size > left - VARYING_BYTES || v.ndim < 0 || v.ndim > CW_MAX_NDIM)
            return 1;
        struct cw_tensor *t = &b->hits[k].rows[row];
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

/* Reads rows that are all there. 0; 1: would block; 2: not to be had after all; 3: not in time. */
static int fetch(const struct cw_runner *r, struct block *b, struct cw_cache_get *gets, struct cw_error *err)
{
    const struct cached *c = b->way->cached;
    size_t n = b->b.n;
    uint8_t **tails = cw_arena_alloc(&b->arena, n * sizeof(*tails), err);
    if (!tails)
        return err->status;
    int status = prepare(r, b, gets, tails, err);
    if (status != 0)
        return status == 1 ? 2 : status;
    /* reading changes the order of gets */
    size_t *lengths = cw_arena_alloc(&b->arena, n * sizeof(*lengths), err);
    if (!lengths)
        return err->status;
    for (size_t i = 0; i < n; i++)
        lengths[i] = gets[i].place.length;
    status = cw_cache_read(b->set, gets, n, &b->arena, b->patience_ns, err);
    for (size_t i = 0; i < n && status == 0 && c->n_varying; i++)
        if (tails[i] && read_varying(c, b, i, tails[i], lengths[i] - c->fixed_bytes) != 0)
            status = 2;
    return status;
}

void cw_block_forget(struct block *b)
{
    cw_cache_set_unref(CW_STEAL(b->set));
    b->hit = b->kept_dropped = false;
    b->hits = NULL;
    b->hit_status = b->kept = NULL;
}

int cw_block_fetch(struct cw_runner *r, struct block *b, struct cw_error *err)
{
    unsigned leaf = b->program->leaf;
    size_t n = b->b.n;
    struct cw_error own = {0};
    cw_block_forget(b);
    if (!(b->set = cw_cached_set(r, leaf, b->way->cached, &b->range->epoch->epoch, &own)))
        return 0;
    uint64_t *rows = cw_arena_alloc(&b->arena, n * sizeof(*rows), err);
    struct cw_record_id *ids = cw_arena_alloc(&b->arena, n * sizeof(*ids), err);
    struct cw_cache_key *keys = cw_arena_alloc(&b->arena, n * sizeof(*keys), err);
    struct cw_cache_place *places = cw_arena_alloc(&b->arena, n * sizeof(*places), err);
    struct cw_cache_get *gets = cw_arena_alloc(&b->arena, n * sizeof(*gets), err);
    uint8_t *kept = cw_arena_alloc(&b->arena, n, err);
    if (!rows || !ids || !keys || !places || !gets || !kept)
        return err->status;
    cw_cached_keys(r, leaf, b->way->cached, b->piece->refs + b->at, n, rows, ids, keys);
    size_t found = cw_cached_find(r, leaf, b->set, &b->range->epoch->epoch, rows, keys, n, places);
    b->n_looked = n;
    b->n_found = found;
    for (size_t i = 0; i < n; i++) {
        kept[i] = places[i].segment != NULL;
        gets[i] = (struct cw_cache_get){.key = keys[i], .place = places[i]};
    }
    uint64_t start = cw_cost_now_ns();
    int status = found == n && !b->unread ? fetch(r, b, gets, err) : 2;
    if (status == 0) {
        b->hit = true;
        for (size_t i = 0; i < n; i++)
            b->content_bytes += places[i].length;
        b->content_rows = n;
        return 0;
    }
    if (status == 1) {
        cw_block_forget(b);
        cw_arena_reset(&b->arena, cw_scratch_keep(r));
        return 1;
    }
    if (status < 0)
        return status;
    if (status == 3)
        b->late_ns = cw_cost_now_ns() - start;
    if (found == n && !b->unread) /* what was wrong is forgotten: it is looked for again, to be kept anew */
        cw_cached_find(r, leaf, b->set, &b->range->epoch->epoch, rows, keys, n, places);
    for (size_t i = 0; i < n; i++)
        kept[i] = places[i].segment != NULL;
    b->kept = kept;
    return 0;
}

void cw_block_put_hits(struct block *b)
{
    const struct cw_cache_point *m = b->way->cached->m;
    for (unsigned k = 0; k < m->n; k++)
        b->b.columns[m->components[k].value] = b->hits[k];
    for (size_t i = 0; i < b->b.n; i++) {
        b->b.status[i] = b->hit_status[i];
        b->b.all_ok &= b->hit_status[i] == CW_ROW_OK;
    }
}

/* ---- to the cache ---- */

static bool faulty(const struct block *b, size_t row)
{
    for (const struct fault *f = b->faults; f; f = f->next)
        if (f->row == row)
            return true;
    return false;
}

static size_t content_bytes(const struct cached *c, const struct cw_block *from, size_t row)
{
    size_t bytes = c->fixed_bytes;
    for (unsigned k = 0; k < c->m->n; k++)
        if (!c->fixed[k])
            bytes += VARYING_BYTES +
                     CW_ALIGN_UP(cw_block_row(from, c->m->components[k].value, row).size, VALUE_ALIGN);
    return bytes;
}

static void write_content(const struct cached *c, const struct cw_block *from, size_t row, uint8_t *at)
{
    for (unsigned k = 0; k < c->m->n; k++)
        if (c->fixed[k]) {
            struct cw_tensor t = cw_block_row(from, c->m->components[k].value, row);
            if (t.size)
                memcpy(at, t.data, t.size);
            at += t.size;
        }
    for (unsigned k = 0; k < c->m->n; k++)
        if (!c->fixed[k]) {
            struct cw_tensor t = cw_block_row(from, c->m->components[k].value, row);
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

static struct cw_cache_key key_of_row(const struct cw_runner *r, const struct block *b, size_t row)
{
    struct cw_cache_key key;
    struct cw_record_id id;
    uint64_t at;
    cw_cached_keys(r, b->program->leaf, b->way->cached, cw_block_ref(b, row), 1, &at, &id, &key);
    return key;
}

void cw_block_keep(struct cw_runner *r, struct block *b, const struct cw_block *c, const uint32_t *map)
{
    const struct cached *cached = b->way->cached;
    if (!b->kept)
        return;
    if (c == &b->b) /* flat_map behind the cache point may make other rows of these */
        cw_block_keep_dropped(r, b);
    uint64_t cost_ns = (cw_cost_now_ns() - b->started_ns) / CW_MAX(c->n, 1);
    for (size_t i = 0; i < c->n; i++) {
        size_t row = map ? map[i] : i;
        struct cw_cache_slot slot;
        if (c->status[i] != CW_ROW_OK || b->kept[row])
            continue;
        b->kept[row] = 1; /* whatever becomes of it from here on */
        cw_cache_missed(b->set, 1);
        if (faulty(b, row))
            continue;
        size_t bytes = content_bytes(cached, c, i);
        struct cw_cache_key key = key_of_row(r, b, row);
        uint8_t *to = cw_cache_reserve(b->set, &key, bytes, false, cost_ns, &slot);
        b->content_rows++;
        b->content_bytes += bytes;
        if (!to)
            continue;
        write_content(cached, c, i, to);
        cw_cache_commit(&slot);
        b->n_kept++;
    }
}

void cw_block_keep_dropped(struct cw_runner *r, struct block *b)
{
    if (b->kept_dropped || b->way->cached->m->counts)
        return;
    b->kept_dropped = true;
    uint64_t cost_ns = (cw_cost_now_ns() - b->started_ns) / CW_MAX(b->b.n, 1);
    for (size_t i = 0; i < b->b.n; i++) {
        struct cw_cache_slot slot;
        if (b->b.status[i] != CW_ROW_DROPPED || b->kept[i] || faulty(b, i))
            continue;
        b->kept[i] = 1;
        b->content_rows++;
        cw_cache_missed(b->set, 1);
        struct cw_cache_key key = key_of_row(r, b, i);
        if (!cw_cache_reserve(b->set, &key, 0, true, cost_ns, &slot))
            continue;
        cw_cache_commit(&slot);
        b->n_kept++;
    }
}
