/* Predicts how fast single records are read in random order, and how fast whole chunks would be: by a few
 * reads before the first batch of a run. local.c runs it; explain/ and cli/ report it. */
#pragma once
#include <stdbool.h>

#include <jansson.h>

#include "dataset/sequence.h"

struct cw_reading {       /* of records of a sequence; rates are of all of them, those in memory included */
    double absent;        /* part of the records that is not in memory */
    double record_bytes;  /* on average */
    double read_s;        /* seconds of a single read while no other read is in flight */
    double records_per_s; /* one by one in random order, as many reads at a time as the engine does */
    double chunked_per_s; /* chunk by chunk */
    bool fits;            /* all files fit in memory, and are read in (docs/engine.md) */
};

struct cw_reading_probe;
/* Begins to probe, on threads of its own, while nothing else reads. It takes 0.2 s, or as long as a single
 * read. memory: the budget of the run. NULL: there is nothing to predict, because records are not read in
 * random order, are large, or are in memory as far as was checked. */
struct cw_reading_probe *cw_reading_probe_new(const struct cw_sequence *s, uint64_t memory);
/* Waits for the result, a little longer than probing should take. NULL: storage did not answer in that
 * time. */
const struct cw_reading *cw_reading_wait(struct cw_reading_probe *p);
/* Waits for reads that are under way. May be NULL. */
void cw_reading_probe_free(struct cw_reading_probe *p);

/* A sentence, where shuffle(by="chunk") would at least double the rate of a run whose threads compute so
 * many elements per second (0: that is not known); else NULL. The caller frees it. */
char *cw_reading_says(const struct cw_reading *k, double computed_per_s);
json_t *cw_reading_json(const struct cw_reading *k);
