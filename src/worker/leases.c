/* Which splits a stream has leased, what they have in the runner, and who waits for them. */
#include "worker/lease.h"

#include "base/clock.h"

static struct cw_lease **find(struct cw_stream *s, uint64_t epoch, uint64_t index)
{
    struct cw_lease **at = &s->leases;
    while (*at && ((*at)->epoch < epoch || ((*at)->epoch == epoch && (*at)->index < index)))
        at = &(*at)->next;
    return at;
}

static void append(struct cw_request **list, struct cw_request *r)
{
    while (*list)
        list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

static void turn_away(struct cw_stream *s, struct cw_request **list)
{
    while (*list) {
        struct cw_request *r = *list;
        *list = r->next;
        cw_stream_reply(s, r, CW_SAY_NOT_HERE, NULL);
    }
}

void cw_kept_free(struct cw_stream *s, struct kept *k)
{
    s->kept_bytes -= k->bytes;
    if (k->batch)
        cw_runner_release(s->runner, k->batch);
    cw_quarantined_free(k->quarantined);
    free(k);
}

void cw_lease_out_of_memory(struct cw_stream *s)
{
    struct cw_error err = {0};
    cw_error_nomem(&err, 0, "what a split gives");
    cw_stream_fail(s, &err);
}

void cw_lease_close(struct cw_stream *s, struct cw_lease *l)
{
    if (l->unfinished)
        cw_runner_drop(s->runner, CW_STEAL(l->unfinished));
    if (l->split)
        cw_runner_close(s->runner, CW_STEAL(l->split));
}

void cw_lease_open(struct cw_stream *s, struct cw_lease *l, uint64_t first_batch)
{
    struct cw_error err = {0};
    cw_lease_close(s, l);
    if (s->local.compiled->counted) { /* there are not more */
        const struct cw_sequence *q = s->local.sequence;
        uint64_t from = s->local.compiled->whole_epoch ? 0 : l->index * q->split_size;
        uint64_t n = s->local.compiled->whole_epoch ? q->n_positions : CW_MIN(q->split_size, q->n_positions - from);
        first_batch = CW_MIN(first_batch, (n + s->local.compiled->batch_size - 1) / s->local.compiled->batch_size);
    }
    l->set_aside = false;
    l->next_batch = first_batch;
    int r = cw_runner_open(s->runner, s->seed, l->epoch, l->index, first_batch, &l->split, &err);
    if (r < 0)
        cw_stream_fail(s, &err);
    else if (l->computed)
        cw_runner_drop_remnants(s->runner, l->split);
}

static void lease_clear(struct cw_stream *s, struct cw_lease *l)
{
    cw_lease_close(s, l);
    turn_away(s, &l->requests);
    turn_away(s, &l->left_requests);
    while (l->kept) {
        struct kept *k = l->kept;
        l->kept = k->next;
        cw_kept_free(s, k);
    }
    for (unsigned k = 0; l->left && k < s->n_keys; k++)
        cw_left_unref(l->left[k]);
    free(l->left);
    free(l->failed);
    free(l->sent);
    free(l);
}

void cw_leases_clear(struct cw_stream *s)
{
    while (s->leases) {
        struct cw_lease *l = s->leases;
        s->leases = l->next;
        lease_clear(s, l);
    }
}

void cw_leases_add(struct cw_stream *s, uint64_t epoch, uint64_t index, uint64_t first_batch)
{
    struct cw_lease **at = find(s, epoch, index), *l = *at;
    if (l && l->epoch == epoch && l->index == index)
        return; /* said again */
    struct cw_error err = {0};
    l = calloc(1, sizeof(*l));
    if (!l) {
        cw_error_nomem(&err, sizeof(*l), "a split");
        cw_stream_fail(s, &err);
        return;
    }
    *l = (struct cw_lease){.next = *at, .epoch = epoch, .index = index, .leased_ns = cw_now_ns()};
    *at = l;
    cw_lease_open(s, l, first_batch);
}

void cw_leases_revoke(struct cw_stream *s, uint64_t epoch, uint64_t first, uint64_t n)
{
    struct cw_lease **at = find(s, epoch, first);
    while (*at && (*at)->epoch == epoch && (*at)->index - first < n) {
        struct cw_lease *l = *at;
        *at = l->next;
        lease_clear(s, l);
    }
}

void cw_leases_request(struct cw_stream *s, struct cw_request *r)
{
    struct cw_lease *l = *find(s, r->epoch, r->split);
    if (!l || l->epoch != r->epoch || l->index != r->split)
        cw_stream_reply(s, r, CW_SAY_NOT_HERE, NULL);
    else
        append(r->remnant ? &l->left_requests : &l->requests, r);
}

static void forget_in(struct cw_request **list, const struct cw_peer *p)
{
    while (*list) {
        struct cw_request *r = *list;
        if (r->peer == p) {
            *list = r->next;
            cw_request_free(r);
        } else {
            list = &r->next;
        }
    }
}

void cw_leases_forget_peer(struct cw_stream *s, const struct cw_peer *p)
{
    for (struct cw_lease *l = s->leases; l; l = l->next) {
        forget_in(&l->requests, p);
        forget_in(&l->left_requests, p);
    }
    if (s->runner)
        cw_runner_relent(s->runner);
}

void cw_leases_set_aside(struct cw_stream *s)
{
    for (struct cw_lease *l = s->leases; l; l = l->next)
        if (l->split) {
            cw_lease_close(s, l);
            l->set_aside = true;
        }
}
