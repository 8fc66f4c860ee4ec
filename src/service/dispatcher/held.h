/* Why a job does not get on: found from its stream, its workers and the journal, for people and clients. */
#pragma once
#include <stddef.h>

#include "service/dispatcher/types.h"

/* Writes what holds the job, whose stream is not NULL; "": nothing that is known. */
void cw_dp_held_why(const struct cw_dispatcher *d, const struct job *j, char *buf, size_t size);
/* Sends the reason to the job's clients, where it changed. */
void cw_dp_held_notify(struct cw_dispatcher *d, struct job *j);
