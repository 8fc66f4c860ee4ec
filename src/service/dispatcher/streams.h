/* The table of streams, and the arithmetic of their positions. A stream is a pipeline with a seed and data;
 * jobs with the same pipeline, seed and data can share one. It has ranges and assigned workers. A position
 * (ranges.h) is an index into the stream's elements, counted over all epochs. stream_life.c creates, parks
 * and forgets streams. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/compute_stats.h"
#include "service/dispatcher/limits.h"
#include "service/dispatcher/ranges.h"
#include "service/dispatcher/types.h"

enum stream_state {
    STREAM_ACTIVE,
    STREAM_PARKED, /* its clients are gone, and no worker has it open, until a client returns */
    STREAM_DEAD    /* removed from the tables; references of pending journal entries keep the struct */
};

/* The assignments that may get leases: a heap, whose root gets the next lease (assignments.h). */
struct assignment_heap {
    struct assignment **items;
    size_t n, capacity;
};

struct stream_assignments {
    struct cw_link list;
    size_t n, n_ready, n_shunned;
    uint64_t n_joined; /* members of the worker set, all so far */
    /* if the plan has `origin`: this assignment's worker reads the iterable; NULL: not chosen yet */
    struct assignment *origin;
    /* of a range that fits the memory of all ready workers; 0: must be computed again */
    uint64_t most_positions;
    struct assignment_heap heap;
};

/* How fast one worker computes the stream's ranges, measured from the last completions. */
struct stream_speed {
    struct completion {
        uint64_t positions, ns; /* ns: time of one worker */
    } last[DP_MEASURED];

    uint64_t n_measured;
    double rate;    /* positions per second of one worker; 0: not known yet */
    uint32_t depth; /* least number of unfinished ranges of a worker (fill_has_enough) */
};

/* News that must be sent to the stream's clients. */
struct stream_news {
    bool reports, placements;
    uint64_t first, end;   /* all ranges whose placement changed lie within these positions */
    uint64_t last_sent_ns; /* when news was last sent to clients */
};

struct stream {
    struct cw_map_node node; /* by id */
    struct cw_link link, dirty;
    uint8_t id[16];
    uint64_t number; /* unique, and part of the id */
    struct pipeline *pipeline;
    uint64_t seed;
    char *base_dir;
    Cachew__Prepared *data; /* the plan and files, as the first worker reported them; NULL: not known yet */
    enum stream_state state;
    bool at_most_once, journalled;
    bool restored;       /* restored from the journal: no leases in the grace period */
    bool damaged;        /* at-most-once: entries about which ranges were given out were damaged */
    int32_t cache_point; /* the chosen cache point, numbered as in Prepare; 0: not chosen yet */
    uint64_t asked_ns;   /* when Prepare was last sent to a worker while the plan was unknown */
    bool wants;          /* it waits for a worker that could serve it and has no room now */
    uint64_t idle_ns;    /* since when it has had no job */
    unsigned refs;
    struct cw_link jobs;
    struct stream_assignments assignments;
    struct range_table ranges;
    uint64_t total;    /* end of the positions that its jobs want */
    uint64_t begun_to; /* no rank began after this position */
    struct stream_speed speed;
    uint64_t n_completed; /* ranges */
    struct compute_stats computed;
    struct stream_news news;
};

struct stream_table {
    struct cw_link list, dirty; /* dirty: streams that the next turn handles */
    struct cw_map by_id;
    size_t n;
    uint64_t last_number;
};

struct stream *cw_dp_stream_find(struct cw_dispatcher *d, const uint8_t id[16]); /* NULL: not known */
/* Drops a reference; the last one frees the stream. Accepts NULL, returns NULL. */
struct stream *cw_dp_stream_unref(struct stream *s);
/* Stores a copy of what a worker reported about the data. */
int cw_dp_stream_set_data(struct stream *s, const Cachew__Prepared *p, struct cw_error *err) _must_check_;
/* Marks the stream for the next turn, which leases ranges and notifies clients. */
void cw_dp_stream_dirty(struct cw_dispatcher *d, struct stream *s);
/* Marks that there may be reports to send to ranks, because a range was reported, lost or passed. */
void cw_dp_stream_reports(struct cw_dispatcher *d, struct stream *s);
/* Marks that the placement of the range changed and must be sent to clients. */
void cw_dp_stream_announce(struct cw_dispatcher *d, struct stream *s, struct range *x);
/* Marks the range as lost for good. Ranks that waited for its report get the reports of later ranges. */
void cw_dp_stream_lose(struct cw_dispatcher *d, struct stream *s, struct range *x);
/* Whether the stream still waits, after a restart, for workers to report what they hold. */
bool cw_dp_stream_grace(const struct cw_dispatcher *d, const struct stream *s);
bool cw_dp_stream_attended(const struct stream *s); /* whether one of its jobs has a client */
/* Call after a job joined or left: computes `total` again. */
void cw_dp_stream_set_total(struct stream *s);

/* ---- positions; they need the plan (data) ---- */

uint64_t cw_dp_stream_epoch(const struct stream *s); /* positions of an epoch */
/* Returns the positions of a number of epochs; 0: the plan is not known yet. */
uint64_t cw_dp_stream_epochs(const struct stream *s, uint64_t epochs);
/* ret: the position of `at`, counted over all epochs. CW_E_OPTION: the plan has no such position. */
int cw_dp_stream_position(const struct stream *s, const Cachew__Place *at, uint64_t *ret,
                          struct cw_error *err) _must_check_;
/* ret: the positions of a range of one epoch, counted over all epochs. CW_E_SERVICE: the plan has no such
 * range. */
int cw_dp_stream_span(const struct stream *s, uint64_t epoch, uint64_t begin, uint64_t end, struct span *ret,
                      struct cw_error *err) _must_check_;
/* The inverse of cw_dp_stream_position. */
Cachew__Place cw_dp_stream_place(const struct stream *s, uint64_t pos);
/* Whether a batch's positions are known in advance: batch g of an epoch has align positions from g * align
 * on. */
bool cw_dp_stream_counted(const struct stream *s);
/* Whether it depends on earlier elements which batch an element gets into, while each range can be computed
 * by itself. */
bool cw_dp_stream_placed(const struct stream *s);
/* Returns the number of which the bounds of ranges are multiples, counted in their epoch. The end of an epoch
 * is a bound, too. */
uint64_t cw_dp_stream_align(const struct stream *s);
