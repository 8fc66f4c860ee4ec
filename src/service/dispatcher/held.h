/* The reason why a job makes no progress, as its stream, the workers and the journal show it: for clients and
 * `cachew jobs`. */
#pragma once
#include <stddef.h>

#include "service/dispatcher/types.h"

/* Writes the reason why the job makes no progress to buf; "": no reason is known. j->stream is not NULL. */
void cw_dp_held_why(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size);
/* Sends the reason to each client of the job that was sent another reason before. */
void cw_dp_held_notify(struct cw_dispatcher *d, struct job *j);
