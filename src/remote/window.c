/* The number of batches that a client requests from workers at a time (credits, the window), chosen by the
 * size of batches. Changes struct window, which is part of struct remote; the files of src/remote call it
 * with r->mutex held. */
#include "remote/window.h"

#include "base/macro.h"

/* Limits of the window: the bytes of the outstanding batches, and their smallest and largest number. Batches
 * in shared memory (loans) use no memory of this process, and sending one takes the same time whatever its
 * size, so more bytes are allowed. With a window of two loans, client and worker lose time waiting for each
 * other. */
#define BYTES ((size_t)64 << 20)
#define LOAN_BYTES ((size_t)256 << 20)
#define LEAST 2
#define LOAN_LEAST 4
#define MOST 64
#define FIRST 4 /* window until the first batch has arrived */

static size_t window_bytes(const struct window *w)
{
    return w->loans_only ? LOAN_BYTES : BYTES;
}

static size_t window_least(const struct window *w)
{
    return w->loans_only ? LOAN_LEAST : LEAST;
}

size_t cw_window_size(const struct window *w)
{
    if (w->credits)
        return w->credits;
    return w->batch_bytes ? CW_MIN(CW_MAX(window_bytes(w) / w->batch_bytes, window_least(w)), MOST) : FIRST;
}

void cw_window_received(struct window *w, size_t bytes, bool shm_loan)
{
    w->loans_only = shm_loan && (w->loans_only || !w->batch_bytes);
    w->batch_bytes = CW_MAX(w->batch_bytes, bytes);
    size_t now = cw_window_size(w), by_bytes = w->batch_bytes ? window_bytes(w) / w->batch_bytes : MOST;
    if (w->credits || now == w->recorded)
        return;
    w->recorded = now;
    const struct cw_tuned t = {
        .what = "credits",
        .seen = {{"batch_bytes", (double)w->batch_bytes}, {"lent", w->loans_only}},
        .others = {{"bytes", (double)by_bytes}, {"least", (double)window_least(w)}, {"most", MOST}},
        .chosen = (double)now,
        .why = now == by_bytes ? "this many batches fill the memory for batches that are requested in advance"
               : now == MOST
                   ? "this is the largest number: more batches in advance would not keep a worker busier"
                   : "batches are large: this is the smallest number with which a worker gets its next "
                     "request before the client takes the current batch",
    };
    cw_tuned_add(&w->tuned, &t);
}
