/* Mean and scatter of a measurement per batch, and the error of the mean. The number of batches may be a
 * fraction, because a report may come in the middle of a batch. */
#pragma once

struct cw_mean {
    double n;    /* batches */
    double mean; /* seconds per batch */
    double m2;   /* sum of squared distances from the mean */
};

#define CW_MEAN_DEVIATION 0.2 /* relative deviation of a batch that is assumed before any is measured */

/* Returns the mean of n batches from the sum of their times and the sum of the squares. All zeros if n is 0.
 */
struct cw_mean cw_mean_of(double n, double sum, double squares);
/* Adds a measurement, as if all batches had been measured together. */
void cw_mean_merge(struct cw_mean *into, const struct cw_mean *more);
/* Reduces the number of batches to n, so that later batches have more weight. Mean and variance stay. */
void cw_mean_fade(struct cw_mean *s, double n);
/* Returns the relative standard error of the mean, at most 1; 1 if nothing was measured. Few batches say
 * little about their scatter, so two more batches with a deviation of 20 % are assumed (an inverse gamma
 * prior). */
double cw_mean_error(const struct cw_mean *s);
/* The same, with `deviation` in place of 20 %. */
double cw_mean_error_thought(const struct cw_mean *s, double deviation);
