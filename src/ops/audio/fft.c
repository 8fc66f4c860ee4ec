/* The Fourier transform of real values, by kissfft. */
#include "ops/audio/fft.h"

#include <kiss_fftr.h>

_Static_assert(sizeof(kiss_fft_scalar) == sizeof(float), "the kissfft of floats");

const char *const cw_fft_lacks;

size_t cw_fft_bytes(size_t n)
{
    size_t bytes = 0;
    kiss_fftr_alloc((int)n, 0, NULL, &bytes);
    return bytes;
}

struct cw_fft *cw_fft_init(void *memory, size_t n)
{
    size_t bytes = cw_fft_bytes(n);
    return (struct cw_fft *)kiss_fftr_alloc((int)n, 0, memory, &bytes);
}

void cw_fft_real(struct cw_fft *f, const float *values, float *ret)
{
    kiss_fftr((kiss_fftr_cfg)f, values, (kiss_fft_cpx *)ret);
}
