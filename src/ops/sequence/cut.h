/* A run of neighbouring positions of an input: what take and skip leave, and repeat behind batches. */
#pragma once
#include "dataset/seq.h"
#include "pipeline/roles.h"

/* Puts a node with positions [from, from + n) of *at on it; they must lie within. */
int cw_cut_build(struct cw_seq_build *b, struct cw_seq **at, uint64_t from, uint64_t n) _must_check_;
/* The attribute `count` in elements, where it counts batches too; at most CW_ENDLESS. */
uint64_t cw_cut_count(const struct cw_seq_build *b, const struct cw_node *node, bool batched);
