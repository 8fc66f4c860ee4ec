/* Keeps measurements over time in tiers of means. */
#include "service/dispatcher/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "service/dispatcher/json_list.h"

/* Number of added points per point of a tier. SERIES_POINTS points of 2 s times these numbers are 15 minutes,
 * an hour, a day and 7 days. */
static const unsigned factors[SERIES_TIERS] = {1, 4, 96, 672};

/* Returns the mean of what was added to the tier since its last point. */
static struct series_point tier_mean(const struct series_tier *t)
{
    struct series_point p = {.at_ns = t->at_ns};
    for (size_t i = 0; i < SERIES_COLUMNS; i++)
        p.values[i] = t->n_known[i] > 0 ? (float)(t->sums[i] / t->n_known[i]) : NAN;
    return p;
}

static void tier_add(struct series_tier *t, unsigned factor, const struct series_point *p)
{
    t->at_ns = p->at_ns;
    for (size_t i = 0; i < SERIES_COLUMNS; i++) {
        t->n_known[i] += !isnan(p->values[i]);
        t->sums[i] += isnan(p->values[i]) ? 0 : p->values[i];
    }
    if (++t->n_added < factor)
        return;
    if (t->points || (t->points = calloc(SERIES_POINTS, sizeof(*t->points))))
        t->points[t->n++ % SERIES_POINTS] = tier_mean(t);
    t->n_added = 0;
    memset(t->n_known, 0, sizeof(t->n_known));
    memset(t->sums, 0, sizeof(t->sums));
}

void cw_dp_series_add(struct series *s, const struct series_point *p)
{
    for (size_t i = 0; i < SERIES_TIERS; i++)
        tier_add(&s->tiers[i], factors[i], p);
}

static size_t tier_first(const struct series_tier *t)
{
    return t->n - CW_MIN(t->n, (size_t)SERIES_POINTS);
}

/* Whether the tier has all points since from_ns. It may lack two: the time that a request takes, and the time
 * before the oldest point, for which that point is. */
static bool tier_reaches(const struct series_tier *t, unsigned factor, uint64_t from_ns)
{
    uint64_t slack_ns = 2 * SERIES_INTERVAL_NS * factor;
    return t->n <= SERIES_POINTS || t->points[tier_first(t) % SERIES_POINTS].at_ns <= from_ns + slack_ns;
}

size_t cw_dp_series_read(const struct series *s, uint64_t from_ns, uint64_t to_ns,
                         struct series_point ret[SERIES_POINTS + 1], double *interval_s)
{
    size_t at = 0, n = 0;
    while (at < SERIES_TIERS - 1 && !tier_reaches(&s->tiers[at], factors[at], from_ns))
        at++;
    const struct series_tier *t = &s->tiers[at];
    for (size_t i = tier_first(t); i < t->n; i++) {
        const struct series_point *p = &t->points[i % SERIES_POINTS];
        if (p->at_ns >= from_ns && p->at_ns <= to_ns)
            ret[n++] = *p;
    }
    if (t->n_added > 0 && t->at_ns >= from_ns && t->at_ns <= to_ns)
        ret[n++] = tier_mean(t);
    *interval_s = (double)(SERIES_INTERVAL_NS * factors[at]) / 1e9;
    return n;
}

json_t *cw_dp_series_json(const struct series *s, uint64_t from_ns, uint64_t to_ns, uint64_t start_ns,
                          const char *const *names, size_t n_names)
{
    struct series_point points[SERIES_POINTS + 1];
    double interval_s;
    size_t n = cw_dp_series_read(s, from_ns, to_ns, points, &interval_s);
    json_t *o = json_object(), *times = json_array();
    for (size_t i = 0; i < n; i++)
        cw_dp_json_append(&times, json_real((double)(points[i].at_ns - start_ns) / 1e9));
    cw_dp_json_set(&o, "interval_s", json_real(interval_s));
    cw_dp_json_set(&o, "t", times);
    for (size_t column = 0; column < n_names; column++) {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            cw_dp_json_append(&list, isnan(points[i].values[column]) ? json_null()
                                                                     : json_real(points[i].values[column]));
        cw_dp_json_set(&o, names[column], list);
    }
    return o;
}

void cw_dp_series_deinit(struct series *s)
{
    for (size_t i = 0; i < SERIES_TIERS; i++)
        free(s->tiers[i].points);
    *s = (struct series){0};
}
