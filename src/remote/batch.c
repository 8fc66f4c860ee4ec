/* Batches that arrived. A fetch owns the batch until an assembly takes it; later the user releases it.
 * Released batches in shared memory wait for the loop's thread, which returns them to their worker. */
#include "remote/batch.h"

#include "base/thread.h"
#include "remote/internal.h"

void cw_remote_batch_release(struct remote *r, struct cw_batch *b)
{
    cw_shm_loan_users_remove(b->memory);
    CW_GUARD(&r->mutex);
    cw_remote_batch_drop(r, b);
}

void cw_remote_batch_drop(struct remote *r, struct cw_batch *b)
{
    struct shm_loan *l = b->memory;
    if (!l) {
        cw_batch_free(b);
        return;
    }
    l->next = r->released;
    r->released = l;
    if (!l->next)
        cw_remote_wake(r);
}

void cw_remote_batches_free(struct shm_loan *done)
{
    while (done)
        cw_batch_free(CW_POP(done)->batch); /* frees the loan, too */
}
