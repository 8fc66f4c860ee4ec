/*
 * Mean and scatter of a measurement per batch, and how well the mean is known. Batches may come in fractions:
 * who is asked while a batch is under way says how far it is.
 */
#pragma once

struct cw_mean {
    double n;    /* batches */
    double mean; /* of one, in seconds */
    double m2;   /* sum of squared distances from the mean */
};

#define CW_MEAN_DEVIATION 0.2 /* thought of a batch's time, as a part of it */

/* Of n batches, by the sum of their times and that of the squares; all zeros where there are none. */
struct cw_mean cw_mean_of(double n, double sum, double squares);
/* Both together, as if they had been measured as one. */
void cw_mean_merge(struct cw_mean *into, const struct cw_mean *more);
/* Forgets the oldest, so that no more than n batches are remembered: mean and variance stay. */
void cw_mean_fade(struct cw_mean *s, double n);
/*
 * The standard error of the mean, as a part of the mean. Few batches say little about their own scatter, so
 * two batches with 20 % are thought beside them (an inverse gamma prior): a first pair that happens to agree
 * is not believed to the last digit. 1 where nothing is known.
 */
double cw_mean_error(const struct cw_mean *s);
/* The same with another deviation thought of. */
double cw_mean_error_thought(const struct cw_mean *s, double deviation);
