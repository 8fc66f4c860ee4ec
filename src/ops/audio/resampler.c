/* Resamples with libsoxr, quality HQ. The library's resampler lives for one call. */
#include "ops/audio/resampler.h"

#include <soxr.h>

#include "base/macro.h"

#define STEP ((size_t)1 << 15) /* frames that the library gets at a time, so that it keeps few of them */

const char *const cw_resampler_lacks;

int cw_resample(struct cw_block *b, const float *from, size_t n, unsigned channels, double from_rate,
                double to_rate, float **ret, size_t *ret_n, struct cw_error *err)
{
    soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
    soxr_runtime_spec_t runtime = soxr_runtime_spec(1); /* threads; blocks are computed side by side */
    size_t room = (size_t)((double)n * to_rate / from_rate) + 1, done = 0;
    soxr_error_t failed = NULL;
    float *to = cw_block_alloc(b, room * channels * sizeof(*to), err);
    if (!to)
        return err ? err->status : CW_E_MEMORY;
    soxr_t s = soxr_create(from_rate, to_rate, channels, &failed, &io, &quality, &runtime);
    for (size_t at = 0; !failed && done < room;) {
        size_t step = n - at < STEP ? n - at : STEP, used = 0, got = 0;
        /* no input: the library gives what it still has */
        failed = soxr_process(s, step ? from + at * channels : NULL, step, &used, to + done * channels,
                              room - done, &got);
        at += used;
        done += got;
        if (!step && !got)
            break;
    }
    soxr_delete(s);
    if (failed)
        return cw_error_set(err, CW_E_MEMORY, "libsoxr: %s", failed);
    *ret = to;
    *ret_n = done;
    return 0;
}
