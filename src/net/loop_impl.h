/* The loop's interface for the rest of net/. Loop thread only. */
#pragma once
#include <uv.h>

#include "net/loop.h"

/* Work that runs once before the loop waits again, however often it was deferred until then. Connections use
 * it to send queued frames together, and to be freed. */
struct cw_defer {
    struct cw_defer *next;
    void (*fn)(void *arg); /* may free the struct that contains this */
    void *arg;
    bool queued;
};

void cw_loop_defer(struct cw_loop *l, struct cw_defer *d);

/* A buffer that all receiving connections use in turn, so that idle connections need none. By default, a read
 * from a socket returns less than 256 KiB. */
#define CW_LOOP_SCRATCH ((size_t)256 << 10)
uint8_t *cw_loop_scratch(struct cw_loop *l);

uv_loop_t *cw_loop_uv(struct cw_loop *l);
/* Returns the loop's clock in ms. It is read when an iteration begins, and again after long work. */
uint64_t cw_loop_now_ms(struct cw_loop *l);
