/* Declares the structs of the dispatcher, so that headers need not include each other. */
#pragma once

struct assignment;
struct cw_cache_stats;
struct compute_report;
struct cw_dispatcher;
struct cw_peer;
struct job;
struct pipeline;
struct pool;
struct range;
struct rank;
struct stream;
struct worker;
