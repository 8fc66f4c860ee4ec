/* Commits the journal's entries, and runs their actions once they are durable. Each turn commits. */
#pragma once
#include "service/dispatcher/types.h"

/* Commits the pending entries, unless a batch is being committed. The store calls cw_dispatcher_committed
 * when it is done. */
void cw_dp_commit(struct cw_dispatcher *d);
/* Frees pending entries and their references. */
void cw_dp_commit_deinit(struct cw_dispatcher *d);
