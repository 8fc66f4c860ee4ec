/* Serves requests for batches of counted and sequential ranges (lease.h), in the order of the batches'
 * numbers. The stream's thread only; called by leases.c. */
#include "service/worker/batches.h"

#include <string.h>

#include "base/array.h"

/* Of a range's batches up to this number it is noted whether they were sent (128 KiB of bits). If the range
 * is computed again, later batches are kept again, although they may have been sent. */
#define SENT_MAX (UINT64_C(1) << 20)

/* ---- batches that were sent ---- */

/* Returns whether it is noted that the batch was sent before. */
static bool sent_before(const struct cw_lease *l, uint64_t batch)
{
    return batch / 8 < l->sent_room && (l->sent[batch / 8] >> batch % 8 & 1);
}

static void sent_note(struct cw_lease *l, uint64_t batch)
{
    size_t before = l->sent_room;
    if (batch >= SENT_MAX ||
        CW_ARRAY_ROOM(l->sent, l->sent_room, batch / 8 + 1, "batches that were sent", NULL) < 0)
        return; /* without a note, the batch may be kept again for nothing */
    if (l->sent_room > before)
        memset(l->sent + before, 0, l->sent_room - before);
    l->sent[batch / 8] |= (uint8_t)(1u << batch % 8);
}

/* ---- batches that wait for a request ---- */

/* Removes a kept batch from the lease and returns it. NULL: the batch is not kept. */
static struct cw_answer *kept_take(struct cw_leases *s, struct cw_lease *l, uint64_t batch)
{
    for (struct cw_answer **at = &l->kept; *at && (*at)->at <= batch; at = &(*at)->next)
        if ((*at)->at == batch)
            return cw_kept_pop(s, at);
    return NULL;
}

/* Returns the link to the kept batch that is dropped first. That is a batch before all batches that were ever
 * requested, if there is one: a sequential range produces such batches if its client continued from a saved
 * state. Otherwise it is the last batch, which will be requested last. */
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

/* Keeps a batch until it is requested. If the kept batches need too much memory then, some of them are freed,
 * perhaps this one. */
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

/* The range, or the runner, ended in an error. If the error would be the same on every worker, requests for
 * this batch and later ones are answered with it. Any other error (memory, descriptors, disk, killed
 * processes) is this worker's own, and the stream fails. */
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

/* Answers a request with k: the batch number r->at of the range, or a part of that batch. */
static void kept_send(struct cw_leases *s, struct cw_lease *l, struct cw_request *r, struct cw_answer *k)
{
    cw_lease_send(s, l, r, k);
    sent_note(l, r->at);
    if (s->short_of == r)
        s->short_of = NULL;
    if (++r->at == r->end)
        cw_lease_done(s, r);
}

/* Takes the next batch of a range from the runner. Returns the same as cw_runner_poll. */
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

/* Takes the next batch of a range from the runner, and sends it to a request that waits for it, or keeps it.
 * Returns the same as cw_runner_poll. */
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

/* Reports a range to the dispatcher if all of its batches are computed and this was not reported yet. Returns
 * whether it reported. If not, the stream may have failed. */
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
    /* status 1: the range has no more batches, so it is computed */
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
