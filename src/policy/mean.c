/* Mean and scatter of a measurement per batch, and the error of the mean. */
#include "policy/mean.h"

#include <math.h>

/* Number of batches that the prior of the scatter counts as. Their relative deviation is CW_MEAN_DEVIATION;
 * most input pipelines scatter less. */
#define PRIOR_BATCHES 2.0

struct cw_mean cw_mean_of(double n, double sum, double squares)
{
    if (!(n > 0))
        return (struct cw_mean){0};
    double mean = sum / n;
    return (struct cw_mean){n, mean, fmax(squares - n * mean * mean, 0)};
}

void cw_mean_merge(struct cw_mean *into, const struct cw_mean *more)
{
    double n = into->n + more->n;
    if (!(more->n > 0))
        return;
    double apart = more->mean - into->mean;
    into->m2 += more->m2 + apart * apart * into->n * more->n / n;
    into->mean += apart * more->n / n;
    into->n = n;
}

void cw_mean_fade(struct cw_mean *s, double n)
{
    if (s->n <= n)
        return;
    s->m2 *= n / s->n;
    s->n = n;
}

double cw_mean_error(const struct cw_mean *s)
{
    return cw_mean_error_thought(s, CW_MEAN_DEVIATION);
}

double cw_mean_error_thought(const struct cw_mean *s, double deviation)
{
    if (!(s->n > 0) || !(s->mean > 0))
        return 1;
    double thought = deviation * s->mean;
    double seen = s->n > 1 ? s->n - 1 : 0;
    double variance = (s->m2 + PRIOR_BATCHES * thought * thought) / (seen + PRIOR_BATCHES);
    double error = sqrt(variance / s->n) / s->mean;
    return error < 1 ? error : 1;
}
