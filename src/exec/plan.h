/*
 * A plan: the records of consecutive positions of an epoch, and their bytes where a source cannot be entered
 * at a record. Immutable once made. The engine's pieces own one each.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_exec_plan {
    uint64_t begin, n;   /* positions of the sequence */
    struct cw_ref *refs; /* n */
    /* owned: refs, and with on_error "replace" all of the windows of CW_REPLACE_POSITIONS that they lie in,
     * from room_begin on */
    struct cw_ref *room;
    uint64_t room_begin;   /* position of the sequence; begin, unless records are replaced */
    struct cw_tensor *raw; /* n, where a source can't be entered at a record */
    struct cw_arena arena; /* of raw */
    size_t charged;        /* bytes of arena.budget that refs and raw take */
};

/* Bytes that the plan of n positions takes, without the records' own. */
size_t cw_exec_plan_bytes(const struct cw_sequence *s, uint64_t n);
/* Fills in p->refs, for positions p->begin .. p->begin + p->n - 1. `e` is used by the caller alone. Uses
 * p->room where it is there already. */
int cw_exec_plan_refs(struct cw_exec_plan *p, const struct cw_sequence *s, struct cw_epoch *e,
                      struct cw_error *err) _must_check_;
/* Reads the bytes of records of sources that can't be entered at a record. */
int cw_exec_plan_load(struct cw_exec_plan *p, const struct cw_epoch *e, struct cw_error *err) _must_check_;
/* Frees what was planned, and gives back what was charged. Positions stay. */
void cw_exec_plan_clear(struct cw_exec_plan *p);
