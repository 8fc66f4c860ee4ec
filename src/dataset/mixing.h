/*
 * How well the shuffles by chunk of a sequence mix (docs/shuffling.md), estimated from the sizes of chunks
 * and windows. `cachew explain` shows the estimate, and a run reports it when it begins.
 */
#pragma once
#include "dataset/sequence.h"

struct cw_mixing {
    unsigned position;       /* of the shuffle operator in the pipeline */
    const char *compressed;  /* the compressed file that makes the shuffle by chunk; NULL: `by` is "chunk" */
    bool row_groups;         /* that file is not compressed, but read by row groups */
    uint64_t chunks;         /* number of chunks of the shuffle's input */
    double chunk_records;    /* average number of records of a chunk */
    uint64_t batch;          /* the batch size; without batches, the number of consecutive elements judged */
    double chunks_per_batch; /* expected number of different chunks that the elements of a batch come from */
    double chunks_by_record; /* this number if the shuffle were by record */
    char says[640];          /* these facts as a sentence for people, without the full stop */
};

typedef void (*cw_mixing_found)(void *arg, const struct cw_mixing *m);
/* Calls found for each shuffle by chunk that does not mix all positions: it has several windows, and there is
 * no shuffle by record before or after it. Of several such shuffles in a row, only the last is reported. */
void cw_mixing_each(const struct cw_sequence *q, cw_mixing_found found, void *arg);
