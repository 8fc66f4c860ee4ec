/* The last stage of a block: its rows go into batches. */
#pragma once
#include "engine/block.h"

/* Mutex not held. */
int cw_emit_block(struct cw_runner *r, struct compute_thread *t, struct block *b,
                  struct cw_error *err) _must_check_;
