/* A node with consecutive positions of its input, for take and skip, and for repeat after a batcher. */
#pragma once
#include "dataset/seq.h"
#include "pipeline/roles.h"

/* Puts a node on top of *at (see cw_seq_wrap) that has the positions [from, from + n) of *at. These must
 * exist. */
int cw_cut_build(struct cw_seq_build *b, struct cw_seq **at, uint64_t from, uint64_t n) _must_check_;
/* The attribute `count` of take, skip or repeat as a number of elements; batched: the attribute counts
 * batches. At most CW_ENDLESS. */
uint64_t cw_cut_count(const struct cw_seq_build *b, const struct cw_node *node, bool batched);
