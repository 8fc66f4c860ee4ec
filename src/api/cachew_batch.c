/* Batches of the C interface: each holds a batch of the engine, and a reference to the engine. */
#include "api/cachew_impl.h"

#include <stdio.h>
#include <string.h>

int cw_api_batch_new(struct cw_api_engine *e, struct cw_batch *b, struct cachew_batch **ret,
                     struct cw_error *err)
{
    struct cachew_batch *x = malloc(sizeof(*x) + b->n_components * sizeof(x->components[0]));
    if (!x) {
        cw_iterator_release(e->local.iterator, b);
        return cw_error_nomem(err, sizeof(*x), "a batch");
    }
    x->engine = e;
    x->b = b;
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *c = &b->components[k];
        x->components[k] = (struct cachew_component){
            .name = c->name,
            .dtype = (enum cachew_dtype)c->dtype,
            .ndim = c->ndim,
            .dims = c->dims,
            .data = c->data,
            .size = c->size,
            .lengths = c->lengths,
        };
    }
    atomic_fetch_add(&e->refs, 1);
    *ret = x;
    return 0;
}

void cachew_batch_release(struct cachew_batch *b)
{
    if (!b)
        return;
    struct cw_api_engine *e = b->engine;
    cw_iterator_release(e->local.iterator, b->b);
    free(b);
    cw_api_engine_unref(e);
}

size_t cachew_batch_count(const struct cachew_batch *b)
{
    return b->b->n_components;
}

const struct cachew_component *cachew_batch_component(const struct cachew_batch *b, size_t i)
{
    return i < b->b->n_components ? &b->components[i] : NULL;
}

const struct cachew_component *cachew_batch_find(const struct cachew_batch *b, const char *name)
{
    for (unsigned k = 0; k < b->b->n_components; k++)
        if (strcmp(b->components[k].name, name) == 0)
            return &b->components[k];
    return NULL;
}

uint32_t cachew_batch_records(const struct cachew_batch *b)
{
    return b->b->n;
}

uint64_t cachew_batch_epoch(const struct cachew_batch *b)
{
    return b->b->epoch;
}

uint64_t cachew_batch_g(const struct cachew_batch *b)
{
    return b->b->g;
}

uint32_t cachew_batch_flags(const struct cachew_batch *b)
{
    return b->b->flags;
}

uint32_t cachew_batch_record_flags(const struct cachew_batch *b, uint32_t i)
{
    return i < b->b->n ? b->b->ids[i].flags : 0;
}

size_t cachew_batch_record_id(const struct cachew_batch *b, uint32_t i, char *buffer, size_t size)
{
    char text[128] = "";
    if (i < b->b->n)
        cw_record_print(&b->engine->local.compiled->programs[b->b->ids[i].leaf], &b->b->ids[i], text);
    return (size_t)snprintf(buffer, size, "%s", text);
}

static struct cachew_hash hash_to_api(struct cw_hash128 h)
{
    return (struct cachew_hash){.low = h.lo, .high = h.hi};
}

static struct cw_hash128 hash_from_api(struct cachew_hash h)
{
    return (struct cw_hash128){.lo = h.low, .hi = h.high};
}

struct cachew_hash cachew_batch_hash(const struct cachew_batch *b)
{
    return hash_to_api(cw_batch_hash(b->b));
}

struct cachew_hash cachew_batch_set_hash(const struct cachew_batch *b)
{
    return hash_to_api(cw_batch_set_hash(b->b));
}

struct cachew_hash cachew_hash_add(struct cachew_hash a, struct cachew_hash b)
{
    return hash_to_api(cw_hash128_add(hash_from_api(a), hash_from_api(b)));
}

void cachew_hash_print(struct cachew_hash h, char buffer[33])
{
    cw_hash128_print(hash_from_api(h), buffer);
}
