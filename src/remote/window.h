/* The window: how many batches may be outstanding (requested by the plan, and not yet taken by the consumer).
 * It must be large enough that a worker always has a request, and small enough to limit memory. Part of
 * struct remote, whose mutex guards it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/tuned.h"

struct window {
    unsigned credits; /* the size that the user set; 0: the window adapts to the size of batches. Immutable */
    size_t n_outstanding; /* number of slots: batches that are wanted and not taken */
    size_t batch_bytes;   /* size of the largest batch so far; 0: none has arrived */
    bool loans_only;      /* all batches so far came in shared memory */
    size_t recorded;      /* the size in the last tuning record */
    struct cw_tuned_log tuned;
};

/* Returns the number of batches that may be outstanding. */
size_t cw_window_size(const struct window *w);
/* Call when a batch arrived: adapts the window, and adds a tuning record if its size changed. shm_loan: it
 * came in shared memory. */
void cw_window_received(struct window *w, size_t bytes, bool shm_loan);
