/* Padding: repeats batches of an epoch that is over, so that all ranks have equally many batches. */
#include <inttypes.h>
#include <poll.h>

#include "order/iterator_impl.h"

#include "base/crash.h"
#include "base/thread.h"

/* Makes it->again, an iterator over an epoch that is over, as rank `rank` of world_size, unless it exists
 * already. */
static int padding_open(struct cw_iterator *it, uint64_t epoch, unsigned rank, uint64_t world_size,
                        struct cw_error *err)
{
    struct cw_iterator_options o = it->options;
    struct cw_iterator *again;
    struct cw_producer *producer;
    if (it->again)
        return 0;
    o.unordered = false;
    o.rank = rank;
    o.world_size = (unsigned)world_size;
    o.first_epoch = epoch;
    o.epochs = epoch + 1;
    int r = it->producer->ops->again(it->producer, o.rank, o.world_size, &producer, err);
    if (r < 0 || (r = cw_iterator_over(producer, &o, NULL, &again, err)) < 0)
        return r;
    CW_GUARD(&it->mutex);
    if (it->interrupted)
        cw_iterator_interrupt(again, true);
    it->again = again;
    if (cw_mutated("late"))
        (void)poll(NULL, 0, 300);
    return 0;
}

int cw_padding_take(struct cw_iterator *it, uint64_t epoch, uint64_t g, uint64_t j, uint64_t deadline_ns,
                    struct cw_error *err)
{
    struct cw_batch *b, *copy = NULL;
    int r = padding_open(it, epoch, (unsigned)j, j + 1, err);
    if (r < 0)
        return r;
    r = cw_iterator_offer(it->again, deadline_ns, &b, err);
    if (r == 0) {
        cw_iterator_accept(it->again);
        r = cw_batch_copy(b, &copy, err);
        cw_iterator_release(it->again, b);
    }
    if (r > 0)
        r = cw_error_set(err, CW_E_BUG,
                         "epoch %" PRIu64 " was computed again to pad the batches of a rank, and gave fewer "
                         "batches than before; this is a defect of Cachew, please report it",
                         epoch);
    /* the next call starts with a new iterator, because this one may have accepted the batch already */
    if (r < 0) {
        if (r != CW_E_DEADLINE && r != CW_E_INTERRUPTED)
            cw_iterator_free(CW_LOCKED(&it->mutex, CW_STEAL(it->again)));
        return r;
    }
    copy->epoch = epoch;
    copy->g = g;
    copy->flags |= CW_RECORD_PADDING;
    for (uint32_t i = 0; i < copy->n; i++)
        copy->ids[i].flags |= CW_RECORD_PADDING;
    it->own = copy;
    cw_iterator_free(CW_LOCKED(&it->mutex, CW_STEAL(it->again)));
    return 0;
}
