/* Restores the dispatcher from its journal, row by row (cw_dispatcher_load). A damaged entry is left out and
 * costs no more than what rests on it. */
#pragma once
#include "service/dispatcher/types.h"

/* All rows were read: drops pipelines without a stream, and ends the jobs that damaged entries cost. */
void cw_dp_recovery_end(struct cw_dispatcher *d);
