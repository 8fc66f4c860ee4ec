/* Nodes whose children (inputs) give their positions in turn, each in its own order (mix, interleave). */
#pragma once
#include "dataset/seq.h"

/* Stores in inputs[k] the child that position begin + k of s comes from, for k < n, and in counts[i] how many
 * of the positions before `begin` come from child i. */
typedef int (*cw_turns_fill)(const struct cw_seq *s, uint64_t begin, uint64_t n, uint16_t *inputs,
                             uint64_t *counts, struct cw_error *err);

/* cw_seq_ops.refs of such a node. */
int cw_turns_refs(struct cw_epoch *e, const struct cw_seq *s, cw_turns_fill fill, uint64_t begin, uint64_t n,
                  uint64_t pass, struct cw_ref *ret, struct cw_error *err) _must_check_;
/* The end of cw_seq_ops.lookup: inputs[k] is the child of l->refs[index[k]], whose row is the position of
 * that child. Reorders both. */
int cw_turns_lookup(struct cw_lookup *l, const struct cw_seq *s, uint32_t *index, uint32_t *inputs,
                    uint64_t n) _must_check_;
/* cw_seq_ops.chunks of such a node. */
void cw_turns_chunks(const struct cw_seq *s, uint64_t from, uint64_t to, struct cw_chunks *ret);
/* Makes *at a node of `size` bytes whose children are the chains of an operator. */
int cw_turns_build(struct cw_seq_build *b, const struct cw_node *node, const struct cw_seq_ops *ops,
                   size_t size, struct cw_seq **at) _must_check_;
