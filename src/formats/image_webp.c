/* Still WebP images through libwebp: always decoded whole, then cut. Nothing is open between calls. */
#include <errno.h>
#include <string.h>

#include <webp/decode.h>

#include "formats/image_codec.h"

#define FIXED_BYTES ((size_t)512 << 10) /* decoder, tables, alpha's rows: rounded up */

static bool webp_matches(const uint8_t *data, size_t size)
{
    return size >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

/* Deep inside, libwebp reports a failing malloc as damage; but it leaves ENOMEM: errno is 0 when a call
 * begins. */
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

/* All of the image, RGB or RGBA, to out. */
static int webp_pixels(const struct cw_image *im, int channels, uint8_t *out, size_t stride,
                       struct cw_error *err)
{
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config))
        return cw_error_set(err, CW_E_BUG, "libwebp of another version than its headers");
    config.output.colorspace = channels == 4 ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){
        .rgba = out, .stride = (int)stride, .size = stride * (size_t)im->file_height};
    errno = 0;
    VP8StatusCode e = WebPDecode(im->data, im->size, &config);
    WebPFreeDecBuffer(&config.output);
    return e == VP8_STATUS_OK ? 0 : webp_error(e, err);
}

static int webp_decode(struct cw_image *im, const struct cw_rect *want,
                       const struct cw_rect *needed CW_UNUSED, uint8_t *dst, size_t stride,
                       struct cw_arena *arena, struct cw_error *err)
{
    int from = im->channels == 3 ? 3 : im->file_channels;
    struct cw_convert convert = {.from = from, .to = im->channels, .to_wide = im->options.wide};
    size_t pixels = (size_t)im->file_height * (size_t)im->file_width;
    /* Lossless: four bytes a pixel; lossy with alpha: the alpha plane, twice while it is decompressed; lossy:
     * some rows. */
    size_t charged = FIXED_BYTES + pixels * 4 + (size_t)im->file_width * 128;
    int r = cw_arena_reserve(arena, charged, "decoding a WebP image", err);
    if (r < 0)
        return r;
    bool all = want->h == im->file_height && want->w == im->file_width;
    struct cw_arena_mark mark = cw_arena_mark(arena);
    if (all && cw_convert_is_copy(&convert) && stride == (size_t)want->w * (size_t)from) {
        r = webp_pixels(im, from, dst, stride, err);
    } else {
        size_t row = (size_t)im->file_width * (size_t)from;
        uint8_t *whole = cw_arena_alloc(arena, row * (size_t)im->file_height, err);
        r = whole ? webp_pixels(im, from, whole, row, err) : err ? err->status : CW_E_MEMORY;
        for (int64_t y = 0; r >= 0 && y < want->h; y++)
            cw_convert_row(&convert, dst + (size_t)y * stride,
                           whole + (size_t)(want->y + y) * row + (size_t)want->x * (size_t)from,
                           (size_t)want->w);
    }
    cw_arena_release(arena, mark);
    cw_arena_unreserve(arena, charged);
    return r;
}

const struct cw_image_codec cw_image_webp = {
    .name = "WebP", .matches = webp_matches, .open = webp_open, .decode = webp_decode, .close = webp_close};
