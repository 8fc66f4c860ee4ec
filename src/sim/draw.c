/* Random numbers of the simulator: Philox, with the project's own logarithm, so that a workload gives the
 * same run on every machine. Called by worker_set.c and job.c. */
#include "sim/draw.h"

#include <math.h>

#include "base/hash.h"
#include "base/math.h"
#include "base/philox.h"

struct cw_draw cw_draw_new(uint64_t seed, const char *what)
{
    struct cw_key k = {0};
    cw_key_text(&k, "simulate");
    cw_key_u64(&k, seed);
    cw_key_text(&k, what);
    return (struct cw_draw){.key = cw_key_hash(&k)};
}

static void draw_words(struct cw_draw *d, double u[2])
{
    uint32_t counter[4] = {(uint32_t)d->at, (uint32_t)(d->at >> 32), 0, 0}, out[4];
    d->at++;
    cw_philox(d->key, counter, out);
    for (int i = 0; i < 2; i++) /* 52 random bits plus 0.5: never 0 or 1 */
        u[i] = ((double)((((uint64_t)out[2 * i] << 32) | out[2 * i + 1]) >> 12) + 0.5) * 0x1p-52;
}

double cw_draw_uniform(struct cw_draw *d)
{
    double u[2];
    draw_words(d, u);
    return u[0];
}

double cw_draw_exponential(struct cw_draw *d, double mean)
{
    return -mean * cw_log(cw_draw_uniform(d));
}

/* Marsaglia's polar method, which needs no sine. */
static double draw_normal(struct cw_draw *d)
{
    double u[2], square;
    do {
        draw_words(d, u);
        u[0] = 2 * u[0] - 1;
        u[1] = 2 * u[1] - 1;
        square = u[0] * u[0] + u[1] * u[1];
    } while (square >= 1 || square == 0);
    return u[0] * sqrt(-2 * cw_log(square) / square);
}

double cw_draw_mean(struct cw_draw *d, double deviation, double n)
{
    if (!(deviation > 0) || !(n > 0))
        return 1;
    double variance = cw_log(1 + deviation * deviation / n);
    return cw_exp(sqrt(variance) * draw_normal(d) - 0.5 * variance);
}
