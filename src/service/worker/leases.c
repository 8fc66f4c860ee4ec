/* Which ranges of a stream are leased, what they have in the runner, and the requests that wait for them. */
#include "service/worker/lease.h"

#include "base/clock.h"
#include "base/crash.h"

static struct cw_lease **lease_find(struct cw_stream *s, uint64_t epoch, uint64_t begin)
{
    struct cw_lease **at = &s->leases;
    while (*at && ((*at)->epoch < epoch || ((*at)->epoch == epoch && (*at)->begin < begin)))
        at = &(*at)->next;
    return at;
}

static void request_append(struct cw_request **list, struct cw_request *r)
{
    while (*list)
        list = &(*list)->next;
    r->next = NULL;
    *list = r;
}

void cw_lease_remove(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_request **at = &l->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    cw_request_drop_part(s, r);
    if (s->short_of == r)
        s->short_of = NULL;
}

void cw_lease_done(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    cw_lease_remove(s, l, r);
    cw_request_free(r);
}

void cw_lease_reply(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, enum cw_answer_kind kind,
                    const struct cw_error *why)
{
    cw_lease_remove(s, l, r);
    cw_stream_reply(s, r, kind, why);
}

void cw_kept_free(struct cw_stream *s, struct kept *k)
{
    s->kept_bytes -= k->bytes;
    if (k->batch)
        cw_runner_release(s->runner, k->batch);
    cw_quarantined_free(k->quarantined);
    if (k->rows)
        cw_part_deinit(k->rows);
    free(k->rows);
    free(k);
}

void cw_lease_out_of_memory(struct cw_stream *s)
{
    struct cw_error err = {0};
    cw_error_nomem(&err, 0, "what a range gives");
    cw_stream_fail(s, &err);
}

void cw_lease_close(struct cw_stream *s, struct cw_lease *l)
{
    for (struct cw_request *r = l->requests; r; r = r->next)
        cw_request_drop_part(s, r);
    if (l->unfinished)
        cw_runner_drop(s->runner, CW_STEAL(l->unfinished));
    if (l->range)
        cw_runner_close(s->runner, CW_STEAL(l->range));
}

void cw_lease_open(struct cw_stream *s, struct cw_lease *l, uint64_t first_batch)
{
    bool counted = s->kind == RANGES_COUNTED;
    struct cw_range_options o = {
        .seed = s->seed,
        .epoch = l->epoch,
        .from.position = l->begin,
        .end = s->kind == RANGES_SEQUENTIAL ? s->local.sequence->n_positions : l->end,
        .rows = s->kind == RANGES_PLACED,
    };
    struct cw_error err = {0};
    cw_lease_close(s, l);
    l->next_batch = counted ? CW_MIN(first_batch, l->n_batches) : 0;
    if (counted && l->next_batch == l->n_batches)
        return;        /* nothing of it is wanted */
    if (l->next_batch) /* the first one may be a part */
        o.from.position = (l->begin / s->local.compiled->batch_size + l->next_batch) *
                          s->local.compiled->batch_size;
    if (cw_runner_open(s->runner, &o, &l->range, &err) < 0)
        cw_stream_fail(s, &err);
    else if (o.rows)
        cw_lease_drop_rows(s, l);
}

bool cw_lease_open_for(struct cw_stream *s, struct cw_lease *l, const struct cw_request *r)
{
    if (s->short_of && s->short_of != r)
        return false;
    cw_lease_open(s, l, r->at);
    return !s->failed;
}

static void lease_clear(struct cw_stream *s, struct cw_lease *l)
{
    cw_lease_close(s, l);
    while (l->requests)
        cw_lease_reply(s, l, l->requests, CW_SAY_NOT_HERE, NULL);
    while (l->kept)
        cw_kept_free(s, CW_POP(l->kept));
    while (l->spans)
        free(CW_POP(l->spans));
    free(l->elements);
    free(l->keys);
    free(l->failed);
    free(l->sent);
    free(l);
}

void cw_leases_clear(struct cw_stream *s)
{
    while (s->leases)
        lease_clear(s, CW_POP(s->leases));
}

/* Batches of a counted range, with those that it has a part of. */
static uint64_t batches_of(const struct cw_stream *s, uint64_t begin, uint64_t end)
{
    const struct cw_compiled *c = s->local.compiled;
    bool cut = c->drop_remainder && end == s->local.sequence->n_positions;
    uint64_t upto = (end + (cut ? 0 : c->batch_size - 1)) / c->batch_size;
    return upto - CW_MIN(begin / c->batch_size, upto);
}

void cw_lease_shorten(struct cw_stream *s)
{
    struct cw_lease *l = s->leases;
    while (l && (l->computed || l->failed || !l->range))
        l = l->next;
    if (!l || l->whole || s->kind == RANGES_SEQUENTIAL ||
        cw_now_ns() - CW_MAX(l->leased_ns, s->completed_ns) < s->options->range_ns)
        return;
    if (cw_runner_stuck(s->runner))
        return; /* it waits for clients to take something: that is no work that others could do */
    uint64_t end = cw_runner_shorten(s->runner, l->range);
    if (end == 0)
        return;
    l->end = end;
    l->n_keys = 0; /* known from an earlier run of the range, they may stand behind its end */
    l->n_batches = s->kind == RANGES_COUNTED ? batches_of(s, l->begin, end) : 0;
}

void cw_leases_add(struct cw_stream *s, const struct cw_command *c)
{
    struct cw_lease **at = lease_find(s, c->epoch, c->begin), *l = *at;
    if (l && l->epoch == c->epoch && l->begin == c->begin)
        return; /* said again */
    l = malloc(sizeof(*l));
    uint64_t *elements = calloc((size_t)3 * s->n_keys + 1, sizeof(*elements));
    if (!l || !elements) {
        free(l);
        free(elements);
        cw_lease_out_of_memory(s);
        return;
    }
    bool counted = s->kind == RANGES_COUNTED;
    *l = (struct cw_lease){.next = *at,
                           .epoch = c->epoch,
                           .begin = c->begin,
                           .end = c->end,
                           .number = c->lease,
                           .leased_ns = cw_now_ns(),
                           .whole = c->whole,
                           .lowest = UINT64_MAX,
                           .n_batches = counted ? batches_of(s, c->begin, c->end) : 0,
                           .elements = elements,
                           .sent_upto = elements + s->n_keys,
                           .dropped = elements + 2 * (size_t)s->n_keys};
    *at = l;
    cw_lease_open(s, l,
                  counted ? c->from / s->local.compiled->batch_size - c->begin / s->local.compiled->batch_size
                          : 0);
}

void cw_leases_revoke(struct cw_stream *s, uint64_t epoch, uint64_t begin, uint64_t end)
{
    struct cw_lease **at = lease_find(s, epoch, begin);
    while (*at && (*at)->epoch == epoch && (*at)->begin < end) {
        if ((*at)->end > end)
            return; /* none behind it ends before */
        lease_clear(s, CW_POP(*at));
    }
}

/* What is wrong with a request for a range, which only a client can do that has another pipeline in mind. */
static int request_check(const struct cw_stream *s, const struct cw_request *r, struct cw_error *err)
{
    bool rows = r->what == CACHEW__WHAT__WHAT_ROWS || r->what == CACHEW__WHAT__WHAT_PART;
    if (s->kind != RANGES_PLACED ? r->what != CACHEW__WHAT__WHAT_BATCHES
                                 : !rows && r->what != CACHEW__WHAT__WHAT_KEYS)
        return cw_error_set(
            err, CW_E_SERVICE, "a Get of kind %d came for a range of a pipeline whose %s", (int)r->what,
            s->kind == RANGES_PLACED ? "rows are asked for by key" : "batches are asked for by number");
    if (rows && r->key >= s->n_keys)
        return cw_error_set(err, CW_E_SERVICE, "elements of key %u were asked for, expected less than %u",
                            r->key, s->n_keys);
    if (rows && r->end - r->at > cw_key_size(s->local.compiled, r->key))
        return cw_error_set(err, CW_E_SERVICE,
                            "%llu elements of key %u were asked for, expected at most a full batch: %llu",
                            (unsigned long long)(r->end - r->at), r->key,
                            (unsigned long long)cw_key_size(s->local.compiled, r->key));
    return 0;
}

void cw_leases_request(struct cw_stream *s, struct cw_request *r)
{
    struct cw_lease *l = *lease_find(s, r->epoch, r->begin);
    struct cw_error why = {0};
    if (!l || l->epoch != r->epoch || l->begin != r->begin ||
        (cw_mutated("not-here") && l->number % 4 == 0)) {
        cw_stream_reply(s, r, CW_SAY_NOT_HERE, NULL);
    } else if (request_check(s, r, &why) < 0) {
        cw_stream_reply(s, r, CW_SAY_RANGE_FAILED, &why);
    } else {
        l->lowest = CW_MIN(l->lowest, r->at);
        request_append(&l->requests, r);
    }
}

void cw_leases_forget_peer(struct cw_stream *s, const struct cw_peer *p)
{
    for (struct cw_lease *l = s->leases; l; l = l->next)
        for (struct cw_request *r = l->requests, *next; r; r = next) {
            next = r->next;
            if (r->peer == p)
                cw_lease_done(s, l, r);
        }
    if (s->runner)
        cw_runner_relent(s->runner);
}

void cw_leases_set_aside(struct cw_stream *s)
{
    for (struct cw_lease *l = s->leases; l; l = l->next)
        if (l->range)
            cw_lease_close(s, l);
}
