/* Metrics as text, in the format that Prometheus reads (exposition format 0.0.4) and by its conventions of
 * names. */
#pragma once
#include "base/text.h"

#define CW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum cw_metric { CW_METRIC_COUNTER, CW_METRIC_GAUGE };

/* Samples follow one family at a time. All zeros but `text`. */
struct cw_metrics {
    struct cw_text *text;
    char name[128];
};

/* The family cachew_NAME[_UNIT][_total]: a counter's name ends in _total. unit: NULL, or a base unit:
 * "bytes", "seconds", "ratio". help: a sentence. */
void cw_metrics_family(struct cw_metrics *m, enum cw_metric type, const char *name, const char *unit,
                       const char *help);
/* A sample of it: pairs of label and value, then NULL. Values may be anything; what is not UTF-8 shows as
 * "?". */
void cw_metrics_add(struct cw_metrics *m, double value, ...) __attribute__((sentinel));

/* Families of one sample without labels, up to a row without a name. */
struct cw_metric_row {
    enum cw_metric type;
    const char *name, *unit;
    double value;
    const char *help;
};

void cw_metrics_list(struct cw_metrics *m, const struct cw_metric_row *rows);
