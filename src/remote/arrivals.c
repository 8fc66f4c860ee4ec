/* Handles messages from workers: batches, parts and keys go to the fetches that wait for them, regions of
 * shared memory to the link's map. These functions are callbacks of the links' connections: they run on the
 * loop's thread, and take the mutex. */
#include "remote/arrivals.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crash.h"
#include "base/thread.h"
#include "remote/internal.h"
#include "remote/placement.h"
#include "remote/requests.h"
#include "remote/wire.h"

/* ---- fetches ---- */

static void fetch_arrived(struct remote *r, struct fetch *f)
{
    f->state = FETCH_HERE;
    f->received_ns = r->job.options.trace ? cw_now_ns() : 0;
    pthread_cond_broadcast(&r->changed);
}

/* Returns the first fetch of a whole batch that has not arrived. Only for mutations (faults that tests
 * inject), which deliver wrong batches. */
static struct fetch *fetch_any_batch(const struct remote *r)
{
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->state != FETCH_HERE && f->what <= CACHEW__WHAT__WHAT_ROWS)
            return f;
    return NULL;
}

/* Returns the fetch that waits for this batch; NULL: no fetch waits for it (any more). */
static struct fetch *fetch_of_batch(const struct remote *r, const Cachew__Batch *m)
{
    bool rows = r->job.n_keys >
                0; /* the index counts batches of a key; else batches from the begin of the range */
    Cachew__What what = rows ? CACHEW__WHAT__WHAT_ROWS : CACHEW__WHAT__WHAT_BATCHES;
    uint64_t first = rows ? m->index : m->begin / r->job.compiled->batch_size + m->index;
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->state != FETCH_HERE && f->what == what && f->epoch == m->epoch && f->first == first &&
            (rows ? f->begin == m->begin && f->key == m->key : !f->is_part) && !cw_mutated("g"))
            return f;
    return cw_mutated("g") || cw_mutated("dedup") ? fetch_any_batch(r) : NULL;
}

/* Returns the fetch that waits for this part of n rows; NULL: no fetch does. */
static struct fetch *fetch_of_part(const struct remote *r, const Cachew__Part *m, uint64_t n)
{
    uint64_t size = r->job.compiled->batch_size, g = m->begin / size + m->first;
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->state != FETCH_HERE && f->epoch == m->epoch && f->n == n &&
            (r->job.n_keys ? f->what == CACHEW__WHAT__WHAT_PART && f->begin == m->begin && f->key == m->key &&
                                 f->first == m->first
                           : f->is_part && f->first == g && f->begin == CW_MAX(m->begin, g * size)))
            return f;
    return NULL;
}

/* Returns the first fetch of a request that has not arrived; g not NULL: the one for batch *g of a counted
 * pipeline. NULL: there is none (any more). */
static struct fetch *fetch_of_request(const struct link *l, uint64_t request, const uint64_t *g)
{
    CW_LIST_EACH_OF (f, struct fetch, in_list, &l->remote->fetches.list)
        if (f->state != FETCH_HERE && f->link == l && f->request == request && (!g || f->first == *g))
            return f;
    return NULL;
}

static int fetch_set_failure(struct fetch *f, const Cachew__Failure *why, struct cw_error *err)
{
    if (!(f->failure = calloc(1, sizeof(*f->failure))))
        return cw_error_nomem(err, sizeof(*f->failure), "why a range failed");
    cw_failure_error(why, f->failure);
    return 0;
}

/* Call when no fetch waits for batch or part number `index` that came for a range of a counted pipeline. If
 * the request did ask for this batch, then the worker has a range with other bounds than this client knows,
 * and the batch is requested again. */
static void link_range_differs(struct link *l, uint64_t request, uint64_t epoch, uint64_t begin,
                               uint64_t index)
{
    struct remote *r = l->remote;
    uint64_t g = begin / r->job.compiled->batch_size + index;
    const struct fetch *f = fetch_of_request(l, request, &g);
    if (f && f->what == CACHEW__WHAT__WHAT_BATCHES)
        cw_requests_not_here(r, l, request, epoch, begin);
}

/* ---- batches and parts ---- */

/* Makes a batch from its message. The mutex must not be held. Takes ownership of the payload, unless the
 * result is negative. */
static int batch_read(struct link *l, const Cachew__Batch *m, struct cw_slab *payload, size_t size,
                      struct cw_batch **ret, struct cw_quarantined **ret_quarantined, struct cw_error *err)
{
    struct shm_loan *loan = NULL;
    const struct cw_memory copied[2] = {{.data = payload ? payload->data : NULL, .size = size}};
    struct cw_batch *b = calloc(1, sizeof(*b));
    int status = b ? 0 : cw_error_nomem(err, sizeof(*b), "a batch");
    if (status >= 0 && m->n_slabs)
        status = cw_shm_loan_new(l->map, l->worker, m, &loan, err);
    if (status >= 0)
        status = cw_wire_batch_read(m, l->remote->job.compiled, loan ? loan->memory : copied, b,
                                    ret_quarantined, err);
    if (status < 0) {
        free(loan);
        free(b);
        return status; /* the error ends the connection; then the worker takes the shared memory back */
    }
    b->slabs[0] = payload;
    b->memory = loan;
    if (loan)
        loan->batch = b;
    *ret = b;
    return 0;
}

/* Handles a batch. Takes ownership of the payload, unless the result is negative. */
static int link_on_batch(struct link *l, uint64_t request, const Cachew__Batch *m, struct cw_slab *payload,
                         size_t size, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct cw_batch *b;
    struct cw_quarantined *quarantined = NULL;
    int status = batch_read(l, m, payload, size, &b, &quarantined, err);
    if (status < 0)
        return status;
    cw_crash_point("client-batch");
    struct shm_loan *loan = b->memory;
    size_t lent = loan ? loan->memory[0].size + loan->memory[1].size : 0;
    CW_GUARD(&r->mutex);
    if (loan)
        cw_shm_loan_begin(loan);
    cw_link_count_batch(l, lent);
    struct fetch *f = fetch_of_batch(r, m);
    if (f) {
        f->batch = b;
        f->range_end = m->end;
        f->quarantined = quarantined;
        cw_window_received(&r->window, CW_MAX(size, lent), loan);
        fetch_arrived(r, f);
    } else {
        link_range_differs(l, request, m->epoch, m->begin, m->index);
        cw_quarantined_free(quarantined);
        cw_remote_batch_drop(r, b);
    }
    return 0;
}

static int link_on_part(struct link *l, uint64_t request, const Cachew__Part *m,
                        const struct cw_slab *payload, size_t size, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct cw_part part = {0};
    int status = cw_wire_part_read(m, payload ? payload->data : NULL, size, r->job.compiled, &part, err);
    if (status < 0)
        return status;
    cw_crash_point("client-part");
    CW_WITH (&r->mutex) {
        struct fetch *f = fetch_of_part(r, m, part.n);
        if (f) {
            f->rows = part;
            f->range_end = m->end;
            part = (struct cw_part){0};
            fetch_arrived(r, f);
            cw_remote_wake(r); /* the cursor may have moved */
        } else {
            link_range_differs(l, request, m->epoch, m->begin, m->first);
        }
    }
    cw_part_deinit(&part);
    return 0;
}

/* ---- messages without a payload; mutex held ---- */

/* Handles keys of the elements of a range. The fetch is found by its request, because the range may have had
 * other bounds when the keys were requested. */
static int link_on_keys(struct link *l, uint64_t request, const Cachew__Keys *m, struct cw_error *err)
{
    struct remote *r = l->remote;
    struct fetch *f = fetch_of_request(l, request, NULL);
    size_t width = r->job.n_keys > 256 ? 2 : 1, n = m->keys.len / width;
    if (!f || f->what != CACHEW__WHAT__WHAT_KEYS)
        return 0;
    const struct known_range *x = cw_range_table_find(&r->ranges, f->epoch, f->begin);
    /* The worker may have ended the range early. The dispatcher says so once the range is over, unless it
     * ended in an error; in that case these are all its keys. Until then, keys of its first elements are
     * valid wherever it ends. */
    bool early = x && m->end < x->end && (m->why || !m->over);
    if (!x || x->begin != f->begin ||
        (x->end != m->end && !early)) { /* the worker has a range with other bounds there */
        cw_requests_not_here(r, l, request, f->epoch, f->begin);
        return 0;
    }
    if (m->first != f->first)
        return cw_error_set(
            err, CW_E_SERVICE,
            "worker %llu sent keys from element %llu on: expected keys from element %llu on" CW_OTHER_VERSION,
            (unsigned long long)l->worker, (unsigned long long)m->first, (unsigned long long)f->first);
    free(f->keys); /* keys of an earlier, invalid message */
    if (!(f->keys = malloc(n * sizeof(*f->keys) + 1)))
        return cw_error_nomem(err, n * sizeof(*f->keys), "the keys of a range");
    for (f->n_keys = 0; f->n_keys < n; f->n_keys++) {
        const uint8_t *key = m->keys.data + f->n_keys * width;
        f->keys[f->n_keys] = (uint16_t)(key[0] | (width > 1 ? key[1] << 8 : 0));
        if (f->keys[f->n_keys] >= r->job.n_keys)
            return cw_error_set(
                err, CW_E_SERVICE,
                "worker %llu sent key %u for an element: expected a key less than %u" CW_OTHER_VERSION,
                (unsigned long long)l->worker, f->keys[f->n_keys], r->job.n_keys);
    }
    if (m->why && fetch_set_failure(f, m->why, err) < 0)
        return err->status;
    f->first += n;
    f->over = m->over;
    fetch_arrived(r, f);
    return 0;
}

/* Handles RangeEnd: a range is over. report may be NULL. */
static int link_on_range_end(struct link *l, uint64_t request, const Cachew__Report *report,
                             struct cw_error *err)
{
    int status = report ? cw_placement_report(l->remote, report, true, err) : 0;
    cw_requests_send(l->remote);
    if (report) /* what the request still waits for is in another range, now or soon */
        cw_requests_not_here(l->remote, l, request, report->epoch, report->begin);
    return status;
}

/* Handles RangeFailed: the request can't be met, for the reason m->why. */
static int link_on_failed(struct link *l, uint64_t request, const Cachew__RangeFailed *m,
                          struct cw_error *err)
{
    uint64_t g = m->begin / l->remote->job.compiled->batch_size + m->index;
    struct fetch *f = fetch_of_request(l, request, NULL);
    if (f && f->what == CACHEW__WHAT__WHAT_BATCHES)
        f = fetch_of_request(l, request, &g);
    if (!f)
        return 0;
    if (fetch_set_failure(f, m->why, err) < 0)
        return err->status;
    fetch_arrived(l->remote, f);
    return 0;
}

/* Handles Region: shared memory of the worker. If this process can't map it, the connection ends, and the
 * next one requests copies. */
static int link_on_region(struct link *l, const Cachew__Region *m, const int *fds, size_t n_fds,
                          struct cw_error *err)
{
    int status = cw_shm_map_add_region(l->map, l->worker, m, fds, n_fds, err);
    if (status != 1)
        return status;
    l->no_shm = *err;
    l->retry.same_address = true;
    return cw_error_set(err, CW_E_SERVICE,
                        "this process can't map the memory that worker %llu shares, and requests copies of "
                        "its batches: %.300s",
                        (unsigned long long)l->worker, l->no_shm.message);
}

static int link_on_message(struct link *l, const Cachew__Envelope *m, const int *fds, size_t n_fds,
                           struct cw_error *err)
{
    struct remote *r = l->remote;
    int status = 0;
    CW_GUARD(&r->mutex);
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF_REGION:
        return link_on_region(l, m->region, fds, n_fds, err);
    case CACHEW__ENVELOPE__OF_RANGE_END:
        return link_on_range_end(l, m->re, m->range_end->report, err);
    case CACHEW__ENVELOPE__OF_RANGE_FAILED:
        return link_on_failed(l, m->re, m->range_failed, err);
    case CACHEW__ENVELOPE__OF_NOT_HERE:
        cw_requests_not_here(r, l, m->re, m->not_here->epoch, m->not_here->begin);
        return 0;
    case CACHEW__ENVELOPE__OF_KEYS:
        status = link_on_keys(l, m->re, m->keys, err);
        cw_requests_send(r);
        return status;
    default: /* of a later version */
        return 0;
    }
}

/* ---- callbacks ---- */

static int arrivals_payload(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m, size_t size,
                            void **ret, struct cw_error *err)
{
    struct link *l = user;
    if (m->of_case != CACHEW__ENVELOPE__OF_BATCH && m->of_case != CACHEW__ENVELOPE__OF_PART)
        return cw_error_set(err, CW_E_SERVICE,
                            "the worker sent a payload of %zu bytes with a message of a kind that has no "
                            "payload" CW_OTHER_VERSION,
                            size);
    int status = cw_slab_get(&l->remote->slabs, size, &l->incoming, err);
    if (status >= 0)
        *ret = l->incoming->data;
    return status;
}

static void arrivals_abandoned(void *user, struct cw_conn *c CW_UNUSED, void *payload CW_UNUSED)
{
    struct link *l = user;
    cw_slab_put(CW_STEAL(l->incoming));
}

static int arrivals_message(void *user, struct cw_conn *c CW_UNUSED, const Cachew__Envelope *m,
                            void *payload CW_UNUSED, size_t size, const int *fds, size_t n_fds,
                            struct cw_error *err)
{
    struct link *l = user;
    struct cw_slab *slab = CW_STEAL(l->incoming);
    l->retry.attempt = 0; /* the address works */
    int status = m->of_case == CACHEW__ENVELOPE__OF_PART ? link_on_part(l, m->re, m->part, slab, size, err)
                 : m->of_case == CACHEW__ENVELOPE__OF_BATCH
                     ? link_on_batch(l, m->re, m->batch, slab, size, err)
                     : link_on_message(l, m, fds, n_fds, err);
    if (slab && (status < 0 || m->of_case != CACHEW__ENVELOPE__OF_BATCH))
        cw_slab_put(slab);
    return status;
}

static int arrivals_open(void *user, struct cw_conn *c, const Cachew__Envelope *peer, struct cw_error *err)
{
    struct link *l = user;
    CW_GUARD(&l->remote->mutex);
    int status = cw_link_opened(l, c, peer->welcome, err);
    if (status >= 0)
        cw_requests_send(l->remote);
    return status < 0 ? status : 0;
}

static void arrivals_closed(void *user, struct cw_conn *c CW_UNUSED, const struct cw_error *why)
{
    struct link *l = user;
    struct remote *r = l->remote;
    CW_GUARD(&r->mutex);
    r->loop.n_conns--;
    cw_link_down(l, why);
    if (l->gone)
        cw_link_free(l);
    cw_remote_end_if_done(r);
}

const struct cw_conn_ops cw_arrivals_ops = {
    .open = arrivals_open,
    .payload = arrivals_payload,
    .abandoned = arrivals_abandoned,
    .message = arrivals_message,
    .closed = arrivals_closed,
};
