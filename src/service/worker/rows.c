/* Serves requests for placed ranges (lease.h): elements by key, as batches or as rows that the client joins,
 * and the keys of all elements in order. The stream's thread only; called by leases.c. */
#include "service/worker/rows.h"

#include <string.h>

#include "service/worker/spans.h"

/* All parts together use at most 1/8 of the stream's memory, but one part is always allowed. */
#define PARTS_OF_MEMORY 8

/* ---- parts: the elements of a request, while they wait to become a batch ---- */

/* Whether a request may begin a part. With map_batches there may be several parts, each with a running call.
 * Otherwise an existing part means that memory is short, and a second part would not get any either. */
static bool part_may_begin(const struct cw_leases *s, const struct cw_request *r)
{
    if (s->short_of && s->short_of != r)
        return false;
    return !s->n_parts || (s->sequence->compiled->n_batch_ops && s->n_parts < s->threads &&
                           s->part_bytes * (s->n_parts + 1) <= s->memory / PARTS_OF_MEMORY);
}

/* Returns the last request that has a part, of leases from `l` on; NULL: no request has one. */
static struct cw_request *part_last(const struct cw_lease *l)
{
    struct cw_request *last = NULL;
    for (; l; l = l->next)
        CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
            last = r->part ? r : last;
    return last;
}

bool cw_rows_give_up_part(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *first)
{
    struct cw_request *r = s->n_parts ? part_last(l->next) : NULL;
    if (!r)
        return false;
    cw_request_drop_part(s, r);
    s->short_of = first;
    return true;
}

/* ---- keys, and the end of a range ---- */

/* Returns the bytes of one key in message Keys. */
static size_t key_width(const struct cw_leases *s)
{
    return s->n_keys > 256 ? 2 : 1;
}

/* Updates l->keys: the keys of the range's elements so far, encoded as in message Keys. If the range is
 * computed again and has fewer keys yet, nothing changes. */
static int keys_read(struct cw_leases *s, struct cw_lease *l, struct cw_error *err)
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

/* If the range has just been computed to its end: stores its keys and numbers of elements, and reports them
 * to the dispatcher. Returns whether that happened. If not, the stream may have failed; then the lease is
 * freed. */
static bool rows_note_over(struct cw_leases *s, struct cw_lease *l)
{
    struct cw_error why = {0}, err = {0};
    int status = !l->range || l->computed || l->failed
                     ? 2
                     : cw_runner_summary(s->runner, l->range, l->elements, &why);
    if (status == 2)
        return false;
    bool lasts = status < 0 && cw_leases_error_lasts(s, status);
    if ((status < 0 && !lasts) || keys_read(s, l, &err) < 0) {
        cw_leases_fail(s, status < 0 && !lasts ? &why : &err);
        return false;
    }
    if (status >= 0)
        return cw_lease_completed(s, l);
    if (!(l->failed = malloc(sizeof(*l->failed))))
        return cw_leases_out_of_memory(s);
    *l->failed = why;
    return true;
}

/* Answers r with the keys of the range's elements from number r->at on. Returns false if the stream failed.
 */
static bool keys_send(struct cw_leases *s, struct cw_lease *l, struct cw_request *r)
{
    size_t width = key_width(s), all = s->n_keys > 1 ? l->n_keys : l->elements[0],
           n = (all - CW_MIN(r->at, all)) * width;
    uint8_t *keys = calloc(n + 1, 1);
    struct cw_answer *a = keys ? cw_answer_new(r, &(struct cw_answer){.kind = CW_ANSWER_KEYS,
                                                                      .end = l->end,
                                                                      .data = keys,
                                                                      .bytes = n,
                                                                      .over = l->computed || l->failed})
                               : NULL;
    if (!a) {
        free(keys);
        return cw_leases_out_of_memory(s);
    }
    if (l->keys && n > 0)
        memcpy(keys, l->keys + r->at * width, n);
    a->why = l->failed ? cw_answer_why(l->failed) : NULL;
    cw_peer_take(r->peer, n);
    cw_mailbox_answer(s->mailbox, a);
    cw_lease_done(s, r);
    return true;
}

/* Answers r with the keys so far, if there are more than the client has already. */
static bool keys_send_early(struct cw_leases *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_error err = {0};
    if (cw_request_for_rows(r) || !l->range || l->computed || l->failed || !cw_peer_room(r->peer))
        return false;
    if (keys_read(s, l, &err) < 0) {
        cw_leases_fail(s, &err);
        return false;
    }
    return l->n_keys > r->at && keys_send(s, l, r);
}

bool cw_rows_send_keys(struct cw_leases *s)
{
    bool any = false;
    for (struct cw_lease *l = s->list; l; l = l->next)
        CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests) {
            any |= keys_send_early(s, l, r);
            if (s->failed) /* l is freed */
                return false;
        }
    return any;
}

bool cw_rows_give_up(struct cw_leases *s, struct cw_lease *l)
{
    uint64_t first = UINT64_MAX;
    _cleanup_free_ uint64_t *before = calloc(s->n_keys, sizeof(*before));
    _cleanup_free_ uint16_t *keys = NULL;
    size_t n;
    bool any = false;
    if (!before || !l->range || s->n_keys <= 1 || cw_runner_keys(s->runner, l->range, &keys, &n, NULL) < 0)
        return false;
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        if (!cw_request_for_rows(r))
            first = CW_MIN(first, r->at);
    for (size_t i = 0; i < first && i < n; i++)
        before[keys[i]]++;
    for (uint32_t k = 0; k < s->n_keys; k++)
        any |= cw_spans_give_up(s, l, k, before[k]);
    return any;
}

/* ---- rows ---- */

/* Stores the elements of a request for a batch as its part, which will become the batch. */
static int part_hold(struct cw_leases *s, struct cw_lease *l, struct cw_request *r, struct cw_assembly *part,
                     struct cw_error *err)
{
    struct cw_span *span = cw_span_get(l, r);
    if (!span) {
        cw_runner_drop(s->runner, part);
        return cw_error_nomem(err, sizeof(*span), "rows of a range");
    }
    span->gone = true;
    r->part = part;
    s->n_parts++;
    s->part_bytes = (part->slab ? part->slab->size : 0) + part->charged;
    return 0;
}

/* Takes the elements of a request from the runner and sends them, as a batch or as rows, which the client
 * joins. Returns the same as cw_runner_part, and 2 also if the batch is not finished yet. */
static int rows_send(struct cw_leases *s, struct cw_lease *l, struct cw_request *r, struct cw_error *err)
{
    bool whole = r->what == CACHEW__WHAT__WHAT_ROWS, begins = !r->part;
    struct cw_assembly *part = r->part;
    struct cw_answer *a;
    if (whole && begins && !part_may_begin(s, r))
        return 2;
    int status = begins ? cw_runner_part(s->runner, l->range, r->key, r->at, r->end - r->at, &part, err) : 0;
    if (status == 0 && whole && begins)
        status = part_hold(s, l, r, part, err);
    if (status == 0 && whole)
        status = cw_runner_try_finish(s->runner, part, l->range, err);
    if (status != 0)
        return status;
    s->n_parts -= whole;
    r->part = NULL;
    if ((status = cw_lease_take(s, part, whole ? 0 : r->end - r->at, &a, err)) < 0)
        return status;
    cw_lease_send(s, l, r, a);
    cw_spans_note_sent(l, r);
    uint32_t key = r->key;
    cw_lease_done(s, r);
    cw_spans_drop(s, l, key);
    return 0;
}

/* Answers a request if that is possible now. Returns false if nothing could be done, or the stream has
 * failed. */
static bool rows_answer(struct cw_leases *s, struct cw_lease *l, struct cw_request *r)
{
    struct cw_error err = {0};
    bool rows = cw_request_for_rows(r);
    if (!rows && (l->computed || l->failed))
        return keys_send(s, l, r);
    if (rows && l->computed && r->end > l->elements[r->key]) {
        cw_lease_reply_end(s, l, r);
        return true;
    }
    bool again = !l->range || (rows && !r->part && cw_spans_rows_gone(l, r));
    if ((again && !cw_lease_open_for(s, l, r)) || !rows)
        return false;
    int status = rows_send(s, l, r, &err);
    bool lasts = status < 0 && cw_leases_error_lasts(s, status);
    if (status < 0 && !lasts && s->n_parts > (r->part != NULL)) {
        /* other parts may use the memory that this request needs */
        for (struct cw_request *x; (x = part_last(s->list));)
            cw_request_drop_part(s, x);
        s->short_of = r;
        return true;
    }
    if (status == 1) /* the range has fewer elements than requested; their number is known now, or soon */
        return rows_note_over(s, l);
    if (lasts)
        cw_lease_reply(s, r, CW_ANSWER_RANGE_FAILED, &err);
    else if (status < 0)
        cw_leases_fail(s, &err);
    return (lasts || status == 0) && !s->failed;
}

struct cw_request *cw_rows_first_ready(struct cw_leases *s, const struct cw_lease *l)
{
    if (!l->range)
        return NULL;
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests)
        if (cw_request_for_rows(r) && cw_peer_room(r->peer) &&
            (r->part || (!cw_spans_rows_gone(l, r) &&
                         cw_runner_part_there(s->runner, l->range, r->key, r->at, r->end - r->at))))
            return r;
    return NULL;
}

bool cw_rows_serve(struct cw_leases *s, struct cw_lease *l)
{
    bool any = rows_note_over(s, l);
    if (s->failed)
        return false;
    CW_LIST_EACH_OF (r, struct cw_request, link, &l->requests) {
        any |= cw_peer_room(r->peer) && rows_answer(s, l, r);
        if (s->failed) /* l is freed */
            return false;
    }
    if (l->range && cw_spans_all_dropped(s, l))
        cw_lease_close(s, l);
    return any;
}
