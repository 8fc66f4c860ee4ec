/* Cuts ranges into pieces and pieces into blocks. In counted pipelines it also gives blocks their batches and
 * slots, which follow from positions. Mutex held. */
#pragma once
#include "engine/block.h"

/* Returns the next piece to plan, and sets *ret_range to its range; NULL: there is none now. */
struct piece *cw_carve_piece(struct cw_runner *r, struct cw_range **ret_range);
/* Returns the next block; NULL: there is none now. */
struct block *cw_carve_block(struct cw_runner *r);
/* Adds a tuning record about the number of blocks that may be in flight. */
void cw_carve_record(struct cw_runner *r);
