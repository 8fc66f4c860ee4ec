/* The table of assignments, and each stream's heap of the assignments that may get leases. */
#include "service/dispatcher/assignments.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "net/limits.h"
#include "service/dispatcher/state.h"

/* ---- the heap ---- */

static bool assignment_before(const struct assignment *a, const struct assignment *b)
{
    bool a_full = a->n_held >= a->capacity, b_full = b->n_held >= b->capacity;
    if (a_full != b_full)
        return b_full;
    uint32_t depth = a->stream->speed.depth;
    uint32_t x = CW_MIN(a->n_held - a->n_complete, depth), y = CW_MIN(b->n_held - b->n_complete, depth);
    if (x != y)
        return x < y;
    return x == depth && a->to_compute != b->to_compute ? a->to_compute < b->to_compute : a->order < b->order;
}

static void heap_put(struct stream *s, size_t i, struct assignment *t)
{
    s->assignments.heap.items[i] = t;
    t->heap_at = i + 1;
}

static void heap_fix(struct stream *s, struct assignment *t)
{
    size_t i = t->heap_at - 1;
    while (i > 0 && assignment_before(t, s->assignments.heap.items[(i - 1) / 2])) {
        heap_put(s, i, s->assignments.heap.items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (size_t child; (child = 2 * i + 1) < s->assignments.heap.n; i = child) {
        if (child + 1 < s->assignments.heap.n &&
            assignment_before(s->assignments.heap.items[child + 1], s->assignments.heap.items[child]))
            child++;
        if (!assignment_before(s->assignments.heap.items[child], t))
            break;
        heap_put(s, i, s->assignments.heap.items[child]);
    }
    heap_put(s, i, t);
}

static void heap_remove(struct stream *s, struct assignment *t)
{
    size_t i = t->heap_at - 1;
    struct assignment *last = s->assignments.heap.items[--s->assignments.heap.n];
    t->heap_at = 0;
    if (last != t) {
        heap_put(s, i, last);
        heap_fix(s, last);
    }
}

void cw_dp_assignment_usable(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    bool usable = t->state == ASSIGNMENT_READY && t->granted && cw_dp_worker_able(t->worker) &&
                  t->shunned_until == 0 &&
                  /* after a reconnect, until Holdings names the stream: its ranges are not known, and would
                   * be leased twice */
                  (!t->worker->kept || t->named);
    cw_dp_stream_dirty(d, s);
    if (!usable) {
        if (t->heap_at > 0)
            heap_remove(s, t);
        return;
    }
    if (t->heap_at == 0)
        heap_put(s, s->assignments.heap.n++, t); /* cw_dp_assignment_new made room */
    heap_fix(s, t);
}

/* ---- the table ---- */

struct assignment *cw_dp_assignment_find(struct worker *w, const struct stream *s)
{
    CW_LIST_EACH_OF (t, struct assignment, by_worker, &w->assignments)
        if (t->stream == s)
            return t;
    return NULL;
}

struct assignment *cw_dp_assignment_new(struct cw_dispatcher *d, struct worker *w, struct stream *s)
{
    if (d->assignments.n >= DP_ASSIGNMENTS ||
        CW_ARRAY_ROOM(s->assignments.heap.items, s->assignments.heap.capacity, s->assignments.n + 1,
                      "assignments", NULL) < 0)
        return NULL;
    struct assignment *t = malloc(sizeof(*t));
    if (!t)
        return NULL;
    struct cw_key key = {0};
    cw_key_u64(&key, w->id);
    cw_key_u64(&key, s->number);
    *t = (struct assignment){
        .worker = w, .stream = s, .order = cw_key_hash(&key), .granted = !d->scaler.enabled};
    cw_list_add(&w->assignments, &t->by_worker);
    cw_list_add(&s->assignments.list, &t->by_stream);
    s->assignments.n++;
    d->assignments.n++;
    return t;
}

/* Whether the worker reserves threads and memory in this state. */
static bool assignment_takes_room(enum assignment_state state)
{
    return state == ASSIGNMENT_ASKED || state == ASSIGNMENT_READY;
}

void cw_dp_assignment_set_state(struct cw_dispatcher *d, struct assignment *t, enum assignment_state state)
{
    struct worker_room *room = &t->worker->room;
    struct stream *s = t->stream;
    enum assignment_state was = t->state;
    bool was_full = cw_dp_worker_full(t->worker);
    bool answered = room->turned_away && was == ASSIGNMENT_ASKED && state != ASSIGNMENT_ASKED;
    s->assignments.n_ready += (state == ASSIGNMENT_READY) - (was == ASSIGNMENT_READY);
    s->assignments.most_positions = 0; /* computed again when it is needed */
    if (s->assignments.origin == t && state != ASSIGNMENT_READY)
        s->assignments.origin = NULL;
    room->n_streams += (uint32_t)assignment_takes_room(state) - (uint32_t)assignment_takes_room(was);
    room->asked_bytes += (state == ASSIGNMENT_ASKED) * s->pipeline->size -
                         (was == ASSIGNMENT_ASKED) * s->pipeline->size;
    room->turned_away &= !answered;
    room->short_of_memory &= room->n_streams > 0 && (was != ASSIGNMENT_READY || assignment_takes_room(state));
    t->state = state;
    cw_dp_assignment_usable(d, t);
    d->workers.has_room |= (was_full && !cw_dp_worker_full(t->worker)) || answered;
}

void cw_dp_assignment_free(struct cw_dispatcher *d, struct assignment *t)
{
    struct stream *s = t->stream;
    if (d->scaler.enabled && t->granted) {
        t->worker->n_worker_sets--;
        cw_dp_scaling_due(d);
    }
    cw_dp_assignment_set_state(d, t, ASSIGNMENT_IDLE);
    s->assignments.n_shunned -= t->shunned_until != 0;
    s->assignments.n--;
    d->assignments.n--;
    cw_link_out(&t->by_worker);
    cw_link_out(&t->by_stream);
    cw_link_out(&t->outbox.dirty);
    free(t->outbox.leases);
    free(t->why);
    free(t->computed);
    free(t->caching);
    free(t);
}

/* ---- worker sets ---- */

bool cw_dp_assignment_serves(const struct assignment *t)
{
    return t->granted && cw_dp_worker_able(t->worker) && t->state != ASSIGNMENT_UNFIT &&
           t->shunned_until == 0;
}

int cw_dp_worker_set_running(const struct stream *s)
{
    int n = 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        n += cw_dp_assignment_serves(t) && t->state == ASSIGNMENT_READY;
    return n;
}

void cw_dp_worker_set_running_of(const struct stream *s, int *ret)
{
    memset(ret, 0, DP_POOL_INDEXES * sizeof(*ret));
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        ret[t->worker->pool_index] += cw_dp_assignment_serves(t) && t->state == ASSIGNMENT_READY;
}

bool cw_dp_worker_set_comes(const struct cw_dispatcher *d, const struct stream *s)
{
    bool comes = false;
    CW_LIST_EACH_OF (t, const struct assignment, by_stream, &s->assignments.list)
        comes |= cw_dp_assignment_serves(t) && t->state != ASSIGNMENT_READY;
    return d->scaler.enabled && comes;
}
