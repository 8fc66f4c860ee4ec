/* What a run has to tell, as JSON: where the time went, which records failed. */
#pragma once
#include "session/local.h"

/* {seconds, threads, busy_s, idle_s, wait_s, read_bytes, memory_peak_bytes, bottleneck, operators: [{op,
 * position, seconds, share, elements, fused_into?}, ..., {part, seconds, share}]}; docs/cli.md tells them.
 * The time of fused operators is divided. New reference, NULL: out of memory. */
json_t *cw_report_profile(const struct cw_local *l);
/* The same of what was counted in some other time. */
json_t *cw_report_profile_of(const struct cw_local *l, const struct cw_profile *p);
/* {record, operator, action, reason, file?, by?} of a record that was skipped or replaced. New reference,
 * NULL: out of memory. */
json_t *cw_report_quarantined(const struct cw_compiled *c, const struct cw_quarantined *q);
/* A JSON string; bytes that are not UTF-8, as names of files may have, become \xff. New reference, NULL: out
 * of memory. */
json_t *cw_report_text(const char *text);
