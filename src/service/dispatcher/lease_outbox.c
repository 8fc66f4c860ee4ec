/* Puts leases and revocations into messages, and sends them. */
#include "service/dispatcher/lease_outbox.h"

#include "base/macro.h"
#include "service/dispatcher/state.h"

void cw_dp_outbox_dirty(struct cw_dispatcher *d, struct assignment *t)
{
    if (!cw_link_in(&t->outbox.dirty))
        cw_list_add(&d->assignments.dirty, &t->outbox.dirty);
}

/* Fills in the part of the span that lies in its first epoch. Returns the end of that part as a position
 * counted over all epochs. */
static uint64_t outbox_range(const struct stream *s, struct span span, Cachew__Range *ret)
{
    Cachew__Place at = cw_dp_stream_place(s, span.begin);
    uint64_t n = CW_MIN(span.end - span.begin, cw_dp_stream_epoch(s) - at.position);
    *ret = (Cachew__Range){CW_MESSAGE(range), .epoch = at.epoch, .begin = at.position,
                           .end = at.position + n};
    return span.begin + n;
}

static void outbox_send_revoke(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Range ranges[2 * OUTBOX_SPANS], *pointers[2 * OUTBOX_SPANS];
    Cachew__Revoke r = {CW_MESSAGE(revoke), .stream = {16, s->id}, .positions = pointers};
    Cachew__Envelope m = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_REVOKE, .revoke = &r};
    for (size_t i = 0; i < t->outbox.n_revoke; i++)
        for (struct span left = t->outbox.revoke[i];
             left.begin < left.end;) { /* a range of the message can't cross epochs */
            pointers[r.n_positions] = &ranges[r.n_positions];
            left.begin = outbox_range(s, left, pointers[r.n_positions++]);
            if (r.n_positions == CW_COUNT_OF(ranges)) {
                cw_dp_peer_send(d, t->worker->peer, &m);
                r.n_positions = 0;
            }
        }
    if (r.n_positions > 0)
        cw_dp_peer_send(d, t->worker->peer, &m);
}

static void outbox_send_leases(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    Cachew__Range ranges[DP_CAPACITY + 2], *pointers[DP_CAPACITY + 2];
    uint64_t from[DP_CAPACITY + 2], align = s->data->plan->align;
    protobuf_c_boolean whole[DP_CAPACITY + 2];
    bool counted = cw_dp_stream_counted(s);
    Cachew__Leases l = {CW_MESSAGE(leases), .stream = {16, s->id}, .ranges = pointers, .from = from,
                        .whole = whole};
    l.n_ranges = l.n_from = l.n_whole = t->outbox.n_leases;
    for (size_t i = 0; i < t->outbox.n_leases; i++) {
        /* never NULL: leases of dropped ranges are removed from the outbox */
        const struct range *x = cw_dp_range_find(&s->ranges, t->outbox.leases[i]);
        pointers[i] = &ranges[i];
        whole[i] = (x->flags & RANGE_REPORTED) != 0;
        outbox_range(s, (struct span){x->begin, x->end}, pointers[i]);
        ranges[i].lease = x->holder[x->holder[0].assignment != t].lease;
        /* clients need no batch that ends at or before base: computing begins with the batch that has base */
        uint64_t base = ranges[i].begin + (s->ranges.base > x->begin ? s->ranges.base - x->begin : 0);
        from[i] = counted ? CW_MAX(ranges[i].begin, base - base % align) : ranges[i].begin;
    }
    Cachew__WorkerAddress origin;
    Cachew__Place passed;
    if (s->assignments.origin) {
        origin = cw_dp_worker_address(s->assignments.origin->worker);
        passed = cw_dp_stream_place(s, s->ranges.base);
        l.origin = &origin;
        l.passed = &passed;
    }
    cw_dp_peer_send(
        d, t->worker->peer,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_LEASES, .leases = &l});
}

void cw_dp_outbox_flush(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (t, struct assignment, outbox.dirty, &d->assignments.dirty) {
        struct lease_outbox *out = &t->outbox;
        cw_link_out(&out->dirty);
        if (out->n_revoke > 0 && t->worker->ready)
            outbox_send_revoke(d, t);
        if ((out->n_leases > 0 || out->new_origin) && t->worker->ready)
            outbox_send_leases(d, t);
        out->n_revoke = out->n_leases = 0;
        out->new_origin = false;
    }
}

void cw_dp_outbox_unsend(struct assignment *t, uint64_t begin, uint64_t end)
{
    struct lease_outbox *out = &t->outbox;
    size_t n = 0;
    for (size_t i = 0; i < out->n_leases; i++)
        if (out->leases[i] < begin || out->leases[i] >= end)
            out->leases[n++] = out->leases[i];
    out->n_leases = n;
}

void cw_dp_outbox_revoke(struct cw_dispatcher *d, struct assignment *t, uint64_t begin, uint64_t end)
{
    struct lease_outbox *out = &t->outbox;
    struct span *last = out->n_revoke > 0 ? &out->revoke[out->n_revoke - 1] : NULL;
    cw_dp_outbox_unsend(t, begin, end);
    if (last && begin >= last->begin && begin <= last->end) { /* inside the last span, or adjacent to it */
        last->end = CW_MAX(last->end, end);
        return;
    }
    if (out->n_revoke == OUTBOX_SPANS) {
        if (t->worker->ready)
            outbox_send_revoke(d, t);
        out->n_revoke = 0;
    }
    out->revoke[out->n_revoke++] = (struct span){begin, end};
    cw_dp_outbox_dirty(d, t);
}
