/* Keeps track of the rows of a placed range that were sent, or taken from the runner. The stream's thread
 * only; called by lease.c and rows.c. */
#include "service/worker/spans.h"

struct cw_span *cw_span_get(struct cw_lease *l, const struct cw_request *r)
{
    struct cw_span *x = l->spans;
    while (x && !(x->key == r->key && x->first == r->at && x->end == r->end))
        x = x->next;
    if (!x && (x = malloc(sizeof(*x)))) {
        *x = (struct cw_span){.next = l->spans, .key = r->key, .first = r->at, .end = r->end};
        l->spans = x;
    }
    return x;
}

bool cw_spans_rows_gone(const struct cw_lease *l, const struct cw_request *r)
{
    bool gone = r->at < l->dropped[r->key];
    for (const struct cw_span *x = l->spans; x && !gone; x = x->next)
        gone = x->gone && x->key == r->key && x->first < r->end && r->at < x->end;
    return gone;
}

bool cw_spans_give_up(struct cw_leases *s, struct cw_lease *l, uint32_t key, uint64_t upto)
{
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        if (r->key == key && cw_request_for_rows(r))
            upto = CW_MIN(upto, r->at);
    if (upto <= l->dropped[key])
        return false;
    l->dropped[key] = upto;
    cw_runner_drop_rows(s->runner, l->range, key, upto);
    return true;
}

void cw_spans_drop(struct cw_leases *s, struct cw_lease *l, uint32_t key)
{
    if (!cw_spans_give_up(s, l, key, l->sent_upto[key]))
        return;
    for (struct cw_span **at = &l->spans; *at;)
        if ((*at)->key == key && (*at)->end <= l->dropped[key])
            free(CW_POP(*at));
        else
            at = &(*at)->next;
}

void cw_spans_restart(struct cw_leases *s, struct cw_lease *l)
{
    for (struct cw_span *x = l->spans; x; x = x->next)
        x->gone = false;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        l->dropped[k] = 0;
        cw_spans_drop(s, l, k);
    }
}

void cw_spans_note_sent(struct cw_lease *l, const struct cw_request *r)
{
    struct cw_span *span = cw_span_get(l, r);
    uint64_t *upto = &l->sent_upto[r->key], before;
    if (span)
        span->sent = true;
    do {
        before = *upto;
        for (const struct cw_span *x = l->spans; x; x = x->next)
            if (x->key == r->key && x->sent && x->first <= *upto)
                *upto = CW_MAX(*upto, x->end);
    } while (*upto > before);
}

bool cw_spans_all_dropped(const struct cw_leases *s, const struct cw_lease *l)
{
    bool all = l->computed;
    for (uint32_t k = 0; k < s->n_keys && all; k++)
        all = l->dropped[k] >= l->elements[k];
    return all;
}
