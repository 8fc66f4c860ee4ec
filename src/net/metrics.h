/* Writes metrics as text in Prometheus' exposition format 0.0.4, with names by Prometheus' conventions. A
 * family is a metric with its name, type and help; its samples have values and labels. */
#pragma once
#include "base/text.h"

#define CW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum cw_metric { CW_METRIC_COUNTER, CW_METRIC_GAUGE };

/* The text, and the family whose samples are written. Initialise it with zeros, except for `text`. */
struct cw_metrics {
    struct cw_text *text;
    char name[128];
};

/* Begins the family cachew_NAME[_UNIT][_total]; only a counter's name ends in _total. unit: NULL, or a base
 * unit: "bytes", "seconds", "ratio". help: a sentence. */
void cw_metrics_family(struct cw_metrics *m, enum cw_metric type, const char *name, const char *unit,
                       const char *help);
/* Adds a sample to the family. The further arguments are pairs of a label and its value, then NULL. A label's
 * value may be any text; if it is not UTF-8, its non-ASCII bytes are written as "?". */
void cw_metrics_add(struct cw_metrics *m, double value, ...) __attribute__((sentinel));

/* A family with a single sample, which has no labels. A table ends with a row without a name. */
struct cw_metric_row {
    enum cw_metric type;
    const char *name, *unit;
    double value;
    const char *help;
};

void cw_metrics_list(struct cw_metrics *m, const struct cw_metric_row *rows);
