/* What the rest of net/ asks of the loop; loop thread only. */
#pragma once
#include <uv.h>

#include "net/loop.h"

/* Work to be done once before the loop waits again, however often it is asked for: sends that belong
 * together, ends of connections. */
struct cw_defer {
    struct cw_defer *next;
    void (*fn)(void *arg); /* may free what this is part of */
    void *arg;
    bool queued;
};

void cw_loop_defer(struct cw_loop *l, struct cw_defer *d);

/* 256 KiB (more than a socket gives at a time by default) that every receiver uses in turn, so that idle
 * connections have no buffers. */
#define CW_LOOP_SCRATCH ((size_t)256 << 10)
uint8_t *cw_loop_scratch(struct cw_loop *l);

uv_loop_t *cw_loop_uv(struct cw_loop *l);
/* The time at which this iteration began; after long work, later. */
uint64_t cw_loop_now_ms(struct cw_loop *l);
