/* The table of streams, and the arithmetic of their positions. A stream is what several jobs with the same
 * pipeline, seed and data share: its ranges and the workers assigned to it. stream_life.c creates, parks and
 * forgets streams. */
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
    STREAM_PARKED, /* its clients are gone: no worker has anything of it until one returns */
    STREAM_DEAD    /* freed, but for references of the journal */
};

/* The assignments that may get leases, the one with most room first. */
struct assignment_heap {
    struct assignment **items;
    size_t n, capacity;
};

struct stream_assignments {
    struct cw_link list;
    size_t n, n_ready, n_shunned;
    uint64_t n_joined;         /* worker set members that there ever were */
    struct assignment *origin; /* its worker reads the iterable of a plan with `origin`; NULL: not chosen */
    uint64_t most_positions;   /* of a range, by the memory of ready workers; 0: to be computed again */
    struct assignment_heap heap;
};

/* How fast a worker runs the stream's ranges, by the last completions. */
struct stream_speed {
    struct completion {
        uint64_t positions, ns; /* ns: of a worker's time */
    } last[DP_MEASURED];

    uint64_t n_measured;
    double rate;    /* positions that a worker runs per second; 0: not known yet */
    uint32_t depth; /* unfinished ranges of a worker, at least (fill_has_enough) */
};

/* What clients are to be sent. */
struct stream_news {
    bool reports, placements;
    uint64_t first, end;   /* positions of the ranges whose placement changed */
    uint64_t last_sent_ns; /* when clients were sent news last */
};

struct stream {
    struct cw_map_node node; /* by id */
    struct cw_link link, dirty;
    uint8_t id[16];
    uint64_t number; /* unique, and part of the id */
    struct pipeline *pipeline;
    uint64_t seed;
    char *base_dir;
    Cachew__Prepared *data; /* as the first worker reported it; NULL: none has yet */
    enum stream_state state;
    bool at_most_once, journalled;
    bool restored;       /* from the journal: no leases within the grace period */
    bool damaged;        /* at-most-once: the journal lost which ranges were given out */
    int32_t cache_point; /* that was decided on, as in Prepare; 0: none was */
    uint64_t asked_ns;   /* when the last worker was requested to prepare it first */
    bool wants;          /* a worker that might serve it has no room for it */
    uint64_t idle_ns;    /* since when it has no job */
    unsigned refs;
    struct cw_link jobs;
    struct stream_assignments assignments;
    struct range_table ranges;
    uint64_t total;    /* positions that its jobs want */
    uint64_t begun_to; /* no rank began behind it */
    struct stream_speed speed;
    uint64_t n_completed; /* ranges */
    struct compute_stats computed;
    struct stream_news news;
};

struct stream_table {
    struct cw_link list, dirty; /* dirty: streams that the end of the turn looks at */
    struct cw_map by_id;
    size_t n;
    uint64_t last_number;
};

struct stream *cw_dp_stream_find(struct cw_dispatcher *d, const uint8_t id[16]); /* NULL: not known */
/* Drops a reference; the last one frees the stream. Accepts NULL, returns NULL. */
struct stream *cw_dp_stream_unref(struct stream *s);
/* Copies what a worker reported of the data. */
int cw_dp_stream_set_data(struct stream *s, const Cachew__Prepared *p, struct cw_error *err) _must_check_;
/* Marks it for the end of the turn, which leases ranges and notifies clients. */
void cw_dp_stream_dirty(struct cw_dispatcher *d, struct stream *s);
/* Marks that ranks may have reports to be sent, since a range is reported, lost or passed. */
void cw_dp_stream_reports(struct cw_dispatcher *d, struct stream *s);
/* Marks that the placement of the range changed, so that clients are sent it. */
void cw_dp_stream_announce(struct cw_dispatcher *d, struct stream *s, struct range *x);
/* Marks the range as lost for good: ranks that waited for its report are sent those behind it. */
void cw_dp_stream_lose(struct cw_dispatcher *d, struct stream *s, struct range *x);
/* Whether it waits, after a restart, for workers to report what they hold. */
bool cw_dp_stream_grace(const struct cw_dispatcher *d, const struct stream *s);
bool cw_dp_stream_attended(const struct stream *s); /* a job of it has a client */
/* Computes `total` again, after a job joined or left. */
void cw_dp_stream_set_total(struct stream *s);

/* ---- positions; they need the plan (data) ---- */

uint64_t cw_dp_stream_epoch(const struct stream *s); /* positions of an epoch */
/* Positions of so many epochs; 0 while the plan is not known. */
uint64_t cw_dp_stream_epochs(const struct stream *s, uint64_t epochs);
/* *ret: the position, counted through the epochs. CW_E_OPTION: the plan does not have it. */
int cw_dp_stream_position(const struct stream *s, const Cachew__Place *at, uint64_t *ret,
                          struct cw_error *err) _must_check_;
/* *ret: the range's positions, counted through the epochs. CW_E_SERVICE: the plan has no such range. */
int cw_dp_stream_span(const struct stream *s, uint64_t epoch, uint64_t begin, uint64_t end, struct span *ret,
                      struct cw_error *err) _must_check_;
/* The inverse of cw_dp_stream_position. */
Cachew__Place cw_dp_stream_place(const struct stream *s, uint64_t pos);
bool cw_dp_stream_counted(const struct stream *s); /* batches follow from positions, and the order is exact */
bool cw_dp_stream_placed(const struct stream *s);  /* ... from the elements before, and the order is exact */
/* Returns what ranges' bounds are multiples of, in positions of their epoch; an epoch's end is a bound too.
 */
uint64_t cw_dp_stream_align(const struct stream *s);
