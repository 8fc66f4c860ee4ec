/* Prometheus' text format: families, samples, escapes. */
#include "net/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void metrics_add_escaped(struct cw_text *t, const char *text, bool quotes)
{
    const bool utf8 = cw_text_utf8(text, strlen(text));
    for (; *text; text++)
        if (*text == '\\')
            cw_text_add(t, "\\\\");
        else if (*text == '\n')
            cw_text_add(t, "\\n");
        else if (*text == '"' && quotes)
            cw_text_add(t, "\\\"");
        else
            cw_text_add(t, "%c", utf8 || (unsigned char)*text < 0x80 ? *text : '?');
}

void cw_metrics_family(struct cw_metrics *m, enum cw_metric type, const char *name, const char *unit,
                       const char *help)
{
    const bool counter = type == CW_METRIC_COUNTER;
    snprintf(m->name, sizeof(m->name), "cachew_%s%s%s%s", name, unit ? "_" : "", unit ? unit : "",
             counter ? "_total" : "");
    cw_text_add(m->text, "# HELP %s ", m->name);
    metrics_add_escaped(m->text, help, false);
    cw_text_add(m->text, "\n# TYPE %s %s\n", m->name, counter ? "counter" : "gauge");
}

static void metrics_add_value(struct cw_text *t, double value)
{
    if (isnan(value))
        cw_text_add(t, " NaN\n");
    else if (isinf(value))
        cw_text_add(t, value > 0 ? " +Inf\n" : " -Inf\n");
    else if (value == floor(value) && fabs(value) < 1e15)
        cw_text_add(t, " %.0f\n", value);
    else
        cw_text_add(t, " %.17g\n", value);
}

void cw_metrics_add(struct cw_metrics *m, double value, ...)
{
    const char *label, *separator = "{";
    va_list ap;
    cw_text_add(m->text, "%s", m->name);
    va_start(ap, value);
    while ((label = va_arg(ap, const char *))) {
        cw_text_add(m->text, "%s%s=\"", separator, label);
        metrics_add_escaped(m->text, va_arg(ap, const char *), true);
        cw_text_add(m->text, "\"");
        separator = ",";
    }
    va_end(ap);
    if (*separator == ',')
        cw_text_add(m->text, "}");
    metrics_add_value(m->text, value);
}

void cw_metrics_list(struct cw_metrics *m, const struct cw_metric_row *rows)
{
    for (; rows->name; rows++) {
        cw_metrics_family(m, rows->type, rows->name, rows->unit, rows->help);
        cw_metrics_add(m, rows->value, NULL);
    }
}
