/* Declares the structs of the dispatcher, so that headers need not include each other. The header named in a
 * comment defines the struct. */
#pragma once

struct assignment;     /* assignments.h: the relation of one worker to one stream */
struct cw_cache_stats; /* policy/cache_stats.h: what was measured of each cache variant */
struct compute_report; /* compute_stats.h: the numbers of a worker's last heartbeat */
struct cw_dispatcher;  /* state.h: everything that the dispatcher knows */
struct cw_peer;        /* peers.h: a connection to a client, worker, admin client or provisioner */
struct job;            /* jobs.h: a run of a pipeline that one or more clients share, one client per rank */
struct pipeline;       /* pipelines.h: the JSON of a pipeline, found by its fingerprint */
struct pool;           /* pools.h: a group of workers that one provisioner can start and stop */
struct range;          /* ranges.h: consecutive elements of a stream; a worker computes them under a lease */
struct rank;           /* ranks.h: a client's part of a job: the rank gets its share of the batches */
struct stream;         /* streams.h: a pipeline with a seed and data; several jobs can share it */
struct worker;         /* workers.h: a process that computes ranges */
