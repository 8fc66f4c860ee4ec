/*
 * How well the shuffles by chunk of a sequence mix (docs/shuffling.md), estimated from the sizes of chunks
 * and windows. For `cachew explain`, and for the note with which a run begins.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_mixing {
    unsigned position;       /* of the shuffle in the pipeline */
    const char *compressed;  /* path of a file whose records can't be read alone; NULL: `by` is "chunk" */
    uint64_t chunks;         /* of the shuffle's input */
    double chunk_records;    /* of a chunk, on average */
    uint64_t batch;          /* the batch size, or elements in a row where there are no batches */
    double chunks_per_batch; /* the chunks that the elements of a batch come from: expected number */
    double chunks_by_record; /* the same after a permutation of all positions */
    char says[640];          /* a sentence for people, without a stop */
};

typedef void (*cw_mixing_found)(void *arg, const struct cw_mixing *m);
/* Calls found for each shuffle by chunk whose output is less than a permutation of all positions: it has
 * several windows, and there is no shuffle by record before or behind it. Of several in a row
 * the last one is found. */
void cw_mixing_each(const struct cw_sequence *q, cw_mixing_found found, void *arg);
