/* A sleep that ends soon after the block is cancelled, for the operators delay and fail. */
#pragma once
#include <errno.h>
#include <stdint.h>
#include <time.h>

#include "data/block.h"

/* Sleeps for `ns` nanoseconds (UINT64_MAX: without end). CW_E_INTERRUPTED: the block was cancelled. */
static inline int cw_fault_wait(const struct cw_block *b, uint64_t ns, struct cw_error *err)
{
    const uint64_t slice_ns = 20 * 1000 * 1000; /* how late a cancellation may be noticed */
    for (;;) {
        if (b->cancelled && b->cancelled(b->cancel_arg))
            return cw_error_set(err, CW_E_INTERRUPTED, "cancelled");
        if (ns == 0)
            return 0;
        uint64_t now = CW_MIN(ns, slice_ns);
        struct timespec t = {.tv_nsec = (long)now};
        while (nanosleep(&t, &t) < 0 && errno == EINTR)
            ;
        ns -= ns == UINT64_MAX ? 0 : now;
    }
}
