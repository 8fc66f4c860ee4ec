/*
 * Leased splits of a stream, and who asks for what of them. The stream's thread only.
 *
 * A split gives its batches in order. One that is taken before anybody asks for it (another rank asked for a later one) is kept, as long as there is room; one
 * that was sent, or found no room, is computed again when it is asked for: the split is then begun again from there. So every request for a leased split is
 * answered, whatever others ask for.
 *
 * leases.c: which splits there are, in the runner or not; left.c: what is left over at their ends; serve.c: answers.
 */
#pragma once
#include "worker/stream.h"

struct kept {
    struct kept *next; /* in the order of index */
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    size_t bytes;
};

struct cw_lease {
    struct cw_lease *next;
    uint64_t epoch, index;
    uint64_t leased_ns;
    struct cw_split *split;     /* NULL: not in the runner, because it is finished, or gave way */
    bool set_aside;             /* it gave way */
    uint64_t next_batch;        /* the one that the runner gives next */
    struct cw_assembly *unfinished; /* that one, waiting for memory or for map_batches */
    bool computed;              /* and the dispatcher was told: */
    uint64_t n_batches;
    struct cw_left **left;      /* by key, once computed */
    struct cw_error *failed;    /* instead of batch failed_at */
    uint64_t failed_at;
    struct cw_request *requests, *left_requests;
    struct kept *kept;
    uint8_t *sent;              /* a bit per batch */
    uint64_t sent_room;         /* bits */
};

/* ---- leases.c ---- */
void cw_kept_free(struct cw_stream *s, struct kept *k);
/* Takes a split out of the runner: it can be begun again. */
void cw_lease_close(struct cw_stream *s, struct cw_lease *l);
/* Begins it in the runner, from a batch on. The stream may fail, and the lease be gone. */
void cw_lease_open(struct cw_stream *s, struct cw_lease *l, uint64_t first_batch);
void cw_lease_out_of_memory(struct cw_stream *s);

/* ---- serve.c ---- */
/* Returns whether an error of this status comes from a record, the data or the pipeline, and so is the same on
 * every worker. The exception: a data file that is missing or was changed on this worker alone is CW_E_DATA, too.
 * Such an error also ends the runner (cw_runner_fatal), so the stream fails and other workers take over. */
bool cw_lease_lasting(int status);

/* ---- left.c ---- */
/* If all of it is computed now, the dispatcher is told. Returns whether it was news. If not, the stream may have failed, and the lease be gone. */
bool cw_lease_note_computed(struct cw_stream *s, struct cw_lease *l);
/* What a split gave, to the dispatcher or a client. NULL: out of memory. */
struct cw_answer *cw_lease_report(const struct cw_stream *s, const struct cw_lease *l, enum cw_answer_kind kind);
/* Answers who asks for elements that are left over, once they are there. Returns whether there was any. */
bool cw_lease_serve_left(struct cw_stream *s, struct cw_lease *l);
