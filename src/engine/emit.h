/* The last stage of a block: writes its rows into batches. */
#pragma once
#include "engine/block.h"

/* Writes the rows of a block into the slots that they were given. Mutex not held. */
int cw_emit_block(struct cw_runner *r, struct compute_thread *t, struct block *b,
                  struct cw_error *err) _must_check_;
