/*
 * JPEG through libjpeg-turbo's libjpeg interface: all of an image or only the requested rows and columns,
 * bit-identical to decoding everything and cropping (tests/test_pixels.py tries all subsamplings). Owns the
 * decompressor between open and close.
 *
 * libjpeg reports errors by longjmp: functions named *_guarded call setjmp; nothing with a cleanup attribute
 * lives in their frames, and what they change lies in struct jpeg_reader.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "formats/image_codec.h"
#include "formats/image_jpeg_entropy.h"
#include "formats/image_jpeg_points.h"
#include "storage/memo.h"

/* limit of scans: a progressive photograph has about 10; each scan costs a pass over the image */
#define MAX_SCANS 500
#define MARGIN 2     /* columns left and right of a region on which its upsampled pixels depend */
#define STRIP_ROWS 8 /* rows in the strip buffer */
#define STRIP_OFFSET \
    8 /* rows of the strip begin at odd multiples of 8: those on a multiple of 16 or 32 libjpeg-turbo writes \
         around the cache */
#define STRIP_BYTES(j) CW_ALIGN_UP((j)->strip_stride *STRIP_ROWS + STRIP_OFFSET, 64)
#define ENTROPY_BYTES CW_ALIGN_UP(cw_jpeg_entropy_bytes(), 64)
#define POINTS_LEAST 4096       /* bytes of a file for which entry points pay */
#define FIXED_BYTES (96u << 10) /* bytes that a decompressor allocates for any image, rounded up */

struct jpeg_reader {
    struct jpeg_decompress_struct d; /* must be first: error callbacks cast its address to a jpeg_reader */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    bool reading;        /* jpeg_start_decompress was called: from now on warnings count as damage */
    int orientation;     /* of the EXIF data; 0: there are none */
    int64_t last_needed; /* the last iMCU row (row of blocks) whose damage counts; -1: none */
    size_t strip_stride; /* bytes of a row of the strip */
    void *entropy; /* state of the decoder in image_jpeg_entropy.c; NULL: libjpeg decodes Huffman codes */
    /* the table of entry points, CW_JPEG_POINTS_BUFFER bytes, and how many of them the memo had; NULL: none
     * is used or made */
    uint8_t *table;
    size_t table_size;
    bool warned; /* a warning came while reading */
    struct cw_jpeg_points points;
    int status; /* status of the failure */
    char text[JMSG_LENGTH_MAX + 64];
};

_Static_assert(sizeof(struct jpeg_reader) <= sizeof(((struct cw_image *)0)->state),
               "struct cw_image.state is too small");

static struct jpeg_reader *jpeg_reader_of(struct cw_image *im)
{
    return (struct jpeg_reader *)(void *)im->state;
}

static _Noreturn void jpeg_fail(j_common_ptr c)
{
    struct jpeg_reader *j = (struct jpeg_reader *)(void *)c;
    j->status = c->err->msg_code == JERR_OUT_OF_MEMORY ? CW_E_MEMORY : CW_E_RECORD;
    c->err->format_message(c, j->text);
    longjmp(j->jump, 1);
}

static void jpeg_message(j_common_ptr c, int level)
{
    struct jpeg_reader *j = (struct jpeg_reader *)(void *)c;
    if (level >= 0 || !j->reading)
        return; /* a trace message, or a warning about the headers */
    j->warned = true;
    if ((int64_t)j->d.input_iMCU_row > j->last_needed)
        return;
    j->status = CW_E_RECORD;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    snprintf(j->text, sizeof(j->text), "%s (MCU row %u of %u)", text, j->d.input_iMCU_row + 1,
             j->d.total_iMCU_rows);
    longjmp(j->jump, 1);
}

static void jpeg_silent(j_common_ptr c CW_UNUSED)
{
}

static void jpeg_progress(j_common_ptr c)
{
    struct jpeg_reader *j = (struct jpeg_reader *)(void *)c;
    if (j->d.input_scan_number > MAX_SCANS) {
        j->status = CW_E_RECORD;
        snprintf(j->text, sizeof(j->text), "more than %d scans", MAX_SCANS);
        longjmp(j->jump, 1);
    }
}

static bool jpeg_matches(const uint8_t *data, size_t size)
{
    return size >= 3 && data[0] == 0xFF && data[1] == 0xD8 && data[2] == 0xFF;
}

/* Reads the orientation from an APP1 segment; the first EXIF segment counts. */
static boolean jpeg_on_app1(j_decompress_ptr d)
{
    struct jpeg_reader *j = (struct jpeg_reader *)(void *)d;
    const uint8_t *p = d->src->next_input_byte;
    size_t left = d->src->bytes_in_buffer, length = left >= 2 ? (size_t)p[0] << 8 | p[1] : 0;
    if (!j->orientation && length >= 8 && length <= left && memcmp(p + 2, "Exif\0\0", 6) == 0)
        j->orientation = cw_exif_orientation(p + 8, length - 8);
    d->src->skip_input_data(d, (long)CW_MAX(length, 2));
    return TRUE;
}

static int jpeg_header_guarded(struct jpeg_reader *j, const uint8_t *data, size_t size)
{
    if (setjmp(j->jump))
        return j->status;
    jpeg_create_decompress(&j->d);
    jpeg_mem_src(&j->d, data, (unsigned long)size);
    jpeg_set_marker_processor(&j->d, JPEG_APP0 + 1, jpeg_on_app1);
    if (jpeg_read_header(&j->d, TRUE) != JPEG_HEADER_OK)
        return CW_E_RECORD;
    return 0;
}

static void jpeg_close(struct cw_image *im)
{
    jpeg_destroy_decompress(&jpeg_reader_of(im)->d);
}

/* Returns whether there is an end-of-image marker after the first SOS marker. The search starts at the end of
 * the file, where complete files have it. */
static bool jpeg_has_eoi(const struct jpeg_decompress_struct *d)
{
    const uint8_t *first = d->src->next_input_byte, *p = first + d->src->bytes_in_buffer;
    while (p - first >= 2) {
        if (p[-2] == 0xFF && p[-1] == 0xD9)
            return true;
        p--;
    }
    return false;
}

static int jpeg_check(struct cw_image *im, struct cw_error *err)
{
    struct jpeg_reader *j = jpeg_reader_of(im);
    im->file_height = j->d.image_height;
    im->file_width = j->d.image_width;
    int r = cw_image_check_size(im, err);
    if (r < 0)
        return r;
    if (j->d.num_components != 1 && j->d.num_components != 3 && j->d.num_components != 4)
        return cw_error_set(err, CW_E_RECORD, "JPEG image with %d components", j->d.num_components);
    im->file_channels = j->d.num_components;
    im->cmyk = j->d.num_components == 4;
    if (!jpeg_has_eoi(&j->d))
        return cw_error_set(err, CW_E_RECORD, "damaged JPEG: no end-of-image marker");
    if (im->options.orientation && j->orientation)
        im->orientation = j->orientation;
    return 0;
}

static int jpeg_open(struct cw_image *im, struct cw_error *err)
{
    struct jpeg_reader *j = jpeg_reader_of(im);
    memset(j, 0, offsetof(struct jpeg_reader, text));
    j->d.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = jpeg_fail;
    j->errors.emit_message = jpeg_message;
    j->errors.output_message = jpeg_silent;
    int r = jpeg_header_guarded(j, im->data, im->size);
    if (r < 0)
        cw_error_set(err, r, "%s: %s", r == CW_E_MEMORY ? "libjpeg" : "damaged JPEG", j->text);
    else
        r = jpeg_check(im, err);
    if (r < 0)
        jpeg_destroy_decompress(&j->d);
    return r;
}

/* Returns the bytes that libjpeg allocates from jpeg_start_decompress on: with several scans, the
 * coefficients of every block; and rows of samples for upsampling (up to 5 groups of iMCU rows of every
 * component and a colour-converted strip). */
static size_t jpeg_decode_bytes(struct jpeg_decompress_struct *d)
{
    size_t bytes = FIXED_BYTES;
    size_t mcu_w = (size_t)d->max_h_samp_factor * DCTSIZE, mcu_h = (size_t)d->max_v_samp_factor * DCTSIZE;
    size_t cols = (d->image_width + mcu_w - 1) / mcu_w, rows = (d->image_height + mcu_h - 1) / mcu_h;
    size_t line = cols * mcu_w * (size_t)d->num_components;
    bytes += line * mcu_h * 5 / 2 + line * 4;
    if (!jpeg_has_multiple_scans(d))
        return bytes;
    for (int i = 0; i < d->num_components; i++) {
        const jpeg_component_info *c = &d->comp_info[i];
        bytes += cols * (size_t)c->h_samp_factor * rows * (size_t)c->v_samp_factor * sizeof(JBLOCK);
    }
    return bytes;
}

/* Returns whether the sampling is one for which skipping rows and columns was tested exhaustively: every
 * component has full resolution or, for chroma, sampling factors 1 x 1. */
static bool jpeg_region_is_exact(const struct jpeg_decompress_struct *d)
{
    int h = d->max_h_samp_factor, v = d->max_v_samp_factor;
    if (h > 2 || v > 2)
        return false;
    for (int i = 0; i < d->num_components; i++) {
        const jpeg_component_info *c = &d->comp_info[i];
        bool full = c->h_samp_factor == h && c->v_samp_factor == v;
        if (!full && (i == 0 || i == 3 || c->h_samp_factor != 1 || c->v_samp_factor != 1))
            return false;
    }
    return true;
}

static void jpeg_set_output(const struct cw_image *im, struct jpeg_decompress_struct *d, struct cw_convert *c)
{
    d->dct_method = JDCT_ISLOW;
    d->do_fancy_upsampling = TRUE;
    d->do_block_smoothing = FALSE;
    c->cmyk = im->cmyk && im->options.channels != 0;
    c->from = im->cmyk || c->to == 4 ? 4 : im->file_channels == 1 && c->to == 1 ? 1 : 3;
    d->out_color_space = im->cmyk       ? JCS_CMYK
                         : c->from == 4 ? JCS_EXT_RGBA
                         : c->from == 1 ? JCS_GRAYSCALE
                                        : JCS_EXT_RGB;
}

/* Inverts CMYK values. Adobe writes CMYK inverted, and like Pillow and others Cachew assumes this for all
 * files. */
static void jpeg_invert(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(255 - p[i]);
}

/* Reads rows and passes the wanted ones on. strip: room for STRIP_ROWS rows. left: the image's column in the
 * first pixel of the strip. */
static void jpeg_read_rows(struct jpeg_reader *j, const struct cw_image_job *job, uint8_t *strip,
                           JDIMENSION left)
{
    struct jpeg_decompress_struct *d = &j->d;
    size_t px = (size_t)d->output_components;
    const int64_t end = job->want.y + job->want.h;
    JSAMPROW rows[STRIP_ROWS];
    for (JDIMENSION i = 0; i < STRIP_ROWS; i++)
        rows[i] = strip + i * j->strip_stride;
    while ((int64_t)d->output_scanline < end) {
        int64_t y = d->output_scanline;
        JDIMENSION got = jpeg_read_scanlines(d, rows, (JDIMENSION)CW_MIN(end - y, STRIP_ROWS));
        for (JDIMENSION i = 0; i < got; i++) {
            uint8_t *pixels = rows[i] + ((size_t)job->want.x - left) * px;
            if (d->out_color_space == JCS_CMYK)
                jpeg_invert(pixels, (size_t)job->want.w * px);
            cw_image_put(job, y + i, pixels);
        }
    }
}

static boolean jpeg_decode_mcu(j_decompress_ptr d, JBLOCKROW *blocks)
{
    struct jpeg_reader *j = (struct jpeg_reader *)(void *)d;
    if (cw_jpeg_points_mcu(&j->points, d, blocks))
        return TRUE;
    j->status = 1;
    longjmp(j->jump, 1);
}

static int jpeg_decode_guarded(struct jpeg_reader *j, size_t size, const struct cw_image_job *job)
{
    struct jpeg_decompress_struct *d = &j->d;
    if (setjmp(j->jump))
        return j->status;
    j->reading = true;
    jpeg_start_decompress(d);
    bool exact = jpeg_region_is_exact(d);
    JDIMENSION left = 0, width = d->output_width;
    if (exact && job->want.w < (int64_t)d->output_width) {
        left = (JDIMENSION)CW_MAX(job->want.x - MARGIN, 0);
        width = (JDIMENSION)CW_MIN(job->want.x + job->want.w + MARGIN, (int64_t)d->output_width) - left;
        jpeg_crop_scanline(d, &left, &width);
    }
    if (j->entropy)
        cw_jpeg_entropy_install(d, j->entropy, left, width);
    if (j->table) { /* jpeg_decode_mcu decodes, with the decoder that is installed */
        cw_jpeg_points_begin(&j->points, d, size, left, width, j->table, j->table_size);
        cw_jpeg_entropy_set(d, jpeg_decode_mcu);
    }
    JSAMPROW row = job->scratch + STRIP_OFFSET;
    if (exact && job->want.y > 0)
        jpeg_skip_scanlines(d, (JDIMENSION)job->want.y);
    while ((int64_t)d->output_scanline < job->want.y)
        jpeg_read_scanlines(d, &row, 1);
    jpeg_read_rows(j, job, row, left);
    /* the remaining needed rows are read only to detect damage */
    bool undamaged = j->table && cw_jpeg_points_cover(&j->points, j->last_needed + 1);
    while (!undamaged && d->output_scanline < d->output_height &&
           (int64_t)d->input_iMCU_row <= j->last_needed)
        jpeg_read_scanlines(d, &row, 1);
    return 0;
}

/* Returns whether entry points let the decoder skip MCUs that the wanted rectangle does not need. */
static bool jpeg_uses_points(const struct cw_image *im, const struct cw_image_job *job)
{
    const struct jpeg_decompress_struct *d = &((const struct jpeg_reader *)(const void *)im->state)->d;
    int64_t row = d->max_v_samp_factor * DCTSIZE, column = d->max_h_samp_factor * DCTSIZE;
    return im->memo && im->reduced_by == 1 && im->size >= POINTS_LEAST && !d->restart_interval &&
           cw_jpeg_entropy_fits(d) && jpeg_region_is_exact(d) &&
           (job->want.y >= 2 * row || job->want.w + 4 * column <= im->file_width);
}

/* Looks up the entry points of the image; key: of its bytes. */
static void jpeg_find_points(struct cw_image *im, struct cw_hash128 *ret_key)
{
    struct jpeg_reader *j = jpeg_reader_of(im);
    XXH128_hash_t h = XXH3_128bits(im->data, im->size);
    *ret_key = (struct cw_hash128){.lo = h.low64, .hi = h.high64};
    if (!im->memo_wrong && cw_memo_get(im->memo, *ret_key, j->table, &j->table_size) == CW_MEMO_UNKNOWN)
        j->table = NULL;
}

static void jpeg_reduce(struct cw_image *im, int by)
{
    jpeg_reader_of(im)->d.scale_num = 1;
    jpeg_reader_of(im)->d.scale_denom = (unsigned)by;
}

static void jpeg_plan(struct cw_image *im, struct cw_image_job *job)
{
    struct jpeg_reader *j = jpeg_reader_of(im);
    jpeg_set_output(im, &j->d, &job->convert);
    j->last_needed = job->needed.h > 0 ? (job->needed.y + job->needed.h - 1) /
                                             (j->d.max_v_samp_factor * DCTSIZE / im->reduced_by)
                                       : -1;
    j->progress.progress_monitor = jpeg_progress;
    j->d.progress = &j->progress;
    j->strip_stride = CW_ALIGN_UP((size_t)im->file_width * (size_t)job->convert.from + job->rows->slack, 64);
    job->library_bytes = jpeg_decode_bytes(&j->d);
    job->scratch_bytes = STRIP_BYTES(j) + (cw_jpeg_entropy_fits(&j->d) ? ENTROPY_BYTES : 0) +
                         (jpeg_uses_points(im, job) ? CW_JPEG_POINTS_BUFFER : 0);
}

static int jpeg_decode(struct cw_image *im, const struct cw_image_job *job, struct cw_error *err)
{
    struct jpeg_reader *j = jpeg_reader_of(im);
    j->entropy = cw_jpeg_entropy_fits(&j->d) ? job->scratch + STRIP_BYTES(j) : NULL;
    struct cw_hash128 key = {0};
    j->table = jpeg_uses_points(im, job) ? job->scratch + STRIP_BYTES(j) + ENTROPY_BYTES : NULL;
    if (j->table)
        jpeg_find_points(im, &key);
    int r = jpeg_decode_guarded(j, im->size, job);
    if (r < 0 && r != CW_E_MEMORY && j->table_size)
        r = 1; /* the table may be the reason */
    size_t size = r == 0 && j->table && !j->warned ? cw_jpeg_points_end(&j->points) : 0;
    if (size)
        cw_memo_put(im->memo, key, j->table, size);
    if (r < 0)
        cw_error_set(err, r, "%s: %s", r == CW_E_MEMORY ? "libjpeg" : "damaged JPEG", j->text);
    jpeg_abort_decompress(&j->d); /* frees what it allocated for this image */
    return r;
}

const struct cw_image_codec cw_image_jpeg = {.name = "JPEG",
                                             .matches = jpeg_matches,
                                             .open = jpeg_open,
                                             .reduce = jpeg_reduce,
                                             .plan = jpeg_plan,
                                             .decode = jpeg_decode,
                                             .close = jpeg_close};
