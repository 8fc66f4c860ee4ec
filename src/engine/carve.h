/* Cuts ranges into pieces, and pieces into blocks, with batches for their rows where these follow from
 * positions. Mutex held. */
#pragma once
#include "engine/block.h"

/* The next piece to plan, of *ret_range; NULL: none now. */
struct piece *cw_carve_piece(struct cw_runner *r, struct cw_range **ret_range);
/* The next block; NULL: none now. */
struct block *cw_carve_block(struct cw_runner *r);
/* Adds a tuning record: how many blocks may be in flight. */
void cw_carve_record(struct cw_runner *r);
