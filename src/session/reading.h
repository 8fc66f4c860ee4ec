/* Predicts how fast single records are read in random order, and how fast whole chunks would be read, from a
 * few reads before the first batch of a run. local.c runs it; explain/ and cli/ report the result. */
#pragma once
#include <stdbool.h>

#include <jansson.h>

#include "dataset/sequence.h"

/* speeds of reading the records of a sequence; the rates are for all records, including those in memory */
struct cw_reading {
    double absent;       /* share of the records that is not in memory, 0 to 1 */
    double record_bytes; /* mean size of a record */
    double read_s;       /* seconds of a single read while no other read is in flight */
    /* when records are read one by one in random order, with as many reads in flight as the engine has */
    double records_per_s;
    double chunked_per_s; /* when they are read chunk by chunk */
    /* all files fit in memory, so the run reads them into the page cache (docs/engine.md) */
    bool fits;
};

struct cw_reading_probe;
/* Begins to probe, on threads of its own, while nothing else reads. Probing takes 0.2 s, or the time of a
 * single read, if that is longer. memory: bytes of the run's budget. NULL: there is nothing to predict,
 * because records are not read in random order, are large, or were all in memory when checked. */
struct cw_reading_probe *cw_reading_probe_new(const struct cw_sequence *s, uint64_t memory);
/* Waits for the result, at most a little longer than probing should take. NULL: storage did not answer in
 * that time. The result belongs to p. */
const struct cw_reading *cw_reading_wait(struct cw_reading_probe *p);
/* Waits for the reads under way, and frees p, which may be NULL. */
void cw_reading_probe_free(struct cw_reading_probe *p);

/* Returns a sentence if shuffle(by="chunk") would at least double the rate of the run, else NULL.
 * computed_per_s: how many elements the run's threads compute per second (0: not known). The caller frees the
 * text. */
char *cw_reading_says(const struct cw_reading *k, double computed_per_s);
json_t *cw_reading_json(const struct cw_reading *k);
