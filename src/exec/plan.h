/*
 * A plan: the records of consecutive positions of an epoch, and the bytes of those records that can't be read
 * one by one (as in a compressed file). Immutable once made. Each of the engine's pieces owns one.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_exec_plan {
    uint64_t begin, n;   /* positions of the sequence */
    struct cw_ref *refs; /* n */
    /* owned memory of refs. With on_error "replace" it has all positions, from room_begin on, of the windows
     * of CW_REPLACE_POSITIONS in which the plan lies */
    struct cw_ref *room;
    uint64_t room_begin; /* position of room[0]; equal to `begin`, unless on_error is "replace" */
    /* by enumerate of the sequence: the positions of its node that the n positions come from; NULL: there is
     * no enumerate */
    uint64_t *positions;
    struct cw_tensor *raw; /* n: the loaded bytes, where a source's records can't be read one by one */
    struct cw_arena arena; /* memory of raw */
    size_t charged;        /* bytes charged to arena.budget for refs, positions and raw */
};

/* Returns the bytes that the plan of n positions takes, without the bytes of records. */
size_t cw_exec_plan_bytes(const struct cw_sequence *s, uint64_t n);
/* Sets p->refs and p->positions for positions p->begin .. p->begin + p->n - 1. No other thread may use `e`
 * meanwhile. Uses p->room if it is allocated. */
int cw_exec_plan_refs(struct cw_exec_plan *p, const struct cw_sequence *s, struct cw_epoch *e,
                      struct cw_error *err) _must_check_;
/* Loads the bytes of records of sources whose records can't be read one by one. */
int cw_exec_plan_load(struct cw_exec_plan *p, const struct cw_epoch *e, struct cw_error *err) _must_check_;
/* Frees the records and bytes, and gives back what was charged. `begin` and `n` stay. */
void cw_exec_plan_clear(struct cw_exec_plan *p);
