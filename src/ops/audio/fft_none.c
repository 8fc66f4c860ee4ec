/* Stands for fft.c in a build without kissfft. */
#include "ops/audio/fft.h"

#include "base/macro.h"

const char *const cw_fft_lacks = "kissfft";

size_t cw_fft_bytes(size_t n CW_UNUSED)
{
    return 0;
}

struct cw_fft *cw_fft_init(void *memory CW_UNUSED, size_t n CW_UNUSED)
{
    return NULL;
}

void cw_fft_real(struct cw_fft *f CW_UNUSED, const float *values CW_UNUSED, float *ret CW_UNUSED)
{
}
