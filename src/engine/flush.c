/* The end of an epoch: the elements that wait become its last batches. The consumer's thread calls it, with
 * the mutex held, when all rows of the range are computed. */
#include "engine/flush.h"

#include <stdlib.h>

#include "engine/internal.h"
#include "engine/slots.h"

/* The next `n` elements that wait, from `key` on downwards, joined in one batch. */
struct flush_join {
    const struct cw_range *range;
    unsigned key;
    uint64_t n;
    struct cw_assembly *joined;
};

/* Returns how many elements of a key wait. */
static uint64_t flush_waiting(const struct cw_range *s, unsigned key)
{
    uint64_t arrived = s->counts.arrived[key], batched = s->counts.batched[key];
    return arrived > batched ? arrived - batched : 0; /* less, if elements of earlier batches were lost */
}

/* Copies the rows into a new batch. */
static int flush_try_join(struct cw_runner *r, void *arg, struct cw_error *err)
{
    struct flush_join *j = arg;
    struct cw_assembly *a = NULL;
    uint64_t left = j->n;
    int status = cw_assembly_new(&r->layout, &r->memory.slabs, j->n, j->key, &a, err);
    for (unsigned k = j->key + 1; k-- > 0 && left > 0 && status >= 0;) {
        uint64_t from = j->range->groups[k].moved;
        for (const struct cw_assembly *src = j->range->groups[k].head; src && left > 0 && status >= 0;
             src = src->next, from = 0) {
            uint64_t n = CW_MIN(left, src->n_assigned - from);
            status = cw_assembly_join(a, src, from, n, err);
            left -= n;
        }
    }
    if (status < 0)
        a = cw_assembly_free(a);
    j->joined = a;
    return status;
}

/* Counts n elements of a key as moved to a batch. Frees the batches that are empty then; their reasons of
 * skipped records go to the batch. */
static void flush_moved(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t n,
                        struct cw_assembly *to)
{
    struct range_group *g = &s->groups[key];
    s->counts.batched[key] += n;
    while (n > 0) {
        uint64_t m = CW_MIN(n, g->head->n_assigned - g->moved);
        n -= m;
        g->moved += m;
        if (g->moved < g->head->n_assigned)
            continue;
        struct cw_assembly *a = cw_range_pop_group(s, key);
        cw_quarantined_move(&a->quarantined, &to->quarantined);
        cw_memory_drop_assembly(r, a);
    }
}

/* Makes the next batch of n elements. Returns the same as cw_range_flush. */
static int flush_batch(struct cw_runner *r, struct cw_range *s, unsigned key, uint64_t n,
                       uint64_t deadline_ns, struct cw_error *err)
{
    struct range_group *g = &s->groups[key];
    struct flush_join j = {.range = s, .key = key, .n = n};
    if (g->head && g->moved == 0 && g->head->n_assigned == n) {
        j.joined = cw_range_pop_group(s, key);
        s->counts.batched[key] += n;
    } else {
        int status = cw_memory_try(r, flush_try_join, &j, s, true, deadline_ns, err);
        if (status != 0)
            return status;
        r->memory.n_assemblies++;
        for (unsigned k = key + 1; k-- > 0 && n > 0;) {
            uint64_t m = CW_MIN(n, flush_waiting(s, k));
            flush_moved(r, s, k, m, j.joined);
            n -= m;
        }
    }
    cw_range_deliver_group(r, s, j.joined);
    j.joined->after = cw_slots_entry_at_end(r, s);
    return j.joined->after ? 0 : cw_error_nomem(err, 0, "a position");
}

/* Flushes a range whose batches have keys. Returns the same as cw_range_flush. */
static int flush_keyed(struct cw_runner *r, struct cw_range *s, bool wanted, uint64_t deadline_ns,
                       struct cw_error *err)
{
    const struct cw_compiled *c = r->compiled;
    _cleanup_free_ uint64_t *waiting = calloc(c->n_buckets, sizeof(*waiting));
    if (!waiting)
        return cw_error_nomem(err, 0, "buckets");
    for (unsigned k = 0; k < c->n_buckets; k++)
        if (s->open[k])
            cw_range_append_group(s, CW_STEAL(s->open[k]));
    while (wanted) {
        unsigned key;
        for (unsigned k = 0; k < c->n_buckets; k++)
            waiting[k] = flush_waiting(s, k);
        uint64_t n = cw_grouping_rest(&c->grouping, c->n_buckets, c->bucket_sizes, waiting,
                                      s->counts.group_key, s->counts.group_given, &key);
        if (n == 0)
            break;
        int status = flush_batch(r, s, key, n, deadline_ns, err);
        if (status != 0)
            return status;
    }
    for (unsigned k = 0; k < c->n_buckets; k++)
        while (s->groups[k].head)
            cw_memory_drop_assembly(r, cw_range_pop_group(s, k));
    return 0;
}

/* Flushes a range whose batches have no keys: its open batch, which is in the list of batches. */
static int flush_last(struct cw_runner *r, struct cw_range *s, bool wanted, struct cw_error *err)
{
    struct cw_assembly *a = cw_n_keys(r->compiled) ? CW_STEAL(s->open[0]) : NULL;
    if (!a)
        return 0;
    if (!wanted) {
        cw_range_remove_last(s);
        cw_memory_drop_assembly(r, a);
        return 0;
    }
    s->counts.batched[0] += a->n_assigned;
    a->closed = true;
    a->after = cw_slots_entry_at_end(r, s);
    return a->after ? 0 : cw_error_nomem(err, 0, "a position");
}

int cw_range_flush(struct cw_runner *r, struct cw_range *s, uint64_t deadline_ns, struct cw_error *err)
{
    bool last = s->limit == r->sequence->n_positions;
    int status = r->compiled->keyed && !s->rows
                     ? flush_keyed(r, s, last, deadline_ns, err)
                     : flush_last(r, s, last && !r->compiled->grouping.full_only, err);
    if (status == 0)
        cw_range_end(s, RANGE_FLUSHED);
    return status;
}
