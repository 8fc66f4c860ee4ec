/* Changes the sample rate of audio by libsoxr; a build without it has resampler_none.c instead of
 * resampler.c. Thread-safe. */
#pragma once
#include "data/block.h"

/* The library that this build lacks, for messages; NULL: none. */
extern const char *const cw_resampler_lacks;

/* Resamples n frames of `channels` interleaved values from one rate to another, in memory of the block. Sets
 * *ret and *ret_n. */
int cw_resample(struct cw_block *b, const float *from, size_t n, unsigned channels, double from_rate,
                double to_rate, float **ret, size_t *ret_n, struct cw_error *err) _must_check_;
