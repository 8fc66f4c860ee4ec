/* Reports of a run as JSON: how its time was spent, and which records failed. cli/, api/ and explain/ call
 * it. */
#pragma once
#include "session/local.h"

/* Returns {seconds, threads, busy_s, idle_s, wait_s, read_bytes, memory_peak_bytes, bottleneck, operators:
 * [{op, position, seconds, share, elements, fused_into?}, ..., {part, seconds, share}]} (docs/cli.md). The
 * time of fused operators is divided among them. New reference; NULL: out of memory. */
json_t *cw_report_profile(const struct cw_local *l);
/* As cw_report_profile, of the given profile. */
json_t *cw_report_profile_of(const struct cw_local *l, const struct cw_profile *p);
/* Returns {record, operator, action, reason, file?, by?} of a record that was skipped or replaced. New
 * reference; NULL: out of memory. */
json_t *cw_report_quarantined(const struct cw_compiled *c, const struct cw_quarantined *q);
/* Returns a JSON string. Bytes that are not UTF-8, as in names of files, are written as \xff. New reference;
 * NULL: out of memory. */
json_t *cw_report_text(const char *text);
