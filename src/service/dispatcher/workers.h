/* The table of workers. worker_life.c changes their state; worker_messages.c handles what they send. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"
#include "service/dispatcher/worker_history.h"

/* What decides whether the worker can have one more stream. */
struct worker_room {
    uint32_t n_streams;   /* streams that it serves, or was sent Prepare for */
    size_t asked_bytes;   /* bytes of pipelines in unanswered Prepare requests */
    bool turned_away;     /* a stream waits until asked_bytes is less */
    bool short_of_memory; /* one more stream did not fit its memory beside its present streams */
};

/* Sums of the last heartbeat. */
struct worker_usage {
    uint64_t cpu_ns, memory_bytes, n_batches, n_bytes, cache_hits, cache_misses;
};

/* Rates of a worker between two heartbeats. */
struct worker_rates {
    uint64_t from_ns; /* when the earlier heartbeat came; 0: there is none */
    struct worker_usage from;
    double cpus, batches_per_s, bytes_per_s, cache_hits_per_s;
    double cache_part; /* share of the looked up elements that were in the cache; NAN: none were looked up */
};

/* The state of a worker's cache, from its last heartbeat. */
struct worker_cache {
    uint64_t hits, misses, used, bad, late, refused, skipped;
    double read_bytes_per_s, write_bytes_per_s, bound; /* bound: its limit in bytes; 0: it has no cache */
};

enum worker_leaving {
    WORKER_STAYS,
    WORKER_DRAINS,  /* it announced that it leaves, and will end by itself */
    WORKER_RELEASED /* the dispatcher sent Drain: its provisioner may stop it */
};

struct worker {
    struct cw_map_node by_id, by_incarnation;
    struct cw_link link;
    uint64_t id;
    uint8_t incarnation[16];
    struct cw_peer *peer;      /* NULL: gone */
    Cachew__Register *info;    /* its last Register; NULL: it is only known from the journal */
    struct cw_peer *last_peer; /* a reference to the connection of `info`, for its name and host */
    struct worker_room room;
    struct worker_usage usage;
    struct worker_rates rates;
    struct worker_cache cache;
    struct worker_history history;
    bool awaited; /* it is known from before a restart, and has not sent its Holdings yet */
    bool ready;   /* Registered was sent: it accepts requests */
    bool kept;    /* it has a new connection; what it still holds is not known until it sends its Holdings */
    enum worker_leaving leaving;
    uint64_t since_ns; /* when its connection was lost, or it began to drain */
    uint64_t last_request;
    /* scratch variable of loops over all workers: the worker's assignment to one stream */
    struct assignment *here;
    struct cw_link assignments;
    size_t n_held;        /* number of ranges that it holds */
    size_t n_worker_sets; /* number of worker sets that it is in */
    int pool_index;       /* 0: of no pool (pools.h) */
};

struct worker_table {
    struct cw_link list;
    struct cw_map by_id, by_incarnation;
    size_t n, n_awaited;
    uint64_t last_id;
    uint64_t n_lost; /* lost connections of workers that had not announced that they leave */
    bool has_room;   /* a worker got room for one more stream since the last cw_dp_prepare_waiting */
};

struct worker *cw_dp_worker_find(struct cw_dispatcher *d, uint64_t id);
struct worker *cw_dp_worker_find_incarnation(struct cw_dispatcher *d, const uint8_t incarnation[16]);
/* Adds a worker without a connection. */
int cw_dp_worker_new(struct cw_dispatcher *d, uint64_t id, const uint8_t incarnation[16], struct worker **ret,
                     struct cw_error *err) _must_check_;
/* Returns the address of a registered worker, for messages and JSON. */
const char *cw_dp_worker_place(const struct worker *w);
bool cw_dp_worker_able(const struct worker *w);                     /* it is registered, and not leaving */
bool cw_dp_worker_full(const struct worker *w);                     /* it has no room for another stream */
Cachew__WorkerAddress cw_dp_worker_address(const struct worker *w); /* borrows from w */
