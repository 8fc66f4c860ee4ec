/*
 * Provisioners: each is a peer that can make workers exist, a pool of them. It is told how many there should
 * be, and which ones it may end; it makes up for those that die. Workers that belong to no pool were started
 * by somebody else, and stay. Kubernetes or Slurm are provisioners like the one that starts local processes
 * (fleet/): they need nothing but this.
 */
#include <string.h>

#include "base/text.h"
#include "service/dispatcher/internal.h"

#define MAX_UNITS 100000
#define WHY_BYTES 1000
#define DELAY_WEIGHT 0.3 /* of the last start among those before */
#define PRESENT_NS DP_S  /* all names each time: not for each of a thousand workers that come one by one */

const struct pool *cw_dp_pool_at(const struct cw_dispatcher *d, int slot)
{
    CW_LIST_EACH_OF (p, struct pool, link, &d->pools)
        if (p->slot == slot)
            return p;
    return NULL;
}

static struct pool *pool_find(struct cw_dispatcher *d, const char *name)
{
    CW_LIST_EACH_OF (p, struct pool, link, &d->pools)
        if (strcmp(p->name, name) == 0)
            return p;
    return NULL;
}

/* NULL: known from the journal only. */
static bool says(const struct worker *w, const struct pool *p)
{
    return w->pool && strcmp(w->pool, p->name) == 0;
}

/* Its provisioner's own. Those of one before it are as workers that somebody else started: they serve while
 * they are there, and are nobody's to end. */
static bool is_of(const struct worker *w, const struct pool *p)
{
    return says(w, p) && strncmp(w->name, p->prefix, strlen(p->prefix)) == 0;
}

static uint32_t count_left(const struct cw_dispatcher *d, const struct pool *p)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers)
        n += w->peer && says(w, p) && !is_of(w, p);
    return n;
}

static uint32_t most_of(const struct pool *p)
{
    return p->maximum - CW_MIN(p->n_left, p->maximum);
}

static size_t n_pools(const struct cw_dispatcher *d)
{
    size_t n = 0;
    CW_LIST_EACH (at, &d->pools)
        n++;
    return n;
}

/* ---- what provisioners say ---- */

static int pool_check(const struct cw_dispatcher *d, const Cachew__Pool *m, bool known, struct cw_error *err)
{
    int r = cw_pool_name_check(m->name, err);
    if (r < 0)
        return r;
    if (strlen(m->prefix) > DP_NAME)
        return cw_error_set(err, CW_E_OPTION,
                            "pool \"%s\": names of its workers begin with %zu bytes: expected at most %d",
                            m->name, strlen(m->prefix), DP_NAME);
    if (strlen(m->why) > WHY_BYTES)
        return cw_error_set(err, CW_E_OPTION, "pool \"%s\" says why in %zu bytes: expected at most %d",
                            m->name, strlen(m->why), WHY_BYTES);
    if (m->maximum > MAX_UNITS || m->minimum > m->maximum || m->units > MAX_UNITS ||
        !(m->price_per_h >= 0 && m->price_per_h <= CW_WORKER_PRICE_MOST) ||
        !(m->cpu_share >= 0 && m->cpu_share < 1e6))
        return cw_error_set(err, CW_E_OPTION,
                            "pool \"%s\": %u to %u workers, %u there, for %g an hour with %g CPUs: expected "
                            "at most %d, a price from 0 to %g, and numbers that are not negative",
                            m->name, m->minimum, m->maximum, m->units, m->price_per_h, m->cpu_share,
                            MAX_UNITS, CW_WORKER_PRICE_MOST);
    if (!known && n_pools(d) >= DP_POOLS)
        return cw_error_set(err, CW_E_SERVICE, "there are %d pools already", DP_POOLS);
    return 0;
}

static void insert(struct cw_dispatcher *d, struct pool *p)
{
    struct cw_link *before = &d->pools;
    cw_link_out(&p->link);
    CW_LIST_EACH (at, &d->pools)
        if (before == &d->pools && CW_CONTAINER(at, struct pool, link)->price_per_h > p->price_per_h)
            before = at;
    cw_list_add(before, &p->link); /* adding to the end of a ring that begins there is adding before it */
}

/* A provisioner that connects again takes its pool over, before its old connection was noticed to be dead.
 * Another one is refused: who has a pool keeps it. */
static int take_over(struct cw_dispatcher *d, struct pool *p, struct cw_peer *by, struct cw_error *err)
{
    struct cw_error why = {0};
    struct cw_peer *old = p->peer;
    if (old == by)
        return 0;
    if (memcmp(old->incarnation, by->incarnation, sizeof(by->incarnation)) != 0)
        return cw_error_value(
            err, CW_E_SERVICE, "pool", p->name, "a name of its own for each provisioner",
            "another provisioner has pool \"%s\": expected a name of its own for each (--pool)", p->name);
    cw_error_set(&why, CW_E_SERVICE, "the provisioner has another connection");
    old->pool = NULL;
    cw_dp_close(d, old, &why);
    p->peer = by;
    by->pool = p;
    return 0;
}

static int pool_new(struct cw_dispatcher *d, struct cw_peer *peer, const char *name, struct pool **ret,
                    struct cw_error *err)
{
    struct pool *p = calloc(1, sizeof(*p));
    if (!p || !(p->name = strdup(name)) || !(p->prefix = strdup(""))) {
        if (p)
            free(p->name);
        free(p);
        return cw_error_nomem(err, sizeof(*p), "a pool");
    }
    p->peer = peer;
    for (p->slot = 1; cw_dp_pool_at(d, p->slot);) /* there is one left: at most DP_POOLS pools are let in */
        p->slot++;
    peer->pool = p;
    *ret = p;
    return 0;
}

int cw_dp_pool_message(struct cw_dispatcher *d, struct cw_peer *peer, const Cachew__Envelope *e,
                       struct cw_error *err)
{
    if (e->of_case != CACHEW__ENVELOPE__OF_POOL)
        return cw_error_set(err, CW_E_SERVICE,
                            "a provisioner does not say this (field %d of Envelope) to a dispatcher",
                            (int)e->of_case);
    if (!d->scales)
        return cw_error_set(err, CW_E_OPTION,
                            "this dispatcher has no policy, so nobody would say how many workers are wanted: "
                            "expected one with --policy");
    const Cachew__Pool *m = e->pool;
    struct pool *p = pool_find(d, m->name);
    int r = pool_check(d, m, p != NULL, err);
    if (r == 0 && peer->pool && peer->pool != p)
        r = cw_error_set(err, CW_E_SERVICE, "this connection is that of pool \"%s\"", peer->pool->name);
    bool is_new = !p;
    if (r == 0 && p)
        r = take_over(d, p, peer, err);
    if (r == 0 && is_new)
        r = pool_new(d, peer, m->name, &p, err);
    if (r < 0)
        return r;
    char *prefix = strdup(m->prefix);
    if (!prefix)
        return cw_error_nomem(err, strlen(m->prefix), "a pool");
    free(p->prefix);
    p->prefix = prefix;
    if (is_new)
        cw_dp_log(d, false, "pool \"%s\" is there, with %u workers of %u to %u", p->name, m->units,
                  m->minimum, m->maximum);
    if (is_new)
        p->wanted = CW_MAX(m->units, m->minimum); /* what is there stays, until it is known what is needed */
    if (*m->why && (!p->why || strcmp(p->why, m->why) != 0))
        cw_dp_log(d, true, "pool \"%s\" has %u workers, %u are wanted: %s", p->name, m->units, p->wanted,
                  m->why);
    free(p->why);
    p->why = *m->why ? strdup(cw_text_utf8(m->why, strlen(m->why)) ? m->why : "(not UTF-8)") : NULL;
    d->supply_serial += m->maximum > p->maximum;
    p->minimum = m->minimum;
    p->maximum = m->maximum;
    p->units = m->units;
    p->price_per_h = m->price_per_h;
    p->cpu_share = m->cpu_share;
    p->due = true;
    insert(d, p);
    cw_dp_worker_sets_later(d);
    return 0;
}

void cw_dp_pool_lost(struct cw_dispatcher *d, struct pool *p)
{
    p->peer->pool = NULL;
    cw_link_out(&p->link);
    free(p->name);
    free(p->why);
    free(p->prefix);
    free(p);
    cw_dp_worker_sets_later(d);
}

void cw_dp_pool_started(struct cw_dispatcher *d, const struct worker *w)
{
    d->supply_serial++;
    struct pool *p = *w->pool ? pool_find(d, w->pool) : NULL;
    if (p)
        p->changed = true;
    if (!p || p->n_asked == 0 || !is_of(w, p)) /* in the place of one that died: nobody knows since when */
        return;
    p->n_asked--;
    double delay = (double)(d->now_ns - p->asked_ns) / 1e9;
    p->start_delay_s = p->start_delay_s > 0 ? p->start_delay_s + DELAY_WEIGHT * (delay - p->start_delay_s)
                                            : delay;
}

void cw_dp_pool_missed(struct cw_dispatcher *d, const struct worker *w)
{
    struct pool *p = *w->pool ? pool_find(d, w->pool) : NULL;
    if (p)
        p->changed = true;
}

void cw_dp_pool_released(struct cw_dispatcher *d, const struct worker *w)
{
    struct pool *p = *w->pool ? pool_find(d, w->pool) : NULL;
    if (p)
        p->due = true;
}

/* ---- what is wanted of them ---- */

/* Workers that were there before the provisioner that has the pool now are nobody's: they count as those of
 * no pool. */
void cw_dp_pools_place(struct cw_dispatcher *d)
{
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        w->slot = 0; /* of no pool, or of one whose provisioner is away: it is there, and stays */
        CW_LIST_EACH_OF (p, struct pool, link, &d->pools)
            if (is_of(w, p))
                w->slot = p->slot;
    }
}

void cw_dp_pools_most(const struct cw_dispatcher *d, int *ret)
{
    memset(ret, 0, DP_SLOTS * sizeof(*ret));
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers)
        ret[0] += w->ready && !w->draining && w->slot == 0;
    CW_LIST_EACH_OF (p, const struct pool, link, &d->pools)
        ret[p->slot] = (int)CW_MIN(most_of(p), (uint32_t)DP_WORKERS);
}

/* It serves nobody; and what it has for somebody to fetch is not lost with it. */
static bool may_go(const struct worker *w)
{
    bool may = w->ready && !w->draining && w->n_worker_sets == 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments)
        may &= t->n_held == 0 || !t->stream->at_most_once;
    return may;
}

/* Lets idle workers go that are too many. What is still starting is looked at again when it is there. */
static void drain_surplus(struct cw_dispatcher *d, struct pool *p)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers)
        n += w->ready && !w->draining && is_of(w, p);
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        if (n > p->wanted && is_of(w, p) && may_go(w)) {
            cw_dp_worker_drain(d, w, true);
            n--;
        }
    }
}

static void say(struct cw_dispatcher *d, struct pool *p)
{
    _cleanup_free_ char **names = calloc(2 * d->n_workers + 1, sizeof(char *));
    p->due = !names; /* without memory: later */
    if (!names)
        return;
    p->changed = false;
    p->said_ns = d->now_ns;
    Cachew__Present present = {CW_MESSAGE(present), .names = names + d->n_workers};
    Cachew__Want m = {CW_MESSAGE(want), .workers = p->wanted, .release = names, .present = &present};
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers) {
        if (!w->peer || !is_of(w, p))
            continue;
        present.names[present.n_names++] = w->name;
        if (w->released)
            m.release[m.n_release++] = w->name;
    }
    Cachew__Envelope e = {CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_WANT, .want = &m};
    cw_dp_send(d, p->peer, &e);
}

void cw_dp_pools_want(struct cw_dispatcher *d, const int *needed)
{
    int n_workers = 0;
    for (int i = 0; i < DP_SLOTS; i++)
        n_workers += needed[i];
    if (n_workers > 0)
        d->busy_ns = d->now_ns;
    /* the next job may come soon, or be found again */
    bool keep = d->grace_until_ns != 0 || d->now_ns - d->busy_ns < DP_WARM;
    CW_LIST_EACH_OF (p, struct pool, link, &d->pools) {
        p->n_left = count_left(d, p);
        uint32_t most = most_of(p),
                 n = (uint32_t)CW_MIN(CW_MAX((int64_t)needed[p->slot], (int64_t)p->minimum), (int64_t)most);
        if (n_workers == 0 && keep)
            n = CW_MIN(CW_MAX(n, p->wanted), most);
        if (n > p->wanted)
            p->asked_ns = d->now_ns;
        if (n != p->wanted)
            p->n_asked = n > p->units ? n - p->units : 0;
        p->due |= n != p->wanted || (p->changed && d->now_ns - p->said_ns >= PRESENT_NS);
        p->wanted = n;
        drain_surplus(d, p);
        if (p->due)
            say(d, p);
    }
}

json_t *cw_dp_pools_json(const struct cw_dispatcher *d)
{
    json_t *list = json_array();
    CW_LIST_EACH_OF (p, const struct pool, link, &d->pools) {
        json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:s?}", "name", p->name, "minimum",
                              (int)p->minimum, "maximum", (int)p->maximum, "workers", (int)p->units, "wanted",
                              (int)p->wanted, "price_per_h", p->price_per_h, "cpu_share", p->cpu_share,
                              "start_delay_s", p->start_delay_s, "why", p->why);
        if (!o || json_array_append_new(list, o) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
