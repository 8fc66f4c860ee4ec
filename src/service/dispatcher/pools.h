/* The table of pools. A pool is a group of workers that one provisioner can start and stop. Workers of no
 * pool were started without a provisioner; the dispatcher never stops them. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/job_scaling.h"
#include "service/dispatcher/types.h"

#define DP_POOLS (DP_POOL_INDEXES - 1)

struct pool {
    struct cw_link link;
    struct cw_peer *peer; /* the connection of its provisioner */
    Cachew__Pool *info;   /* as the provisioner sent it last */
    int index;            /* from 1 */
    /* connected workers that an earlier provisioner of this pool started; they count towards the maximum */
    uint32_t n_foreign;
    double start_delay_s;  /* measured moving average; 0: not measured yet */
    uint32_t wanted;       /* workers, as of the last decision */
    bool due;              /* message Want must be sent */
    bool changed;          /* its connected workers changed: Want must be sent, but at most once a second */
    uint64_t last_send_ns; /* when Want was sent last */
    uint64_t requested_ns; /* when more workers were requested last */
    uint32_t n_requested;  /* requested workers that have not registered yet */
};

struct pool *cw_dp_pool_at(const struct cw_dispatcher *d, int index);          /* NULL: there is none */
struct pool *cw_dp_pool_find(const struct cw_dispatcher *d, const char *name); /* NULL: there is none */
/* Whether the worker registered with the pool's name. */
bool cw_dp_pool_names(const struct worker *w, const struct pool *p);
/* Whether the pool's present provisioner started the worker, and so may stop it. */
bool cw_dp_pool_owns(const struct worker *w, const struct pool *p);
uint32_t cw_dp_pool_most(const struct pool *p); /* most workers that its present provisioner may have */
/* Call when a worker of a pool registered: updates the pool's start delay. */
void cw_dp_pool_started(struct cw_dispatcher *d, const struct worker *w);
/* Call when a worker of a pool connected, was lost, or (due) was sent Drain, so that Want must name it. */
void cw_dp_pool_changed(struct cw_dispatcher *d, const struct worker *w, bool due);
/* Sets each worker's pool_index. */
void cw_dp_pools_assign(struct cw_dispatcher *d);
/* Returns the sum of an array by pool index. */
int cw_dp_pools_sum(const int *workers);
/* Sets ret[i], for each pool index i, to the most workers that there could be. */
void cw_dp_pools_most(const struct cw_dispatcher *d, int *ret);
/* Returns all pools as JSON, as in /api/v1/pools. New reference; NULL: no memory. */
json_t *cw_dp_pools_json(const struct cw_dispatcher *d);
