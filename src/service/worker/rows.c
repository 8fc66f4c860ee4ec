/*
 * Serves requests for placed ranges: elements by key, as batches or as rows that the client joins, and the
 * keys of the elements in order. Elements stay in the runner until they were sent once.
 */
#include "service/worker/lease.h"

#include <string.h>

/* Requests hold parts of at most 1/8 of the stream's memory; a single part is always allowed. */
#define PARTS_OF_MEMORY 8

/* ---- parts: elements that a request has while they become a batch ---- */

/* Whether a request may begin a part. With map_batches, each part has a call of its own under way. Otherwise
 * a part that is there lacks memory, and a second part would lack it, too. */
static bool part_may_begin(const struct cw_stream *s, const struct cw_request *r)
{
    if (s->short_of && s->short_of != r)
        return false;
    return !s->n_parts || (s->local.compiled->n_batch_ops && s->n_parts < s->options->threads &&
                           s->part_bytes * (s->n_parts + 1) <= s->memory / PARTS_OF_MEMORY);
}

void cw_request_drop_part(struct cw_stream *s, struct cw_request *r)
{
    if (!r->part)
        return;
    s->n_parts--;
    cw_runner_drop(s->runner, CW_STEAL(r->part));
}

/* The last request of leases from `l` on that has a part; NULL: no request has one. */
static struct cw_request *part_last(const struct cw_lease *l)
{
    struct cw_request *last = NULL;
    for (; l; l = l->next)
        for (struct cw_request *r = l->requests; r; r = r->next)
            last = r->part ? r : last;
    return last;
}

bool cw_leases_give_up_part(struct cw_stream *s, const struct cw_lease *l, const struct cw_request *first)
{
    struct cw_request *r = s->n_parts ? part_last(l->next) : NULL;
    if (!r)
        return false;
    cw_request_drop_part(s, r);
    s->short_of = first;
    return true;
}

/* ---- rows that were given away ---- */

/* The span of a request's rows, made where there is none. NULL: out of memory. */
static struct rows_span *span_get(struct cw_lease *l, const struct cw_request *r)
{
    struct rows_span *x = l->spans;
    while (x && !(x->key == r->key && x->first == r->at && x->end == r->end))
        x = x->next;
    if (!x && (x = malloc(sizeof(*x)))) {
        *x = (struct rows_span){.next = l->spans, .key = r->key, .first = r->at, .end = r->end};
        l->spans = x;
    }
    return x;
}

/* Whether rows that request r asks for were dropped, or given away for another request. */
static bool rows_gone(const struct cw_lease *l, const struct cw_request *r)
{
    bool gone = r->at < l->dropped[r->key];
    for (const struct rows_span *x = l->spans; x && !gone; x = x->next)
        gone = x->gone && x->key == r->key && x->first < r->end && r->at < x->end;
    return gone;
}

/* Rows of a key before `upto` are dropped, but for those that are asked for. Returns whether any were there.
 */
static bool rows_give_up(struct cw_stream *s, struct cw_lease *l, uint32_t key, uint64_t upto)
{
    for (const struct cw_request *r = l->requests; r; r = r->next)
        if (r->key == key && r->what != CACHEW__WHAT__WHAT_KEYS)
            upto = CW_MIN(upto, r->at);
    if (upto <= l->dropped[key])
        return false;
    l->dropped[key] = upto;
    cw_runner_drop_rows(s->runner, l->range, key, upto);
    return true;
}

/* Drops the rows of a key that were sent, and the spans of these. */
static void rows_drop(struct cw_stream *s, struct cw_lease *l, uint32_t key)
{
    if (!rows_give_up(s, l, key, l->sent_upto[key]))
        return;
    for (struct rows_span **at = &l->spans; *at;)
        if ((*at)->key == key && (*at)->end <= l->dropped[key])
            free(CW_POP(*at));
        else
            at = &(*at)->next;
}

void cw_lease_drop_rows(struct cw_stream *s, struct cw_lease *l)
{
    for (struct rows_span *x = l->spans; x; x = x->next)
        x->gone = false;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        l->dropped[k] = 0;
        rows_drop(s, l, k);
    }
}

/* Ends a request whose rows were sent. Without memory to note that, the rows stay until the range is
 * revoked. */
static void rows_done(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct rows_span *span = span_get(l, r);
    uint64_t *upto = &l->sent_upto[r->key], before;
    if (span)
        span->sent = true;
    do {
        before = *upto;
        for (const struct rows_span *x = l->spans; x; x = x->next)
            if (x->key == r->key && x->sent && x->first <= *upto)
                *upto = CW_MAX(*upto, x->end);
    } while (*upto > before);
    uint32_t key = r->key;
    cw_lease_done(s, l, r);
    rows_drop(s, l, key);
}

static bool rows_all_dropped(const struct cw_stream *s, const struct cw_lease *l)
{
    bool all = l->computed;
    for (uint32_t k = 0; k < s->n_keys && all; k++)
        all = l->dropped[k] >= l->elements[k];
    return all;
}

/* ---- keys, and the end of a range ---- */

/* Bytes of a key in message Keys. */
static size_t key_width(const struct cw_stream *s)
{
    return s->n_keys > 256 ? 2 : 1;
}

/* Reads the keys of a range's elements so far, as message Keys has them. A range that began again may have
 * fewer than before. */
static int keys_read(struct cw_stream *s, struct cw_lease *l, struct cw_error *err)
{
    size_t n;
    _cleanup_free_ uint16_t *keys = NULL;
    int r = s->n_keys > 1 ? cw_runner_keys(s->runner, l->range, &keys, &n, err) : 0;
    if (r < 0 || !keys || n <= l->n_keys)
        return r;
    size_t width = key_width(s);
    free(l->keys);
    l->n_keys = 0;
    if (!(l->keys = malloc(n * width)))
        return cw_error_nomem(err, n * width, "the keys of a range");
    l->n_keys = n;
    for (size_t i = 0; i < n * width; i++)
        l->keys[i] = (uint8_t)(keys[i / width] >> 8 * (i % width));
    return 0;
}

/* If a range is newly over, reads its elements and keys, and reports them to the dispatcher. Returns whether
 * it is newly over. If not, the stream may have failed, and the lease be gone. */
static bool rows_note_over(struct cw_stream *s, struct cw_lease *l)
{
    struct cw_error why = {0}, err = {0};
    int status = !l->range || l->computed || l->failed
                     ? 2
                     : cw_runner_summary(s->runner, l->range, l->elements, &why);
    if (status == 2)
        return false;
    if (status < 0 && !cw_lease_lasting(s, status)) {
        cw_stream_fail(s, &why);
        return false;
    }
    if (keys_read(s, l, &err) < 0) {
        cw_stream_fail(s, &err);
        return false;
    }
    if (status >= 0)
        return cw_lease_completed(s, l);
    if (!(l->failed = malloc(sizeof(*l->failed)))) {
        cw_lease_out_of_memory(s);
        return false;
    }
    *l->failed = why;
    return true;
}

/* Sends the keys of l from number r->at on. False: the stream failed. */
static bool keys_answer(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    size_t width = key_width(s), all = s->n_keys > 1 ? l->n_keys : l->elements[0],
           n = (all - CW_MIN(r->at, all)) * width;
    struct cw_answer *a = malloc(sizeof(*a));
    uint8_t *keys = calloc(n + 1, 1);
    if (!a || !keys) {
        free(a);
        free(keys);
        cw_lease_out_of_memory(s);
        return false;
    }
    if (l->keys && n > 0)
        memcpy(keys, l->keys + r->at * width, n);
    *a = (struct cw_answer){.kind = CW_SAY_KEYS,
                            .peer = cw_peer_ref(r->peer),
                            .re = r->id,
                            .epoch = l->epoch,
                            .begin = l->begin,
                            .end = l->end,
                            .at = r->at,
                            .keys = keys,
                            .bytes = n,
                            .over = l->computed || l->failed,
                            .why = l->failed ? cw_stream_why(l->failed) : NULL};
    cw_peer_take(r->peer, a->bytes);
    cw_stream_say(s, a);
    cw_lease_done(s, l, r);
    return true;
}

/* The same of the keys so far, if that are more than r asks for. */
static bool keys_answer_early(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_error err = {0};
    if (r->what != CACHEW__WHAT__WHAT_KEYS || !l->range || l->computed || l->failed || !cw_peer_room(r->peer))
        return false;
    if (keys_read(s, l, &err) < 0)
        cw_stream_fail(s, &err);
    return !s->failed && l->n_keys > r->at && keys_answer(s, l, r);
}

bool cw_leases_give_keys(struct cw_stream *s)
{
    bool any = false;
    for (struct cw_lease *l = s->leases; l && !s->failed; l = s->failed ? NULL : l->next)
        for (struct cw_request *r = l->requests, *next; r && !s->failed; r = next) {
            next = r->next;
            any |= keys_answer_early(s, l, r);
        }
    return any;
}

bool cw_lease_give_up_rows(struct cw_stream *s, struct cw_lease *l)
{
    uint64_t first = UINT64_MAX;
    _cleanup_free_ uint64_t *before = calloc(s->n_keys, sizeof(*before));
    _cleanup_free_ uint16_t *keys = NULL;
    size_t n;
    bool any = false;
    if (!before || !l->range || s->n_keys <= 1 || cw_runner_keys(s->runner, l->range, &keys, &n, NULL) < 0)
        return false;
    for (const struct cw_request *r = l->requests; r; r = r->next)
        if (r->what == CACHEW__WHAT__WHAT_KEYS)
            first = CW_MIN(first, r->at);
    for (size_t i = 0; i < first && i < n; i++)
        before[keys[i]]++;
    for (uint32_t k = 0; k < s->n_keys; k++)
        any |= rows_give_up(s, l, k, before[k]);
    return any;
}

/* ---- rows ---- */

/* Sends the rows of a part as they are: the client joins them. */
static int part_send(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_assembly *part,
                     struct cw_error *err)
{
    struct cw_part *rows = calloc(1, sizeof(*rows));
    int status = rows ? cw_part_read(part, 0, r->end - r->at, rows, err)
                      : cw_error_nomem(err, sizeof(*rows), "rows of a range");
    if (status >= 0)
        cw_quarantined_move(&part->quarantined, &rows->quarantined);
    cw_runner_drop(s->runner, part);
    if (status < 0) {
        free(rows);
        return status;
    }
    if (cw_lease_answer_rows(s, l, r, rows))
        rows_done(s, l, r);
    return 0;
}

/* Sends the part of a request as a batch, once the batch is finished. 2: it is not finished yet. */
static int batch_send(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_error *err)
{
    int status = cw_runner_try_finish(s->runner, r->part, l->range, err);
    if (status != 0)
        return status;
    struct cw_assembly *part = CW_STEAL(r->part);
    struct cw_quarantined *quarantined = CW_STEAL(part->quarantined);
    s->n_parts--;
    if (cw_lease_answer_batch(s, l, r, cw_runner_take_batch(s->runner, part), quarantined))
        rows_done(s, l, r);
    return 0;
}

/* Takes the rows of a request from the runner and sends them. Returns as cw_runner_part, part_send and
 * batch_send. */
static int rows_send(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_error *err)
{
    bool whole = r->what == CACHEW__WHAT__WHAT_ROWS;
    struct cw_assembly *part;
    if (r->part)
        return batch_send(s, l, r, err);
    if (whole && !part_may_begin(s, r))
        return 2;
    int status = cw_runner_part(s->runner, l->range, r->key, r->at, r->end - r->at, &part, err);
    if (status != 0)
        return status;
    if (!whole)
        return part_send(s, l, r, part, err);
    struct rows_span *span = span_get(l, r);
    if (!span) {
        cw_runner_drop(s->runner, part);
        return cw_error_nomem(err, sizeof(*span), "rows of a range");
    }
    span->gone = true;
    r->part = part;
    s->n_parts++;
    s->part_bytes = (part->slab ? part->slab->size : 0) + part->charged;
    return batch_send(s, l, r, err);
}

/* Answers a request, if possible now. False: no progress was possible, or the stream has failed. */
static bool request_answer(struct cw_stream *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_error err = {0};
    if (r->what == CACHEW__WHAT__WHAT_KEYS && (l->computed || l->failed))
        return keys_answer(s, l, r);
    if (l->computed && r->what != CACHEW__WHAT__WHAT_KEYS && r->end > l->elements[r->key]) {
        cw_lease_reply_end(s, l, r);
        return true;
    }
    bool again = !l->range || (r->what != CACHEW__WHAT__WHAT_KEYS && !r->part && rows_gone(l, r));
    if ((again && !cw_lease_open_for(s, l, r)) || r->what == CACHEW__WHAT__WHAT_KEYS)
        return false;
    int status = rows_send(s, l, r, &err);
    if (status < 0 && !cw_lease_lasting(s, status) && s->n_parts > (r->part != NULL)) {
        /* other parts may have the memory that this one lacks */
        for (struct cw_request *x; (x = part_last(s->leases));)
            cw_request_drop_part(s, x);
        s->short_of = r;
        return true;
    }
    if (status == 1) /* the range has fewer elements: their number is known now, or soon */
        return rows_note_over(s, l);
    if (status >= 0)
        return status == 0 && !s->failed;
    if (!cw_lease_lasting(s, status)) {
        cw_stream_fail(s, &err);
        return false;
    }
    cw_lease_reply(s, l, r, CW_SAY_RANGE_FAILED, &err);
    return true;
}

struct cw_request *cw_lease_rows_there(struct cw_stream *s, const struct cw_lease *l)
{
    for (struct cw_request *r = l->range ? l->requests : NULL; r; r = r->next)
        if ((r->what == CACHEW__WHAT__WHAT_ROWS || r->what == CACHEW__WHAT__WHAT_PART) &&
            cw_peer_room(r->peer) &&
            (r->part ||
             (!rows_gone(l, r) && cw_runner_part_there(s->runner, l->range, r->key, r->at, r->end - r->at))))
            return r;
    return NULL;
}

bool cw_lease_serve_rows(struct cw_stream *s, struct cw_lease *l)
{
    bool any = rows_note_over(s, l);
    for (struct cw_request *r = s->failed ? NULL : l->requests, *next; r && !s->failed; r = next) {
        next = r->next;
        any |= cw_peer_room(r->peer) && request_answer(s, l, r);
    }
    if (!s->failed && l->range && rows_all_dropped(s, l))
        cw_lease_close(s, l);
    return any && !s->failed;
}
