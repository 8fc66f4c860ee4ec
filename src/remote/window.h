/*
 * The window: how many batches may be wanted and not yet taken, so that a worker always has a request and
 * memory stays bounded. Part of struct remote, whose mutex guards it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/tuned.h"

struct window {
    unsigned credits;     /* the user's number; 0: the window follows from the size of batches. Immutable */
    size_t n_outstanding; /* slots: batches that are wanted and not taken */
    size_t batch_bytes;   /* of the largest batch that arrived; 0: none did */
    bool loans_only;      /* every batch so far was a shm_loan: no memory of this process */
    size_t recorded;      /* the size that the tuning record has last */
    struct cw_tuned_log tuned;
};

/* Returns the number of batches that may be outstanding. */
size_t cw_window_size(const struct window *w);
/* A batch of that many bytes arrived: adapts the window, and records a new size. */
void cw_window_received(struct window *w, size_t bytes, bool shm_loan);
