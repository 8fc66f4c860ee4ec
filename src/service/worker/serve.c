/* Serves requests for batches of counted and sequential ranges; and serves all leased ranges in turn. */
#include "service/worker/lease.h"

#include <string.h>

#include "base/array.h"
#include "base/clock.h"

/* Batches of a range that are noted as sent. Where a range is computed again, batches beyond these are kept
 * again. */
#define SENT_MAX (UINT64_C(1) << 20)

/* The request for the earliest batch, of clients that have room for one; of two such requests, the first.
 * NULL: none. */
static struct cw_request *first_request(const struct cw_lease *l)
{
    struct cw_request *first = NULL;
    for (struct cw_request *r = l->requests; r; r = r->next)
        if ((!first || r->at < first->at) && cw_peer_room(r->peer))
            first = r;
    return first;
}

/* ---- batches that were sent ---- */

static bool was_sent(const struct cw_lease *l, uint64_t batch)
{
    return batch / 8 < l->sent_room && (l->sent[batch / 8] >> batch % 8 & 1);
}

static void note_sent(struct cw_lease *l, uint64_t batch)
{
    size_t before = l->sent_room;
    if (batch >= SENT_MAX ||
        CW_ARRAY_ROOM(l->sent, l->sent_room, batch / 8 + 1, "batches that were sent", NULL) < 0)
        return; /* the batch may be kept once too often */
    if (l->sent_room > before)
        memset(l->sent + before, 0, l->sent_room - before);
    l->sent[batch / 8] |= (uint8_t)(1u << batch % 8);
}

/* ---- batches that wait for a request ---- */

static struct kept *take_kept(struct cw_lease *l, uint64_t batch)
{
    for (struct kept **at = &l->kept; *at && (*at)->index <= batch; at = &(*at)->next)
        if ((*at)->index == batch)
            return CW_POP(*at);
    return NULL;
}

/* The kept batch to be given up first. A batch before all that were ever asked for comes first: a sequential
 * range gives such batches when its client went on from a state. Else it is the batch that is asked for
 * last. */
static struct kept **worst_kept(struct cw_stream *s)
{
    struct kept **last = NULL;
    for (struct cw_lease *l = s->leases; l; l = l->next)
        for (struct kept **at = &l->kept; *at; at = &(*at)->next) {
            if ((*at)->index < l->lowest && l->lowest != UINT64_MAX)
                return at;
            last = at;
        }
    return last;
}

static void give_up_kept(struct cw_stream *s)
{
    while (s->kept_bytes > s->memory / CW_KEPT_PART)
        cw_kept_free(s, CW_POP(*worst_kept(s)));
}

static size_t batch_bytes(const struct cw_batch *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
        bytes += b->slabs[i] ? b->slabs[i]->size : 0;
    return bytes;
}

static void keep(struct cw_stream *s, struct cw_lease *l, struct kept *k)
{
    struct kept **at = &l->kept;
    while (*at && (*at)->index < k->index)
        at = &(*at)->next;
    k->next = *at;
    *at = k;
    k->bytes = k->rows ? k->rows->size : batch_bytes(k->batch);
    s->kept_bytes += k->bytes;
    if (k->batch)
        cw_runner_disown(s->runner, k->batch);
    give_up_kept(s);
}

/* ---- batches ---- */

bool cw_lease_lasting(const struct cw_stream *s, int status)
{
    struct cw_error fatal;
    return (status == CW_E_RECORD || status == CW_E_DATA || status == CW_E_PIPELINE) &&
           cw_runner_fatal(s->runner, &fatal) == 0;
}

/* Notes the error that a range, or the runner, ends in. Errors of records and of the pipeline are the same on
 * every worker: requests for the batch are answered with them. All other errors are this worker's own
 * (memory, descriptors, disk, killed processes): then other workers run its ranges of the stream. */
static void range_failed(struct cw_stream *s, struct cw_lease *l, int status, const struct cw_error *why)
{
    l->failed = cw_lease_lasting(s, status) ? malloc(sizeof(*l->failed)) : NULL;
    if (!l->failed) {
        cw_stream_fail(s, why);
        return;
    }
    *l->failed = *why;
    l->failed_at = l->next_batch;
    cw_lease_close(s, l);
}

bool cw_lease_answer_batch(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_batch *b,
                           struct cw_quarantined *quarantined)
{
    struct cw_answer *a = malloc(sizeof(*a));
    if (!a) {
        cw_runner_release(s->runner, b);
        cw_quarantined_free(quarantined);
        cw_lease_out_of_memory(s);
        return false;
    }
    b->epoch = l->epoch;
    b->index = r->at;
    *a = (struct cw_answer){.kind = CW_SAY_BATCH,
                            .peer = cw_peer_ref(r->peer),
                            .re = r->id,
                            .epoch = l->epoch,
                            .begin = l->begin,
                            .at = r->at,
                            .key = r->key,
                            .batch = b,
                            .quarantined = quarantined,
                            .bytes = batch_bytes(b),
                            .asked_ns = r->asked_ns};
    a->handed_out = cw_budget_take(r->peer->handed_out, a->bytes, "a batch", NULL) == 0;
    if (a->handed_out && !b->disowned)
        cw_runner_disown(s->runner, b);
    if (!a->handed_out && b->disowned) { /* a kept batch makes room for others to be kept */
        cw_budget_force(r->peer->handed_out, a->bytes);
        a->handed_out = true;
    }
    cw_peer_take(r->peer, a->bytes);
    cw_stream_say(s, a);
    return true;
}

bool cw_lease_answer_rows(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_part *rows)
{
    struct cw_answer *a = malloc(sizeof(*a));
    if (!a) {
        cw_part_deinit(rows);
        free(rows);
        cw_lease_out_of_memory(s);
        return false;
    }
    *a = (struct cw_answer){.kind = CW_SAY_PART,
                            .peer = cw_peer_ref(r->peer),
                            .re = r->id,
                            .epoch = l->epoch,
                            .begin = l->begin,
                            .key = r->key,
                            .at = r->at,
                            .rows = rows,
                            .bytes = rows->size,
                            .handed_out = true,
                            .asked_ns = r->asked_ns};
    cw_budget_force(r->peer->handed_out, a->bytes); /* at most one part of each client finds no room there */
    cw_peer_take(r->peer, a->bytes);
    cw_stream_say(s, a);
    return true;
}

/* Answers a request with the batch, or the part of one, that the request is at. Frees k. */
static void answer_batch(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct kept *k)
{
    bool said = k->rows ? cw_lease_answer_rows(s, l, r, CW_STEAL(k->rows))
                        : cw_lease_answer_batch(s, l, r, CW_STEAL(k->batch), CW_STEAL(k->quarantined));
    cw_kept_free(s, k);
    if (!said)
        return;
    note_sent(l, r->at);
    if (s->short_of == r)
        s->short_of = NULL;
    if (++r->at == r->end)
        cw_lease_done(s, l, r);
}

/* Moves the batch of an assembly, or its rows where it is a part, to *k. The assembly is freed. */
static int kept_fill(struct cw_stream *s, struct kept *k, struct cw_assembly *a, struct cw_error *err)
{
    if (!a->part) {
        k->quarantined = CW_STEAL(a->quarantined);
        k->batch = cw_runner_take_batch(s->runner, a);
        k->batch->index = k->index;
        return 0;
    }
    k->rows = calloc(1, sizeof(*k->rows));
    int r = k->rows ? cw_part_read(a, 0, a->n_assigned, k->rows, err)
                    : cw_error_nomem(err, sizeof(*k->rows), "rows of a range");
    if (r >= 0)
        cw_quarantined_move(&a->quarantined, &k->rows->quarantined);
    cw_runner_drop(s->runner, a);
    return r;
}

/* The next batch that the runner has of a range; as cw_runner_poll. */
static int take_next(struct cw_stream *s, struct cw_lease *l, struct kept **ret, struct cw_error *err)
{
    struct cw_assembly *a = CW_STEAL(l->unfinished);
    int r = a ? 0 : cw_runner_poll(s->runner, l->range, &a, err);
    if (r == 0 && !a->part)
        r = cw_runner_try_finish(s->runner, a, l->range, err);
    if (r == 2)
        l->unfinished = a;
    if (r == 1 || r == 2 || !a)
        return r;
    struct kept *k = r < 0 ? NULL : calloc(1, sizeof(*k));
    if (!k) {
        cw_runner_drop(s->runner, a);
        return r < 0 ? r : cw_error_nomem(err, sizeof(*k), "a batch");
    }
    k->index = l->next_batch;
    if ((r = kept_fill(s, k, a, err)) < 0)
        cw_kept_free(s, k);
    else
        *ret = k;
    return r;
}

/* Takes the next batch of a range, for a request that waits for it, or to be kept. Returns as
 * cw_runner_poll. */
static int advance(struct cw_stream *s, struct cw_lease *l)
{
    struct kept *k = NULL;
    struct cw_error err = {0};
    int r = take_next(s, l, &k, &err);
    if (r < 0) {
        range_failed(s, l, r, &err);
        return r;
    }
    if (r != 0)
        return r;
    l->next_batch++;
    struct cw_request *q = l->requests;
    while (q && (q->at != k->index || !cw_peer_room(q->peer)))
        q = q->next;
    if (q)
        answer_batch(s, l, q, k);
    else if (was_sent(l, k->index))
        cw_kept_free(s, k);
    else
        keep(s, l, k);
    return 0;
}

/* The report of a range, for the dispatcher or a client. NULL: out of memory. */
static struct cw_answer *lease_report(const struct cw_stream *s, const struct cw_lease *l,
                                      enum cw_answer_kind kind)
{
    struct cw_answer *a = malloc(sizeof(*a));
    uint64_t *elements = calloc((size_t)s->n_keys + 1, sizeof(*elements));
    if (!a || !elements) {
        free(a);
        free(elements);
        return NULL;
    }
    *a = (struct cw_answer){.kind = kind,
                            .epoch = l->epoch,
                            .begin = l->begin,
                            .end = l->end,
                            .elements = elements,
                            .n_batches = s->kind == RANGES_SEQUENTIAL ? l->n_batches : 0};
    for (unsigned k = 0; s->kind == RANGES_PLACED && k < s->n_keys; k++)
        if ((elements[k] = l->elements[k]))
            a->n_elements = k + 1;
    return a;
}

void cw_lease_reply_end(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_answer *a = lease_report(s, l, CW_SAY_END);
    cw_lease_remove(s, l, r);
    if (a) {
        a->peer = cw_peer_ref(r->peer);
        a->re = r->id;
        cw_stream_say(s, a);
    }
    cw_request_free(r);
    if (!a)
        cw_lease_out_of_memory(s);
}

bool cw_lease_completed(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_answer *a = lease_report(s, l, CW_SAY_COMPLETED);
    if (!a) {
        cw_lease_out_of_memory(s);
        return false;
    }
    l->computed = true;
    uint64_t now = s->completed_ns = cw_now_ns();
    a->lease = l->number;
    a->last = l->range && cw_runner_stream_over(s->runner, l->range);
    cw_trace_span(s->options->trace, "range",
                  &(struct cw_traced){s->name, l->epoch, l->begin, CW_TRACE_RANGE, 0}, l->leased_ns, now);
    cw_stream_say(s, a);
    return true;
}

/* Reports a range to the dispatcher, if all its batches are newly computed. Returns whether they are. If not,
 * the stream may have failed. */
static bool note_computed(struct cw_stream *s, struct cw_lease *l)
{
    bool counted = s->kind == RANGES_COUNTED;
    uint64_t n = 0;
    if (l->computed || l->failed)
        return false;
    if (!(counted && l->next_batch >= l->n_batches) &&
        !(l->range && cw_runner_computed(s->runner, l->range, &n)))
        return false;
    l->n_batches = counted ? l->n_batches : n;
    return cw_lease_completed(s, l);
}

/* Answers the first request that can be answered without waiting. */
static bool serve_one(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_request *r = first_request(l);
    if (!r)
        return false;
    if ((l->computed || s->kind == RANGES_COUNTED) && r->at >= l->n_batches) {
        cw_lease_reply_end(s, l, r);
        return true;
    }
    if (l->failed && r->at >= l->failed_at) {
        cw_lease_reply(s, l, r, CW_SAY_RANGE_FAILED, l->failed);
        return true;
    }
    struct kept *k = take_kept(l, r->at);
    if (k) {
        answer_batch(s, l, r, k);
        return true;
    }
    if ((!l->range || r->at < l->next_batch) && !cw_lease_open_for(s, l, r))
        return false;
    int status = advance(s, l);
    return status == 0 || (status == 1 && note_computed(s, l)); /* a range without more batches is computed */
}

static bool serve_batches(struct cw_stream *s, struct cw_lease *l)
{
    bool any = false;
    while (!s->failed && serve_one(s, l))
        any = true;
    if (s->failed)
        return false;
    any |= note_computed(s, l);
    if (!s->failed && l->range && l->computed && !l->unfinished && l->next_batch >= l->n_batches)
        cw_lease_close(s, l); /* all batches were taken */
    return any;
}

/* Whether the lease's range was closed to free memory before all of it was computed. */
static bool gave_way(const struct cw_stream *s, const struct cw_lease *l)
{
    return !l->range && !l->computed && !l->failed &&
           (s->kind != RANGES_COUNTED || l->next_batch < l->n_batches);
}

/* Frees memory when the runner can compute nothing more for the first range with a request. Clients get the
 * keys so far. Then later requests give their parts back. Then the last range before the request's gives way:
 * no request is for such a range. Then ranges behind it give way, likewise the last one first. Then rows of
 * the request's range go that no request is for. Where there is no request, no range gives way, and one that
 * gave way goes on. Of the range's requests the first whose rows are computed gets the memory: when they are
 * sent, there is more. */
static bool make_room(struct cw_stream *s)
{
    struct cw_lease *gives = NULL, *l = s->leases, *aside = NULL;
    for (; l && !first_request(l); l = l->next) {
        gives = l->range ? l : gives;
        aside = gave_way(s, l) ? l : aside;
    }
    if (!l) {
        if (aside)
            cw_lease_open(s, aside, aside->next_batch);
        return false;
    }
    if (!cw_runner_stuck(s->runner))
        return false;
    if (cw_leases_give_keys(s) || s->failed)
        return !s->failed;
    struct cw_request *first = cw_lease_rows_there(s, l);
    first = first ? first : first_request(l);
    if (cw_leases_give_up_part(s, l, first))
        return true;
    bool before = gives != NULL;
    for (struct cw_lease *later = l->next; later && !before; later = later->next)
        gives = later->range ? later : gives;
    if (!gives && (!s->short_of || s->short_of == first))
        return cw_lease_give_up_rows(s, l);
    if (gives)
        cw_lease_close(s, gives);
    if (!before)
        s->short_of = first;
    return true;
}

bool cw_leases_serve(struct cw_stream *s)
{
    struct cw_error fatal = {0};
    bool any = false;
    if (s->short_of && !cw_peer_room(s->short_of->peer))
        s->short_of = NULL;
    cw_lease_shorten(s);
    for (struct cw_lease *l = s->leases, *next; l && !s->failed; l = next) {
        next = l->next;
        /* if the stream fails here, all leases are gone */
        any |= s->kind == RANGES_PLACED ? cw_lease_serve_rows(s, l) : serve_batches(s, l);
    }
    if (!s->failed && cw_runner_fatal(s->runner, &fatal) < 0)
        cw_stream_fail(s, &fatal);
    return !s->failed && (any || make_room(s));
}
