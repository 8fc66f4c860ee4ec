/* Requests: plans the batches that the window allows, and sends each fetch to the worker that has its range.
 * The loop's thread, with the mutex held. */
#include "remote/requests.h"

#include "base/clock.h"
#include "remote/internal.h"
#include "remote/placement.h"

/* no more batches are planned ahead with this many fetches: a quarter of CW_MAX_CREDITS */
#define MAX_FETCHES ((size_t)1024)
/* If a worker answers NotHere, usually its lease is still on the way to it. The request is sent again after
 * RETRY_NS, doubled with each NotHere for the range, RETRY_DOUBLINGS times. */
#define RETRY_NS UINT64_C(1000000)
#define RETRY_DOUBLINGS 6u
#define NOT_HERE_REPORTED \
    80 /* after this many NotHere answers in a row (about 5 s) the dispatcher is told \
        */

/* Whether more batches of a course may be planned now. */
static bool course_may_plan(const struct course *c)
{
    const struct remote *r = c->view->remote;
    size_t window = cw_window_size(&r->window);
    uint64_t limit = c->view->main
                         ? c->g + window * c->view->world_size
                         : c->wanted + 1; /* wanted is UINT64_MAX while no batch is wanted: the limit is 0 */
    return r->window.n_outstanding < window && r->fetches.n < MAX_FETCHES && c->planned < limit;
}

static void requests_plan(struct remote *r)
{
    struct cw_error err = {0};
    CW_LIST_EACH_OF (c, struct course, link, &r->courses)
        while (cw_course_plan(c, course_may_plan(c) ? c->planned + 1 : 0, &err) == 0 && course_may_plan(c))
            ; /* an error is ignored here: it comes again when the consumer wants the batch */
}

/* Whether the next fetch can be part of the same request: it is for the next batch, in the same range. */
static bool request_takes(const struct fetch *f, const struct fetch *next, const struct link *l,
                          const struct known_range *x)
{
    return next && next->state == FETCH_WANTED && next->what == f->what && next->epoch == f->epoch &&
           next->first == f->first + 1 && next->begin < x->end && next->begin + next->n <= x->end &&
           (next->link != l || next->requested_begin != x->begin);
}

/* Sends one request, for a fetch and the fetches after it that can be part of it. False: sending failed, and
 * the connection ends. */
static bool request_send(struct remote *r, struct link *l, const struct known_range *x, struct fetch *f,
                         uint64_t now)
{
    bool batches = f->what == CACHEW__WHAT__WHAT_BATCHES;
    f->requested_begin = x->begin;
    Cachew__Get m = {CW_MESSAGE(get),
                     .stream = {.data = r->run.stream, .len = sizeof(r->run.stream)},
                     .epoch = f->epoch,
                     .begin = x->begin,
                     .what = f->what,
                     .key = f->key,
                     .first = cw_fetch_first(r, f),
                     .count = batches ? 0 : f->n};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = ++r->loop.last_id, .of_case = CACHEW__ENVELOPE__OF_GET,
                          .get = &m};
    for (const struct fetch *next = f; next; f = cw_fetch_next(r, f)) {
        next = batches ? cw_fetch_next(r, f) : NULL;
        next = request_takes(f, next, l, x) ? next : NULL;
        f->state = FETCH_REQUESTED;
        f->requested_ns = f->requested_ns ? f->requested_ns : now;
        f->link = l;
        f->request = e.id;
        f->requested_begin = x->begin;
        m.count += batches;
    }
    return cw_conn_send(l->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL) >= 0;
}

void cw_requests_send(struct remote *r)
{
    uint64_t now = cw_now_ns();
    if (r->run.phase != REMOTE_RUNNING)
        return;
    requests_plan(r);
    r->fetches.changed = false;
    if (r->dispatcher.state == DISPATCHER_ATTACHED &&
        cw_placement_cursor_moved(r)) /* workers may wait until the dispatcher gets the new cursor */
        cw_remote_wake(r);
    /* if a fetch is cut here, its second part is the next in the list */
    for (struct fetch *f = NULL; (f = cw_fetch_next(r, f));) {
        bool batches = f->what == CACHEW__WHAT__WHAT_BATCHES;
        const struct known_range *x = f->state == FETCH_WANTED && !f->lost
                                          ? cw_range_table_find(&r->ranges, f->epoch, f->begin)
                                          : NULL;
        if (!x || (!batches && x->begin != f->begin))
            continue;
        if (x->not_before_ns > now) {
            cw_remote_wake_at(r, x->not_before_ns);
            continue;
        }
        struct link *l = cw_link_usable(r, x->worker);
        if (!l || (batches && f->begin + f->n > x->end && !cw_fetch_cut(r, f, x->end)))
            continue;
        /* Another worker had the range for a while, and this worker still has the earlier request: a second
         * request would be computed, too. */
        if (f->link == l && f->requested_begin == x->begin)
            f->state = FETCH_REQUESTED;
        else if (!request_send(r, l, x, f, now))
            return; /* the connection ends, and its requests are sent again later */
    }
}

static void request_report_not_here(struct remote *r, uint64_t worker, const struct known_range *x)
{
    Cachew__Range range = {CW_MESSAGE(range), .epoch = x->epoch, .begin = x->begin, .end = x->end};
    Cachew__Unreachable m = {CW_MESSAGE(unreachable), .worker = worker, .reason = (char *)"",
                             .not_here = &range};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_UNREACHABLE,
                          .unreachable = &m};
    cw_dispatcher_send(&r->dispatcher, &e);
}

void cw_requests_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch,
                          uint64_t begin)
{
    uint64_t now = cw_now_ns();
    struct known_range *x = cw_range_table_find(&r->ranges, epoch, begin);
    bool any = false;
    CW_LIST_EACH_OF (f, struct fetch, in_list, &r->fetches.list)
        if (f->state != FETCH_HERE && f->link == l && f->request == request) {
            f->link = NULL;
            f->state = FETCH_WANTED;
            any = true;
        }
    if (!any)
        return;
    if (x && x->not_before_ns <= now) {
        x->not_before_ns = now + (RETRY_NS << CW_MIN(x->n_not_here++, RETRY_DOUBLINGS));
        if (x->n_not_here % NOT_HERE_REPORTED == 0)
            request_report_not_here(r, l->worker, x);
    }
    cw_remote_wake_at(r, x ? x->not_before_ns : now + RETRY_NS);
}
