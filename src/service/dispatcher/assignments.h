/* The table of assignments: what a worker has to do with a stream. An assignment that may get leases is in
 * its stream's heap; the root has the fewest ranges to compute, and room for one more if any has. After a
 * change of a field that decides this, cw_dp_assignment_usable must be called. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "service/dispatcher/ranges.h"
#include "service/dispatcher/types.h"

enum assignment_state {
    ASSIGNMENT_IDLE,
    ASSIGNMENT_ASKED, /* Prepare was sent */
    ASSIGNMENT_READY,
    ASSIGNMENT_UNFIT /* the worker can't serve the stream */
};

/* What a worker has computed of a stream, as its heartbeats say: sums. */
struct work {
    double compute_s, positions, batches, read_bytes;
    uint64_t at_ns;
};

#define OUTBOX_SPANS 64

/* Leases and revocations that the end of the turn sends to the worker (lease_outbox.h). */
struct lease_outbox {
    struct cw_link dirty;
    uint64_t *leases; /* where ranges begin whose leases are to be sent: room for capacity + 2 */
    size_t n_leases, room;
    struct span revoke[OUTBOX_SPANS];
    size_t n_revoke;
    bool new_origin; /* the worker is to be sent the stream's origin */
};

struct assignment {
    struct cw_link by_worker, by_stream;
    struct worker *worker;
    struct stream *stream;
    enum assignment_state state;
    uint64_t request;                      /* of Prepare */
    char *why;                             /* unfit */
    uint32_t capacity, n_held, n_complete; /* ranges */
    uint64_t most_positions;               /* of a range, by the worker's memory; UINT64_MAX: any number */
    uint64_t to_compute;                   /* positions of the ranges that it holds and has not completed */
    uint64_t completed_ns;                 /* when its last completion came */
    size_t heap_at;                        /* 0: not in the heap; else index + 1 */
    uint64_t shunned_until;                /* 0: not shunned */
    bool failed;    /* unfit: it was ready, and could not go on for a reason of its own */
    bool granted;   /* in the stream's worker set: it may get leases. Without a policy all are */
    bool named;     /* in Holdings, since its worker's connection changed */
    bool beside;    /* Prepare was sent while its worker had other streams */
    bool announced; /* the clients of the stream know the worker's address */
    uint64_t order; /* decides between assignments with equal room; differs from stream to stream */
    struct work work, last_work;     /* last_work: at the policy's last decision */
    struct compute_report *computed; /* NULL: no heartbeat yet */
    struct cw_cache_stats *caching;  /* as the last heartbeat says; NULL: there is nothing to decide */
    struct lease_outbox outbox;
};

struct assignment_table {
    struct cw_link dirty; /* outboxes with something in them */
    size_t n;
};

struct assignment *cw_dp_assignment_find(struct worker *w, const struct stream *s); /* NULL: none */
struct assignment *cw_dp_assignment_new(struct cw_dispatcher *d, struct worker *w,
                                        struct stream *s); /* NULL: no memory or room */
/* Frees an assignment that holds no range. */
void cw_dp_assignment_free(struct cw_dispatcher *d, struct assignment *t);
void cw_dp_assignment_set_state(struct cw_dispatcher *d, struct assignment *t, enum assignment_state state);
/* Puts it into the heap, moves it there or takes it out, after any change, and marks the stream as dirty. */
void cw_dp_assignment_usable(struct cw_dispatcher *d, struct assignment *t);
/* Whether it is of the stream's worker set, and of use to it. */
bool cw_dp_assignment_serves(const struct assignment *t);
/* Members of the stream's worker set that compute. */
int cw_dp_worker_set_running(const struct stream *s);
/* The same for each pool index: ret has DP_POOL_INDEXES counts. */
void cw_dp_worker_set_running_of(const struct stream *s, int *ret);
/* Whether a member of its worker set is still opening the data. */
bool cw_dp_worker_set_comes(const struct cw_dispatcher *d, const struct stream *s);
