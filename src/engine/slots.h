/*
 * Points that blocks pass in order: limits count elements, and slots are given out, with the entry behind
 * each batch. After emit: rows are done, and faults find their place. Mutex held throughout.
 */
#pragma once
#include "engine/block.h"

/* Takes a block past its point. 1: it has to wait for a batch to be released; < 0: memory. */
int cw_slots_pass(struct cw_runner *r, struct block *b, struct cw_error *err) _must_check_;
/* Rows of the block are done. */
void cw_slots_settle(struct cw_runner *r, struct block *b);
/* The entry behind a batch of what is left over at a range's end. NULL: out of memory. */
struct cw_entry *cw_slots_entry_at_end(const struct cw_runner *r, const struct cw_range *s);
