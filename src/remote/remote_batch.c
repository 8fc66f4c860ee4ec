/* Batches that came: in slabs of ours, or lent by a worker on this host. Any thread. */
#include <stdlib.h>

#include "base/thread.h"
#include "remote/remote_impl.h"

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
    cw_remote_users_remove(b);
    CW_GUARD(&r->mutex);
    cw_remote_batch_drop(b);
}

void cw_remote_batch_drop(struct remote_batch *b)
{
    struct remote *r = b->remote;
    if (!b->n_lent) {
        cw_batch_free(&b->b);
        return;
    }
    b->next = r->returned;
    r->returned = b;
    if (!b->next)
        cw_remote_wake(r);
}
