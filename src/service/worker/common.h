/*
 * What the parts of a worker share: its options, names and loop, and whether it drains or stops. The worker
 * (worker.c) owns it; every part has a pointer to it.
 */
#pragma once
#include "net/conn.h"
#include "net/loop.h"
#include "service/worker/log_tail.h"
#include "service/worker/worker.h"

struct cw_worker_common {
    /* immutable */
    struct cw_worker_options options;
    char name[CW_PROCESS_NAME]; /* used as options.name if no name was given */
    uint8_t incarnation[16];
    char host[80];
    struct cw_loop *loop;
    uint64_t started_ns;
    struct cw_log_tail *log_tail; /* owned; NULL: no memory */

    /* the loop's thread only */
    uint64_t id;            /* the worker's id, from the dispatcher; 0: not registered yet */
    bool draining;          /* the worker accepts no more ranges */
    bool stopping;          /* the loop ends once no stream and no connection is left */
    struct cw_post changed; /* posted by cw_common_changed; worker.c handles it */
};

/* Checks the options, draws a random incarnation, and makes the loop. *c must be all zeros. */
int cw_common_init(struct cw_worker_common *c, const struct cw_worker_options *o,
                   struct cw_error *err) _must_check_;
/* Writes a line to the log, if there is one, and adds it to the log's tail. */
void cw_common_log(const struct cw_worker_common *c, const char *format, ...) _printf_(2, 3);
/* Call after a change of streams, clients or reports. Posts `changed`: after the messages of this iteration
 * of the loop, worker.c divides the memory among streams, updates the status, and ends the loop if the worker
 * stops and nothing is left. */
void cw_common_changed(struct cw_worker_common *c);
