/* Reads still WebP images with libwebp. The whole image is decoded, then cropped. Holds no memory between two
 * calls, so that close has nothing to free. image.c calls it through struct cw_image_codec. */
#include <errno.h>
#include <string.h>

#include <webp/decode.h>

#include "formats/image_codec.h"

#define FIXED_BYTES ((size_t)512 << 10) /* the decoder, its tables and rows of alpha, rounded up */

static bool webp_matches(const uint8_t *data, size_t size)
{
    return size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

/* Sets and returns CW_E_MEMORY or CW_E_RECORD. libwebp reports some failures of malloc as damaged data. They
 * are recognized by errno, which malloc sets to ENOMEM; so callers set errno to 0 before they call libwebp.
 */
static int webp_error(VP8StatusCode e, struct cw_error *err)
{
    static const char *const reasons[] = {[VP8_STATUS_INVALID_PARAM] = "invalid parameter",
                                          [VP8_STATUS_BITSTREAM_ERROR] = "bad bit stream",
                                          [VP8_STATUS_UNSUPPORTED_FEATURE] = "unsupported feature",
                                          [VP8_STATUS_SUSPENDED] = "the data end early",
                                          [VP8_STATUS_NOT_ENOUGH_DATA] = "the data end early"};
    if (e == VP8_STATUS_OUT_OF_MEMORY || errno == ENOMEM)
        return cw_error_set(err, CW_E_MEMORY, "libwebp: out of memory");
    const char *why = (size_t)e < CW_COUNT_OF(reasons) ? reasons[e] : NULL;
    return cw_error_set(err, CW_E_RECORD, "damaged WebP: %s", why ? why : "unknown error");
}

static int webp_open(struct cw_image *im, struct cw_error *err)
{
    WebPBitstreamFeatures f;
    errno = 0;
    VP8StatusCode e = WebPGetFeatures(im->data, im->size, &f);
    if (e != VP8_STATUS_OK)
        return webp_error(e, err);
    if (f.has_animation)
        return cw_error_set(err, CW_E_RECORD, "animated WebP: only still images can be decoded");
    im->file_height = f.height;
    im->file_width = f.width;
    im->file_channels = f.has_alpha ? 4 : 3;
    return cw_image_check_size(im, err);
}

static void webp_close(struct cw_image *im CW_UNUSED)
{
}

/* Decodes the whole image as RGB or RGBA to out. */
static int webp_pixels(const struct cw_image *im, int channels, uint8_t *out, size_t stride,
                       struct cw_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return cw_error_set(err, CW_E_BUG,
                            "the installed libwebp has another version than the headers that Cachew was "
                            "compiled with: compile Cachew again");
    config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){
        .rgba = out, .stride = (int)stride, .size = stride * (size_t)im->file_height};
    errno = 0;
    VP8StatusCode e = WebPDecode(im->data, im->size, &config);
    WebPFreeDecBuffer(&config.output);
    return e == VP8_STATUS_OK ? 0 : webp_error(e, err);
}

static void webp_plan(struct cw_image *im, struct cw_image_job *job)
{
    size_t pixels = (size_t)im->file_height * (size_t)im->file_width;
    job->convert.from = im->channels == 3 ? 3 : im->file_channels;
    /* An upper bound of what libwebp allocates: four bytes per pixel for lossless images, twice the alpha
     * plane for lossy images with alpha, and some rows for other lossy images. */
    job->library_bytes = FIXED_BYTES + pixels * 4 + (size_t)im->file_width * 128;
    job->scratch_bytes = pixels * (size_t)job->convert.from + job->rows->slack;
}

static int webp_decode(struct cw_image *im, const struct cw_image_job *job, struct cw_error *err)
{
    size_t pixel = (size_t)job->convert.from, stride = (size_t)im->file_width * pixel;
    int r = webp_pixels(im, job->convert.from, job->scratch, stride, err);
    for (int64_t y = job->want.y; r >= 0 && y < job->want.y + job->want.h; y++)
        cw_image_put(job, y, job->scratch + (size_t)y * stride + (size_t)job->want.x * pixel);
    return r;
}

const struct cw_image_codec cw_image_webp = {.name = "WebP",
                                             .matches = webp_matches,
                                             .open = webp_open,
                                             .plan = webp_plan,
                                             .decode = webp_decode,
                                             .close = webp_close};
