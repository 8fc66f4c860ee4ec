/*
 * Joined batches before their turn, where operators on batches follow, which may take long: what splits left over is fetched, put together, and given to the operators, while
 * batches before it are waited for or used. Each call has a thread of its own; they are begun by the consumer's, whenever it asks for a batch or waits. When the turn of a
 * batch comes, what there is of it is taken, and the rest done as ever. All here but the parts is the consumer's.
 */
#include <stdlib.h>
#include <string.h>

#include "client/remote_impl.h"

#include "engine/ahead.h"
#include "engine/batch_ops.h"

/* Under way at a time: as many as there are CPUs to call functions, but no more than may be asked for, and than these. */
#define AHEAD_MOST 16

struct piece { /* of what a split left over; the key is the batch's */
    uint64_t epoch, split, from, n;
};

struct remote_ahead {
    struct remote_ahead *next;
    struct cw_joined_name name;
    struct cw_assembly *whole; /* put together; NULL: not all parts are here */
    unsigned n;
    struct piece pieces[];
};

static bool same(const struct cw_joined_name *a, const struct cw_joined_name *b)
{
    return a->epoch == b->epoch && a->split == b->split && a->key == b->key && a->end == b->end;
}

/* Mutex held. */
static struct part *find_part(const struct remote *r, const struct piece *x, unsigned key)
{
    struct part *p = r->parts;
    while (p && (p->epoch != x->epoch || p->split != x->split || p->key != key || p->from != x->from || p->n != x->n))
        p = p->next_known;
    return p;
}

static void ahead_free(struct remote_ahead *j)
{
    if (j->whole)
        cw_batch_call_drop(j->whole);
    cw_assembly_free(j->whole);
    free(j);
}

bool cw_remote_remnants(struct cw_splits *base, struct cw_split *split, uint64_t *ret_sizes)
{
    struct remote *r = ((struct view *)base)->remote;
    const struct remote_split *s = (const struct remote_split *)split;
    pthread_mutex_lock(&r->mutex);
    bool known = s->report && !s->lost;
    for (unsigned k = 0; known && k < r->n_keys; k++)
        ret_sizes[k] = s->report->remnants[k];
    pthread_mutex_unlock(&r->mutex);
    return known;
}

/* ---- beginning ---- */

static unsigned count_pieces(const struct cw_joined_part *parts, unsigned n_parts)
{
    unsigned n = 0;
    for (unsigned i = 0; i < n_parts; i++) {
        if (!parts[i].waiting)
            n++;
        for (const struct part *p = parts[i].waiting ? ((const struct remote_assembly *)parts[i].waiting)->parts : NULL; p; p = p->next)
            n++;
    }
    return n;
}

static void name_pieces(struct remote_ahead *j, const struct cw_joined_part *parts, unsigned n_parts)
{
    for (unsigned i = 0; i < n_parts; i++) {
        const struct remote_split *s = (const struct remote_split *)parts[i].split;
        if (!parts[i].waiting)
            j->pieces[j->n++] = (struct piece){.epoch = s->epoch, .split = s->index, .from = parts[i].from, .n = parts[i].n};
        for (const struct part *p = parts[i].waiting ? ((const struct remote_assembly *)parts[i].waiting)->parts : NULL; p; p = p->next)
            j->pieces[j->n++] = (struct piece){.epoch = p->epoch, .split = p->split, .from = p->from, .n = p->n};
    }
}

/* Parts that nobody asked for yet are, and wait in r->early for the batch that they are joined in. Mutex held. */
static bool ask_for_parts(struct remote *r, const struct remote_ahead *j)
{
    for (unsigned i = 0; i < j->n; i++) {
        const struct piece *x = &j->pieces[i];
        if (find_part(r, x, j->name.key))
            continue;
        struct part *p = calloc(1, sizeof(*p));
        if (!p)
            return false;
        *p = (struct part){.next = r->early, .next_known = r->parts, .epoch = x->epoch, .split = x->split, .from = x->from, .n = x->n, .key = j->name.key, .wanted = true};
        r->early = r->parts = p;
        cw_remote_wake(r);
    }
    return true;
}

/* Several ranks: which of the batches will be this one's is known only when they are numbered. */
bool cw_remote_join_ahead(struct cw_splits *base, const struct cw_joined_name *name, const struct cw_joined_part *parts, unsigned n_parts)
{
    const struct view *v = (const struct view *)base;
    struct remote *r = v->remote;
    struct remote_ahead **at = &r->ahead;
    unsigned n = 0;
    if (!v->main || v->world_size != 1)
        return false;
    for (; *at; at = &(*at)->next, n++)
        if (same(&(*at)->name, name))
            return true;
    pthread_mutex_lock(&r->mutex);
    size_t most = CW_MIN(CW_MIN(cw_remote_window(r), (size_t)r->n_cpus + 1), (size_t)AHEAD_MOST);
    pthread_mutex_unlock(&r->mutex);
    struct remote_ahead *j = n < most ? calloc(1, sizeof(*j) + count_pieces(parts, n_parts) * sizeof(j->pieces[0])) : NULL;
    if (!j)
        return false;
    j->name = *name;
    name_pieces(j, parts, n_parts);
    pthread_mutex_lock(&r->mutex);
    bool asked = ask_for_parts(r, j);
    pthread_mutex_unlock(&r->mutex);
    if (!asked) {
        ahead_free(j);
        return false;
    }
    *at = j;
    cw_remote_ahead_go_on(r);
    return true;
}

/* ---- going on ---- */

/* Puts a batch together if all of it is here. */
static void put_together(struct remote *r, struct remote_ahead *j)
{
    _cleanup_free_ struct part **parts = malloc(j->n * sizeof(struct part *));
    struct cw_error err = {0};
    bool here = parts != NULL;
    pthread_mutex_lock(&r->mutex);
    for (unsigned i = 0; i < j->n && here; i++) {
        parts[i] = find_part(r, &j->pieces[i], j->name.key);
        here = parts[i] && parts[i]->state == HERE && !parts[i]->failed;
    }
    pthread_mutex_unlock(&r->mutex); /* what is here stays as it is, and is freed by this thread alone */
    if (here)
        (void)cw_remote_put_together(r, j->name.key, parts, j->n, &j->whole, &err); /* if it fails, it fails again when its turn comes */
}

/* The first call, and each that follows one that is over. What one fails with is met when the batch's turn comes. */
static void call_on(struct remote *r, struct remote_ahead *j)
{
    struct cw_assembly *a = j->whole;
    struct cw_error err = {0};
    int status = 0;
    if (a->error || a->n_applied == r->compiled->n_batch_ops || (a->call && !cw_batch_call_over(a)))
        return;
    if (a->call) {
        pthread_mutex_lock(&r->mutex);
        cw_batch_call_count(a, r->ops);
        pthread_mutex_unlock(&r->mutex);
        status = cw_remote_call_end(r, a, &err);
    }
    if (status == 0 && a->n_applied < r->compiled->n_batch_ops)
        status = cw_remote_call_begin(r, a, j->name.epoch, &err);
    if (status < 0)
        cw_assembly_poison(a, &err, 0);
}

void cw_remote_ahead_go_on(struct remote *r)
{
    for (struct remote_ahead *j = r->ahead; j; j = j->next) {
        if (!j->whole)
            put_together(r, j);
        if (j->whole)
            call_on(r, j);
    }
}

void cw_remote_meanwhile(struct remote *r)
{
    if (!r->ahead)
        return;
    pthread_mutex_unlock(&r->mutex);
    cw_remote_ahead_go_on(r);
    pthread_mutex_lock(&r->mutex);
}

/* ---- its turn ---- */

struct part *cw_remote_early(struct remote *r, uint64_t epoch, uint64_t split, unsigned key, uint64_t from, uint64_t n)
{
    for (struct part **at = &r->early; *at; at = &(*at)->next) {
        struct part *p = *at;
        if (p->epoch == epoch && p->split == split && p->key == key && p->from == from && p->n == n) {
            *at = p->next;
            p->next = NULL;
            return p;
        }
    }
    return NULL;
}

void cw_remote_claim(struct cw_splits *base, const struct cw_joined_name *name, struct cw_assembly *a)
{
    struct remote *r = ((struct view *)base)->remote;
    for (struct remote_ahead **at = &r->ahead; *at; at = &(*at)->next)
        if (same(&(*at)->name, name)) {
            struct remote_ahead *j = *at;
            *at = j->next;
            ((struct remote_assembly *)a)->whole = CW_STEAL(j->whole);
            ahead_free(j);
            return;
        }
}

void cw_remote_ahead_drop(struct remote *r, uint64_t before_epoch)
{
    for (struct remote_ahead **at = &r->ahead; *at;) {
        struct remote_ahead *j = *at;
        if (j->name.epoch >= before_epoch) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        ahead_free(j);
    }
    for (struct part **at = &r->early; *at;) {
        struct part *p = *at;
        if (p->epoch >= before_epoch) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        cw_remote_part_free(r, p);
    }
}
