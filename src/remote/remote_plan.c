/* What the client knows of ranges, and which pieces it asks of which worker. The mutex is held throughout. */
#include <stdlib.h>
#include <string.h>

#include "remote/remote_impl.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/crash.h"

/* A worker may not have a range yet that it has according to the dispatcher: as a rule, the lease is on its
 * way. The worker is asked again after this time, twice this time, four times this time ... */
#define ASK_AGAIN_NS UINT64_C(1000000)
#define ASK_AGAIN_MOST 6 /* doublings */
#define NOT_HERE_TOLD 80 /* answers NotHere in a row, some 5 s, after which the dispatcher is told */

/* ---- ranges ---- */

/* The index of the first range that ends behind a place. */
static size_t range_at(const struct remote *r, struct place at)
{
    const struct known_range *x = r->ranges;
    return CW_FIRST(i, 0, r->n_ranges,
                    x[i].epoch > at.epoch || (x[i].epoch == at.epoch && x[i].end > at.position));
}

struct known_range *cw_remote_range(const struct remote *r, uint64_t epoch, uint64_t position)
{
    size_t i = range_at(r, (struct place){epoch, position});
    return i < r->n_ranges && r->ranges[i].epoch == epoch && r->ranges[i].begin <= position ? &r->ranges[i]
                                                                                            : NULL;
}

static void remove_ranges(struct remote *r, size_t from, size_t n)
{
    if (n) /* r->ranges may be NULL otherwise */
        memmove(r->ranges + from, r->ranges + from + n, (r->n_ranges - from - n) * sizeof(*r->ranges));
    r->n_ranges -= n;
}

/* Ranges were cut again, of which the client had ranges with other bounds if `known`. Marks the courses whose
 * plan has another range at these positions: batches behind its begin may change. Of a counted pipeline only
 * their parts do. */
static void recut(struct remote *r, uint64_t epoch, uint64_t begin, uint64_t end, bool known)
{
    for (struct course *c = r->courses; c; c = c->next) {
        if (c->epoch == epoch && !c->places && known)
            cw_course_recut(c, begin);
        uint64_t at = c->places && c->epoch == epoch ? cw_placer_differs(&c->placer, begin, end) : UINT64_MAX;
        c->recut_at = CW_MIN(c->recut_at, at);
    }
}

/* A worker ended a range early. False: courses know more of the range than is left of it, maybe. */
static bool shorten(struct remote *r, struct known_range *x, uint64_t end)
{
    bool all = true;
    for (struct course *c = r->courses; c; c = c->next)
        all &= !c->places || c->epoch != x->epoch || cw_course_shorten(c, x->begin, end);
    if (!all)
        return false;
    for (struct course *c = r->courses; c; c = c->next)
        if (!c->places && c->epoch == x->epoch)
            cw_course_recut(c, end);
    x->end = end;
    x->ended_early = true;
    return true;
}

/* The range with these bounds, in the place of the ranges that it overlaps. NULL: no memory, or too many
 * ranges. */
static struct known_range *range_set(struct remote *r, uint64_t epoch, uint64_t begin, uint64_t end)
{
    size_t i = range_at(r, (struct place){epoch, begin}), n = 0;
    struct known_range *x = i < r->n_ranges && r->ranges[i].epoch == epoch && r->ranges[i].begin == begin
                                ? &r->ranges[i]
                                : NULL;
    if (x && !x->reported && end < x->end && shorten(r, x, end))
        return x;
    if (x && x->end == end)
        return x;
    while (i + n < r->n_ranges && r->ranges[i + n].epoch == epoch && r->ranges[i + n].begin < end)
        n++;
    recut(r, epoch, n ? CW_MIN(begin, r->ranges[i].begin) : begin, end, n > 0);
    remove_ranges(r, i, n);
    if (r->n_ranges == MAX_KNOWN ||
        CW_ARRAY_ROOM(r->ranges, r->ranges_capacity, r->n_ranges + 1, "ranges", NULL) < 0)
        return NULL;
    memmove(&r->ranges[i + 1], &r->ranges[i], (r->n_ranges++ - i) * sizeof(*r->ranges));
    r->ranges[i] = (struct known_range){.epoch = epoch, .begin = begin, .end = end};
    return &r->ranges[i];
}

static int check_range(uint64_t epoch, uint64_t begin, uint64_t end, struct cw_error *err)
{
    return begin < end
               ? 0
               : cw_error_set(err, CW_E_SERVICE,
                              "a range of epoch %llu from %llu to %llu came: expected one with positions",
                              (unsigned long long)epoch, (unsigned long long)begin, (unsigned long long)end);
}

int cw_remote_place(struct remote *r, const Cachew__Placement *m, struct cw_error *err)
{
    int status = check_range(m->epoch, m->begin, m->end, err);
    struct known_range *x = status < 0 ? NULL : range_set(r, m->epoch, m->begin, m->end);
    if (!x)
        return status < 0 ? status : cw_error_nomem(err, r->n_ranges * sizeof(*x), "ranges");
    x->lost = m->lost && r->options.at_most_once;
    if (x->worker != m->worker) {
        x->worker = m->worker;
        x->not_before_ns = 0;
        x->n_not_here = 0;
    }
    for (struct piece *p = r->pieces; p; p = p->next)
        if (p->epoch == m->epoch && p->begin >= m->begin && p->begin < m->end) {
            p->lost = x->lost && p->state != HERE;
            if (p->state == ASKED && (!p->of || p->of->worker != m->worker || p->asked_begin != m->begin))
                p->state = ASK;
        }
    pthread_cond_broadcast(&r->changed);
    return 0;
}

int cw_remote_report(struct remote *r, const Cachew__Report *m, bool by_worker, struct cw_error *err)
{
    int status = check_range(m->epoch, m->begin, m->end, err);
    const struct known_range *at = cw_remote_range(r, m->epoch, m->begin);
    if (status < 0)
        return status;
    if (by_worker ? !at || at->begin != m->begin || at->end != m->end
                  : !cw_before(r->told, (struct place){m->epoch, m->end}))
        return 0;
    struct known_range *x = range_set(r, m->epoch, m->begin, m->end);
    uint64_t elements = 0;
    for (size_t k = 0; k < m->n_elements; k++)
        elements += m->elements[k];
    if (!x)
        return cw_error_nomem(err, sizeof(*x), "what a range gave");
    if (x->reported && (x->n_batches != m->n_batches || x->elements != elements)) {
        /* another connection would bring the same report */
        struct cw_error why = {0};
        (void)cw_error_set(&why, CW_E_DATA,
                           "positions %llu to %llu of epoch %llu gave other elements when they were run "
                           "again: an operator of the pipeline is not deterministic",
                           (unsigned long long)m->begin, (unsigned long long)m->end - 1,
                           (unsigned long long)m->epoch);
        cw_remote_fail(r, &why);
        return 0;
    }
    x->reported = true;
    x->n_batches = m->n_batches;
    x->elements = elements;
    pthread_cond_broadcast(&r->changed);
    return 0;
}

void cw_remote_forget(struct remote *r)
{
    remove_ranges(r, 0, range_at(r, r->told));
}

/* ---- pieces ---- */

static void piece_insert(struct remote *r, struct piece *p, struct piece *after)
{
    p->prev = after;
    p->next = after ? after->next : NULL;
    *(after ? &after->next : &r->pieces) = p;
    *(p->next ? &p->next->prev : &r->last_piece) = p;
    r->unasked = true;
}

static void piece_remove(struct remote *r, struct piece *p)
{
    *(p->prev ? &p->prev->next : &r->pieces) = p->next;
    *(p->next ? &p->next->prev : &r->last_piece) = p->prev;
}

struct piece *cw_piece_new(struct remote *r, const struct piece *what)
{
    struct piece *p = malloc(sizeof(*p));
    if (!p)
        return NULL;
    const struct known_range *x = cw_remote_range(r, what->epoch, what->begin);
    *p = *what;
    p->lost = x && x->lost;
    piece_insert(r, p, r->last_piece);
    r->n_pieces++;
    return p;
}

void cw_piece_again(struct remote *r, struct piece *p)
{
    piece_remove(r, p);
    piece_insert(r, p, r->last_piece);
    p->state = ASK;
    p->of = NULL;
}

void cw_piece_drop(struct remote *r, struct piece **at)
{
    struct piece *p = *at;
    *at = p->more;
    piece_remove(r, p);
    r->n_pieces--;
    if (p->batch)
        cw_remote_batch_drop(p->batch);
    cw_quarantined_free(p->quarantined);
    cw_part_deinit(&p->rows);
    free(p->keys);
    free(p->failed);
    free(p);
}

void cw_pieces_free(struct remote *r, struct piece **pieces)
{
    while (*pieces)
        cw_piece_drop(r, pieces);
}

/* ---- requests ---- */

static size_t window_bytes(const struct remote *r)
{
    return r->lent ? WINDOW_LENT_BYTES : WINDOW_BYTES;
}

static size_t window_least(const struct remote *r)
{
    return r->lent ? WINDOW_LENT_MIN : WINDOW_MIN;
}

size_t cw_remote_window(const struct remote *r)
{
    if (r->options.credits)
        return r->options.credits;
    return r->batch_bytes ? CW_MIN(CW_MAX(window_bytes(r) / r->batch_bytes, window_least(r)), WINDOW_MAX)
                          : WINDOW_FIRST;
}

void cw_remote_window_tell(struct remote *r)
{
    size_t now = cw_remote_window(r),
           by_bytes = r->batch_bytes ? window_bytes(r) / r->batch_bytes : WINDOW_MAX;
    if (r->options.credits || now == r->window_told)
        return;
    r->window_told = now;
    const struct cw_tuned t = {
        .what = "credits",
        .seen = {{"batch_bytes", (double)r->batch_bytes}, {"lent", r->lent}},
        .others = {{"bytes", (double)by_bytes}, {"least", (double)window_least(r)}, {"most", WINDOW_MAX}},
        .chosen = (double)now,
        .why = now == by_bytes ? "so many batches fill the memory for what was asked for"
               : now == WINDOW_MAX
                   ? "more would not keep a worker busier"
                   : "batches are large, and a worker needs the next request before a batch is taken",
    };
    cw_tuned_add(&r->tuned, &t);
}

static bool has_room(const struct remote *r)
{
    return r->n_outstanding < cw_remote_window(r) && r->n_pieces < MAX_PIECES;
}

/* Whether more batches of a course may be planned now. */
static bool may_plan(const struct course *c)
{
    const struct remote *r = c->view->remote;
    /* none is wanted yet: 0 */
    uint64_t limit = c->view->main ? c->g + cw_remote_window(r) * c->view->world_size : c->wanted + 1;
    return has_room(r) && c->planned < limit;
}

static void want_ahead(struct remote *r)
{
    struct cw_error err = {0};
    for (struct course *c = r->courses; c; c = c->next)
        while (cw_course_plan(c, may_plan(c) ? c->planned + 1 : 0, &err) == 0 && may_plan(c))
            ; /* an error comes again when the consumer asks for the batch */
}

static struct link *usable(struct remote *r, uint64_t worker)
{
    struct link *l = worker ? cw_remote_link(r, worker) : NULL;
    if (l && !l->conn && !l->gone)
        cw_link_connect(l);
    return l && !l->gone && l->conn && l->open ? l : NULL;
}

uint64_t cw_piece_asked(const struct remote *r, const struct piece *p)
{
    return p->what == CACHEW__WHAT__WHAT_BATCHES ? p->first - p->asked_begin / r->compiled->batch_size
                                                 : p->first;
}

/* Cuts a piece of a batch in two where a range ends. False: no memory. */
static bool piece_cut(struct remote *r, struct piece *p, uint64_t end)
{
    const struct piece what = {.epoch = p->epoch,
                               .what = p->what,
                               .begin = end,
                               .n = p->begin + p->n - end,
                               .first = p->first,
                               .part = true};
    struct piece *rest = cw_piece_new(r, &what);
    if (!rest)
        return false;
    piece_remove(r, rest);
    piece_insert(r, rest, p);
    rest->more = p->more;
    p->more = rest;
    p->n = end - p->begin;
    p->part = true;
    return true;
}

/* Sends one request, for a piece and the batches that follow it. False: sending failed, and the connection
 * ends. */
static bool ask(struct remote *r, struct link *l, const struct known_range *x, struct piece *p, uint64_t now)
{
    p->asked_begin = x->begin;
    Cachew__Get m = {CW_MESSAGE(get),
                     .stream = {.data = r->stream, .len = sizeof(r->stream)},
                     .epoch = p->epoch,
                     .begin = x->begin,
                     .what = p->what,
                     .key = p->key,
                     .first = cw_piece_asked(r, p),
                     .count = p->what == CACHEW__WHAT__WHAT_BATCHES ? 0 : p->n};
    Cachew__Envelope e = {CW_MESSAGE(envelope), .id = ++r->next_id, .of_case = CACHEW__ENVELOPE__OF_GET,
                          .get = &m};
    for (;; p = p->next) {
        const struct piece *more = p->next;
        p->state = ASKED;
        p->asked_ns = p->asked_ns ? p->asked_ns : now;
        p->of = l;
        p->request = e.id;
        p->asked_begin = x->begin;
        if (p->what != CACHEW__WHAT__WHAT_BATCHES)
            break;
        m.count++;
        if (!more || more->state != ASK || more->what != p->what || more->epoch != p->epoch ||
            more->first != p->first + 1 || more->begin >= x->end || more->begin + more->n > x->end ||
            (more->of == l && more->asked_begin == x->begin))
            break;
    }
    return cw_conn_send(l->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL) >= 0;
}

void cw_remote_pump(struct remote *r)
{
    uint64_t now = cw_now_ns();
    if (r->left || r->closing)
        return;
    want_ahead(r);
    r->unasked = false;
    if (r->dispatcher_open && r->answered && cw_remote_moved(r)) /* workers may wait for the cursor */
        cw_remote_wake(r);
    for (struct piece *p = r->pieces; p; p = p->next) {
        const struct known_range *x = p->state == ASK && !p->lost ? cw_remote_range(r, p->epoch, p->begin)
                                                                  : NULL;
        if (!x || (p->what != CACHEW__WHAT__WHAT_BATCHES && x->begin != p->begin))
            continue;
        if (x->not_before_ns > now) {
            cw_remote_wake_at(r, x->not_before_ns);
            continue;
        }
        struct link *l = usable(r, x->worker);
        if (!l ||
            (p->what == CACHEW__WHAT__WHAT_BATCHES && p->begin + p->n > x->end && !piece_cut(r, p, x->end)))
            continue;
        /* The range was another worker's for a while, and this one still has the request: a second one would
         * be computed, too. */
        if (p->of == l && p->asked_begin == x->begin)
            p->state = ASKED;
        else if (!ask(r, l, x, p, now))
            return; /* the connection ends: its requests are made again */
    }
}

void cw_remote_unask(struct remote *r, const struct link *l)
{
    for (struct piece *p = r->pieces; p; p = p->next)
        if (p->of == l) {
            p->of = NULL;
            p->state = p->state == ASKED ? ASK : p->state;
        }
}

static void tell_not_here(struct remote *r, uint64_t worker, const struct known_range *x)
{
    Cachew__Range range = {CW_MESSAGE(range), .epoch = x->epoch, .begin = x->begin, .end = x->end};
    Cachew__Unreachable m = {CW_MESSAGE(unreachable), .worker = worker, .reason = (char *)"",
                             .not_here = &range};
    if (r->dispatcher_open)
        cw_remote_tell(r,
                       &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_UNREACHABLE,
                                           .unreachable = &m});
}

void cw_remote_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch,
                        uint64_t begin)
{
    uint64_t now = cw_now_ns();
    struct known_range *x = cw_remote_range(r, epoch, begin);
    bool any = false;
    for (struct piece *p = r->pieces; p; p = p->next)
        if (p->state != HERE && p->of == l && p->request == request) {
            p->of = NULL;
            p->state = ASK;
            any = true;
        }
    if (!any)
        return;
    if (x && x->not_before_ns <= now) {
        x->not_before_ns = now + (ASK_AGAIN_NS << CW_MIN(x->n_not_here++, ASK_AGAIN_MOST));
        if (x->n_not_here % NOT_HERE_TOLD == 0)
            tell_not_here(r, l->worker, x);
    }
    cw_remote_wake_at(r, x ? x->not_before_ns : now + ASK_AGAIN_NS);
}

bool cw_remote_moved(const struct remote *r)
{
    struct place at = cw_remote_cursor(r);
    const struct known_range *x = cw_remote_range(r, at.epoch, at.position);
    return cw_before(r->told, (struct place){at.epoch, x ? x->begin : at.position});
}

struct place cw_remote_cursor(const struct remote *r)
{
    struct place at = {.epoch = r->from.epoch, .position = r->from.entry.position};
    if (r->compiled->sequential)
        at.position = 0;
    /* The iterator's course may need no range before its own position, which is behind the entry. */
    for (const struct course *x = r->courses; x; x = x->next)
        if (x->places && x->view->main && x->epoch == at.epoch)
            at.position = UINT64_MAX;
    for (const struct course *x = r->courses; x; x = x->next) {
        struct place of = {.epoch = x->epoch, .position = cw_course_position(x)};
        at = cw_before(of, at) ? of : at;
    }
    for (const struct piece *p = r->pieces; p; p = p->next) {
        struct place of = {.epoch = p->epoch, .position = p->begin};
        at = p->state != HERE && cw_before(of, at) && !cw_mutated("part") ? of : at;
    }
    return at;
}
