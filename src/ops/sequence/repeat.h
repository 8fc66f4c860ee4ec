/* A node that gives its input in several passes, for repeat and for the inputs of mix. */
#pragma once
#include "dataset/seq.h"

/* Puts a node on top of *at that gives the elements of *at `count` times; CW_ENDLESS: without end. The caller
 * sets its number of positions. NULL: out of memory, and the error is set. */
struct cw_seq *cw_repeat_wrap(struct cw_seq_build *b, struct cw_seq **at, uint64_t count);
