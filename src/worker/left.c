/* What splits leave over at their ends: encoded when they are computed, reported, and given to who joins it. */
#include "worker/lease.h"

#include "base/clock.h"

static int left_read(struct cw_stream *s, struct cw_lease *l, unsigned key, uint64_t n, struct cw_left *left, struct cw_error *err)
{
    struct cw_remnant *rows = left->rows = calloc(1, sizeof(*rows));
    left->n = n;
    if (!rows)
        return cw_error_nomem(err, sizeof(*rows), "what is left over of a split");
    struct cw_error why = {0};
    int r = cw_runner_remnant_read(s->runner, l->split, key, 0, n, rows, &why);
    if (r >= 0)
        return 0;
    if (!cw_lease_lasting(r)) {
        *err = why;
        return r;
    }
    /* An element failed, and raises its error where it is joined: those before it are good. */
    uint64_t good = 0, bad = n;
    while (good < bad) { /* the first `good` can be read, the first `bad + 1` can't, or nobody tried */
        uint64_t middle = good + (bad - good + 1) / 2;
        r = cw_runner_remnant_read(s->runner, l->split, key, 0, middle, rows, NULL);
        if (r >= 0) {
            good = middle;
            cw_remnant_deinit(rows);
        } else {
            bad = middle - 1;
        }
    }
    if (!(left->why = malloc(sizeof(*left->why))))
        return cw_error_nomem(err, sizeof(*left->why), "what is left over of a split");
    *left->why = why;
    return cw_runner_remnant_read(s->runner, l->split, key, 0, good, rows, err);
}

static int left_new(struct cw_stream *s, struct cw_lease *l, struct cw_error *err)
{
    l->left = calloc(s->n_keys + 1, sizeof(*l->left));
    if (!l->left)
        return cw_error_nomem(err, 0, "what is left over of a split");
    for (unsigned k = 0; k < s->n_keys; k++) {
        uint64_t n = cw_runner_remnant(s->runner, l->split, k);
        struct cw_left *left = l->left[k] = calloc(1, sizeof(*left));
        if (!left)
            return cw_error_nomem(err, sizeof(*left), "what is left over of a split");
        atomic_init(&left->refs, 1);
        int r = n ? left_read(s, l, k, n, left, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static uint64_t *left_counts(const struct cw_stream *s, const struct cw_lease *l, size_t *ret_n)
{
    uint64_t *counts = calloc(s->n_keys + 1, sizeof(*counts));
    size_t n = 0;
    for (unsigned k = 0; counts && k < s->n_keys; k++)
        if ((counts[k] = l->left[k]->n))
            n = k + 1;
    *ret_n = n;
    return counts;
}

struct cw_answer *cw_lease_report(const struct cw_stream *s, const struct cw_lease *l, enum cw_answer_kind kind)
{
    struct cw_answer *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    *a = (struct cw_answer){.kind = kind, .epoch = l->epoch, .split = l->index, .n = l->n_batches};
    if (!(a->remnants = left_counts(s, l, &a->n_remnants))) {
        free(a);
        return NULL;
    }
    return a;
}

bool cw_lease_note_computed(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_error err = {0};
    uint64_t n;
    if (!l->split || !cw_runner_computed(s->runner, l->split, &n) || l->computed)
        return false;
    l->n_batches = n;
    if (left_new(s, l, &err) < 0) {
        cw_stream_fail(s, &err);
        return false;
    }
    cw_runner_drop_remnants(s->runner, l->split);
    l->computed = true;
    struct cw_answer *a = cw_lease_report(s, l, CW_SAY_COMPLETED);
    if (!a) {
        cw_lease_out_of_memory(s);
        return false;
    }
    uint64_t now = cw_now_ns();
    a->compute_ns = now - l->leased_ns;
    cw_trace_span(s->options->trace, "split", &(struct cw_traced){s->name, l->epoch, l->index, CW_TRACE_SPLIT}, l->leased_ns, now);
    cw_stream_say(s, a);
    return true;
}

bool cw_lease_serve_left(struct cw_stream *s, struct cw_lease *l)
{
    bool any = false;
    for (struct cw_request **at = &l->left_requests; *at;) {
        struct cw_request *r = *at;
        const struct cw_left *left = l->computed && r->key < s->n_keys ? l->left[r->key] : NULL;
        if (!l->failed && (!l->computed || !cw_peer_room(r->peer))) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        any = true;
        uint64_t good = left && left->rows ? left->rows->n : 0;
        if (left && r->end <= good) {
            struct cw_answer *a = calloc(1, sizeof(*a));
            if (a) {
                *a = (struct cw_answer){.kind = CW_SAY_REMNANT, .peer = cw_peer_ref(r->peer), .re = r->id, .epoch = r->epoch, .split = r->split, .key = r->key,
                                        .at = r->at, .n = r->end - r->at, .left = l->left[r->key]};
                atomic_fetch_add(&a->left->refs, 1);
                a->bytes = left->rows && left->rows->offsets ? left->rows->offsets[r->end] - left->rows->offsets[r->at] : 0;
                cw_peer_take(r->peer, a->bytes);
                cw_stream_say(s, a);
            }
            cw_request_free(r);
            continue;
        }
        struct cw_error why = {0};
        if (l->failed || (left && left->why && r->end <= left->n))
            why = l->failed ? *l->failed : *left->why;
        else
            cw_error_set(&why, CW_E_SERVICE, "elements %llu to %llu of what is left over under key %u were asked for, where there are %llu",
                         (unsigned long long)r->at, (unsigned long long)r->end, r->key, (unsigned long long)(left ? left->n : 0));
        cw_stream_reply(s, r, CW_SAY_SPLIT_FAILED, &why);
    }
    return any;
}
