/* The loop's interface for the rest of net/. Loop thread only. */
#pragma once
#include <uv.h>

#include "net/loop.h"

/* Work that is done once before the loop waits again, however often it is deferred: sending frames together,
 * ending connections. */
struct cw_defer {
    struct cw_defer *next;
    void (*fn)(void *arg); /* may free the struct that contains this */
    void *arg;
    bool queued;
};

void cw_loop_defer(struct cw_loop *l, struct cw_defer *d);

/* Memory that all receivers use in turn, so that idle connections need no buffers. 256 KiB are more than a
 * socket gives at a time by default. */
#define CW_LOOP_SCRATCH ((size_t)256 << 10)
uint8_t *cw_loop_scratch(struct cw_loop *l);

uv_loop_t *cw_loop_uv(struct cw_loop *l);
/* Returns the time at which this iteration began, updated after long work. */
uint64_t cw_loop_now_ms(struct cw_loop *l);
