/* Policies: functions from facts (measurements and the present state) to a decision. A policy has a small
 * memory that the caller passes in and out. It has no clock, does no I/O, allocates nothing and keeps no
 * other state. So the dispatcher and the simulator run the same code, a decision can be replayed from a
 * journal, and a test can make up its facts. Times are seconds, sizes bytes, prices per hour. "Per batch"
 * counts the batches of all ranks of a job. Not thread-safe: the owner of a policy's memory locks. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "policy/mean.h"

#define CW_POLICY_POOLS 5 /* most pools: four provisioners, and workers without a provisioner */
#define CW_POLICY_CACHE_POINTS 16
#define CW_POLICY_ALTERNATIVES 8

/* Name of the pool of workers that no provisioner started. */
#define CW_POOL_STATIC "static"
/* Returns CW_E_OPTION unless the name is 1 to 64 bytes of UTF-8 and not CW_POOL_STATIC. */
int cw_pool_name_check(const char *name, struct cw_error *err) _must_check_;

enum cw_objective { CW_OBJECTIVE_TIME, CW_OBJECTIVE_COST };

/* ---- facts: what was measured since the last call, and the present state ---- */

struct cw_client_facts { /* of one rank, per batch that this rank gets */
    /* the training step: from a batch's arrival to the request for the next one */
    struct cw_mean step;
    struct cw_mean wait; /* from the request to the arrival */
    double queue;        /* mean number of batches that are ready and not taken yet */
};

struct cw_pool_facts {
    const char *name;
    int running, starting;
    /* most workers that this job may have now: limited by the pool's size, the job's share and quota, and
     * the number that the provisioner can start */
    int maximum;
    double price_per_h;          /* of a worker, from its request on; 0: none */
#define CW_WORKER_PRICE_MOST 1e6 /* higher prices are rejected as typing errors */
    double price_per_gb;         /* of the bytes that its workers send to clients; 0: none */
    bool local;                  /* its workers run on the training host, and may slow the client's step */
    double host_cpus,
        host_busy_cpus;   /* of a local pool: CPUs of its host; those that others use. 0: not known */
    double start_delay_s; /* from the request for a worker until it computes */
    double cpu_share;     /* CPUs that a worker gets, all its threads together; 0: not limited */
    /* computing time of a worker per batch, without waiting for storage or for the client */
    struct cw_mean compute;
    double busy; /* part of the workers' time in which they computed, 0 to 1 */
};

struct cw_cache_point_facts { /* a cache point: an `autocache()` of the pipeline */
    const char *name;
    /* seconds of a worker per batch that reading from the cache saves: computing time up to the cache point,
     * less the time that reading takes of the worker's threads. Negative if reading takes longer */
    double prefix_s;
    double bytes;   /* per batch, to write or to read */
    double cached;  /* part of this epoch that can be read, 0 to 1 */
    double written; /* part of an epoch that this epoch has added; readable from the next epoch on */
};

struct cw_storage_facts { /* speeds are for all workers together; 0: not known, or no limit */
    double source_bytes;  /* bytes read from the source per batch when nothing is cached */
    double source_bytes_per_s;
    double read_bytes_per_s, write_bytes_per_s; /* of the cache, as measured last */
    double cache_bytes;                         /* room in the cache; 0: no limit */
};

struct cw_facts {
    const struct cw_client_facts *clients;
    int n_clients;
    struct cw_pool_facts pools[CW_POLICY_POOLS];
    int n_pools;
    bool fixed; /* the number of workers can't be changed: the policy decides only where to cache */
    const struct cw_cache_point_facts
        *cache_points; /* at most CW_POLICY_CACHE_POINTS, in the pipeline's order */
    int n_cache_points;
    int cache_point; /* index of the cache point in use; -1: none */
    bool unread;     /* elements cached at that cache point are recomputed, since reading them takes longer */
    struct cw_storage_facts storage;
    double epoch, epochs; /* the current epoch, from 0; the number of all epochs */
    double batches_per_epoch;
    double bytes_per_batch;     /* that a worker sends to a client; 0: not known */
    double positions_per_batch; /* positions of the sequence (elements before filters); 0: not known */
    double batches_done;        /* in all epochs so far */
    enum cw_objective objective;
    /* price of all ranks together; values outside these bounds are rejected as typing errors */
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

struct cw_alternative {                  /* a possible decision, and what the rest of the job would take */
    int pools[CW_POLICY_POOLS], workers; /* workers of each pool; their sum */
    double capacity, local;              /* in workers of the first pool; number of local workers */
    int order;                           /* index of the order in which pools were filled (supply.h) */
    int cache_point;                     /* -1: none */
    /* seconds per batch at first; seconds and cost of the rest of the job */
    double batch_s, time_s, cost;
    /* the part of time_s and cost until the number of workers is decided again: while a cache fills, until it
     * is full */
    double held_s, held_cost;
};

struct cw_seen {                                        /* the measurements that the decision is based on */
    double step_s, wait_s, interval_s, compute_s, busy; /* per batch; busy: part of time, 0 to 1 */
    double error;                                       /* relative standard error of the interval */
    double doubt; /* part by which all alternatives assume workers to be slower than measured */
    int workers, cache_point;
    double cached;
    enum cw_bottleneck limit;
};

struct cw_decision {
    int workers[CW_POLICY_POOLS]; /* wanted workers, by pool */
    int cache_point;              /* cache point to read and write; -1: none */
    /* batches wait until their elements are written to the cache. Only the simulator does so: a service does
     * not write the elements that the cache can't take at once */
    bool write_waits;
    bool concluded; /* this call made a decision, maybe to change nothing: the decision has a record */
    bool replanned; /* concluded because the client waits unexpectedly: recorded even without a change */
    bool promises;  /* with this plan the client is expected not to wait */
    struct cw_seen seen;
    struct cw_alternative alternatives[CW_POLICY_ALTERNATIVES];
    int n_alternatives;
    char why[512];
};

/* Returns {"what", "seen", "alternatives", "before", "chosen", "why"}, with cache points by name. "what" is
 * the decision in words. New reference; NULL: out of memory. */
json_t *cw_decision_json(const struct cw_decision *d, const struct cw_facts *facts);

/* ---- a policy ---- */

/* Most doubles in a policy's memory. The memory is a struct of doubles only, so that it can be copied, and
 * written to a journal by the names of its fields. All zeros: the job starts. */
#define CW_POLICY_MEMORY 192

struct cw_policy_memory {
    double values[CW_POLICY_MEMORY];
};

struct cw_field { /* a field of the memory; the last entry of a list has no name */
    const char *name;
    size_t at, n; /* offset and size, in doubles */
};

#define CW_FIELD(type, member) \
    {#member, offsetof(type, member) / sizeof(double), (sizeof(((type *)0)->member)) / (sizeof(double))}

struct cw_policy {
    const char *name; /* as in --policy; a name that ends with ":" takes a number after it */
    bool caches;      /* the policy decides about cache points. Otherwise decision.cache_point is always -1 */
    const struct cw_field *fields; /* of the memory; NULL: none */
    double parameter; /* the number after ":", or the variant where a file has several policies */
    /* Decides. Called with each report of the job: about once a second, more often at first. now_s: seconds
     * of a clock that never goes back. d: the result, zeros before. */
    void (*decide)(const struct cw_policy *policy, struct cw_policy_memory *memory,
                   const struct cw_facts *facts, double now_s, struct cw_decision *d);
};

/* Calls a policy's decide. If the elements of the cache point in use are not read (facts.unread), the policy
 * gets facts without a cache point in use. If the policy does not decide about caches, *ret keeps the cache
 * point of the facts. */
void cw_policy_decide(const struct cw_policy *policy, struct cw_policy_memory *memory,
                      const struct cw_facts *facts, double now_s, struct cw_decision *ret);

/* All policies; ends with NULL. */
extern const struct cw_policy *const cw_policies[];
#define CW_POLICY_MOST 1000000 /* largest number after a ":", from 1 on */
/* Finds a policy by its name, for example "fixed:8", with the number as its parameter. "cachew" is another
 * name of "auto". False: no policy has this name, or the number is wrong. */
bool cw_policy_find(const char *name, struct cw_policy *ret);

/* Converts a policy's memory to JSON, for a journal (new reference; NULL: out of memory), and back. When
 * loading, unknown names are ignored and missing fields are 0. */
json_t *cw_policy_save(const struct cw_policy *policy, const struct cw_policy_memory *memory);
void cw_policy_load(const struct cw_policy *policy, const json_t *saved, struct cw_policy_memory *ret);

/* ---- what policies share ---- */

/* Step and waiting of the job per batch. Ranks train in step, so the slowest rank sets the pace. In a round
 * each of R ranks gets a batch, so a batch of the job takes 1/R of a round. */
struct cw_demand {
    struct cw_mean step, interval;
    double wait_s;
};
struct cw_demand cw_demand(const struct cw_facts *facts);
/* Returns all pools as one pool of equal workers, for policies that know only one pool. */
struct cw_pool_facts cw_pools_together(const struct cw_facts *facts);
/* Sets d->workers to this many workers, of the cheapest pools first. */
void cw_pools_fill(const struct cw_facts *facts, double workers, struct cw_decision *d);
