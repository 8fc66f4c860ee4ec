/* A piece: positions of a range that are planned together, piece_size of them, from a multiple of it on. */
#pragma once
#include "exec/plan.h"

struct compute_thread;
struct cw_range;
struct cw_runner;
struct read_in;

struct piece {
    struct piece *next;
    struct cw_exec_plan plan;
    bool planned;
    bool cut;                /* the stream gave fewer elements than were asked for; none: it is over */
    unsigned variant;        /* of the cache, for its blocks: the one in use when it was planned */
    uint8_t *kept;           /* by position: the cache has it; NULL: not looked up */
    uint64_t carved;         /* positions that have a block, or are not wanted */
    unsigned users;          /* blocks in flight, and a thread that plans it */
    struct read_in *read_in; /* chunks of files that are read before it counts as planned; NULL: none */
};

/* Plans the piece: its records, what the cache has of them, and their bytes where a source can't be entered
 * at a record. Mutex not held. Where it fails, p is to be unplanned. */
int cw_piece_plan(struct cw_runner *r, struct compute_thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err) _must_check_;
void cw_piece_unplan(struct piece *p);
struct piece *cw_piece_free(struct piece *p);
/* Makes two pieces of one that is not planned, for whose plan there is no memory. False: it can't be divided,
 * or there is no memory for that either. Mutex held. */
bool cw_piece_halve(struct cw_runner *r, struct piece *p);
