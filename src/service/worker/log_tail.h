/* The newest lines of the worker's log, until a heartbeat takes them to the dispatcher. Belongs to common.c;
 * any thread may call. */
#pragma once
#include <pthread.h>
#include <stddef.h>

#define CW_LOG_LINES 8
#define CW_LOG_BYTES 256 /* of a line, with its 0; the rest is cut */

struct cw_log_lines {
    size_t n;
    char text[CW_LOG_LINES][CW_LOG_BYTES];
};

struct cw_log_tail {
    pthread_mutex_t mutex; /* guards the fields below */
    size_t n;              /* lines since the last take; the newest CW_LOG_LINES are kept */
    char text[CW_LOG_LINES][CW_LOG_BYTES];
};

/* NULL: no memory. */
struct cw_log_tail *cw_log_tail_new(void);
/* Accepts NULL, returns NULL. */
struct cw_log_tail *cw_log_tail_free(struct cw_log_tail *t);
/* Does nothing if t is NULL. */
void cw_log_tail_add(struct cw_log_tail *t, const char *line);
/* Moves the lines to ret, oldest first. */
void cw_log_tail_take(struct cw_log_tail *t, struct cw_log_lines *ret);
