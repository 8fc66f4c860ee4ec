/* Order "any": what is there first of several splits, and requests to several workers, none of which may use up what is meant for all. */
#include "client/remote_impl.h"

/* ---- what is there: the consumer's thread ---- */

/* Mutex held. */
static bool split_ready(const struct remote_split *s)
{
    uint64_t n;
    if (s->lost || (cw_remote_split_count(s, &n) && s->next_k >= n))
        return true;
    return !s->none_wanted && s->slots && s->slots->k == s->next_k && s->slots->state == HERE;
}

/* Mutex held. All parts are here; or one never will be, so that nothing is to be waited for. */
static bool joined_ready(const struct remote_assembly *a)
{
    bool here = true;
    for (const struct part *p = a->parts; p; p = p->next) {
        if (p->lost)
            return true;
        here &= p->state == HERE;
    }
    return here;
}

int cw_remote_any(struct cw_splits *base, struct cw_split *const *splits, unsigned n, const struct cw_assembly *joined, uint64_t deadline_ns, unsigned *ret,
                  struct cw_error *err)
{
    struct remote *r = ((struct view *)base)->remote;
    bool asked = false;
    int status = 0;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        unsigned i = n;
        if (!joined || !joined_ready((const struct remote_assembly *)joined))
            for (i = 0; i < n && !split_ready((const struct remote_split *)splits[i]); i++)
                ;
        if (i < n || (joined && joined_ready((const struct remote_assembly *)joined))) {
            *ret = i;
            break;
        }
        if (!asked) /* what was taken made room */
            cw_remote_wake(r);
        asked = true;
        status = cw_remote_wait(r, deadline_ns, n ? (const struct remote_split *)splits[0] : NULL, n ? "a batch" : "what is left over of a split", err);
        if (status < 0)
            break;
    }
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* ---- what is asked for: the loop's thread, mutex held ---- */

static bool gives_more(const struct remote_split *s)
{
    uint64_t n;
    return !s->none_wanted && !s->lost && s->worker && !(cw_remote_split_count(s, &n) && s->next_k >= n);
}

/* The window is shared out among the workers that have splits: one that stands still keeps its share, and no more. An earlier split comes before a later one, whose
 * batches may not be handed out yet, so that the earlier one always gets its turn. */
void cw_remote_want_any(struct remote *r, struct view *v)
{
    size_t n_workers = 0, share;
    for (struct link *l = r->links; l; l = l->next)
        l->n_wanted = SIZE_MAX;
    for (struct remote_split *s = v->splits; s; s = s->next) {
        struct link *l = gives_more(s) ? cw_remote_link(r, s->worker) : NULL;
        n_workers += l && l->n_wanted == SIZE_MAX;
        if (l)
            l->n_wanted = 0;
    }
    share = CW_MAX(cw_remote_window(r) / CW_MAX(n_workers, (size_t)1), (size_t)1);
    for (struct remote_split *s = v->splits; s; s = s->next) {
        struct link *l = gives_more(s) ? cw_remote_link(r, s->worker) : NULL;
        uint64_t n, last = s->next_k + share;
        if (!l)
            continue;
        if (cw_remote_split_count(s, &n))
            last = CW_MIN(last, n);
        for (const struct slot *slot = s->slots; slot; slot = slot->next)
            l->n_wanted++;
        for (uint64_t k = s->next_k; k < last && l->n_wanted < share; k++) {
            if (cw_remote_slot(s, k, false))
                continue;
            if (!cw_remote_slot(s, k, true))
                return; /* no memory: another time */
            l->n_wanted++;
        }
    }
}
