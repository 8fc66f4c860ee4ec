/* Changes the holders of ranges, and updates everything that depends on them. */
#include "service/dispatcher/leases.h"

#include <inttypes.h>
#include <stdlib.h>

#include "service/dispatcher/lease_outbox.h"
#include "service/dispatcher/notify.h"
#include "service/dispatcher/prepare.h"
#include "service/dispatcher/state.h"

/* ---- granting ---- */

static void lease_send(struct cw_dispatcher *d, struct assignment *t, const struct range *x)
{
    t->outbox.leases[t->outbox.n_leases++] = x->begin;
    cw_dp_outbox_dirty(d, t);
}

/* Adds the range to the counts of its new holder, updates the holder's place in the heap, and marks the
 * placement to be announced to clients. */
static void lease_count(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    t->n_held++;
    t->worker->n_held++;
    if (x->flags & RANGE_COMPLETE)
        t->n_complete++;
    else
        t->to_compute += x->end - x->begin;
    cw_dp_assignment_usable(d, t);
    if (!(x->flags & RANGE_UNSENT))
        cw_dp_stream_announce(d, t->stream, x);
    if (!t->announced)
        cw_dp_notify_worker(d, t);
}

int cw_dp_lease_grant(struct cw_dispatcher *d, struct assignment *t, struct range *x)
{
    struct stream *s = t->stream;
    bool second = x->holder[0].assignment != NULL;
    x->holder[1] = x->holder[0];
    x->holder[0] = (struct holder){t, ++d->leases.last_number};
    if (s->at_most_once) {
        /* the lease is sent to the worker, and announced to clients, once it is durable */
        x->flags |= RANGE_UNSENT;
        if (cw_dp_journal_range(d, s, x, ACTION_LEASE, NULL) < 0) {
            x->flags &= (uint8_t)~RANGE_UNSENT;
            x->holder[0].assignment = NULL;
            return -1;
        }
    } else {
        lease_send(d, t, x);
    }
    if (!second) {
        x->flags &= (uint8_t)~RANGE_HELD;
        x->leased_ns = d->now_ns;
        x->before = t->to_compute;
    }
    d->leases.n_leased++;
    lease_count(d, t, x);
    return 0;
}

void cw_dp_lease_written(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    if (!(x->flags & RANGE_UNSENT))
        return;
    x->flags &= (uint8_t)~RANGE_UNSENT;
    if (x->holder[0].assignment)
        lease_send(d, x->holder[0].assignment, x);
    cw_dp_stream_announce(d, s, x); /* if the holder is gone by now, clients learn that the range is lost */
}

/* ---- dropping ---- */

/* Subtracts the range from the counts of its i-th holder. */
static void lease_uncount(const struct range *x, int i)
{
    struct assignment *t = x->holder[i].assignment;
    t->n_held--;
    t->worker->n_held--;
    if (i == 0 && (x->flags & RANGE_COMPLETE))
        t->n_complete--;
    else
        t->to_compute -= x->end - x->begin;
}

void cw_dp_lease_drop(struct cw_dispatcher *d, struct assignment *t, struct range *x, enum drop how)
{
    struct stream *s = t->stream;
    int i = x->holder[0].assignment == t ? 0 : 1;
    if (x->holder[i].assignment != t)
        return;
    lease_uncount(x, i);
    if (i == 0) {
        x->flags &= (uint8_t)~RANGE_COMPLETE;
        x->holder[0] = x->holder[1];
        cw_dp_stream_announce(d, s, x);
    }
    x->holder[1].assignment = NULL;
    if (!x->holder[0].assignment) {
        d->leases.n_moved++;
        if (s->at_most_once)
            cw_dp_stream_lose(d, s, x);
        else
            s->ranges.free_from = CW_MIN(s->ranges.free_from, x->begin);
    }
    if (how == DROP_REVOKED)
        cw_dp_outbox_revoke(d, t, x->begin, x->end);
    else
        cw_dp_outbox_unsend(t, x->begin, x->end);
    cw_dp_assignment_usable(d, t);
}

void cw_dp_lease_drop_from(struct cw_dispatcher *d, struct assignment *t, uint64_t from, enum drop how)
{
    const struct range_table *ranges = &t->stream->ranges;
    DP_RANGES_EACH (x, ranges, cw_dp_range_index(ranges, from)) {
        if (t->n_held == 0)
            return;
        cw_dp_lease_drop(d, t, x, how);
    }
}

bool cw_dp_lease_unfinished(const struct range *x, const struct assignment *t)
{
    return x->holder[0].assignment == t && !(x->flags & RANGE_COMPLETE);
}

void cw_dp_lease_drop_unbegun(struct cw_dispatcher *d, struct assignment *t)
{
    unsigned begun = 0;
    DP_RANGES_EACH (x, &t->stream->ranges, 0) {
        if (t->n_held == 0)
            return;
        if (begun < DP_DEPTH)
            begun += cw_dp_lease_unfinished(x, t);
        else if (cw_dp_lease_unfinished(x, t) || x->holder[1].assignment == t)
            cw_dp_lease_drop(d, t, x, DROP_REVOKED);
    }
}

void cw_dp_lease_discard(struct cw_dispatcher *d, struct assignment *t)
{
    if (t->n_held > 0)
        cw_dp_lease_drop_from(d, t, 0, DROP_SILENTLY);
    cw_dp_assignment_free(d, t);
}

void cw_dp_lease_forget(struct cw_dispatcher *d, struct assignment *t)
{
    if (t->worker->peer && t->state != ASSIGNMENT_IDLE)
        cw_dp_prepare_forget(d, t->worker, (ProtobufCBinaryData){16, t->stream->id});
    cw_dp_lease_discard(d, t);
}

/* ---- what workers hold ---- */

uint64_t cw_dp_lease_bound(const struct stream *s, struct span span)
{
    if (s->begun_to <= span.begin || !cw_dp_stream_placed(s))
        return span.end;
    CW_LIST_EACH_OF (j, const struct job, by_stream, &s->jobs)
        DP_RANKS_EACH (r, j)
            if (r->client && r->began && r->pos == r->began_at && r->pos > span.begin && r->pos < span.end)
                span.end = r->pos;
    return span.end;
}

struct range *cw_dp_lease_exact(struct stream *s, struct span span)
{
    struct range *x = cw_dp_range_find(&s->ranges, span.begin);
    if (!x && span.end > s->ranges.base && cw_dp_lease_bound(s, span) == span.end)
        x = cw_dp_range_add(&s->ranges, span);
    return x && x->begin == span.begin && x->end == span.end ? x : NULL;
}

/* Sets an earlier end of the range: the positions after it are free. */
static void lease_end_early(struct cw_dispatcher *d, struct stream *s, struct range *x, uint64_t end)
{
    x->end = end;
    s->ranges.free_from = CW_MIN(s->ranges.free_from, end);
    /* otherwise the journal would say that the rest was given out, too */
    if (s->at_most_once && cw_dp_journal_range(d, s, x, ACTION_LEASE, NULL) < 0)
        cw_dp_log(d, true,
                  "out of memory: the journal does not record that a range now ends at position %" PRIu64,
                  end);
    cw_dp_stream_announce(d, s, x);
}

void cw_dp_lease_hold(struct cw_dispatcher *d, struct assignment *t, struct span span, uint64_t lease)
{
    struct stream *s = t->stream;
    cw_dp_lease_include(d, s, span.begin);
    struct range *x = cw_dp_range_find(&s->ranges, span.begin);
    if (x && x->begin == span.begin && span.end < x->end && !x->holder[0].assignment &&
        !(x->flags & (RANGE_REPORTED | RANGE_LOST)))
        lease_end_early(d, s, x, span.end);
    x = cw_dp_lease_exact(s, span);
    if (x && (x->holder[0].assignment == t || x->holder[1].assignment == t))
        return;
    if (!x || x->holder[0].assignment || (x->flags & RANGE_LOST) || t->n_held >= t->capacity + 1) {
        cw_dp_outbox_revoke(d, t, span.begin, span.end);
        return;
    }
    x->holder[0] = (struct holder){t, lease};
    x->leased_ns = d->now_ns;
    x->before = t->to_compute;
    x->flags |= x->flags & RANGE_REPORTED ? RANGE_HELD | RANGE_COMPLETE : RANGE_HELD;
    lease_count(d, t, x);
}

void cw_dp_lease_shorten(struct cw_dispatcher *d, struct range *x, int i, uint64_t end)
{
    struct assignment *t = x->holder[i].assignment;
    if (end >= x->end || (x->flags & (RANGE_REPORTED | RANGE_LOST)))
        return;
    if (x->holder[!i].assignment) {
        cw_dp_lease_drop(d, x->holder[!i].assignment, x, DROP_REVOKED);
        x->flags |= RANGE_HELD; /* it is not known when the remaining holder began */
    }
    t->to_compute -= x->end - end;
    cw_dp_assignment_usable(d, t);
    lease_end_early(d, t->stream, x, end);
}

/* ---- ranges that are passed ---- */

/* Removes the first n ranges from the table, and revokes them. */
static void lease_pass(struct cw_dispatcher *d, struct stream *s, size_t n)
{
    if (n == 0)
        return;
    struct range *x = &s->ranges.items[s->ranges.first];
    uint64_t begin = x->begin, end = x[n - 1].end;
    for (size_t i = 0; i < n; i++, x++) {
        for (int k = 0; k < 2 && x->holder[k].assignment; k++) {
            /* the same span for all of these ranges: the outbox merges equal spans */
            cw_dp_outbox_revoke(d, x->holder[k].assignment, begin, end);
            lease_uncount(x, k);
            cw_dp_assignment_usable(d, x->holder[k].assignment);
        }
        free(x->elements);
    }
    s->ranges.first += n;
    s->ranges.n -= n;
    s->ranges.n_passed += n;
}

void cw_dp_lease_clear(struct cw_dispatcher *d, struct stream *s)
{
    lease_pass(d, s, s->ranges.n);
    s->ranges.first = 0;
    s->ranges.free_from = s->ranges.base;
    s->news.placements = false;
}

void cw_dp_lease_rebase(struct cw_dispatcher *d, struct stream *s, uint64_t base)
{
    if (s->ranges.state == RANGES_UNPLACED) {
        s->ranges.base = s->ranges.free_from = base;
        s->ranges.state = RANGES_BASED;
        return;
    }
    if (base < s->ranges.base && s->ranges.n > DP_RANGES / 2)
        cw_dp_lease_clear(
            d, s); /* a job that went back has no use for later ranges, and they fill half of the table */
    lease_pass(d, s, cw_dp_range_index(&s->ranges, base));
    s->ranges.free_from = base < s->ranges.base ? base : CW_MAX(s->ranges.free_from, base);
    s->ranges.base = base;
}

void cw_dp_lease_include(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    if (s->ranges.state == RANGES_UNPLACED || (s->ranges.state == RANGES_BASED && pos < s->ranges.base))
        cw_dp_lease_rebase(d, s, pos);
}

void cw_dp_lease_split(struct cw_dispatcher *d, struct stream *s, uint64_t pos)
{
    struct range *x = cw_dp_range_find(&s->ranges, pos);
    s->begun_to = CW_MAX(s->begun_to, pos);
    if (!x || x->begin == pos || !cw_dp_stream_placed(s) || s->at_most_once)
        return;
    while (x->holder[0].assignment)
        cw_dp_lease_drop(d, x->holder[0].assignment, x, DROP_REVOKED);
    struct span behind = {pos, x->end};
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        DP_RANKS_EACH (r, j)
            if (r->next_report > x->begin)
                r->next_report = CW_MAX(x->begin, r->pos);
    if (x->flags & RANGE_REPORTED)
        cw_dp_journal_tried(d, cw_dp_journal_range_gone(d, s, x->begin, NULL));
    free(x->elements);
    *x = (struct range){.begin = x->begin, .end = pos, .number = ++s->ranges.last_number};
    cw_dp_stream_announce(d, s, x);
    x = cw_dp_range_add(&s->ranges, behind);
    if (x) /* without memory these positions stay a gap, from which ranges are cut later */
        cw_dp_stream_announce(d, s, x);
}
