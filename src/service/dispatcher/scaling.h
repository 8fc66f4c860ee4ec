/*
 * How many workers a job has, who they are, and where they come from: what scale.c, worker sets.c and pools.c
 * have in common, and what others call. Without a policy (d->scales) all workers serve all jobs, and only
 * where they cache is decided.
 */
#pragma once
#include <jansson.h>

#include "base/error.h"
#include "base/list.h"
#include "policy/policy.h"
#include "policy/share.h"
#include "proto/cachew.pb-c.h"
#include "proto/journal.pb-c.h"

struct cw_dispatcher;
struct cw_peer;
struct worker;
struct stream;
struct job;
struct assignment;

#define DP_SLOTS CW_POLICY_POOLS /* kinds of workers: slot 0 has those that belong to no pool, ... */
#define DP_POOLS (DP_SLOTS - 1)  /* ... and a pool has one of the others as long as it is there */
#define DP_DECISIONS 32          /* of a job that are kept */
#define DP_POLICY_BYTES ((size_t)64 << 10) /* of what a policy remembers, in the journal */
#define DP_REPORT \
    UINT64_C(1000000000) /* policies are asked so often: as workers say what they have computed */

#define DP_CACHE_POINTS CW_POLICY_CACHE_POINTS

/* What a worker measured of the cache points of a stream, as its last heartbeat says: numbers as in Prepare,
 * times and bytes per position. */
struct cache_point_work {
    int32_t cache_point;
    char name[64];
    double compute_s, read_s, store_s, bytes, cached, written;
    bool was_read, unread;
};

struct caching {
    int32_t cache_point; /* in use */
    double none_s;       /* a position where none is; 0: not known */
    struct cache_point_work cache_points[DP_CACHE_POINTS];
    size_t n;
};

/* What a worker has computed of a stream, as its heartbeats say: sums. */
struct work {
    double compute_s, positions, batches, read_bytes;
    uint64_t at_ns;
};

/* How fast a client goes: sums, as message Pace. */
struct pace {
    double n, step_s, step_sq, wait_s, wait_sq, late, ready;
};

/* A decision of a policy, for people. */
struct decision {
    double t;
    uint64_t at_ns;
    json_t *record;
};

/*
 * How many workers a job has, and why (scale.c). After a change of the worker set, what a client sees is that
 * of the old one until the ranges are passed that were under way, and then what was computed ahead meanwhile:
 * measuring begins when both are over.
 */
struct scaling {
    struct cw_policy_memory memory;
    /* want: what the policy asks for, at least 1; share: how many the stream's worker set is to have. Of all
     * slots together */
    struct cw_claim claim;
    /* of each; what is missing in the sum, or can't be had there, is taken where there is some left */
    int want[DP_SLOTS];
    int share[DP_SLOTS];
    int most[DP_SLOTS];         /* that it could have, whatever it wants, ... */
    uint64_t most_serial;       /* ... by claims as they were then; 0: not known yet */
    int cap[DP_SLOTS];          /* so many were there after waiting for more (-1: all came), ... */
    uint64_t cap_serial;        /* ... at this state of the supply; 0: there is none */
    int objective;              /* 1 + enum cw_objective; 0: the dispatcher's */
    double client_price_per_h;  /* 0: the dispatcher's */
    uint64_t began_ns, next_ns; /* when it was asked first, and will be */

    /* starts: workers are missing; passes, draws off: as above */
    enum { SCALE_MEASURES, SCALE_STARTS, SCALE_PASSES, SCALE_DRAWS_OFF } phase;

    uint64_t phase_ns, until_pos, until_ns;
    uint64_t n_joined; /* of its stream, when the worker set was complete */
    struct decision decisions[DP_DECISIONS];
    size_t n_decisions; /* all that were made; the last ones are kept */
};

/* Workers that a provisioner can make exist. */
struct pool {
    struct cw_link link; /* the cheapest first */
    struct cw_peer *peer;
    char *name, *why, *prefix;
    int slot; /* from 1 */
    uint32_t minimum, maximum, units;
    uint32_t n_left; /* workers of a provisioner before this one that are connected still: they count */
    double price_per_h, cpu_share;
    double start_delay_s; /* as measured; 0: not yet */
    uint32_t wanted;
    bool due;          /* it is to be told what is wanted */
    bool changed;      /* others of its workers are connected: it is told, once a second at most */
    uint64_t said_ns;  /* when it was told last */
    uint64_t asked_ns; /* for more */
    uint32_t n_asked;  /* of these, not there yet */
};

/* worker sets.c: which workers serve which stream, if there is a policy */
void cw_dp_worker_sets(struct cw_dispatcher *d); /* makes worker sets as large as jobs' shares */
void cw_dp_worker_sets_later(
    struct cw_dispatcher *d); /* in the next turn: something changed that they depend on */
/* assignments that are not of the worker set any more, and have nothing, go */
void cw_dp_worker_sets_tick(struct cw_dispatcher *d);
int cw_dp_worker_set_running(const struct stream *s); /* of its worker set, those that compute */
void cw_dp_worker_set_running_of(const struct stream *s, int *ret); /* of each slot */
/* somebody of its worker set opens the data */
bool cw_dp_worker_set_comes(const struct cw_dispatcher *d, const struct stream *s);
/* another worker could take the place of one */
bool cw_dp_worker_sets_spare(struct cw_dispatcher *d, const struct stream *s);
/* so many workers of each slot it could have, whatever it wants */
const int *cw_dp_worker_sets_most(struct cw_dispatcher *d, struct job *j);

/* caching.c: where streams are cached */
/* what the worker says of its cache as a whole */
void cw_dp_caching_store(struct worker *w, const Cachew__Heartbeat *m);
void cw_dp_caching_heard(struct cw_dispatcher *d, struct assignment *t, const Cachew__StreamWork *x);
bool cw_dp_caching_open(const struct stream *s); /* there is something to decide about */
/* for people: its cache points, what they hold and take; null: nothing is to be decided. New, or NULL: no
 * memory
 */
json_t *cw_dp_caching_json(const struct stream *s);
/* Fills in cache points (DP_CACHE_POINTS of them), which f points to then, and storage. What they point to is
 * good until something is heard. */
void cw_dp_caching_facts(const struct stream *s, double per_batch, struct cw_facts *f,
                         struct cw_cache_point_facts *cache_points);
bool cw_dp_caching_is(const struct stream *s, int cache_point); /* that is what workers do, or were told */
/* of these facts: what they do, or were told, also where they find computing quicker; -1: none */
int cw_dp_caching_in_use(const struct stream *s);
/* of these facts; -1: none */
void cw_dp_caching_choose(struct cw_dispatcher *d, struct stream *s, int cache_point);

/* scale.c: what policies decide */
void cw_dp_scale_begin(struct cw_dispatcher *d, struct job *j);
void cw_dp_scale_end(struct job *j);
/* For the journal: what its policy remembers, as JSON, the caller's; NULL: nothing. And back. */
char *cw_dp_scale_memory(const struct cw_dispatcher *d, const struct job *j);
void cw_dp_scale_restore(struct cw_dispatcher *d, struct job *j, const Cachew__Journal__Job *row);
bool cw_dp_scale_active(const struct job *j); /* it needs workers */
/* the job's own, or the dispatcher's */
enum cw_objective cw_dp_scale_objective(const struct cw_dispatcher *d, const struct job *j);
double cw_dp_scale_client_price(const struct cw_dispatcher *d, const struct job *j);
void cw_dp_scale_tick(struct cw_dispatcher *d);
json_t *cw_dp_scale_decisions(const struct cw_dispatcher *d, const struct job *j); /* new, or NULL */

/* pools.c: provisioners */
int cw_dp_pool_message(struct cw_dispatcher *d, struct cw_peer *p, const Cachew__Envelope *m,
                       struct cw_error *err) _must_check_;
void cw_dp_pool_lost(struct cw_dispatcher *d, struct pool *p);
void cw_dp_pool_started(struct cw_dispatcher *d, const struct worker *w); /* it is there */
void cw_dp_pool_missed(struct cw_dispatcher *d, const struct worker *w);  /* its connection ended */
/* it was told to drain: its provisioner may end it */
void cw_dp_pool_released(struct cw_dispatcher *d, const struct worker *w);
const struct pool *cw_dp_pool_at(const struct cw_dispatcher *d, int slot); /* NULL: there is none */
void cw_dp_pools_place(struct cw_dispatcher *d);                           /* tells workers their slot */
void cw_dp_pools_most(const struct cw_dispatcher *d, int *ret); /* workers of each slot that there could be */
void cw_dp_pools_want(struct cw_dispatcher *d, const int *needed); /* so many of each slot are needed */
json_t *cw_dp_pools_json(const struct cw_dispatcher *d);
