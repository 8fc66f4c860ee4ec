/* Stands for audio.c in a build without libsndfile: nothing can be decoded. */
#include "formats/audio.h"

const char *const cw_audio_lacks = "libsndfile";

int cw_audio_open(const uint8_t *data CW_UNUSED, size_t size CW_UNUSED, struct cw_audio **ret CW_UNUSED,
                  struct cw_audio_facts *facts CW_UNUSED, struct cw_error *err)
{
    return cw_error_set(err, CW_E_BUG, "this build has no libsndfile");
}

int cw_audio_read(struct cw_audio *a CW_UNUSED, float *to CW_UNUSED, size_t n CW_UNUSED,
                  size_t *ret_n CW_UNUSED, struct cw_error *err)
{
    return cw_error_set(err, CW_E_BUG, "this build has no libsndfile");
}

void cw_audio_close(struct cw_audio *a CW_UNUSED)
{
}
