/*
 * Leased splits of a stream, and who asks for what of them. The stream's thread only.
 *
 * A split gives its batches in order. One that is taken before anybody asks for it (another rank asked for a later one) is kept, as long as there is room; one
 * that was sent, or found no room, is computed again when it is asked for: the split is then begun again from there. So every request for a leased split is
 * answered, whatever others ask for.
 */
#include <string.h>

#include "base/clock.h"
#include "worker/stream.h"

/* Batches of a split whose being sent is remembered; of those beyond, nobody takes out those who come again. */
#define SENT_MAX (UINT64_C(1) << 20)

struct kept {
    struct kept *next; /* in the order of index */
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    size_t bytes;
};

struct cw_lease {
    struct cw_lease *next;
    uint64_t epoch, index;
    uint64_t leased_ns;
    struct cw_split *split;     /* NULL: not in the runner, because it is finished, or gave way */
    bool set_aside;             /* it gave way */
    uint64_t next_batch;        /* the one that the runner gives next */
    struct cw_assembly *unfinished; /* that one, waiting for memory */
    bool computed;              /* and the dispatcher was told: */
    uint64_t n_batches;
    struct cw_left **left;      /* by key, once computed */
    struct cw_error *failed;    /* instead of batch failed_at */
    uint64_t failed_at;
    struct cw_request *requests, *left_requests;
    struct kept *kept;
    uint8_t *sent;              /* a bit per batch */
    uint64_t sent_room;         /* bits */
};

/* ---- lists ---- */

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

static void reply_all(struct cw_stream *s, struct cw_request **list, const struct cw_error *why)
{
    while (*list) {
        struct cw_request *r = *list;
        *list = r->next;
        cw_stream_reply(s, r, why ? CW_SAY_SPLIT_FAILED : CW_SAY_NOT_HERE, why);
    }
}

static void unlink_request(struct cw_request **list, const struct cw_request *r)
{
    while (*list != r)
        list = &(*list)->next;
    *list = r->next;
}

/* Who asks for the first batch that anybody asks for and can be sent; of two, who asked first. */
static struct cw_request *first_request(const struct cw_lease *l)
{
    struct cw_request *first = NULL;
    for (struct cw_request *r = l->requests; r; r = r->next)
        if ((!first || r->at < first->at) && cw_peer_room(r->peer))
            first = r;
    return first;
}

/* ---- batches that were sent ---- */

static bool was_sent(const struct cw_lease *l, uint64_t batch) { return batch < l->sent_room && (l->sent[batch / 8] >> batch % 8 & 1); }

static void note_sent(struct cw_lease *l, uint64_t batch)
{
    if (batch >= l->sent_room && batch < SENT_MAX) {
        uint64_t room = CW_MAX(64, l->sent_room);
        while (room <= batch)
            room *= 2;
        uint8_t *grown = realloc(l->sent, room / 8);
        if (!grown)
            return; /* it may be kept once too often */
        memset(grown + l->sent_room / 8, 0, (room - l->sent_room) / 8);
        l->sent = grown;
        l->sent_room = room;
    }
    if (batch < l->sent_room)
        l->sent[batch / 8] |= (uint8_t)(1u << batch % 8);
}

/* ---- batches that wait to be asked for ---- */

static void kept_free(struct cw_stream *s, struct kept *k)
{
    s->kept_bytes -= k->bytes;
    if (k->batch)
        cw_runner_release(s->runner, k->batch);
    cw_quarantined_free(k->quarantined);
    free(k);
}

static struct kept *take_kept(struct cw_lease *l, uint64_t batch)
{
    for (struct kept **at = &l->kept; *at && (*at)->batch->index <= batch; at = &(*at)->next)
        if ((*at)->batch->index == batch) {
            struct kept *k = *at;
            *at = k->next;
            return k;
        }
    return NULL;
}

/* Those that are asked for last are given up first. */
static void give_up_kept(struct cw_stream *s)
{
    while (s->kept_bytes > s->memory / 8) {
        struct kept **last = NULL;
        for (struct cw_lease *l = s->leases; l; l = l->next)
            for (struct kept **at = &l->kept; *at; at = &(*at)->next)
                last = at;
        struct kept *k = *last;
        *last = NULL;
        kept_free(s, k);
    }
}

static size_t batch_bytes(const struct cw_batch *b)
{
    size_t bytes = 0;
    for (size_t i = 0; i < CW_COUNT_OF(b->slabs); i++)
        bytes += b->slabs[i] ? b->slabs[i]->size : 0;
    return bytes;
}

static void keep(struct cw_stream *s, struct cw_lease *l, struct cw_batch *b, struct cw_quarantined *quarantined)
{
    struct kept *k = calloc(1, sizeof(*k)), **at = &l->kept;
    if (!k) { /* it is computed again */
        cw_runner_release(s->runner, b);
        cw_quarantined_free(quarantined);
        return;
    }
    *k = (struct kept){.batch = b, .quarantined = quarantined, .bytes = batch_bytes(b)};
    while (*at && (*at)->batch->index < b->index)
        at = &(*at)->next;
    k->next = *at;
    *at = k;
    s->kept_bytes += k->bytes;
    give_up_kept(s);
}

/* ---- splits in the runner ---- */

static void close_split(struct cw_stream *s, struct cw_lease *l)
{
    if (l->unfinished)
        cw_runner_drop(s->runner, CW_STEAL(l->unfinished));
    if (l->split)
        cw_runner_close(s->runner, CW_STEAL(l->split));
}

static void open_split(struct cw_stream *s, struct cw_lease *l, uint64_t first_batch)
{
    struct cw_error err = {0};
    close_split(s, l);
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

static void lease_clear(struct cw_stream *s, struct cw_lease *l, const struct cw_error *why)
{
    close_split(s, l);
    reply_all(s, &l->requests, why);
    reply_all(s, &l->left_requests, why);
    while (l->kept) {
        struct kept *k = l->kept;
        l->kept = k->next;
        kept_free(s, k);
    }
    for (unsigned k = 0; l->left && k < s->n_keys; k++)
        cw_left_unref(l->left[k]);
    free(l->left);
    free(l->failed);
    free(l->sent);
    free(l);
}

void cw_leases_clear(struct cw_stream *s, const struct cw_error *why)
{
    while (s->leases) {
        struct cw_lease *l = s->leases;
        s->leases = l->next;
        lease_clear(s, l, why);
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
    open_split(s, l, first_batch);
}

void cw_leases_revoke(struct cw_stream *s, uint64_t epoch, uint64_t first, uint64_t n)
{
    struct cw_lease **at = find(s, epoch, first);
    while (*at && (*at)->epoch == epoch && (*at)->index - first < n) {
        struct cw_lease *l = *at;
        *at = l->next;
        lease_clear(s, l, NULL);
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
    cw_runner_relent(s->runner);
}

void cw_leases_set_aside(struct cw_stream *s)
{
    for (struct cw_lease *l = s->leases; l; l = l->next)
        if (l->split) {
            close_split(s, l);
            l->set_aside = true;
        }
}

/* ---- what is left over ---- */

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
    if (r == CW_E_MEMORY) {
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

static struct cw_answer *report(const struct cw_stream *s, const struct cw_lease *l, enum cw_answer_kind kind)
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

static void out_of_memory(struct cw_stream *s)
{
    struct cw_error err = {0};
    cw_error_nomem(&err, 0, "what a split gives");
    cw_stream_fail(s, &err);
}

/* If all of it is computed now, the dispatcher is told. Returns whether it was news. */
static bool note_computed(struct cw_stream *s, struct cw_lease *l)
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
    struct cw_answer *a = report(s, l, CW_SAY_COMPLETED);
    if (!a) {
        out_of_memory(s);
        return false;
    }
    a->compute_ns = cw_now_ns() - l->leased_ns;
    cw_stream_say(s, a);
    return true;
}

/* Answers who asks for elements that are left over, once they are there. */
static bool serve_left(struct cw_stream *s, struct cw_lease *l)
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

/* ---- batches ---- */

static bool lasting(int status) { return status == CW_E_RECORD || status == CW_E_DATA || status == CW_E_PIPELINE; }

/* The split ends in an error, or the runner does. Errors of data are the same whenever it is run; others are told to who waits, and tried again by who asks
 * after that. */
static void split_failed(struct cw_stream *s, struct cw_lease *l, int status, const struct cw_error *why)
{
    struct cw_error fatal;
    if (cw_runner_fatal(s->runner, &fatal) < 0 || status == CW_E_BUDGET || status == CW_E_MEMORY) {
        cw_stream_fail(s, why);
        return;
    }
    close_split(s, l);
    if (lasting(status) && (l->failed = malloc(sizeof(*l->failed)))) {
        *l->failed = *why;
        l->failed_at = l->next_batch;
        return;
    }
    l->set_aside = true;
    reply_all(s, &l->requests, why);
    reply_all(s, &l->left_requests, why);
}

static void answer_batch(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_batch *b, struct cw_quarantined *quarantined)
{
    struct cw_answer *a = calloc(1, sizeof(*a));
    if (!a) {
        cw_runner_release(s->runner, b);
        cw_quarantined_free(quarantined);
        out_of_memory(s);
        return;
    }
    *a = (struct cw_answer){.kind = CW_SAY_BATCH, .peer = cw_peer_ref(r->peer), .re = r->id, .epoch = l->epoch, .split = l->index, .at = b->index, .batch = b,
                            .quarantined = quarantined, .bytes = batch_bytes(b)};
    note_sent(l, b->index);
    cw_peer_take(r->peer, a->bytes);
    cw_stream_say(s, a);
    if (++r->at == r->end) {
        unlink_request(&l->requests, r);
        cw_request_free(r);
    }
}

/* The next batch that the runner has of a split; as cw_runner_poll. */
static int take_next(struct cw_stream *s, struct cw_lease *l, struct cw_batch **ret, struct cw_quarantined **ret_quarantined, struct cw_error *err)
{
    struct cw_assembly *a = CW_STEAL(l->unfinished);
    int r = a ? 0 : cw_runner_poll(s->runner, l->split, &a, err);
    if (r != 0)
        return r;
    r = cw_runner_try_finish(s->runner, a, l->split, err);
    if (r == 2 || r == CW_E_INTERRUPTED) {
        l->unfinished = a;
        return 2;
    }
    if (r < 0) {
        cw_runner_drop(s->runner, a);
        return r;
    }
    *ret_quarantined = CW_STEAL(a->quarantined);
    struct cw_batch *b = *ret = cw_runner_take_batch(s->runner, a);
    b->epoch = l->epoch;
    b->split = l->index;
    b->index = l->next_batch;
    return 0;
}

/* Takes the next batch of a split, for who asks for it. As cw_runner_poll. */
static int advance(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_batch *b = NULL;
    struct cw_quarantined *quarantined = NULL;
    struct cw_error err = {0};
    int r = take_next(s, l, &b, &quarantined, &err);
    if (r < 0) {
        split_failed(s, l, r, &err);
        return r;
    }
    if (r != 0)
        return r;
    l->next_batch++;
    struct cw_request *q = l->requests;
    while (q && (q->at != b->index || !cw_peer_room(q->peer)))
        q = q->next;
    if (q) {
        answer_batch(s, l, q, b, quarantined);
    } else if (was_sent(l, b->index)) {
        cw_runner_release(s->runner, b);
        cw_quarantined_free(quarantined);
    } else {
        keep(s, l, b, quarantined);
    }
    return 0;
}

static void reply_end(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_answer *a = report(s, l, CW_SAY_END);
    unlink_request(&l->requests, r);
    if (a) {
        a->peer = cw_peer_ref(r->peer);
        a->re = r->id;
        a->at = r->at;
        cw_stream_say(s, a);
    }
    cw_request_free(r);
    if (!a)
        out_of_memory(s);
}

/* Answers the first request that can be answered without waiting. */
static bool serve_one(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_request *r = first_request(l);
    if (!r)
        return false;
    if (l->computed && r->at >= l->n_batches) {
        reply_end(s, l, r);
        return true;
    }
    if (l->failed && r->at >= l->failed_at) {
        unlink_request(&l->requests, r);
        cw_stream_reply(s, r, CW_SAY_SPLIT_FAILED, l->failed);
        return true;
    }
    struct kept *k = take_kept(l, r->at);
    if (k) {
        answer_batch(s, l, r, CW_STEAL(k->batch), CW_STEAL(k->quarantined));
        kept_free(s, k);
        return true;
    }
    if (!l->split || r->at < l->next_batch)
        open_split(s, l, r->at);
    if (s->failed)
        return false;
    int status = advance(s, l);
    return status == 0 || (status == 1 && note_computed(s, l)); /* at its end it is computed */
}

static bool serve_lease(struct cw_stream *s, struct cw_lease *l)
{
    bool any = false;
    while (!s->failed && serve_one(s, l))
        any = true;
    if (s->failed)
        return false;
    any |= note_computed(s, l);
    any = !s->failed && (serve_left(s, l) || any);
    if (!s->failed && l->split && l->computed && !l->unfinished && l->next_batch >= l->n_batches)
        close_split(s, l); /* all was taken */
    return any;
}

/* Whether somebody waits for a split to be computed further. */
static bool is_wanted(const struct cw_lease *l) { return first_request(l) || (l->left_requests && !l->computed); }

/* When nothing can be computed any more: splits that nobody asks for give way, the one before who is asked for first. Where nobody asks for anything, all is
 * as it should be. Splits that gave way go on when nobody waits. */
static bool make_room(struct cw_stream *s)
{
    struct cw_lease *before = NULL, *l = s->leases, *aside = NULL;
    for (; l && !is_wanted(l); l = l->next) {
        before = l->split ? l : before;
        aside = l->set_aside && !l->computed && !l->failed ? l : aside;
    }
    if (!l) {
        if (aside)
            open_split(s, aside, aside->next_batch);
        return false;
    }
    if (!before || !cw_runner_stuck(s->runner))
        return false;
    close_split(s, before);
    before->set_aside = true;
    return true;
}

bool cw_leases_serve(struct cw_stream *s)
{
    struct cw_error fatal = {0};
    bool any = false;
    for (struct cw_lease *l = s->leases, *next; l && !s->failed; l = next) {
        next = l->next;
        any |= serve_lease(s, l); /* if the stream fails here, all leases are gone */
    }
    if (!s->failed && cw_runner_fatal(s->runner, &fatal) < 0)
        cw_stream_fail(s, &fatal);
    return !s->failed && (any || make_room(s));
}
