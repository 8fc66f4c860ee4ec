/* Policies: from facts to a decision. A policy is a table of functions over a small memory. It has no
 * clock, does no I/O, allocates nothing and keeps nothing else. So the dispatcher and the simulator run
 * the same code, a decision can be replayed from a journal, and a test can make up its facts. Times are
 * seconds, sizes bytes, prices per hour. "Per batch" is per batch that the job gets, of any rank. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "policy/mean.h"

#define CW_POLICY_POOLS 5 /* four provisioners, and the workers of none */
#define CW_POLICY_CACHE_POINTS 16
#define CW_POLICY_ALTERNATIVES 8

/* The pool of workers that belong to none. */
#define CW_POOL_STATIC "static"
/* CW_E_OPTION if a pool may not have this name: 1 to 64 bytes of UTF-8, other than CW_POOL_STATIC. */
int cw_pool_name_check(const char *name, struct cw_error *err) _must_check_;

enum cw_objective { CW_OBJECTIVE_TIME, CW_OBJECTIVE_COST };

/* ---- facts: what was measured since the last call, and the present state ---- */

struct cw_client_facts { /* of one rank, per batch of its own */
    /* the training step: from a batch's arrival to the request for the next one */
    struct cw_mean step;
    struct cw_mean wait; /* from the request to the arrival */
    double queue;        /* batches that lay ready, on average */
};

struct cw_pool_facts {
    const char *name;
    int running, starting;
    /* most workers that this job may have now: by the pool's size, its share and its quota, and by what
     * the provisioner gives */
    int maximum;
    double price_per_h;          /* of a worker, from its request on; 0: none */
#define CW_WORKER_PRICE_MOST 1e6 /* higher prices are rejected as typing errors */
    double start_delay_s;        /* from its request until it computes */
    double cpu_share;            /* CPUs that a worker gets, all its threads together; 0: not limited */
    /* time of a worker per batch, without waiting for storage or for the client */
    struct cw_mean compute;
    double busy; /* part of the workers' time that this was, 0 to 1 */
};

struct cw_cache_point_facts { /* an `autocache()` of the pipeline */
    const char *name;
    /* compute time per batch up to here, less what reading takes of a worker's threads; negative if
     * reading takes longer */
    double prefix_s;
    double bytes;   /* per batch, to write or to read */
    double cached;  /* part of this epoch that can be read, 0 to 1 */
    double written; /* part of an epoch that this epoch added; readable from the next one on */
};

struct cw_storage_facts { /* speeds are for all workers together; 0: not known, or no limit */
    double source_bytes;  /* read per batch, nothing cached */
    double source_bytes_per_s;
    double read_bytes_per_s, write_bytes_per_s; /* of the cache, as measured last */
    double cache_bytes;                         /* room in the cache; 0: no limit */
};

struct cw_facts {
    const struct cw_client_facts *clients;
    int n_clients;
    struct cw_pool_facts pools[CW_POLICY_POOLS];
    int n_pools;
    bool fixed; /* decisions about workers are not carried out: only where to cache is a question */
    const struct cw_cache_point_facts
        *cache_points; /* at most CW_POLICY_CACHE_POINTS, in the pipeline's order */
    int n_cache_points;
    int cache_point; /* in use; -1: none */
    bool unread;     /* its cached elements are recomputed, since reading them takes longer */
    struct cw_storage_facts storage;
    double epoch, epochs; /* the current one, from 0, and the number of all */
    double batches_per_epoch;
    double positions_per_batch; /* of the sequence; 0: not known */
    double batches_done;        /* of all epochs */
    enum cw_objective objective;
    /* of all ranks together, within these: values outside are rejected as typing errors */
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

struct cw_alternative {                  /* what could be done, and what the rest of the job would take */
    int pools[CW_POLICY_POOLS], workers; /* of each pool, of all */
    double capacity;                     /* in workers of the first pool */
    int order;                           /* in which pools were filled (supply.h) */
    int cache_point;
    double batch_s, time_s, cost;
    /* the part of these for which the workers stay: until a cache is full another number is best */
    double held_s, held_cost;
};

struct cw_seen {                                        /* the measurements that the decision rests on */
    double step_s, wait_s, interval_s, compute_s, busy; /* per batch */
    double error;                                       /* relative standard error of the interval */
    double doubt; /* part by which all alternatives take workers to be slower than measured */
    int workers, cache_point;
    double cached;
    enum cw_bottleneck limit;
};

struct cw_decision {
    int workers[CW_POLICY_POOLS]; /* to have, by pool */
    int cache_point;              /* to read and write; -1: none */
    /* batches wait until their elements are written. Only the simulator does so: the service leaves out
     * what the cache can't take at once */
    bool write_waits;
    bool concluded; /* this call decided something, maybe to change nothing: there is a record */
    bool replanned; /* concluded because the client waits unexpectedly: a record even without a change */
    bool promises;  /* the record expects that the client will not wait */
    struct cw_seen seen;
    struct cw_alternative alternatives[CW_POLICY_ALTERNATIVES];
    int n_alternatives;
    char why[512];
};

/* {"what", "seen", "alternatives", "before", "chosen", "why"}, with cache points by name. "what" is the
 * change in words. New, or NULL without memory. */
json_t *cw_decision_json(const struct cw_decision *d, const struct cw_facts *facts);

/* ---- a policy ---- */

/* Most doubles in a policy's memory, a struct of doubles only: it can be copied, and written to a journal
 * by name. All zeros is a job that starts. */
#define CW_POLICY_MEMORY 192

struct cw_policy_memory {
    double values[CW_POLICY_MEMORY];
};

struct cw_field { /* of the memory; the last entry has no name */
    const char *name;
    size_t at, n; /* in doubles */
};

#define CW_FIELD(type, member) \
    {#member, offsetof(type, member) / sizeof(double), (sizeof(((type *)0)->member)) / (sizeof(double))}

struct cw_policy {
    const char *name; /* as in --policy; one that ends with ":" takes a number after it */
    bool caches;      /* it decides about cache points. Otherwise decision.cache_point is always -1 */
    const struct cw_field *fields;
    double parameter; /* the number after ":", or what policies of one file differ in */
    /* Called with each report of the job: about once a second, more often at first. d: zeros. */
    void (*decide)(const struct cw_policy *policy, struct cw_policy_memory *memory,
                   const struct cw_facts *facts, double now_s, struct cw_decision *d);
};

/* Has a policy decide. A cache point that is not read counts as none, and a policy that decides nothing
 * about caches leaves that as it is. */
void cw_policy_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                      const struct cw_facts *facts, double now_s, struct cw_decision *ret);

/* All policies; ends with NULL. */
extern const struct cw_policy *const cw_policies[];
#define CW_POLICY_MOST 1000000 /* largest number after a ":", from 1 on */
/* Finds a policy by its name, as "fixed:8", with the number as its parameter. "cachew" is another name of
 * "auto". False: there is none. */
bool cw_policy_find(const char *name, struct cw_policy *ret);

/* The memory as JSON, for a journal, and back. Unknown names are ignored, missing ones are 0. */
json_t *cw_policy_save(const struct cw_policy *policy, const struct cw_policy_memory *memory);
void cw_policy_load(const struct cw_policy *policy, const json_t *saved, struct cw_policy_memory *ret);

/* ---- what policies share ---- */

/* Step and waiting of the job per batch. Ranks train in step, so the slowest one sets the pace. With R
 * ranks a batch of the job is 1/R of a round. */
struct cw_demand {
    struct cw_mean step, interval;
    double wait_s;
};
struct cw_demand cw_demand(const struct cw_facts *facts);
/* All pools as one, of workers alike, for policies that know only one. */
struct cw_pool_facts cw_pools_together(const struct cw_facts *facts);
/* Decides on this many workers, of the cheapest pools first. */
void cw_pools_fill(const struct cw_facts *facts, double workers, struct cw_decision *d);
