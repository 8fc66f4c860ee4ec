/* A piece: at most piece_size positions of a range, which are planned together. It ends at a multiple of
 * piece_size, or where the range ends. */
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
    /* the stream gave fewer elements than were requested; if it gave none, the stream is over */
    bool cut;
    unsigned variant; /* the cache variant of its blocks: the one in use when the piece was planned */
    uint8_t *kept;    /* by position: 1 if the cache has it; NULL: not looked up */
    uint64_t carved;  /* positions that are carved into blocks, or are not needed */
    unsigned users;   /* blocks in flight, plus one while a thread plans the piece */
    /* chunks of files that must be read before the piece counts as planned; NULL: none */
    struct read_in *read_in;
};

/* Plans the piece: finds its records and which of them the cache has, and loads the bytes of records that
 * can't be read one by one. Mutex not held. After an error the caller calls cw_piece_unplan. */
int cw_piece_plan(struct cw_runner *r, struct compute_thread *t, struct cw_range *s, struct piece *p,
                  struct cw_error *err) _must_check_;
/* Frees the plan of a piece, so that it can be planned again. */
void cw_piece_unplan(struct piece *p);
struct piece *cw_piece_free(struct piece *p);
/* Divides a piece that is not planned in two, because there is no memory for its plan. False: it can't be
 * divided, or there is no memory for that either. Mutex held. */
bool cw_piece_halve(struct cw_runner *r, struct piece *p);
