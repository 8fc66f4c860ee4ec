/*
 * Policies: facts in, decision out. A policy is a table of functions over a small memory; it has no clock,
 * does no I/O, allocates nothing and keeps nothing else. So the dispatcher and the simulator run the very
 * same code, a decision can be replayed from a journal, and a test can make up its facts.
 *
 * All times are seconds, all sizes bytes, all prices per hour. "Per batch" is per batch that the job gets,
 * whichever rank it goes to.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "policy/mean.h"

#define CW_POLICY_POOLS 5 /* four provisioners, and workers that belong to none */
#define CW_POLICY_CACHE_POINTS 16
#define CW_POLICY_ALTERNATIVES 8

/* The pool of workers that belong to none. */
#define CW_POOL_STATIC "static"
/* Whether a pool may be called so: 1 to 64 bytes of UTF-8, and not as that one, since decisions tell pools by
 * their names. CW_E_OPTION. */
int cw_pool_name_check(const char *name, struct cw_error *err) _must_check_;

enum cw_objective { CW_OBJECTIVE_TIME, CW_OBJECTIVE_COST };

/* ---- facts: what was measured since the last call, and what is the case now ---- */

struct cw_client_facts { /* of one rank, per batch of its own */
    /* from a batch's arrival to the request for the next one: the training step itself */
    struct cw_mean step;
    struct cw_mean wait; /* from the request to the arrival */
    double queue;        /* batches that lay ready, on average */
};

struct cw_pool_facts {
    const char *name;
    int running, starting;
    /* this job may have so many now: the pool's size, its share and its quota; what the provisioner gives, if
     * that is less */
    int maximum;
    double price_per_h;          /* of a worker, from the moment it is asked for; 0: none */
#define CW_WORKER_PRICE_MOST 1e6 /* as of clients below */
    double start_delay_s;        /* from then until it computes */
    double cpu_share;            /* of a CPU that a worker gets, all its threads together; 0: not limited */
    /* time of a worker per batch, without waiting for storage or for somebody to take the batch */
    struct cw_mean compute;
    double busy; /* the part of the workers' time that this was, 0 to 1 */
};

struct cw_cache_point_facts { /* an `autocache()` of the pipeline */
    const char *name;
    /* computing up to here, per batch, less what reading takes of a worker's threads: what they are spared;
     * negative where reading takes longer */
    double prefix_s;
    double bytes;   /* to write or to read here, per batch */
    double cached;  /* part of the epoch at hand that can be read, 0 to 1 */
    double written; /* part of an epoch that this one added so far; readable from the next epoch on */
};

struct cw_storage_facts { /* speeds are for all workers together; 0: not known, or not limited */
    double source_bytes;  /* read per batch, nothing cached */
    double source_bytes_per_s;
    double read_bytes_per_s, write_bytes_per_s; /* the cache's, as last probed */
    double cache_bytes;                         /* room in the cache; 0: not limited */
};

struct cw_facts {
    const struct cw_client_facts *clients;
    int n_clients;
    struct cw_pool_facts pools[CW_POLICY_POOLS];
    int n_pools;
    bool fixed; /* the workers are those that run, whatever is decided: only where to cache is a question */
    const struct cw_cache_point_facts
        *cache_points; /* at most CW_POLICY_CACHE_POINTS, in the pipeline's order */
    int n_cache_points;
    int cache_point; /* in use; -1: none */
    struct cw_storage_facts storage;
    double epoch, epochs; /* the one at hand, from 0; how many there are */
    double batches_per_epoch;
    double positions_per_batch; /* of the sequence; 0: not known */
    double batches_done;        /* of all epochs */
    enum cw_objective objective;
    /* of all ranks together; said of a job, within these: what is beyond is a slip of the pen */
    double client_price_per_h;
#define CW_CLIENT_PRICE_LEAST 1e-6
#define CW_CLIENT_PRICE_MOST 1e6
};

/* ---- decision ---- */

enum cw_bottleneck {
    CW_BOTTLENECK_UNKNOWN,
    CW_BOTTLENECK_WORKERS,
    CW_BOTTLENECK_CLIENT,
    CW_BOTTLENECK_STORAGE,
    CW_BOTTLENECK_CACHE,
    CW_BOTTLENECK_SCALING,
    CW_BOTTLENECK_MAXIMUM
};

const char *cw_bottleneck_name(enum cw_bottleneck limit);

struct cw_alternative { /* what else could be done, and what it was thought to give for the rest of the job */
    int pools[CW_POLICY_POOLS], workers; /* of each pool; of all */
    double capacity;                     /* what these are together, in workers of the first pool */
    int order;                           /* in which pools were filled: supply.h */
    int cache_point;
    double batch_s, time_s, cost;
    /* of these the part for which the workers stay: until a cache is full there is another best number */
    double held_s, held_cost;
};

struct cw_seen {                                        /* what the decision rests on */
    double step_s, wait_s, interval_s, compute_s, busy; /* per batch */
    double error;                                       /* standard error of the interval, relative */
    double doubt; /* by this part workers are taken to be slower than measured, in all alternatives */
    int workers, cache_point;
    double cached;
    enum cw_bottleneck limit;
};

struct cw_decision {
    int workers[CW_POLICY_POOLS]; /* to have, per pool */
    int cache_point;              /* to read and write; -1: none */
    /* a batch waits until it was written; else what the cache can't take at once is not written */
    bool write_waits;
    bool concluded; /* this call decided something (staying included): a record. Else this is what stands */
    bool replanned; /* concluded since the client waits unexpectedly: a record even without a change */
    bool promises;  /* a record: as it has it, the client will not wait */
    struct cw_seen seen;
    struct cw_alternative alternatives[CW_POLICY_ALTERNATIVES];
    int n_alternatives;
    char why[512];
};

/* {"what", "seen", "alternatives", "before", "chosen", "why"}; cache points by name. "what" is before and
 * chosen in words. New, or NULL without memory. */
json_t *cw_decision_json(const struct cw_decision *d, const struct cw_facts *facts);

/* ---- a policy ---- */

/* A policy's memory is a struct of doubles only, at most this many: it can be copied, and written down by
 * name. All zeros is a job that starts. */
#define CW_POLICY_MEMORY 192

struct cw_policy_memory {
    double values[CW_POLICY_MEMORY];
};

struct cw_field { /* of the memory; the last one has no name */
    const char *name;
    size_t at, n; /* in doubles */
};

#define CW_FIELD(type, member) \
    {#member, offsetof(type, member) / sizeof(double), (sizeof(((type *)0)->member)) / (sizeof(double))}

struct cw_policy {
    const char *name; /* as in --policy; one that ends with ":" takes a number behind it */
    const char *summary;
    bool caches; /* it decides about cache points; else decision.cache_point is always -1 */
    const struct cw_field *fields;
    double parameter; /* for policies that differ in a number only; what stood behind the ":" */
    /* Called with each report of the job, about once a second, more often at first. `d` comes empty. */
    void (*decide)(const struct cw_policy *policy, struct cw_policy_memory *memory,
                   const struct cw_facts *facts, double now_s, struct cw_decision *d);
};

/* The policies there are, ends with NULL. */
extern const struct cw_policy *const cw_policies[];
#define CW_POLICY_MOST 1000000 /* of what may stand behind a ":", from 1 on */
/* By name, "fixed:8" too: a copy, so that the number is in it. "cachew" is another word for "auto". False:
 * there is none of this name. */
bool cw_policy_find(const char *name, struct cw_policy *ret);

/* What the policy remembers, for a journal, and back. Names that are not known are left out, what is missing
 * is 0. */
json_t *cw_policy_save(const struct cw_policy *policy, const struct cw_policy_memory *memory);
void cw_policy_load(const struct cw_policy *policy, const json_t *saved, struct cw_policy_memory *ret);

/* ---- what policies share ---- */

/*
 * Step and waiting of the job per batch. Ranks train in step, so the slowest one paces all; with R ranks a
 * batch of the job is a R-th of a round.
 */
struct cw_demand {
    struct cw_mean step, interval;
    double wait_s;
};
struct cw_demand cw_demand(const struct cw_facts *facts);
/* All pools as if they were one, of workers alike: for rules that know of one only. */
struct cw_pool_facts cw_pools_together(const struct cw_facts *facts);
/* So many workers, of the cheapest pool first. */
void cw_pools_fill(const struct cw_facts *facts, double workers, struct cw_decision *d);
