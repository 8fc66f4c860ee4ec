/* What was set by itself (base/tuned.h), as JSON and for people: records of the form that decisions of
 * policies have. */
#pragma once
#include "base/text.h"
#include "session/local.h"

/* Nobody said how many threads there are, or how much memory: they are the machine's. Before it runs. */
void cw_tuning_threads(struct cw_local *l, unsigned threads);
void cw_tuning_memory(struct cw_local *l, size_t memory);

/* [{"t": seconds since the first, "what", "of"?, "times", "record": {"seen", "alternatives", "chosen",
 * "why"}}]: the last of each kind, of all that runs for l, which has its iterator. New reference; NULL: out
 * of memory. Any thread. */
json_t *cw_tuning_json(const struct cw_local *l);
/* The same of a log; its times are since began_ns. */
json_t *cw_tuned_log_json(const struct cw_tuned_log *log, uint64_t began_ns);
/* A line for a log: "block_rows of tfrecord is 12: ...". */
void cw_tuned_line(const struct cw_tuned *t, struct cw_text *to);
/* What cw_tuning_json gave, for people. */
void cw_tuning_text(const json_t *list, struct cw_text *t);
