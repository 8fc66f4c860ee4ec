/* Numbers of the gamma distribution, from which those of Beta and Dirichlet distributions are made. */
#pragma once
#include <stdint.h>

/* Returns the logarithm of a number of the distribution Gamma(alpha), alpha > 0: log_gamma of
 * docs/randomness.md. The words are those of philox(key[0], (low word of key[1], high word of key[1], n, 0))
 * for n from *block on; sets *block to the n after the last one that it used. */
double cw_log_gamma(const uint64_t key[2], uint32_t *block, double alpha);
