/* Handles messages of provisioners, and tells them how many workers are wanted. */
#include "service/dispatcher/provisioners.h"

#include <stdlib.h>
#include <string.h>

#include "service/dispatcher/state.h"
#include "service/dispatcher/worker_life.h"

/* ---- messages ---- */

#define MAX_UNITS 100000 /* workers of a pool */
#define WHY_BYTES 1000   /* most bytes of a provisioner's reason */

/* Returns the least unused pool index, from 1 to DP_POOLS + 1. */
static int pool_free_index(const struct cw_dispatcher *d)
{
    int index = 1;
    while (cw_dp_pool_at(d, index))
        index++;
    return index;
}

static int pool_check(const struct cw_dispatcher *d, const Cachew__Pool *m, bool known, struct cw_error *err)
{
    int r = cw_pool_name_check(m->name, err);
    if (r < 0)
        return r;
    if (strlen(m->prefix) > DP_NAME)
        return cw_error_set(
            err, CW_E_OPTION,
            "pool \"%s\": the prefix of its workers' names has %zu bytes: expected at most %d", m->name,
            strlen(m->prefix), DP_NAME);
    if (strlen(m->why) > WHY_BYTES)
        return cw_error_set(
            err, CW_E_OPTION,
            "pool \"%s\": the text that says why it has too few workers has %zu bytes: expected at most %d",
            m->name, strlen(m->why), WHY_BYTES);
    if (m->maximum > MAX_UNITS || m->minimum > m->maximum || m->units > MAX_UNITS ||
        !(m->price_per_h >= 0 && m->price_per_h <= CW_WORKER_PRICE_MOST) ||
        !(m->cpu_share >= 0 && m->cpu_share < 1e6))
        return cw_error_set(err, CW_E_OPTION,
                            "pool \"%s\": minimum %u, maximum %u and present number %u of workers, price %g "
                            "per hour, %g CPUs each: expected at most %d workers, a minimum up to the "
                            "maximum, a price from 0 to %g, and CPUs from 0 to less than 1000000",
                            m->name, m->minimum, m->maximum, m->units, m->price_per_h, m->cpu_share,
                            MAX_UNITS, CW_WORKER_PRICE_MOST);
    if (!known && pool_free_index(d) > DP_POOLS)
        return cw_error_set(err, CW_E_SERVICE,
                            "the dispatcher has %d pools already, the most that it accepts", DP_POOLS);
    return 0;
}

/* Inserts the pool, or moves it, to its place in the list, which is sorted by price. */
static void pool_insert(struct cw_dispatcher *d, struct pool *p)
{
    struct cw_link *before = &d->scaler.pools;
    cw_link_out(&p->link);
    CW_LIST_EACH (at, &d->scaler.pools)
        if (before == &d->scaler.pools &&
            CW_CONTAINER(at, struct pool, link)->info->price_per_h > p->info->price_per_h)
            before = at;
    cw_list_add(before, &p->link); /* adds the pool just before `before` */
}

/* Moves the pool to a new connection of the same provisioner, whose old connection may be dead but not closed
 * yet. Another provisioner is refused. */
static int pool_take_over(struct cw_dispatcher *d, struct pool *p, struct cw_peer *by, struct cw_error *err)
{
    struct cw_peer *old = p->peer;
    if (old == by)
        return 0;
    if (memcmp(old->incarnation, by->incarnation, sizeof(by->incarnation)) != 0)
        return cw_error_value(err, CW_E_SERVICE, "pool", p->info->name,
                              "a different name for each provisioner",
                              "another provisioner has pool \"%s\": expected a different pool name (--pool) "
                              "for each provisioner",
                              p->info->name);
    old->pool = NULL;
    cw_dp_peer_close(d, old, "the provisioner has opened another connection, so this one is closed");
    p->peer = by;
    by->pool = p;
    return 0;
}

int cw_dp_provisioner_message(struct cw_dispatcher *d, struct cw_peer *peer, const Cachew__Envelope *e,
                              struct cw_error *err)
{
    if (e->of_case != CACHEW__ENVELOPE__OF_POOL)
        return 1;
    if (!d->scaler.enabled)
        return cw_error_set(err, CW_E_OPTION,
                            "this dispatcher has no policy that decides how many workers are wanted: "
                            "expected a dispatcher started with --policy");
    const Cachew__Pool *m = e->pool;
    struct pool *p = cw_dp_pool_find(d, m->name);
    bool is_new = !p;
    int r = pool_check(d, m, !is_new, err);
    if (r == 0 && peer->pool && peer->pool != p)
        r = cw_error_set(err, CW_E_SERVICE, "this connection already belongs to pool \"%s\"" CW_OTHER_VERSION,
                         peer->pool->info->name);
    if (r == 0 && !is_new)
        r = pool_take_over(d, p, peer, err);
    if (r < 0)
        return r;
    Cachew__Pool *info = cw_dp_message_copy(&m->base, DP_REGISTERED);
    if (is_new && info && (p = malloc(sizeof(*p))))
        /* its present workers stay until the next decision */
        *p = (struct pool){.peer = peer, .index = pool_free_index(d), .wanted = CW_MAX(m->units, m->minimum)};
    if (!info || !p) {
        cachew__pool__free_unpacked(info, NULL);
        return cw_error_nomem(err, sizeof(*p), "a pool");
    }
    peer->pool = p;
    if (is_new)
        cw_dp_log(d, false, "pool \"%s\" is connected, with %u workers (minimum %u, maximum %u)", m->name,
                  m->units, m->minimum, m->maximum);
    if (*m->why && (is_new || strcmp(p->info->why, m->why) != 0))
        cw_dp_log(d, true, "pool \"%s\" has %u workers, but %u are wanted: %s", m->name, m->units, p->wanted,
                  m->why);
    d->scaler.supply_serial += m->maximum > (is_new ? 0 : p->info->maximum);
    cachew__pool__free_unpacked(p->info, NULL);
    p->info = info;
    p->due = true;
    pool_insert(d, p);
    cw_dp_scaling_due(d);
    return 0;
}

void cw_dp_provisioner_lost(struct cw_dispatcher *d, struct pool *p)
{
    p->peer->pool = NULL;
    cw_link_out(&p->link);
    cachew__pool__free_unpacked(p->info, NULL);
    free(p);
    cw_dp_scaling_due(d);
}

/* ---- the number of workers that is wanted ---- */

/* least ns between two messages Want of which only the names of workers differ: each one has all names */
#define PRESENT_NS DP_S

/* Returns the number of connected workers that earlier provisioners of the pool started. */
static uint32_t pool_count_foreign(const struct cw_dispatcher *d, const struct pool *p)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
        n += w->peer && cw_dp_pool_names(w, p) && !cw_dp_pool_owns(w, p);
    return n;
}

/* Whether the worker can be stopped: it serves no stream, and no range would be lost with it. */
static bool worker_may_go(const struct worker *w)
{
    bool may = cw_dp_worker_able(w) && w->n_worker_sets == 0;
    CW_LIST_EACH_OF (t, const struct assignment, by_worker, &w->assignments)
        may &= t->n_held == 0 || !t->stream->at_most_once;
    return may;
}

/* Drains idle workers in excess of the wanted number. Workers that are starting are looked at once they are
 * ready. */
static void pool_drain_surplus(struct cw_dispatcher *d, struct pool *p)
{
    uint32_t n = 0;
    CW_LIST_EACH_OF (w, const struct worker, link, &d->workers.list)
        n += cw_dp_worker_able(w) && cw_dp_pool_owns(w, p);
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        if (n > p->wanted && cw_dp_pool_owns(w, p) && worker_may_go(w)) {
            cw_dp_worker_drain(d, w, WORKER_RELEASED);
            n--;
        }
    }
}

/* Sends Want to the provisioner: how many workers are wanted, which ones it may stop, and which ones are
 * connected. */
static void pool_send_want(struct cw_dispatcher *d, struct pool *p)
{
    _cleanup_free_ char **names = calloc(2 * d->workers.n + 1, sizeof(char *));
    p->due = !names; /* without memory, Want is sent later */
    if (!names)
        return;
    p->changed = false;
    p->last_send_ns = d->now_ns;
    Cachew__Present present = {CW_MESSAGE(present), .names = names + d->workers.n};
    Cachew__Want m = {CW_MESSAGE(want), .workers = p->wanted, .release = names, .present = &present};
    CW_LIST_EACH_OF (w, struct worker, link, &d->workers.list) {
        if (!w->peer || !cw_dp_pool_owns(w, p))
            continue;
        present.names[present.n_names++] = w->last_peer->name;
        if (w->leaving == WORKER_RELEASED)
            m.release[m.n_release++] = w->last_peer->name;
    }
    cw_dp_peer_send(
        d, p->peer,
        &(Cachew__Envelope){CW_MESSAGE(envelope), .of_case = CACHEW__ENVELOPE__OF_WANT, .want = &m});
}

void cw_dp_provisioners_want(struct cw_dispatcher *d, const int *needed)
{
    int n_workers = cw_dp_pools_sum(needed);
    if (n_workers > 0)
        d->scaler.busy_ns = d->now_ns;
    /* keep workers for a while: the next job may come soon, or return after a restart */
    bool keep = d->grace_until_ns != 0 || d->now_ns - d->scaler.busy_ns < DP_WARM;
    CW_LIST_EACH_OF (p, struct pool, link, &d->scaler.pools) {
        p->n_foreign = pool_count_foreign(d, p);
        uint32_t most = cw_dp_pool_most(p),
                 n = (uint32_t)CW_MIN(CW_MAX((int64_t)needed[p->index], (int64_t)p->info->minimum),
                                      (int64_t)most);
        if (n_workers == 0 && keep)
            n = CW_MIN(CW_MAX(n, p->wanted), most);
        if (n > p->wanted)
            p->requested_ns = d->now_ns;
        if (n != p->wanted)
            p->n_requested = n > p->info->units ? n - p->info->units : 0;
        p->due |= n != p->wanted || (p->changed && d->now_ns - p->last_send_ns >= PRESENT_NS);
        p->wanted = n;
        pool_drain_surplus(d, p);
        if (p->due)
            pool_send_want(d, p);
    }
}
