/* The table of pools: workers that a provisioner can start. Workers of no pool were started without a
 * provisioner, and are never ended. */
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
    struct cw_peer *peer; /* its provisioner */
    Cachew__Pool *info;   /* as the provisioner sent it last */
    int index;            /* from 1 */
    uint32_t n_foreign;   /* workers of an earlier provisioner that are still connected: they count too */
    double start_delay_s; /* as measured; 0: not yet */
    uint32_t wanted;
    bool due;              /* Want is to be sent */
    bool changed;          /* its connected workers changed: Want is sent once a second at most */
    uint64_t last_send_ns; /* of Want */
    uint64_t requested_ns; /* when more workers were requested */
    uint32_t n_requested;  /* of these, not started yet */
};

struct pool *cw_dp_pool_at(const struct cw_dispatcher *d, int index);          /* NULL: there is none */
struct pool *cw_dp_pool_find(const struct cw_dispatcher *d, const char *name); /* NULL: there is none */
/* Whether the worker registered with the pool's name. */
bool cw_dp_pool_names(const struct worker *w, const struct pool *p);
/* Whether the pool's present provisioner started the worker, so that it may end it. */
bool cw_dp_pool_owns(const struct worker *w, const struct pool *p);
uint32_t cw_dp_pool_most(const struct pool *p); /* own workers that it may have */
/* A worker registered. */
void cw_dp_pool_started(struct cw_dispatcher *d, const struct worker *w);
/* A worker's connection ended; due: it was sent Drain, so that Want names it. */
void cw_dp_pool_changed(struct cw_dispatcher *d, const struct worker *w, bool due);
/* Sets each worker's pool_index. */
void cw_dp_pools_assign(struct cw_dispatcher *d);
/* Returns the sum of what is given by pool index. */
int cw_dp_pools_sum(const int *workers);
/* By pool index, how many workers there could be. */
void cw_dp_pools_most(const struct cw_dispatcher *d, int *ret);
json_t *cw_dp_pools_json(const struct cw_dispatcher *d);
