/* Commits the journal's entries and runs what follows from them. The end of each turn commits. */
#pragma once
#include "service/dispatcher/types.h"

/* Commits what is pending, unless a batch is under way. cw_dispatcher_committed follows. */
void cw_dp_commit(struct cw_dispatcher *d);
/* Frees pending entries and their references. */
void cw_dp_commit_deinit(struct cw_dispatcher *d);
