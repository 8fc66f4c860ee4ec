/* Measurements over time in bounded memory: recent ones finely, older ones as means. A series has four tiers,
 * and each keeps the last SERIES_POINTS points: of 2 s, of 8 s, of 192 s and of 1344 s. They reach back 15
 * minutes, an hour, a day and 7 days. Belongs to history.c and
 * worker_history.c. */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* workers and clients report once a second, so each point has a new report */
#define SERIES_INTERVAL_NS (2 * UINT64_C(1000000000))
#define SERIES_POINTS 450
#define SERIES_COLUMNS 8
#define SERIES_TIERS 4

/* Each value is for the time since the point before. NAN: not known. */
struct series_point {
    uint64_t at_ns; /* end of that time; 0: there is no point */
    float values[SERIES_COLUMNS];
};

/* All zeros: empty. */
struct series {
    struct series_tier {
        struct series_point *points; /* a ring of SERIES_POINTS (18 KB); NULL: none yet */
        size_t n;                    /* points so far; the last SERIES_POINTS are kept */
        /* since the last point: the number of added points, sums of known values, numbers of these, and the
         * time of the last one */
        unsigned n_added, n_known[SERIES_COLUMNS];
        double sums[SERIES_COLUMNS];
        uint64_t at_ns;
    } tiers[SERIES_TIERS];
};

/* Adds a point to each tier. Without memory for a tier, the tier stays empty. */
void cw_dp_series_add(struct series *s, const struct series_point *p);
/* Writes the points from from_ns to to_ns to ret, oldest first, and returns their number. They are of the
 * finest tier that reaches back to from_ns, or has all points. The last one may be of a shorter time than the
 * others. interval_s: the time of one point. */
size_t cw_dp_series_read(const struct series *s, uint64_t from_ns, uint64_t to_ns,
                         struct series_point ret[SERIES_POINTS + 1], double *interval_s);
/* Returns the points of cw_dp_series_read as JSON: {"interval_s", "t", and a list for each name of a column}.
 * t: seconds since start_ns. New reference; NULL: no memory. */
json_t *cw_dp_series_json(const struct series *s, uint64_t from_ns, uint64_t to_ns, uint64_t start_ns,
                          const char *const *names, size_t n_names);
void cw_dp_series_deinit(struct series *s);
