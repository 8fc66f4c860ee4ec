/* Tuning records (base/tuned.h) as JSON and for people, in the form that decisions of policies have. cli/,
 * api/ and the service call it. */
#pragma once
#include "base/text.h"
#include "session/local.h"

/* Adds a record of the default, if the user left the number of threads, or the memory, to Cachew. Call it
 * before the run. */
void cw_tuning_threads(struct cw_local *l, unsigned threads);
void cw_tuning_memory(struct cw_local *l, size_t memory);

/* Returns [{"t": seconds since the first, "what", "of"?, "times", "record": {"seen", "alternatives",
 * "chosen", "why"}}]: the last tuning record of each kind, from all modules that run for l. l must have its
 * iterator. New reference; NULL: out of memory. Any thread. */
json_t *cw_tuning_json(const struct cw_local *l);
/* As cw_tuning_json, of the given log. Times count from began_ns. */
json_t *cw_tuned_log_json(const struct cw_tuned_log *log, uint64_t began_ns);
/* Adds one line for a log file: "block_rows of tfrecord is 12: ...". */
void cw_tuned_line(const struct cw_tuned *t, struct cw_text *to);
/* Adds the result of cw_tuning_json as text for people. */
void cw_tuning_text(const json_t *list, struct cw_text *t);
