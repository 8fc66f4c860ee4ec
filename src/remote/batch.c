#include "remote/batch.h"

#include <stdlib.h>

#include "base/thread.h"
#include "remote/internal.h"

struct remote_batch *cw_remote_batch_new(struct remote *r)
{
    struct remote_batch *b = calloc(1, sizeof(*b));
    if (b)
        b->remote = r;
    return b;
}

void cw_remote_batch_release(struct remote_batch *b)
{
    struct remote *r = b->remote;
    cw_shm_loan_users_remove(&b->loan);
    CW_GUARD(&r->mutex);
    cw_remote_batch_drop(b);
}

void cw_remote_batch_drop(struct remote_batch *b)
{
    struct remote *r = b->remote;
    if (!b->loan.n) {
        cw_batch_free(&b->b);
        return;
    }
    b->loan.next = r->released;
    r->released = &b->loan;
    if (!b->loan.next)
        cw_remote_wake(r);
}

void cw_remote_batches_free(struct shm_loan *done)
{
    while (done) {
        struct shm_loan *l = CW_POP(done);
        cw_batch_free(&CW_CONTAINER(l, struct remote_batch, loan)->b);
    }
}
