/*
 * The points, which blocks pass in order: limits count elements, and elements get their slots and each batch
 * the entry after it. After emit: marks rows as done, and gives errors their places. Mutex held throughout.
 */
#pragma once
#include "engine/block.h"

/* Takes a block past its point. 1: the block must wait until a batch is released; < 0: an error, such as no
 * memory. */
int cw_slots_pass(struct cw_runner *r, struct block *b, struct cw_error *err) _must_check_;
/* Marks the rows of a block as done in their batches. */
void cw_slots_settle(struct cw_runner *r, struct block *b);
/* Returns the entry after a short batch at the end of a range. NULL: out of memory. */
struct cw_entry *cw_slots_entry_at_end(const struct cw_runner *r, const struct cw_range *s);
