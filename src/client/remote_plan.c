/* What is known of splits, and what is asked of whom. Mutex held throughout. */
#include <stdlib.h>
#include <string.h>

#include "client/remote_impl.h"

#include "base/clock.h"
#include "base/crash.h"

/* A worker that does not have what the dispatcher says it has: as a rule the lease is on its way. Asked again after this, twice this, four times this ... */
#define ASK_AGAIN_NS UINT64_C(1000000)
#define ASK_AGAIN_MOST 6 /* doublings */

static bool before(uint64_t epoch, uint64_t split, uint64_t than_epoch, uint64_t than_split)
{
    return epoch != than_epoch ? epoch < than_epoch : split < than_split;
}

/* ---- where splits are ---- */

static size_t placement_at(const struct remote *r, uint64_t epoch, uint64_t split)
{
    size_t low = 0, high = r->n_placements;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (before(r->placements[middle].epoch, r->placements[middle].split, epoch, split))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A split has another worker than before: what is not there yet is asked for again. */
static void split_placed(struct remote_split *s, uint64_t worker, bool lost)
{
    s->lost = lost;
    if (s->worker == worker)
        return;
    s->worker = worker;
    s->not_before_ns = 0;
    s->n_not_here = 0;
    for (struct slot *slot = s->slots; slot; slot = slot->next)
        if (slot->state == ASKED)
            slot->state = ASK;
}

int cw_remote_place(struct remote *r, uint64_t epoch, uint64_t split, uint64_t worker, bool lost, struct cw_error *err)
{
    size_t at = placement_at(r, epoch, split);
    if (at == r->n_placements || r->placements[at].epoch != epoch || r->placements[at].split != split) {
        if (r->n_placements == r->placements_capacity) {
            size_t capacity = CW_MAX(64, r->placements_capacity * 2);
            struct placement *grown = capacity > MAX_KNOWN ? NULL : realloc(r->placements, capacity * sizeof(*grown));
            if (!grown)
                return cw_error_nomem(err, capacity * sizeof(*grown), "the places of splits");
            r->placements = grown;
            r->placements_capacity = capacity;
        }
        memmove(&r->placements[at + 1], &r->placements[at], (r->n_placements++ - at) * sizeof(*r->placements));
    }
    lost &= r->options.at_most_once;
    r->placements[at] = (struct placement){.epoch = epoch, .split = split, .worker = worker, .lost = lost};
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            if (s->epoch == epoch && s->index == split)
                split_placed(s, worker, lost);
    for (struct part *p = r->parts; p; p = p->next_known)
        if (p->epoch == epoch && p->split == split) {
            p->lost = lost && p->state != HERE;
            if (p->state == ASKED && (!p->of || p->of->worker != worker))
                p->state = ASK;
        }
    if (lost)
        pthread_cond_broadcast(&r->changed);
    return 0;
}

static const struct placement *placement_of(const struct remote *r, uint64_t epoch, uint64_t split)
{
    size_t at = placement_at(r, epoch, split);
    return at < r->n_placements && r->placements[at].epoch == epoch && r->placements[at].split == split ? &r->placements[at] : NULL;
}

static uint64_t worker_of(const struct remote *r, uint64_t epoch, uint64_t split)
{
    const struct placement *p = placement_of(r, epoch, split);
    return p ? p->worker : 0;
}

/* ---- what splits gave ---- */

static struct report *report_find(const struct remote *r, uint64_t epoch, uint64_t split)
{
    for (struct report *p = r->reports; p; p = p->next)
        if (p->epoch == epoch && p->split == split)
            return p;
    return NULL;
}

static void split_reported(struct remote_split *s, const struct report *p)
{
    struct slot **at = &s->slots;
    s->report = p;
    while (*at) /* what was asked for and is not there */
        if ((*at)->k >= p->n_batches && (*at)->state != HERE) {
            struct slot *slot = *at;
            *at = slot->next;
            s->view->remote->n_outstanding--;
            free(slot);
        } else {
            at = &(*at)->next;
        }
}

static bool is_open(const struct remote *r, uint64_t epoch, uint64_t split)
{
    for (const struct view *v = &r->view; v; v = v->next)
        for (const struct remote_split *s = v->splits; s; s = s->next)
            if (s->epoch == epoch && s->index == split)
                return true;
    return false;
}

static bool same_report(const struct remote *r, const struct report *p, const Cachew__Report *m)
{
    bool same = p->n_batches == m->n_batches;
    for (size_t k = 0; k < r->n_keys; k++)
        same &= p->remnants[k] == (k < m->n_remnants ? m->remnants[k] : 0);
    return same;
}

int cw_remote_report(struct remote *r, const Cachew__Report *m, struct cw_error *err)
{
    struct report *p = report_find(r, m->epoch, m->split);
    if (p && !same_report(r, p, m)) { /* no fault of this connection: another one would bring the same */
        struct cw_error why = {0};
        (void)cw_error_set(&why, CW_E_DATA, "split %llu of epoch %llu gave %llu batches and, run again, %llu, or other remnants: an operator of the pipeline is not deterministic",
                           (unsigned long long)m->split, (unsigned long long)m->epoch, (unsigned long long)p->n_batches, (unsigned long long)m->n_batches);
        cw_remote_fail(r, &why);
        return 0;
    }
    if (p || (before(m->epoch, m->split, r->told.epoch, r->told.split) && !is_open(r, m->epoch, m->split)))
        return 0;
    p = calloc(1, sizeof(*p) + r->n_keys * sizeof(p->remnants[0]));
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "the report of a split");
    *p = (struct report){.next = r->reports, .epoch = m->epoch, .split = m->split, .n_batches = m->n_batches};
    for (size_t k = 0; k < CW_MIN(m->n_remnants, r->n_keys); k++)
        p->remnants[k] = m->remnants[k];
    r->reports = p;
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            if (s->epoch == m->epoch && s->index == m->split && !s->report)
                split_reported(s, p);
    pthread_cond_broadcast(&r->changed);
    return 0;
}

void cw_remote_forget(struct remote *r)
{
    size_t n = placement_at(r, r->told.epoch, r->told.split);
    if (n > 0) /* placements may be NULL */
        memmove(r->placements, r->placements + n, (r->n_placements -= n) * sizeof(*r->placements));
    for (struct report **at = &r->reports; *at;) {
        struct report *p = *at;
        bool used = false;
        for (struct view *v = &r->view; v && !used; v = v->next)
            for (struct remote_split *s = v->splits; s && !used; s = s->next)
                used = s->report == p;
        if (used || !before(p->epoch, p->split, r->told.epoch, r->told.split)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

/* ---- splits ---- */

struct remote_split *cw_remote_split_new(struct view *v, uint64_t epoch, uint64_t index, uint64_t first_batch)
{
    struct remote *r = v->remote;
    struct remote_split *s = calloc(1, sizeof(*s)), **at = &v->splits;
    if (!s)
        return NULL;
    *s = (struct remote_split){.view = v, .epoch = epoch, .index = index, .first_wanted = UINT64_MAX, .next_k = first_batch, .none_wanted = first_batch == UINT64_MAX,
                                .worker = worker_of(r, epoch, index)};
    if (v->base.compiled->counted)
        s->counted = cw_split_batches(v->base.compiled, &v->base.plan, index);
    const struct placement *p = placement_of(r, epoch, index);
    s->lost = p && p->lost;
    s->report = report_find(r, epoch, index);
    while (*at)
        at = &(*at)->next;
    *at = s;
    return s;
}

bool cw_remote_split_count(const struct remote_split *s, uint64_t *ret)
{
    const struct cw_compiled *c = s->view->base.compiled;
    *ret = c->counted ? s->counted : s->report ? s->report->n_batches : 0; /* what drop_remainder drops is no batch of ours, though a worker counts it */
    return s->report || c->counted;
}

/* Whether batch k will be wanted, as far as can be said. */
static bool wanted(const struct remote_split *s, uint64_t k)
{
    const struct view *v = s->view;
    const struct cw_compiled *c = v->base.compiled;
    if (s->none_wanted)
        return false;
    if (!v->main) /* one batch is to be repeated */
        return k == s->first_wanted;
    if (v->world_size == 1)
        return s->first_wanted == UINT64_MAX || k >= s->first_wanted;
    if (!c->counted)
        return k >= s->first_wanted && (k - s->first_wanted) % v->world_size == 0;
    uint64_t g = s->index * (v->base.plan.split_size / c->batch_size) + k, from = s->epoch == v->rounds_epoch ? v->rounds_from : 0;
    return g >= from && (g - from) % v->world_size == v->rank;
}

struct slot *cw_remote_slot(struct remote_split *s, uint64_t k, bool make)
{
    struct slot **at = &s->slots;
    while (*at && (*at)->k < k)
        at = &(*at)->next;
    if (*at && (*at)->k == k)
        return *at;
    struct slot *slot = make ? calloc(1, sizeof(*slot)) : NULL;
    if (slot) {
        *slot = (struct slot){.next = *at, .k = k};
        *at = slot;
        s->view->remote->n_outstanding++;
    }
    return slot;
}

/* ---- what is asked ---- */

static size_t window_bytes(const struct remote *r) { return r->lent ? WINDOW_LENT_BYTES : WINDOW_BYTES; }
static size_t window_least(const struct remote *r) { return r->lent ? WINDOW_LENT_MIN : WINDOW_MIN; }

size_t cw_remote_window(const struct remote *r)
{
    if (r->options.credits)
        return r->options.credits;
    return r->batch_bytes ? CW_MIN(CW_MAX(window_bytes(r) / r->batch_bytes, window_least(r)), WINDOW_MAX) : WINDOW_FIRST;
}

void cw_remote_window_tell(struct remote *r)
{
    size_t now = cw_remote_window(r), by_bytes = r->batch_bytes ? window_bytes(r) / r->batch_bytes : WINDOW_MAX;
    if (r->options.credits || now == r->window_told)
        return;
    r->window_told = now;
    const struct cw_tuned t = {
        .what = "credits",
        .seen = {{"batch_bytes", (double)r->batch_bytes}, {"lent", r->lent}},
        .others = {{"bytes", (double)by_bytes}, {"least", (double)window_least(r)}, {"most", WINDOW_MAX}},
        .chosen = (double)now,
        .why = now == by_bytes ? "so many batches fill the memory for what was asked for" : now == WINDOW_MAX ? "more would not keep a worker busier"
               : "batches are large, and a worker needs the next request before a batch is taken",
    };
    cw_tuned_add(&r->tuned, &t);
}

static void want_ahead(struct remote *r)
{
    size_t window = cw_remote_window(r);
    if (r->any)
        cw_remote_want_any(r, &r->view);
    for (struct view *v = r->any ? r->view.next : &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s && r->n_outstanding < window; s = s->next) {
            uint64_t n, last = s->next_k + window * v->world_size;
            if (cw_remote_split_count(s, &n))
                last = CW_MIN(last, n);
            for (uint64_t k = s->next_k; k < last && r->n_outstanding < window; k++)
                if (wanted(s, k) && !cw_remote_slot(s, k, true))
                    return; /* no memory: what is needed next is asked for in any case */
        }
}

static struct link *usable(struct remote *r, uint64_t worker)
{
    struct link *l = worker ? cw_remote_link(r, worker) : NULL;
    if (l && !l->conn && !l->gone)
        cw_link_connect(l);
    return l && !l->gone && l->conn && l->open ? l : NULL;
}

static int get(struct remote *r, struct link *l, uint64_t epoch, uint64_t split, uint64_t first, uint64_t count, const unsigned *key)
{
    Cachew__Get m = CACHEW__GET__INIT;
    Cachew__Envelope e = CACHEW__ENVELOPE__INIT;
    m.stream = (ProtobufCBinaryData){.data = r->stream, .len = sizeof(r->stream)};
    m.epoch = epoch;
    m.split = split;
    m.first = first;
    m.count = count;
    m.remnant = key != NULL;
    m.key = key ? *key : 0;
    e.id = ++r->next_id;
    e.of_case = CACHEW__ENVELOPE__OF_GET;
    e.get = &m;
    return cw_conn_send(l->conn, &e, NULL, 0, NULL, NULL, NULL, 0, NULL);
}

static void ask_split(struct remote *r, struct remote_split *s, uint64_t now)
{
    struct link *l = NULL;
    for (struct slot *slot = s->slots; slot;) {
        if (slot->state != ASK) {
            slot = slot->next;
            continue;
        }
        if (s->not_before_ns > now) {
            cw_remote_wake_at(r, s->not_before_ns);
            return;
        }
        if (!l && !(l = usable(r, s->worker)))
            return;
        if (slot->of == l) { /* the split was elsewhere for a while, and the request is still there: a second one would be computed a second time */
            slot->state = ASKED;
            slot = slot->next;
            continue;
        }
        uint64_t first = slot->k, count = 0;
        for (; slot && slot->state == ASK && slot->of != l && slot->k == first + count; slot = slot->next, count++) {
            slot->state = ASKED;
            slot->asked_ns = slot->asked_ns ? slot->asked_ns : now;
            slot->of = l;
            slot->request = r->next_id + 1; /* as get numbers it */
        }
        if (get(r, l, s->epoch, s->index, first, count, NULL) < 0)
            return; /* the connection ends, and all of it is asked again */
    }
}

void cw_remote_pump(struct remote *r)
{
    uint64_t now = cw_now_ns();
    want_ahead(r);
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            ask_split(r, s, now);
    for (struct part *p = r->parts; p; p = p->next_known) {
        if (p->state != ASK || !p->wanted)
            continue;
        if (p->not_before_ns > now) {
            cw_remote_wake_at(r, p->not_before_ns);
            continue;
        }
        struct link *l = usable(r, worker_of(r, p->epoch, p->split));
        if (!l)
            continue;
        p->state = ASKED;
        if (p->of == l)
            continue; /* as above */
        p->of = l;
        p->request = r->next_id + 1;
        if (get(r, l, p->epoch, p->split, p->from, p->n, &p->key) < 0)
            return;
    }
}

void cw_remote_unask(struct remote *r, const struct link *l)
{
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            for (struct slot *slot = s->slots; slot; slot = slot->next)
                if (slot->of == l) {
                    slot->of = NULL;
                    slot->state = slot->state == ASKED ? ASK : slot->state;
                }
    for (struct part *p = r->parts; p; p = p->next_known)
        if (p->of == l) {
            p->of = NULL;
            p->state = p->state == ASKED ? ASK : p->state;
        }
}

void cw_remote_not_here(struct remote *r, const struct link *l, uint64_t request, uint64_t epoch, uint64_t split)
{
    uint64_t now = cw_now_ns(), again = now + (ASK_AGAIN_NS << ASK_AGAIN_MOST);
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            for (struct slot *slot = s->epoch == epoch && s->index == split ? s->slots : NULL; slot; slot = slot->next)
                if (slot->state != HERE && slot->of == l && slot->request == request) {
                    slot->of = NULL;
                    slot->state = ASK;
                    if (s->not_before_ns <= now)
                        s->not_before_ns = now + (ASK_AGAIN_NS << CW_MIN(s->n_not_here++, ASK_AGAIN_MOST));
                    again = CW_MIN(again, s->not_before_ns);
                }
    for (struct part *p = r->parts; p; p = p->next_known)
        if (p->state != HERE && p->of == l && p->request == request) {
            p->of = NULL;
            p->state = ASK;
            p->not_before_ns = now + (ASK_AGAIN_NS << 3);
            again = CW_MIN(again, p->not_before_ns);
        }
    cw_remote_wake_at(r, again);
}

struct cw_cursor cw_remote_cursor(const struct remote *r)
{
    struct cw_cursor c = r->from;
    for (const struct view *v = &r->view; v; v = v->next)
        if (v->splits && before(v->splits->epoch, v->splits->index, c.epoch, c.split))
            c = (struct cw_cursor){.epoch = v->splits->epoch, .split = v->splits->index};
    for (const struct part *p = r->parts; p; p = p->next_known)
        if (p->state != HERE && before(p->epoch, p->split, c.epoch, c.split) && !cw_mutated("remnant"))
            c = (struct cw_cursor){.epoch = p->epoch, .split = p->split};
    return c;
}

void cw_remote_hurry_parts(struct remote *r, uint64_t epoch, uint64_t split)
{
    for (struct part *p = r->parts; p; p = p->next_known)
        p->wanted |= before(p->epoch, p->split, epoch, split);
}
