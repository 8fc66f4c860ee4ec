/* The table of streams: lookup, marks for the next turn, and the arithmetic of positions. */
#include "service/dispatcher/streams.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "net/limits.h"
#include "service/dispatcher/map_each.h"
#include "service/dispatcher/state.h"

struct stream *cw_dp_stream_find(struct cw_dispatcher *d, const uint8_t id[16])
{
    DP_MAP_EACH(s, struct stream, node, &d->streams.by_id, cw_hash64(id, 16))
    if (memcmp(s->id, id, 16) == 0)
        return s;
    return NULL;
}

struct stream *cw_dp_stream_unref(struct stream *s)
{
    if (!s || --s->refs > 0)
        return NULL;
    free(s->base_dir);
    free(s->assignments.heap.items);
    free(s->ranges.items);
    cw_compute_stats_deinit(&s->computed);
    free(s);
    return NULL;
}

int cw_dp_stream_set_data(struct stream *s, const Cachew__Prepared *p, struct cw_error *err)
{
    s->data = cw_dp_message_copy(&p->base, SIZE_MAX);
    return s->data ? 0 : cw_error_nomem(err, 0, "a worker's description of the data");
}

void cw_dp_stream_dirty(struct cw_dispatcher *d, struct stream *s)
{
    if (!cw_link_in(&s->dirty) && s->state != STREAM_DEAD)
        cw_list_add(&d->streams.dirty, &s->dirty);
}

void cw_dp_stream_reports(struct cw_dispatcher *d, struct stream *s)
{
    s->news.reports = true;
    cw_dp_stream_dirty(d, s);
}

void cw_dp_stream_announce(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    x->flags |= RANGE_ANNOUNCE;
    s->news.first = s->news.placements ? CW_MIN(s->news.first, x->begin) : x->begin;
    s->news.end = s->news.placements ? CW_MAX(s->news.end, x->end) : x->end;
    s->news.placements = true;
    cw_dp_stream_dirty(d, s);
}

void cw_dp_stream_lose(struct cw_dispatcher *d, struct stream *s, struct range *x)
{
    x->flags |= RANGE_LOST;
    d->leases.n_lost++;
    cw_dp_stream_reports(d, s);
}

bool cw_dp_stream_grace(const struct cw_dispatcher *d, const struct stream *s)
{
    return s->restored && d->grace_until_ns != 0;
}

bool cw_dp_stream_attended(const struct stream *s)
{
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        if (j->ranks.n_attached > 0)
            return true;
    return false;
}

void cw_dp_stream_set_total(struct stream *s)
{
    s->total = 0;
    CW_LIST_EACH_OF (j, struct job, by_stream, &s->jobs)
        s->total = CW_MAX(s->total, cw_dp_stream_epochs(s, j->terms.epochs));
}

/* ---- positions ---- */

uint64_t cw_dp_stream_epoch(const struct stream *s)
{
    return CW_MIN(s->data->plan->n_positions, CW_EPOCH_POSITIONS);
}

uint64_t cw_dp_stream_epochs(const struct stream *s, uint64_t epochs)
{
    uint64_t n = s->data ? cw_dp_stream_epoch(s) : 0, total;
    if (__builtin_mul_overflow(n, epochs, &total) || total > DP_ENDLESS)
        return DP_ENDLESS;
    return total;
}

int cw_dp_stream_position(const struct stream *s, const Cachew__Place *at, uint64_t *ret,
                          struct cw_error *err)
{
    uint64_t n = cw_dp_stream_epoch(s), pos;
    if (at->position > n || __builtin_mul_overflow(at->epoch, n, &pos) ||
        __builtin_add_overflow(pos, at->position, &pos) || pos > DP_ENDLESS)
        return cw_error_set(err, CW_E_OPTION,
                            "position %" PRIu64 " of epoch %" PRIu64
                            " does not exist: an epoch of this job has %" PRIu64 " positions",
                            at->position, at->epoch, s->data->plan->n_positions);
    *ret = pos;
    return 0;
}

int cw_dp_stream_span(const struct stream *s, uint64_t epoch, uint64_t begin, uint64_t end, struct span *ret,
                      struct cw_error *err)
{
    uint64_t n = cw_dp_stream_epoch(s), align = s->data->plan->sequential ? cw_dp_stream_align(s) : 1;
    const Cachew__Place at = {CW_MESSAGE(place), .epoch = epoch, .position = begin};
    if (begin >= end || end > n || begin % align != 0 || (end != n && end % align != 0))
        return cw_error_set(err, CW_E_SERVICE,
                            "a range of positions %" PRIu64 " to %" PRIu64
                            ": expected an end after the begin, not after the end of the epoch (%" PRIu64
                            "), and bounds that are multiples of %" PRIu64 CW_OTHER_VERSION,
                            begin, end, n, align);
    int r = cw_dp_stream_position(s, &at, &ret->begin, err);
    ret->end = ret->begin + (end - begin);
    return r;
}

Cachew__Place cw_dp_stream_place(const struct stream *s, uint64_t pos)
{
    uint64_t n = cw_dp_stream_epoch(s);
    return (Cachew__Place){CW_MESSAGE(place), .epoch = n > 0 ? pos / n : 0,
                           .position = n > 0 ? pos % n : pos};
}

bool cw_dp_stream_counted(const struct stream *s)
{
    return !s->data->plan->sequential && s->data->plan->n_keys == 0;
}

bool cw_dp_stream_placed(const struct stream *s)
{
    return !s->data->plan->sequential && s->data->plan->n_keys > 0;
}

uint64_t cw_dp_stream_align(const struct stream *s)
{
    const Cachew__Plan *p = s->data->plan;
    return p->sequential ? CW_MAX(cw_dp_stream_epoch(s), (uint64_t)1) : p->align;
}
