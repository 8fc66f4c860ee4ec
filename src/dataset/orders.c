/* Makes the permutation tables ("orders") of an epoch, keeps the recently used ones within the budget, and
 * frees the others. */
#include "dataset/orders.h"

#include <string.h>

#include "base/philox.h"

/* Orders may be kept for up to 1/KEPT_SHARE of the budget's limit. Further orders are kept only as long as at
 * most FULL(limit) of the budget is in use. */
#define KEPT_SHARE 4
#define FULL(limit) ((limit) / 4 * 3)
#define FIRST_SLOTS 256

uint64_t cw_shuffle_key(const struct cw_epoch *e, const struct cw_shuffle_draw *d, uint64_t pass,
                        uint64_t level, uint64_t window)
{
    struct cw_key key = {0};
    bool fixed = d->seed >= 0 && !d->reshuffle; /* one order, whatever the run, the epoch and the pass */
    cw_key_u64(&key, d->seed >= 0 ? (uint64_t)d->seed : e->seed);
    cw_key_u64(&key, d->reshuffle ? e->epoch : 0);
    cw_key_text(&key, d->salt);
    cw_key_u64(&key, fixed ? 0 : pass);
    cw_key_u64(&key, level);
    cw_key_u64(&key, window);
    return cw_key_hash(&key);
}

void cw_shuffle_network(const struct cw_epoch *e, const struct cw_seq *node, uint64_t pass,
                        struct cw_permutation *ret)
{
    cw_permutation_init(ret, cw_shuffle_key(e, &node->shuffle->draw, pass, 0, 0), node->n);
}

int cw_orders_new(const struct cw_sequence *s, struct cw_orders **ret, struct cw_error *err)
{
    struct cw_orders *all = calloc(1, sizeof(*all));
    if (!all || !(all->latest = calloc(s->n_shuffles + 1, sizeof(*all->latest)))) {
        free(all);
        return cw_error_nomem(err, s->n_shuffles * sizeof(*all->latest), "shuffles");
    }
    *ret = all;
    return 0;
}

static void order_free(struct cw_epoch *e, struct cw_order *o)
{
    cw_budget_give(e->budget, o->charged);
    free(o->at);
    free(o->ends);
    free(o);
}

void cw_orders_free(struct cw_epoch *e)
{
    struct cw_orders *all = CW_STEAL(e->orders);
    if (!all)
        return;
    for (size_t i = 0; i < all->n_slots; i++)
        while (all->slots[i]) {
            struct cw_order *o = all->slots[i];
            all->slots[i] = o->next;
            order_free(e, o);
        }
    free(all->slots);
    free(all->latest);
    free(all);
}

/* ---- the table ---- */

static struct cw_order **orders_slot(const struct cw_orders *all, const struct cw_seq *node, uint64_t pass,
                                     uint64_t window)
{
    uint64_t words[] = {node->shuffle->id, pass, window};
    return &all->slots[cw_hash64(words, sizeof(words)) & (all->n_slots - 1)];
}

static struct cw_order *orders_find(const struct cw_orders *all, const struct cw_seq *node, uint64_t pass,
                                    uint64_t window)
{
    struct cw_order *o = all->n_slots ? *orders_slot(all, node, pass, window) : NULL;
    while (o && (o->node != node || o->pass != pass || o->window != window))
        o = o->next;
    return o;
}

static void orders_keep(struct cw_orders *all, struct cw_order *o)
{
    struct cw_order **slot = orders_slot(all, o->node, o->pass, o->window);
    o->kept = true;
    o->next = *slot;
    *slot = o;
    all->n++;
    all->bytes += o->charged;
}

static void orders_drop(struct cw_epoch *e, struct cw_order **at)
{
    struct cw_order *o = *at;
    *at = o->next;
    e->orders->n--;
    e->orders->bytes -= o->charged;
    order_free(e, o);
}

/* Frees the orders that were last used before the call number `before`, except orders that are held and the
 * latest order of chunks of each shuffle. */
static void orders_sweep(struct cw_epoch *e, uint64_t before)
{
    struct cw_orders *all = e->orders;
    for (size_t i = 0; i < all->n_slots; i++)
        for (struct cw_order **at = &all->slots[i]; *at;) {
            struct cw_order *o = *at;
            if (o->held || o->used >= before || all->latest[o->node->shuffle->id] == o)
                at = &o->next;
            else
                orders_drop(e, at);
        }
}

void cw_epoch_trim(struct cw_epoch *e)
{
    orders_sweep(e, UINT64_MAX);
}

void cw_epoch_forget(struct cw_epoch *e)
{
    memset(e->orders->latest, 0, (e->sequence->n_shuffles + 1) * sizeof(*e->orders->latest));
    cw_epoch_trim(e);
}

/* For a node and the nodes below it: computes the bytes of the orders of chunks, which are always kept, and
 * of the orders of one window for each shuffle. */
static void orders_bytes(const struct cw_sequence *q, const struct cw_seq *s, size_t *chunks, size_t *window)
{
    for (size_t i = 0; i < s->n_children; i++)
        orders_bytes(q, s->children[i], chunks, window);
    const struct cw_shuffle *f = s->shuffle;
    if (!f || f->kind == CW_SHUFFLE_NETWORK)
        return;
    *chunks += sizeof(struct cw_order) +
               f->n_chunks * (sizeof(uint32_t) + (f->kind == CW_SHUFFLE_CHUNKS ? sizeof(uint64_t) : 0));
    if (f->kind == CW_SHUFFLE_CHUNKS)
        *window += sizeof(struct cw_order) +
                   CW_MIN(q->window, s->n) * (sizeof(uint32_t) + sizeof(struct cw_ref));
}

size_t cw_orders_bytes(const struct cw_sequence *s)
{
    size_t chunks = 0, window = 0;
    orders_bytes(s, s->root, &chunks, &window);
    return chunks + window;
}

/* Makes room in the hash table for one more order. False: out of memory. */
static bool orders_grow(struct cw_orders *all)
{
    size_t n = all->n_slots ? all->n_slots * 2 : FIRST_SLOTS;
    if (all->n < all->n_slots)
        return true;
    struct cw_orders larger = {.slots = calloc(n, sizeof(*larger.slots)), .n_slots = n};
    if (!larger.slots)
        return all->n_slots > 0;
    for (size_t i = 0; i < all->n_slots; i++)
        while (all->slots[i]) {
            struct cw_order *o = all->slots[i], **slot = orders_slot(&larger, o->node, o->pass, o->window);
            all->slots[i] = o->next;
            o->next = *slot;
            *slot = o;
        }
    free(all->slots);
    all->slots = larger.slots;
    all->n_slots = n;
    return true;
}

/* Returns whether one more order may be kept. To make room, frees the orders that neither this call of
 * cw_epoch_refs nor the previous one used; other orders would soon have to be made again. */
static bool orders_may_keep(struct cw_epoch *e, size_t bytes)
{
    struct cw_orders *all = e->orders;
    for (int i = 0; i < 2; i++) {
        if (all->bytes + bytes <= e->budget->limit / KEPT_SHARE &&
            atomic_load(&e->budget->used) + bytes <= FULL(e->budget->limit))
            return true;
        if (all->swept == all->call)
            return false;
        all->swept = all->call;
        orders_sweep(e, all->call - 1);
    }
    return false;
}

/* ---- making an order ---- */

static int orders_take_budget(struct cw_epoch *e, size_t bytes, const char *what, struct cw_error *err)
{
    if (cw_budget_take(e->budget, bytes, what, NULL) >= 0)
        return 0;
    cw_epoch_trim(e);
    return cw_budget_take(e->budget, bytes, what, err);
}

static int order_make(struct cw_epoch *e, const struct cw_seq *s, uint64_t pass, uint64_t window,
                      struct cw_order **ret, struct cw_error *err)
{
    const struct cw_shuffle *f = s->shuffle;
    bool chunks = window == CW_ORDER_CHUNKS, ends = chunks && f->kind == CW_SHUFFLE_CHUNKS;
    uint64_t size = e->sequence->window, n = chunks ? f->n_chunks : CW_MIN(size, s->n - window * size);
    const char *what = chunks ? "the order of a shuffle" : "a window of shuffle";
    size_t bytes = sizeof(struct cw_order) + n * (sizeof(uint32_t) + (ends ? sizeof(uint64_t) : 0));
    int r = orders_take_budget(e, bytes, what, err);
    if (r < 0)
        return r;
    struct cw_order *o = calloc(1, sizeof(*o));
    if (!o) {
        cw_budget_give(e->budget, bytes);
        return cw_error_nomem(err, bytes, what);
    }
    *o = (struct cw_order){
        .node = s, .pass = pass, .window = window, .charged = bytes, .at = malloc((n + 1) * sizeof(*o->at))};
    if (ends)
        o->ends = malloc((n + 1) * sizeof(*o->ends));
    if (!o->at || (ends && !o->ends)) {
        order_free(e, o);
        return cw_error_nomem(err, bytes, what);
    }
    for (uint64_t k = 0; k < n; k++)
        o->at[k] = (uint32_t)k;
    cw_permute(cw_shuffle_key(e, &f->draw, pass, !chunks, chunks ? 0 : window), o->at, n, sizeof(*o->at));
    for (uint64_t k = 0, end = 0; ends && k < n; k++)
        o->ends[k] = end += cw_chunk_end(f, o->at[k], s->n) - cw_chunk_begin(f, o->at[k]);
    *ret = o;
    return 0;
}

int cw_order_get(struct cw_epoch *e, const struct cw_seq *s, uint64_t pass, uint64_t window,
                 struct cw_order **ret, struct cw_error *err)
{
    struct cw_orders *all = e->orders;
    struct cw_order *o = orders_find(all, s, pass, window), **latest = &all->latest[s->shuffle->id];
    if (!o) {
        if (e->stopped && e->stopped(e->stop_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "planning was interrupted");
        if (window == CW_ORDER_CHUNKS && *latest && (*latest)->used < all->call)
            *latest = NULL; /* the order of a pass that is most likely over */
        bool needed = window == CW_ORDER_CHUNKS && !*latest;
        int r = order_make(e, s, pass, window, &o, err);
        if (r < 0)
            return r;
        if ((orders_may_keep(e, o->charged) || needed) && orders_grow(all))
            orders_keep(all, o);
    }
    if (o->kept && window == CW_ORDER_CHUNKS)
        *latest = o;
    o->used = all->call;
    o->held++;
    *ret = o;
    return 0;
}

void cw_order_put(struct cw_epoch *e, struct cw_order *o)
{
    o->held--;
    if (!o->kept && !o->held)
        order_free(e, o);
}
