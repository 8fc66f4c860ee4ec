/* Stands for resampler.c in a build without libsoxr. */
#include "ops/audio/resampler.h"

const char *const cw_resampler_lacks = "libsoxr";

int cw_resample(struct cw_block *b CW_UNUSED, const float *from CW_UNUSED, size_t n CW_UNUSED,
                unsigned channels CW_UNUSED, double from_rate CW_UNUSED, double to_rate CW_UNUSED,
                float **ret CW_UNUSED, size_t *ret_n CW_UNUSED, struct cw_error *err)
{
    return cw_error_set(err, CW_E_BUG, "this build has no libsoxr");
}
