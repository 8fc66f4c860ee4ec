/* Gamma variates: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables" (2000), for
 * alpha + 1, times U^(1 / alpha). The normal number is made by Marsaglia's polar method. */
#include "base/gamma.h"

#include <math.h>

#include "base/math.h"
#include "base/philox.h"

static double gamma_unit(uint32_t word) /* in (0, 1) */
{
    return ((double)word + 0.5) * 0x1p-32;
}

double cw_log_gamma(const uint64_t key[2], uint32_t *block, double alpha)
{
    double d = (alpha + 1.0) - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        uint32_t word[4];
        const uint32_t counter[4] = {(uint32_t)key[1], (uint32_t)(key[1] >> 32), (*block)++, 0};
        cw_philox(key[0], counter, word);
        double u = 2.0 * gamma_unit(word[0]) - 1.0, v = 2.0 * gamma_unit(word[1]) - 1.0, s = u * u + v * v;
        if (!(s > 0 && s < 1))
            continue;
        double x = u * sqrt(-2.0 * cw_log(s) / s), t = 1.0 + c * x;
        if (t <= 0)
            continue;
        t = t * t * t;
        if (cw_log(gamma_unit(word[2])) < 0.5 * (x * x) + d - d * t + d * cw_log(t))
            return cw_log(d * t) + cw_log(gamma_unit(word[3])) / alpha;
    }
}
