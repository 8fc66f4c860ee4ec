/* The source of splits as the iterator sees it: the consumer's thread. */
#include "client/remote_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static struct view *view_of(struct cw_splits *s) { return (struct view *)s; }
static struct remote *remote_of(struct cw_splits *s) { return view_of(s)->remote; }

/* ---- batches ---- */

/* Takes what came for the consumer's next batch. Mutex held. */
static int take_slot(struct remote *r, struct remote_split *s, struct slot *slot, struct remote_assembly *a, struct cw_error *err)
{
    if (slot->failed) {
        *err = *slot->failed;
        return err->status;
    }
    if (r->options.trace) {
        struct cw_traced what = {r->stream, s->epoch, s->index, slot->k};
        cw_trace_span(r->options.trace, "batch", &what, slot->asked_ns, cw_now_ns());
        cw_trace_span(r->options.trace, "fetch", &what, slot->asked_ns, slot->came_ns);
    }
    s->slots = slot->next;
    cw_remote_waited(r);
    a->a.batch = &slot->batch->b;
    a->a.quarantined = CW_STEAL(slot->quarantined);
    free(slot);
    size_t window = cw_remote_window(r), n = --r->n_outstanding;
    if ((r->any || n <= window / 2) && (window < 8 || n % 4 == 0)) /* several are asked for at a time */
        cw_remote_wake(r);
    return 0;
}

static int remote_next(struct cw_splits *base, struct cw_split *split, uint64_t ahead, uint64_t deadline_ns, struct cw_assembly **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    struct remote_assembly *a = cw_remote_assembly_new();
    int status = a ? 2 : cw_error_nomem(err, sizeof(*a), "a batch");
    pthread_mutex_lock(&r->mutex);
    s->none_wanted = ahead == UINT64_MAX;
    while (status == 2) {
        uint64_t n, k = s->next_k, next_wanted = s->none_wanted ? UINT64_MAX : k + ahead;
        bool known = cw_remote_split_count(s, &n);
        struct slot *slot = s->slots;
        if (known && k >= n) {
            status = 1;
        } else if (ahead == 0 && slot && slot->k == k && slot->state == HERE) {
            status = take_slot(r, s, slot, a, err);
        } else if (s->lost) {
            status = 1;
        } else if (ahead > 0 && (known || (slot && slot->k > k && slot->state == HERE))) {
            status = 0;
        } else {
            if (!s->none_wanted && s->first_wanted != next_wanted && (s->first_wanted > next_wanted || s->view->world_size == 1 || !s->view->main))
                s->first_wanted = next_wanted;
            if (!s->none_wanted && !cw_remote_slot(s, next_wanted, false)) {
                if (!cw_remote_slot(s, next_wanted, true))
                    status = cw_error_nomem(err, sizeof(struct slot), "a batch");
                cw_remote_wake(r);
            }
            if (status == 2 && (status = cw_remote_wait(r, deadline_ns, s, "a batch", err)) == 0)
                status = 2;
            cw_remote_meanwhile(r);
        }
    }
    if (status == 0) {
        s->next_k++;
        while (s->slots && s->slots->k < s->next_k) { /* not wanted after all */
            struct slot *slot = s->slots;
            s->slots = slot->next;
            r->n_outstanding--;
            pthread_mutex_unlock(&r->mutex);
            cw_slot_free(slot);
            pthread_mutex_lock(&r->mutex);
        }
    }
    pthread_mutex_unlock(&r->mutex);
    if (status != 0) {
        free(a);
        return status;
    }
    *ret = &a->a;
    return 0;
}

static uint64_t remote_remnant(struct cw_splits *base, struct cw_split *split, unsigned key)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = s->report && key < r->n_keys && !s->lost ? s->report->remnants[key] : 0;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

static void remote_drop_remnant(struct cw_splits *base CW_UNUSED, struct cw_split *split CW_UNUSED, unsigned key CW_UNUSED) {}

static void remote_release(struct cw_splits *base CW_UNUSED, struct cw_batch *b) { cw_remote_batch_release((struct remote_batch *)b); }

/* ---- splits ---- */

static int remote_open(struct cw_splits *base, uint64_t epoch, uint64_t index, uint64_t first_batch, struct cw_split **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    struct remote_split *s = cw_remote_split_new(view_of(base), epoch, index, first_batch);
    pthread_mutex_unlock(&r->mutex);
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a split");
    cw_remote_wake(r);
    *ret = (struct cw_split *)s;
    return 0;
}

/* Something of it was lost. Mutex held. */
static bool left_out(const struct remote *r, const struct remote_split *s)
{
    uint64_t n, n_left = 0;
    if (!s->lost)
        return false;
    if (!cw_remote_split_count(s, &n) || s->next_k < n)
        return true;
    for (unsigned k = 0; s->report && k < r->n_keys; k++)
        n_left += s->report->remnants[k];
    return s->n_joined < n_left;
}

static void remote_close(struct cw_splits *base, struct cw_split *split)
{
    struct remote *r = remote_of(base);
    struct remote_split *s = (struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    for (struct remote_split **at = &view_of(base)->splits; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    for (struct slot *slot = s->slots; slot; slot = slot->next)
        r->n_outstanding--;
    r->n_lost += s->view->main && left_out(r, s);
    cw_remote_hurry_parts(r, s->epoch, s->index);
    pthread_mutex_unlock(&r->mutex);
    while (s->slots) {
        struct slot *slot = s->slots;
        s->slots = slot->next;
        cw_slot_free(slot);
    }
    free(s);
    cw_remote_wake(r);
}

static void remote_passed(struct cw_splits *base, const struct cw_cursor *from)
{
    struct remote *r = remote_of(base);
    if (!view_of(base)->main)
        return;
    cw_remote_ahead_drop(r, from->epoch);
    pthread_mutex_lock(&r->mutex);
    bool moved = from->epoch != r->from.epoch || from->split != r->from.split;
    r->from = *from;
    r->finished = from->epoch >= r->options.epochs;
    pthread_mutex_unlock(&r->mutex);
    if (moved)
        cw_remote_wake(r);
}

static void remote_interrupt(struct cw_splits *base, bool on)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    r->interrupted = on;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

/* What came and was not taken goes back to the workers that lent it; the loop's thread says goodbye. */
static void remote_leave(struct cw_splits *base)
{
    struct remote *r = remote_of(base);
    struct slot *slots = NULL;
    cw_remote_ahead_drop(r, UINT64_MAX);
    pthread_mutex_lock(&r->mutex);
    for (struct view *v = &r->view; v; v = v->next)
        for (struct remote_split *s = v->splits; s; s = s->next)
            while (s->slots) {
                struct slot *slot = s->slots;
                s->slots = slot->next;
                slot->next = slots;
                slots = slot;
                r->n_outstanding--;
            }
    r->left = true;
    pthread_mutex_unlock(&r->mutex);
    while (slots) {
        struct slot *slot = slots;
        slots = slot->next;
        cw_slot_free(slot);
    }
    cw_remote_wake(r);
}

static void remote_profile(struct cw_splits *base, struct cw_profile *ret)
{
    struct remote *r = remote_of(base);
    struct cw_op_profile *ops = ret->ops;
    unsigned n = base->compiled->pipeline->n_ops;
    pthread_mutex_lock(&r->mutex);
    memcpy(ops, r->ops, n * sizeof(*ops));
    *ret = (struct cw_profile){.ops = ops, .n_ops = n, .wait_ns = r->wait_ns, .run_ns = cw_now_ns() - r->started_ns}; /* no threads here compute */
    pthread_mutex_unlock(&r->mutex);
}

uint64_t cw_remote_lost(const struct cw_splits *splits)
{
    struct remote *r = ((const struct view *)splits)->remote;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = r->n_lost;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

uint64_t cw_remote_lost_joined(const struct cw_splits *splits)
{
    struct remote *r = ((const struct view *)splits)->remote;
    pthread_mutex_lock(&r->mutex);
    uint64_t n = r->n_lost_joined;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

static void remote_fused(struct cw_splits *base, unsigned *ret)
{
    for (unsigned i = 0; i < base->compiled->pipeline->n_ops; i++)
        ret[i] = i;
}

static void remote_tuned(struct cw_splits *base, struct cw_tuned_log *ret)
{
    struct remote *r = remote_of(base);
    pthread_mutex_lock(&r->mutex);
    cw_tuned_add_all(ret, &r->tuned);
    pthread_mutex_unlock(&r->mutex);
}

static struct cw_splits *remote_free(struct cw_splits *base);
static int remote_again(struct cw_splits *base, unsigned rank, uint64_t world_size, struct cw_splits **ret, struct cw_error *err);

const struct cw_splits_ops cw_remote_ops = {
    .free = remote_free,
    .again = remote_again,
    .open = remote_open,
    .close = remote_close,
    .next = remote_next,
    .any = cw_remote_any,
    .remnant = remote_remnant,
    .drop_remnant = remote_drop_remnant,
    .join_new = cw_remote_join_new,
    .join = cw_remote_join,
    .remnants = cw_remote_remnants,
    .join_ahead = cw_remote_join_ahead,
    .claim = cw_remote_claim,
    .finish = cw_remote_finish,
    .take = cw_remote_take,
    .drop = cw_remote_drop,
    .leave = remote_leave,
    .release = remote_release,
    .interrupt = remote_interrupt,
    .passed = remote_passed,
    .profile = remote_profile,
    .fused = remote_fused,
    .tuned = remote_tuned,
};

/* ---- views: the iterator's, and those that repeat a batch ---- */

static int remote_again(struct cw_splits *base, unsigned rank, uint64_t world_size, struct cw_splits **ret, struct cw_error *err)
{
    struct remote *r = remote_of(base);
    struct view *v = calloc(1, sizeof(*v));
    if (!v)
        return cw_error_nomem(err, sizeof(*v), "splits");
    *v = (struct view){.base = *base, .remote = r, .rank = rank, .world_size = world_size};
    pthread_mutex_lock(&r->mutex);
    v->next = r->view.next;
    r->view.next = v;
    pthread_mutex_unlock(&r->mutex);
    *ret = &v->base;
    return 0;
}

static struct cw_splits *remote_free(struct cw_splits *base)
{
    struct view *v = view_of(base);
    struct remote *r = v->remote;
    while (v->splits)
        remote_close(base, (struct cw_split *)v->splits);
    if (v->main) {
        cw_remote_ahead_drop(r, UINT64_MAX);
        cw_remote_deinit(r);
        return NULL;
    }
    pthread_mutex_lock(&r->mutex);
    for (struct view **at = &r->view.next; *at; at = &(*at)->next)
        if (*at == v) {
            *at = v->next;
            break;
        }
    pthread_mutex_unlock(&r->mutex);
    free(v);
    return NULL;
}
