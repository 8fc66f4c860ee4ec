/* A leased range of a stream, and the requests that wait for its batches, rows or keys. The stream's thread
 * owns all of this, and no other thread uses it. leases.c adds leases; batches.c and rows.c serve their
 * requests. */
#include "service/worker/lease.h"

#include "base/clock.h"
#include "service/worker/spans.h"

struct cw_lease **cw_lease_find(struct cw_leases *s, uint64_t epoch, uint64_t begin)
{
    struct cw_lease **at = &s->list;
    while (*at && ((*at)->epoch < epoch || ((*at)->epoch == epoch && (*at)->begin < begin)))
        at = &(*at)->next;
    return at;
}

struct cw_request *cw_lease_first_request(const struct cw_lease *l)
{
    struct cw_request *first = NULL;
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        if ((!first || r->at < first->at) && cw_peer_room(r->peer))
            first = r;
    return first;
}

size_t cw_lease_batch_bytes(const struct cw_batch *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
        bytes += b->slabs[i] ? b->slabs[i]->size : 0;
    return bytes;
}

struct cw_answer *cw_kept_pop(struct cw_leases *s, struct cw_answer **at)
{
    s->kept_bytes -= (*at)->bytes;
    return CW_POP(*at);
}

void cw_kept_free(struct cw_leases *s, struct cw_answer *k)
{
    if (k->batch)
        cw_runner_release(s->runner, CW_STEAL(k->batch));
    cw_answer_free(k);
}

/* ---- answers ---- */

void cw_request_drop_part(struct cw_leases *s, struct cw_request *r)
{
    if (!r->part)
        return;
    s->n_parts--;
    cw_runner_drop(s->runner, CW_STEAL(r->part));
}

/* Unlinks a request from its lease, if it is in one. The caller owns it then. */
static void lease_remove(struct cw_leases *s, struct cw_request *r)
{
    cw_link_out(&r->link);
    cw_request_drop_part(s, r);
    if (s->short_of == r)
        s->short_of = NULL;
}

void cw_lease_done(struct cw_leases *s, struct cw_request *r)
{
    lease_remove(s, r);
    cw_request_free(r);
}

void cw_lease_reply(struct cw_leases *s, struct cw_request *r, enum cw_answer_kind kind,
                    const struct cw_error *why)
{
    struct cw_answer *a = cw_answer_new(r, &(struct cw_answer){.kind = kind, .what = r->what});
    lease_remove(s, r);
    if (a) {
        a->why = why ? cw_answer_why(why) : NULL;
        cw_mailbox_answer(s->mailbox, a);
    }
    cw_request_free(r);
}

int cw_lease_take(struct cw_leases *s, struct cw_assembly *from, uint64_t n, struct cw_answer **ret,
                  struct cw_error *err)
{
    struct cw_answer *a = cw_answer_new(NULL,
                                        &(struct cw_answer){.kind = n ? CW_ANSWER_PART : CW_ANSWER_BATCH});
    int r = !a ? cw_error_nomem(err, sizeof(*a), "a batch") : n ? cw_part_read(from, 0, n, &a->rows, err) : 0;
    if (r < 0) {
        cw_runner_drop(s->runner, from);
        cw_answer_free(a);
        return r;
    }
    cw_quarantined_move(&from->quarantined, n ? &a->rows.quarantined : &a->quarantined);
    if (n)
        cw_runner_drop(s->runner, from);
    else
        a->batch = cw_runner_take_batch(s->runner, from);
    a->bytes = n ? a->rows.size : cw_lease_batch_bytes(a->batch);
    *ret = a;
    return 0;
}

void cw_lease_send(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *r,
                   struct cw_answer *a)
{
    struct cw_budget *handed_out = r->peer->handed_out;
    struct cw_batch *b = a->batch;
    cw_answer_set_request(a, r);
    a->end = l->end;
    a->key = r->key;
    a->requested_ns = r->requested_ns;
    a->handed_out = cw_budget_take(handed_out, a->bytes, "a batch", NULL) == 0;
    if (b) {
        b->epoch = l->epoch;
        b->index = r->at;
        if (a->handed_out && !b->disowned)
            cw_runner_disown(s->runner, b);
    }
    /* a kept batch is charged in any case, since it makes room for others to be kept; so are rows, of which
     * at most one part per client exceeds the budget */
    if (!a->handed_out && (!b || b->disowned)) {
        cw_budget_force(handed_out, a->bytes);
        a->handed_out = true;
    }
    cw_peer_take(r->peer, a->bytes);
    cw_mailbox_answer(s->mailbox, a);
}

/* Returns a copy of x with the report of a range: the answer to request r, or (r NULL) to the dispatcher.
 * NULL: out of memory. */
static struct cw_answer *lease_report(const struct cw_leases *s, const struct cw_lease *l,
                                      const struct cw_request *r, struct cw_answer x)
{
    struct cw_report *report = &x.report;
    x.end = l->end;
    report->n_batches = s->kind == CW_RANGES_SEQUENTIAL ? l->n_batches : 0;
    report->elements = calloc((size_t)s->n_keys + 1, sizeof(*report->elements));
    for (unsigned k = 0; report->elements && s->kind == CW_RANGES_PLACED && k < s->n_keys; k++)
        if ((report->elements[k] = l->elements[k]))
            report->n_elements = k + 1;
    struct cw_answer *a = report->elements ? cw_answer_new(r, &x) : NULL;
    if (!a)
        free(report->elements);
    return a;
}

void cw_lease_reply_end(struct cw_leases *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_answer *a = lease_report(s, l, r, (struct cw_answer){.kind = CW_ANSWER_END});
    cw_lease_done(s, r);
    if (a)
        cw_mailbox_answer(s->mailbox, a);
    else
        cw_leases_out_of_memory(s);
}

bool cw_lease_completed(struct cw_leases *s, struct cw_lease *l)
{
    struct cw_answer *a = lease_report(
        s, l, NULL,
        (struct cw_answer){
            .kind = CW_ANSWER_COMPLETED,
            .epoch = l->epoch,
            .begin = l->begin,
            .report = {.lease = l->number, .last = l->range && cw_runner_stream_over(s->runner, l->range)}});
    if (!a)
        return cw_leases_out_of_memory(s);
    l->computed = true;
    s->completed_ns = cw_now_ns();
    cw_trace_span(s->trace, "range", &(struct cw_traced){s->stream, l->epoch, l->begin, CW_TRACE_RANGE, 0},
                  l->leased_ns, s->completed_ns);
    cw_mailbox_answer(s->mailbox, a);
    return true;
}

/* ---- the range in the runner ---- */

void cw_lease_close(struct cw_leases *s, struct cw_lease *l)
{
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        cw_request_drop_part(s, r);
    if (l->unfinished)
        cw_runner_drop(s->runner, CW_STEAL(l->unfinished));
    if (l->range)
        cw_runner_close(s->runner, CW_STEAL(l->range));
}

bool cw_lease_open(struct cw_leases *s, struct cw_lease *l, uint64_t first_batch)
{
    bool counted = s->kind == CW_RANGES_COUNTED;
    uint64_t batch_size = s->sequence->compiled->batch_size;
    struct cw_range_options o = {
        .seed = s->seed,
        .epoch = l->epoch,
        .from.position = l->begin,
        .end = s->kind == CW_RANGES_SEQUENTIAL ? s->sequence->n_positions : l->end,
        .rows = s->kind == CW_RANGES_PLACED,
    };
    struct cw_error err = {0};
    cw_lease_close(s, l);
    l->next_batch = counted ? CW_MIN(first_batch, l->n_batches) : 0;
    if (counted && l->next_batch == l->n_batches)
        return true;   /* no batch of the range is wanted */
    if (l->next_batch) /* the range's first batch may begin before the range */
        o.from.position = (l->begin / batch_size + l->next_batch) * batch_size;
    if (cw_runner_open(s->runner, &o, &l->range, &err) < 0) {
        cw_leases_fail(s, &err);
        return false;
    }
    if (o.rows)
        cw_spans_restart(s, l);
    return true;
}

bool cw_lease_open_for(struct cw_leases *s, struct cw_lease *l, const struct cw_request *r)
{
    return (!s->short_of || s->short_of == r) && cw_lease_open(s, l, r->at);
}

/* ---- failing ---- */

void cw_lease_free(struct cw_leases *s, struct cw_lease *l)
{
    cw_lease_close(s, l);
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        cw_lease_reply(s, r, CW_ANSWER_NOT_HERE, NULL);
    while (l->kept)
        cw_kept_free(s, cw_kept_pop(s, &l->kept));
    while (l->spans)
        free(CW_POP(l->spans));
    free(l->elements);
    free(l->keys);
    free(l->failed);
    free(l->sent);
    free(l);
}

void cw_leases_clear(struct cw_leases *s)
{
    while (s->list)
        cw_lease_free(s, CW_POP(s->list));
}

void cw_leases_fail(struct cw_leases *s, const struct cw_error *why)
{
    if (s->failed)
        return;
    s->failed = true;
    struct cw_answer *a = cw_answer_new(NULL, &(struct cw_answer){.kind = CW_ANSWER_FAILED});
    cw_leases_clear(s);
    if (!a)
        return; /* the dispatcher leases the ranges again when they are late */
    a->why = cw_answer_why(why);
    cw_mailbox_answer(s->mailbox, a);
}

bool cw_leases_out_of_memory(struct cw_leases *s)
{
    struct cw_error err = {0};
    cw_error_nomem(&err, 0, "the batches of a range");
    cw_leases_fail(s, &err);
    return false;
}

bool cw_leases_error_lasts(const struct cw_leases *s, int status)
{
    struct cw_error fatal;
    return (status == CW_E_RECORD || status == CW_E_DATA || status == CW_E_PIPELINE) &&
           cw_runner_fatal(s->runner, &fatal) == 0;
}
