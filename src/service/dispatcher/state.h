/*
 * The state of the dispatcher. Each table belongs to the module of its header; this file only puts them
 * together, so that all modules share one struct.
 *
 *   dispatcher -- workers -- assignments -- streams -- jobs -- ranks -- (client) peer
 *              \    |                   |         |
 *               \ peer                ranges    scaling
 *                pools -- (provisioner) peer
 *
 * What a pending journal entry names (peer, stream, job) is kept by reference until the entry is durable.
 * Everything else is freed with its owner.
 */
#pragma once
#include "service/dispatcher/assignments.h"
#include "service/dispatcher/core.h"
#include "service/dispatcher/jobs.h"
#include "service/dispatcher/journal.h"
#include "service/dispatcher/leases.h"
#include "service/dispatcher/limits.h"
#include "service/dispatcher/peers.h"
#include "service/dispatcher/pipelines.h"
#include "service/dispatcher/pools.h"
#include "service/dispatcher/streams.h"
#include "service/dispatcher/workers.h"

struct cw_dispatcher {
    struct cw_dispatcher_io io;
    char *name;
    uint32_t pid;
    bool share_streams, started;
    uint32_t depth; /* stream_speed.depth of new streams */
    uint64_t now_ns, start_ns;
    uint64_t grace_until_ns; /* end of the grace period after a restart; 0: it is over */
    uint64_t slow_tick_ns;   /* when the slow part of the tick last ran (once a second) */
    struct peer_table peers;
    struct worker_table workers;
    struct pipeline_table pipelines;
    struct stream_table streams;
    struct assignment_table assignments;
    struct job_table jobs;
    struct journal journal;
    struct lease_stats leases;
    struct history_table history;
    struct scaler scaler; /* without a policy only its pools, prices and counters are used */
};
