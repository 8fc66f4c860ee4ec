/* The state of scaling: how many workers a job wants and gets, and why. policy_step.c and worker_sets.c
 * change it; parts of it are in the journal. Without a policy (scaler.enabled false) all workers serve all
 * jobs, and only cache points are decided. */
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

#define DP_POOL_INDEXES CW_POLICY_POOLS    /* size of arrays by pool index; index 0: workers of no pool */
#define DP_DECISIONS 32                    /* last decisions of a job that are kept */
#define DP_POLICY_BYTES ((size_t)64 << 10) /* most bytes of a policy's memory in the journal */

/* A decision of a policy, as it is shown by the dashboard. */
struct decision {
    double t; /* seconds since the job began */
    uint64_t at_ns;
    json_t *record;
};

/* The phases after a change of the worker set. Clients first get batches of ranges that the old set computed,
 * then batches that were prefetched in the meantime. Measuring begins when both are used up. */
enum scaling_phase {
    SCALING_MEASURES,
    SCALING_STARTS,   /* workers are missing */
    SCALING_PASSES,   /* ranges of the old worker set are passed */
    SCALING_DRAWS_OFF /* what was prefetched meanwhile is used up */
};

struct scaling {
    struct cw_policy_memory memory;
    /* sums over all pool indexes. want: workers that the policy wants, at least 1; share: workers that the
     * worker set is to have */
    struct cw_claim claim;
    /* by pool index, as the policy wants them; if a pool can't supply its number, other pools supply the rest
     */
    int want[DP_POOL_INDEXES];
    int share[DP_POOL_INDEXES];
    int most[DP_POOL_INDEXES];  /* workers that the job could get if it wanted all, ... */
    uint64_t most_serial;       /* ... computed at this scaler.claims_serial; 0: not computed yet */
    int cap[DP_POOL_INDEXES];   /* workers that ran when the wait for more was given up (-1: all came), ... */
    uint64_t cap_serial;        /* ... at this scaler.supply_serial; 0: there is no cap */
    int objective;              /* 1 + enum cw_objective; 0: the dispatcher's */
    double client_price_per_h;  /* 0: the dispatcher's */
    uint64_t began_ns, next_ns; /* when scaling of the job began; when the policy is queried next */
    enum scaling_phase phase;
    uint64_t phase_ns, until_pos, until_ns;
    uint64_t n_joined; /* value of stream_assignments.n_joined when the worker set was complete */
    struct decision decisions[DP_DECISIONS];
    size_t n_decisions; /* all so far; the last DP_DECISIONS are kept */
};

/* The dispatcher's policy, and its state for all jobs together. */
struct scaler {
    bool enabled;         /* there is a policy */
    bool worker_sets_due; /* the next turn updates the worker sets */
    struct cw_policy policy;
    enum cw_objective objective;
    double client_price_per_h, worker_price_per_h;
    char *currency;                      /* of these, for people; NULL: not named */
    struct cw_link pools;                /* the cheapest first */
    uint64_t busy_ns;                    /* when a job last needed workers */
    uint64_t n_decisions, n_cache_moves; /* n_cache_moves: those that move a cache point */
    /* claims_serial grows when the inputs of the shares change; claims_hash: of these inputs */
    uint64_t claims_hash, claims_serial;
    uint64_t supply_serial; /* grows when more workers may be available */
};

/* Something that worker sets depend on changed: the next turn updates them. */
void cw_dp_scaling_due(struct cw_dispatcher *d);
/* Starts scaling of a job that has no worker yet. */
void cw_dp_scaling_begin(struct cw_dispatcher *d, struct job *j);
bool cw_dp_scaling_active(const struct job *j); /* the job needs workers */
/* Return the job's own value, or else the dispatcher's default. */
enum cw_objective cw_dp_scaling_objective(const struct cw_dispatcher *d, const struct job *j);
double cw_dp_scaling_client_price(const struct cw_dispatcher *d, const struct job *j);
/* Returns the policy's memory as JSON for the journal; the caller frees it. NULL: it has none. */
char *cw_dp_scaling_memory(const struct cw_dispatcher *d, const struct job *j);
void cw_dp_scaling_restore(struct cw_dispatcher *d, struct job *j, const Cachew__Journal__Job *row);
/* Returns the last decisions as JSON, oldest first. New reference; NULL: no memory. */
json_t *cw_dp_scaling_decisions(const struct cw_dispatcher *d, const struct job *j);
