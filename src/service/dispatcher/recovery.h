/* Restores the dispatcher from its journal, entry by entry (cw_dispatcher_load in core.h). A damaged entry is
 * left out, with the entries that depend on it. */
#pragma once
#include "service/dispatcher/types.h"

/* Call when all entries are read. Drops pipelines without a stream, and ends the jobs that can't go on
 * because of damaged entries. */
void cw_dp_recovery_end(struct cw_dispatcher *d);
