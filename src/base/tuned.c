/* Keeps the last tuning record of each kind. */
#include "base/tuned.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"

static bool tuned_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

void cw_tuned_add(struct cw_tuned_log *log, const struct cw_tuned *t)
{
    unsigned i = 0;
    while (i < log->n &&
           !(tuned_same_text(log->last[i].what, t->what) && tuned_same_text(log->last[i].of, t->of)))
        i++;
    if (i == CW_TUNED_KEPT)
        return;
    uint64_t before = i < log->n ? log->last[i].n : 0;
    log->last[i] = *t;
    if (!t->at_ns)
        log->last[i].at_ns = cw_now_ns();
    log->last[i].n = before + (t->n ? t->n : 1);
    log->n = i < log->n ? log->n : i + 1;
}

void cw_tuned_add_all(struct cw_tuned_log *log, const struct cw_tuned_log *from)
{
    for (unsigned i = 0; i < from->n; i++)
        cw_tuned_add(log, &from->last[i]);
}
