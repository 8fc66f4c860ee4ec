/* Mean and scatter of a measurement per batch, and how well the mean is known. Batches may be fractions,
 * since a report may come in the middle of one. */
#pragma once

struct cw_mean {
    double n;    /* batches */
    double mean; /* seconds of one */
    double m2;   /* sum of squared distances from the mean */
};

#define CW_MEAN_DEVIATION 0.2 /* relative deviation of a batch that is expected before it is measured */

/* From the sum of n batches' times and of their squares. All zeros if n is 0. */
struct cw_mean cw_mean_of(double n, double sum, double squares);
/* Adds a measurement, as if all batches had been measured together. */
void cw_mean_merge(struct cw_mean *into, const struct cw_mean *more);
/* Forgets the oldest batches beyond n. Mean and variance stay. */
void cw_mean_fade(struct cw_mean *s, double n);
/* The relative standard error of the mean; 1: nothing is known. Two batches with a deviation of 20 % are
 * assumed beside those measured (an inverse gamma prior), since few batches say little about their
 * scatter. */
double cw_mean_error(const struct cw_mean *s);
/* The same with another assumed deviation. */
double cw_mean_error_thought(const struct cw_mean *s, double deviation);
