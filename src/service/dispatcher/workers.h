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

/* Whether the worker can have one more stream. */
struct worker_room {
    uint32_t n_streams;   /* that it serves or was requested to prepare */
    size_t asked_bytes;   /* of pipelines in Prepare requests that it has not answered */
    bool turned_away;     /* a pipeline waits until asked_bytes is less */
    bool short_of_memory; /* one more stream did not fit beside those that it has */
};

/* Sums of the last heartbeat. */
struct worker_usage {
    uint64_t cpu_ns, memory_bytes, n_batches, n_bytes, cache_hits, cache_misses;
};

/* What a worker does per second, between two heartbeats. */
struct worker_rates {
    uint64_t from_ns; /* when the earlier heartbeat came; 0: there is none */
    struct worker_usage from;
    double cpus, batches_per_s, bytes_per_s, cache_hits_per_s;
    double cache_part; /* elements read from the cache, of those looked up in it; NAN: none were */
};

/* What a worker says of its cache as a whole. */
struct worker_cache {
    uint64_t hits, misses, used, bad, late, refused, skipped;
    double read_bytes_per_s, write_bytes_per_s, bound; /* bound: bytes; 0: it has no cache */
};

enum worker_leaving {
    WORKER_STAYS,
    WORKER_DRAINS,  /* it announced that it leaves, and ends by itself */
    WORKER_RELEASED /* the dispatcher sent Drain: its provisioner may end it */
};

struct worker {
    struct cw_map_node by_id, by_incarnation;
    struct cw_link link;
    uint64_t id;
    uint8_t incarnation[16];
    struct cw_peer *peer;      /* NULL: gone */
    Cachew__Register *info;    /* as it registered last. NULL: it is known from the journal only */
    struct cw_peer *last_peer; /* the connection of `info`, a reference: its name and host */
    struct worker_room room;
    struct worker_usage usage;
    struct worker_rates rates;
    struct worker_cache cache;
    bool awaited; /* known before a restart of the dispatcher, and has not reported its Holdings yet */
    bool ready;   /* Registered was sent: it accepts requests */
    bool kept;    /* it has a new connection: until its Holdings, what it still holds is not known */
    enum worker_leaving leaving;
    uint64_t since_ns; /* when it left, or began to drain */
    uint64_t last_request;
    struct assignment *here; /* scratch: while one stream is matched with all workers, its assignment */
    struct cw_link assignments;
    size_t n_held;        /* ranges */
    size_t n_worker_sets; /* streams that it serves */
    int pool_index;       /* 0: of no pool (pools.h) */
};

struct worker_table {
    struct cw_link list;
    struct cw_map by_id, by_incarnation;
    size_t n, n_awaited;
    uint64_t last_id;
    uint64_t n_lost; /* connections lost, of workers that had not announced that they leave */
    bool has_room;   /* since the last cw_dp_prepare_waiting, a worker can have one more stream */
};

struct worker *cw_dp_worker_find(struct cw_dispatcher *d, uint64_t id);
struct worker *cw_dp_worker_find_incarnation(struct cw_dispatcher *d, const uint8_t incarnation[16]);
/* Adds a worker without a connection. */
int cw_dp_worker_new(struct cw_dispatcher *d, uint64_t id, const uint8_t incarnation[16], struct worker **ret,
                     struct cw_error *err) _must_check_;
/* The address of a worker that has registered, for people. */
const char *cw_dp_worker_place(const struct worker *w);
bool cw_dp_worker_able(const struct worker *w);                     /* ready, and stays */
bool cw_dp_worker_full(const struct worker *w);                     /* no further stream fits */
Cachew__WorkerAddress cw_dp_worker_address(const struct worker *w); /* borrows from w */
