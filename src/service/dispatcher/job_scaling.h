/* How many workers a job has, and why: the state that policy_step.c and worker_sets.c decide on, and its part
 * of the journal. Without a policy (scaler.enabled false) all workers serve all jobs, and only where they
 * cache is decided. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "policy/policy.h"
#include "policy/share.h"
#include "proto/journal.pb-c.h"
#include "service/dispatcher/types.h"

#define DP_POOL_INDEXES CW_POLICY_POOLS    /* kinds of workers; 0: those of no pool, else a pool's index */
#define DP_DECISIONS 32                    /* last decisions of a job that are kept */
#define DP_POLICY_BYTES ((size_t)64 << 10) /* of a policy's memory in the journal */

/* A decision of a policy, for people. */
struct decision {
    double t; /* seconds since the job began */
    uint64_t at_ns;
    json_t *record;
};

/* After a change of the worker set, clients first get ranges of the old one, then what was prefetched
 * meanwhile. Measuring begins when both are over. */
enum scaling_phase {
    SCALING_MEASURES,
    SCALING_STARTS,   /* workers are missing */
    SCALING_PASSES,   /* ranges of the old worker set are passed */
    SCALING_DRAWS_OFF /* what was prefetched meanwhile is used up */
};

struct scaling {
    struct cw_policy_memory memory;
    /* want: workers that the policy wants, at least 1; share: workers that the worker set is to have. Of all
     * pool indexes together */
    struct cw_claim claim;
    /* By pool index. What is missing in the sum, or can't be had there, is taken where there is some left */
    int want[DP_POOL_INDEXES];
    int share[DP_POOL_INDEXES];
    int most[DP_POOL_INDEXES];  /* that it could have, whatever it wants, ... */
    uint64_t most_serial;       /* ... at this scaler.claims_serial; 0: not known yet */
    int cap[DP_POOL_INDEXES];   /* workers that were there when waiting for more ended (-1: all came), ... */
    uint64_t cap_serial;        /* ... at this scaler.supply_serial; 0: there is no cap */
    int objective;              /* 1 + enum cw_objective; 0: the dispatcher's */
    double client_price_per_h;  /* 0: the dispatcher's */
    uint64_t began_ns, next_ns; /* the first query of the policy, and the next one */
    enum scaling_phase phase;
    uint64_t phase_ns, until_pos, until_ns;
    uint64_t n_joined; /* stream_assignments.n_joined when the worker set was complete */
    struct decision decisions[DP_DECISIONS];
    size_t n_decisions; /* all that were made; the last ones are kept */
};

/* What the dispatcher decides workers by. */
struct scaler {
    bool enabled;         /* there is a policy */
    bool worker_sets_due; /* the end of the turn is to update worker sets */
    struct cw_policy policy;
    enum cw_objective objective;
    double client_price_per_h, worker_price_per_h;
    struct cw_link pools;                /* the cheapest first */
    uint64_t busy_ns;                    /* when there was a job last */
    uint64_t n_decisions, n_cache_moves; /* n_cache_moves: those that move a cache point */
    uint64_t claims_hash, claims_serial; /* serial: incremented when what shares follow from changes */
    uint64_t supply_serial;              /* incremented whenever more workers may be available */
};

/* Has the end of the turn update worker sets, as something that they depend on changed. */
void cw_dp_scaling_due(struct cw_dispatcher *d);
/* Begins a job that has no worker yet. */
void cw_dp_scaling_begin(struct cw_dispatcher *d, struct job *j);
bool cw_dp_scaling_active(const struct job *j); /* the job needs workers */
/* The job's own, or the dispatcher's. */
enum cw_objective cw_dp_scaling_objective(const struct cw_dispatcher *d, const struct job *j);
double cw_dp_scaling_client_price(const struct cw_dispatcher *d, const struct job *j);
/* Returns the policy's memory as JSON for the journal; the caller frees it. NULL: it has none. */
char *cw_dp_scaling_memory(const struct cw_dispatcher *d, const struct job *j);
void cw_dp_scaling_restore(struct cw_dispatcher *d, struct job *j, const Cachew__Journal__Job *row);
/* The last decisions, oldest first; new, or NULL: no memory. */
json_t *cw_dp_scaling_decisions(const struct cw_dispatcher *d, const struct job *j);
