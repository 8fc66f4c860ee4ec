/*
 * What the parts of a worker share: its options, its names, its loop, and how far its life has come. The
 * worker (worker.c) owns it; every part has a pointer to it.
 */
#pragma once
#include "net/loop.h"
#include "service/worker/worker.h"

struct cw_worker_common {
    /* immutable */
    struct cw_worker_options options;
    char name[160]; /* options.name, where none was given */
    uint8_t incarnation[16];
    char host[80];
    struct cw_loop *loop;
    uint64_t started_ns;

    /* the loop's thread only */
    uint64_t id;            /* the dispatcher's name for the worker; 0: none yet */
    bool draining;          /* no more ranges are taken */
    bool stopping;          /* the loop ends once no stream and no connection is left */
    struct cw_post changed; /* of worker.c */
};

/* Checks options, draws an incarnation, and makes the loop. c is zeros. */
int cw_common_init(struct cw_worker_common *c, const struct cw_worker_options *o,
                   struct cw_error *err) _must_check_;
void cw_common_log(const struct cw_worker_common *c, const char *format, ...) _printf_(2, 3);
/* Posts `changed`: once the messages at hand are handled, worker.c divides the memory among streams, updates
 * the status, and ends the loop if the worker stops and nothing is left. */
void cw_common_changed(struct cw_worker_common *c);
