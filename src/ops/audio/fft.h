/* The Fourier transform of real values, by kissfft; a build without it has fft_none.c instead of fft.c. */
#pragma once
#include <stddef.h>

/* The library that this build lacks, for messages; NULL: none. */
extern const char *const cw_fft_lacks;

struct cw_fft;

/* Returns the bytes of a transform of n values; n is even. 0: n is not possible. */
size_t cw_fft_bytes(size_t n);
/* Makes a transform of n values in memory of cw_fft_bytes(n) bytes. One thread at a time may use it. */
struct cw_fft *cw_fft_init(void *memory, size_t n);
/* Computes the coefficients 0 to n/2 of n values, as pairs (real, imaginary): n + 2 numbers. */
void cw_fft_real(struct cw_fft *f, const float *values, float *ret);
