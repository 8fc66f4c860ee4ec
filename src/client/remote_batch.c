/* Batches that came: in slabs of ours, or lent by a worker on this host. Any thread. */
#include <stdlib.h>

#include "client/remote_impl.h"

struct remote_batch *cw_remote_batch_new(struct remote *r)
{
    struct remote_batch *b = calloc(1, sizeof(*b));
    if (b)
        b->remote = r;
    return b;
}

/* What is lent goes back by the loop's thread. */
void cw_remote_batch_release(struct remote_batch *b)
{
    struct remote *r = b->remote;
    if (!b->n_lent) {
        cw_batch_free(&b->b);
        return;
    }
    cw_remote_users_remove(b);
    pthread_mutex_lock(&r->mutex);
    b->next = r->returned;
    r->returned = b;
    bool first = !b->next;
    pthread_mutex_unlock(&r->mutex);
    if (first)
        cw_loop_post(r->loop, &r->wake);
}

void cw_slot_free(struct slot *s)
{
    if (s->batch)
        cw_remote_batch_release(s->batch);
    cw_quarantined_free(s->quarantined);
    free(s->failed);
    free(s);
}
