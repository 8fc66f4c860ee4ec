#include "engine/batch_ops.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "pipeline/sequence.h"

#define COMPONENT_ALIGN 64 /* as in assembly.c */

/* The key of a batch's draws: the operator's of this epoch, and a hash of what is in it; its number may not be known where it is computed. */
static int batch_key(const struct cw_compiled *c, const struct cw_op *op, const struct cw_batch *b, uint64_t seed, uint64_t epoch, uint64_t ret[2],
                     struct cw_error *err)
{
    _cleanup_free_ uint64_t *eids = malloc((b->n + 1) * sizeof(*eids));
    if (!eids)
        return cw_error_nomem(err, b->n * sizeof(*eids), "the key of a batch");
    for (uint32_t i = 0; i < b->n; i++)
        eids[i] = cw_element_id(&c->programs[b->ids[i].leaf], &b->ids[i]);
    ret[0] = cw_epoch_key(seed, epoch, c->salts[op->position]);
    ret[1] = cw_hash64(eids, b->n * sizeof(*eids));
    return 0;
}

static size_t result_bytes(const struct cw_batch_op *o, const struct cw_batch_result *result, uint32_t n)
{
    size_t bytes = 0;
    for (unsigned k = 0; k < o->n_outputs; k++) {
        bytes += CW_ALIGN_UP(result->columns[k].size, (size_t)COMPONENT_ALIGN);
        if (o->op->out[k].type.dtype == CW_BYTES)
            bytes += CW_ALIGN_UP(n * sizeof(uint64_t), (size_t)COMPONENT_ALIGN);
    }
    return CW_MAX(bytes, 1);
}

/* A batch in `slab` from what the operator gave, with the records of `from`, which it replaces. */
static int make_batch(const struct cw_batch_op *o, const struct cw_batch_result *result, struct cw_batch *from, struct cw_slab *slab, struct cw_batch **ret,
                      struct cw_error *err)
{
    struct cw_batch *b = calloc(1, sizeof(*b));
    if (!b || !(b->components = calloc(o->n_outputs, sizeof(*b->components)))) {
        free(b);
        return cw_error_nomem(err, sizeof(*b), "a batch");
    }
    *b = (struct cw_batch){.epoch = from->epoch, .g = from->g, .split = from->split, .index = from->index, .n = from->n, .flags = from->flags,
                           .leading = from->leading, .n_components = o->n_outputs, .components = b->components, .ids = CW_STEAL(from->ids),
                           .slabs = {slab}};
    uint8_t *at = slab->data;
    for (unsigned i = 0; i < o->n_outputs; i++) {
        struct cw_batch_component *c = &b->components[i];
        unsigned k = 0;
        while (o->op->out[k].value != o->outputs[i].value)
            k++;
        const struct cw_tensor *t = &result->columns[k];
        c->name = o->outputs[i].name;
        c->dtype = o->outputs[i].type.dtype;
        c->ndim = 1 + t->ndim;
        c->dims[0] = b->n;
        memcpy(c->dims + 1, t->dims, (size_t)t->ndim * sizeof(t->dims[0]));
        if (c->dtype == CW_BYTES) {
            uint64_t *lengths = (uint64_t *)(void *)at;
            uint64_t before = 0;
            for (uint32_t j = 0; j < b->n; j++) { /* checked before, but in memory that the host can still write to */
                uint64_t end = __atomic_load_n(&result->offsets[k][j + 1], __ATOMIC_RELAXED);
                end = CW_MIN(CW_MAX(end, before), t->size);
                lengths[j] = end - before;
                before = end;
            }
            c->lengths = lengths;
            at += CW_ALIGN_UP(b->n * sizeof(uint64_t), (size_t)COMPONENT_ALIGN);
        }
        c->data = at;
        c->size = t->size;
        if (t->size)
            memcpy(at, t->data, t->size);
        at += CW_ALIGN_UP(t->size, (size_t)COMPONENT_ALIGN);
    }
    *ret = b;
    return 0;
}

static void add_note(struct cw_assembly *a, const char *note)
{
    struct cw_quarantined *q = *note && a->batch->n ? calloc(1, sizeof(*q)) : NULL;
    if (!q)
        return;
    *q = (struct cw_quarantined){.next = a->quarantined, .id = a->batch->ids[0], .op = "map_batches", .note = true};
    snprintf(q->message, sizeof(q->message), "%s", note);
    a->quarantined = q;
}

int cw_batch_apply(const struct cw_compiled *c, struct cw_assembly *a, uint64_t seed, uint64_t epoch, int (*stopped)(void *arg), void *stop_arg,
                   cw_slab_getter get, void *get_arg, struct cw_error *err)
{
    while (a->n_applied < c->n_batch_ops) {
        const struct cw_batch_op *o = &c->batch_ops[a->n_applied];
        struct cw_batch_result result;
        struct cw_slab *slab = NULL;
        struct cw_batch *b = NULL;
        uint64_t key[2];
        int status = batch_key(c, o->op, a->batch, seed, epoch, key, err);
        if (status >= 0)
            status = o->op->desc->batch(o->op, a->batch, key, stopped, stop_arg, &result, err);
        if (status < 0)
            return status;
        status = get(result_bytes(o, &result, a->batch->n), &slab, get_arg, err);
        if (status >= 0)
            status = make_batch(o, &result, a->batch, slab, &b, err);
        o->op->desc->batch_release(&result);
        if (status < 0) {
            if (slab)
                cw_slab_put(slab);
            return status;
        }
        cw_batch_free(a->batch);
        a->batch = b;
        add_note(a, result.note);
        a->n_applied++;
    }
    return 0;
}
