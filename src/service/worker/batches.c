#include "service/worker/batches.h"

#include <string.h>

#include "base/array.h"

/* Sent batches of a range are noted up to this number: 128 KiB of bits. Where a range is computed again,
 * batches beyond it are kept again. */
#define SENT_MAX (UINT64_C(1) << 20)

/* ---- batches that were sent ---- */

/* Returns whether a batch of the range was sent before. */
static bool sent_before(const struct cw_lease *l, uint64_t batch)
{
    return batch / 8 < l->sent_room && (l->sent[batch / 8] >> batch % 8 & 1);
}

static void sent_note(struct cw_lease *l, uint64_t batch)
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

/* Takes a kept batch out of the range. Returns NULL where it is not kept. */
static struct cw_answer *kept_take(struct cw_leases *s, struct cw_lease *l, uint64_t batch)
{
    for (struct cw_answer **at = &l->kept; *at && (*at)->at <= batch; at = &(*at)->next)
        if ((*at)->at == batch)
            return cw_kept_pop(s, at);
    return NULL;
}

/* Returns where the kept batch to be given up first is linked. A batch before all that were ever requested
 * comes first: a sequential range gives such batches when its client went on from a state. Else it is the
 * batch that will be requested last. */
static struct cw_answer **kept_worst(struct cw_leases *s)
{
    struct cw_answer **last = NULL;
    for (struct cw_lease *l = s->list; l; l = l->next)
        for (struct cw_answer **at = &l->kept; *at; at = &(*at)->next) {
            if ((*at)->at < l->lowest && l->lowest != UINT64_MAX)
                return at;
            last = at;
        }
    return last;
}

/* Keeps a batch until it is requested. Others, or this one, may be freed to make room for it. */
static void kept_add(struct cw_leases *s, struct cw_lease *l, struct cw_answer *k)
{
    struct cw_answer **at = &l->kept;
    while (*at && (*at)->at < k->at)
        at = &(*at)->next;
    k->next = *at;
    *at = k;
    s->kept_bytes += k->bytes;
    if (k->batch)
        cw_runner_disown(s->runner, k->batch);
    while (s->kept_bytes > s->memory / CW_KEPT_PART)
        cw_kept_free(s, cw_kept_pop(s, kept_worst(s)));
}

/* ---- batches ---- */

/* Notes the error that a range, or the runner, ends in. Requests for the batch are answered with an error
 * that is the same on every worker. Any other error is this worker's own (memory, descriptors, disk, killed
 * processes): the stream fails. */
static void batch_failed(struct cw_leases *s, struct cw_lease *l, int status, const struct cw_error *why)
{
    l->failed = cw_leases_error_lasts(s, status) ? malloc(sizeof(*l->failed)) : NULL;
    if (!l->failed) {
        cw_leases_fail(s, why);
        return;
    }
    *l->failed = *why;
    l->failed_at = l->next_batch;
    cw_lease_close(s, l);
}

/* Answers a request with the batch, or the part of one, that the request is at. */
static void kept_send(struct cw_leases *s, struct cw_lease *l, struct cw_request *r, struct cw_answer *k)
{
    cw_lease_send(s, l, r, k);
    sent_note(l, r->at);
    if (s->short_of == r)
        s->short_of = NULL;
    if (++r->at == r->end)
        cw_lease_done(s, r);
}

/* Takes the next batch that the runner has of a range. Returns as cw_runner_poll. */
static int batch_take(struct cw_leases *s, struct cw_lease *l, struct cw_answer **ret, struct cw_error *err)
{
    struct cw_assembly *a = CW_STEAL(l->unfinished);
    int r = a ? 0 : cw_runner_poll(s->runner, l->range, &a, err);
    if (r == 0 && !a->part)
        r = cw_runner_try_finish(s->runner, a, l->range, err);
    if (r == 2)
        l->unfinished = a;
    else if (r < 0 && a)
        cw_runner_drop(s->runner, a);
    if (r == 0 && (r = cw_lease_take(s, a, a->part ? a->n_assigned : 0, ret, err)) == 0)
        (*ret)->at = l->next_batch;
    return r;
}

/* Takes the next batch of a range, for a request that waits for it, or to be kept. Returns as
 * cw_runner_poll. */
static int batch_advance(struct cw_leases *s, struct cw_lease *l)
{
    struct cw_answer *k = NULL;
    struct cw_error err = {0};
    int status = batch_take(s, l, &k, &err);
    if (status < 0)
        batch_failed(s, l, status, &err);
    if (status != 0)
        return status;
    l->next_batch++;
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        if (r->at == k->at && cw_peer_room(r->peer)) {
            kept_send(s, l, r, k);
            return 0;
        }
    if (sent_before(l, k->at))
        cw_kept_free(s, k);
    else
        kept_add(s, l, k);
    return 0;
}

/* Reports a range to the dispatcher, if all its batches are newly computed. Returns whether they are. If not,
 * the stream may have failed. */
static bool batches_note_computed(struct cw_leases *s, struct cw_lease *l)
{
    bool counted = s->kind == CW_RANGES_COUNTED;
    uint64_t n = 0;
    if (l->computed || l->failed)
        return false;
    if (!(counted && l->next_batch >= l->n_batches) &&
        !(l->range && cw_runner_computed(s->runner, l->range, &n)))
        return false;
    l->n_batches = counted ? l->n_batches : n;
    return cw_lease_completed(s, l);
}

/* Answers the first request that can be answered without waiting. Returns whether anything was done. */
static bool batches_serve_one(struct cw_leases *s, struct cw_lease *l)
{
    struct cw_request *r = cw_lease_first_request(l);
    if (!r)
        return false;
    if ((l->computed || s->kind == CW_RANGES_COUNTED) && r->at >= l->n_batches) {
        cw_lease_reply_end(s, l, r);
        return true;
    }
    if (l->failed && r->at >= l->failed_at) {
        cw_lease_reply(s, r, CW_ANSWER_RANGE_FAILED, l->failed);
        return true;
    }
    struct cw_answer *k = kept_take(s, l, r->at);
    if (k) {
        kept_send(s, l, r, k);
        return true;
    }
    if ((!l->range || r->at < l->next_batch) && !cw_lease_open_for(s, l, r))
        return false;
    int status = batch_advance(s, l);
    /* a range without more batches is computed */
    return status == 0 || (status == 1 && batches_note_computed(s, l));
}

bool cw_batches_serve(struct cw_leases *s, struct cw_lease *l)
{
    bool any = false;
    while (!s->failed && batches_serve_one(s, l))
        any = true;
    if (s->failed)
        return false;
    any |= batches_note_computed(s, l);
    if (!s->failed && l->range && l->computed && !l->unfinished && l->next_batch >= l->n_batches)
        cw_lease_close(s, l); /* all batches were taken */
    return any;
}
