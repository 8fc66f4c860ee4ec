/*
 * Decoding: a region equals the same part of the whole image for all JPEG samplings, EXIF and marker parsing
 * within bounds, limits, errors, and allocations that fail. The JPEG files are made here, through libjpeg.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>

#include "formats/image.h"
#include "formats/image_write.h"
#include "sample.h"

static uint64_t seed = 0x2545F4914F6CDD1Du;

static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % n);
}

struct sampling {
    int components, h[4], v[4];
};
static const struct sampling samplings[] = {
    {1, {1}, {1}},
    {1, {2}, {2}},
    {3, {1, 1, 1}, {1, 1, 1}},
    {3, {2, 1, 1}, {1, 1, 1}},
    {3, {2, 1, 1}, {2, 1, 1}},
    {3, {1, 1, 1}, {2, 1, 1}},
    {3, {4, 1, 1}, {1, 1, 1}},
    {3, {1, 1, 1}, {4, 1, 1}},
    {3, {4, 1, 1}, {2, 1, 1}},
    {3, {2, 2, 1}, {2, 1, 1}},
    {3, {2, 1, 2}, {2, 2, 1}},
    {3, {1, 2, 2}, {1, 2, 2}},
    {3, {2, 1, 1}, {2, 2, 2}},
    {3, {3, 1, 1}, {1, 1, 1}},
    {4, {1, 1, 1, 1}, {1, 1, 1, 1}},
    {4, {2, 1, 1, 2}, {2, 1, 1, 2}},
    {4, {2, 1, 1, 1}, {1, 1, 1, 1}},
};

/* kind: bit 0 progressive, bit 1 restart markers, bit 2 arithmetic coding. False where libjpeg can't write
 * it. */
static bool make_jpeg(const struct sampling *s, JDIMENSION w, JDIMENSION h, int kind, unsigned char **ret,
                      unsigned long *ret_size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    *ret = NULL;
    *ret_size = 0;
    jpeg_mem_dest(&c, ret, ret_size);
    c.image_width = w;
    c.image_height = h;
    c.input_components = s->components;
    c.in_color_space = s->components == 1 ? JCS_GRAYSCALE : s->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 60 + (int)draw(40), TRUE);
    if (kind & 1)
        jpeg_simple_progression(&c);
    if (kind & 2)
        c.restart_interval = 1 + draw(9);
    if (kind & 4)
        c.arith_code = TRUE;
    for (int i = 0; i < s->components; i++) {
        c.comp_info[i].h_samp_factor = s->h[i];
        c.comp_info[i].v_samp_factor = s->v[i];
    }
    jpeg_start_compress(&c, TRUE);
    unsigned char *row = malloc((size_t)w * 4);
    for (JDIMENSION y = 0; y < h; y++) {
        for (JDIMENSION x = 0; x < w * (JDIMENSION)s->components; x++)
            row[x] = (unsigned char)((x * 7 + y * 3) / 2 + (draw(8) == 0 ? draw(256) : draw(20)));
        jpeg_write_scanlines(&c, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return true;
}

static struct cw_budget budget;
static struct cw_arena arena;
static const struct cw_image_options plain = {.channels = 0, .max_pixels = 1 << 20};

static int decode(const void *data, size_t size, const struct cw_image_options *o, const struct cw_rect *want,
                  const struct cw_rect *needed, uint8_t **ret, struct cw_rect *ret_size, struct cw_error *err)
{
    struct cw_image im;
    *ret = NULL;
    int r = cw_image_open(&im, data, size, o, err);
    if (r < 0)
        return r;
    struct cw_rect all = {.h = im.height, .w = im.width};
    size_t px = (size_t)im.channels * (o->wide ? 2 : 1);
    const struct cw_rect *part = want ? want : &all;
    *ret = malloc((size_t)part->h * (size_t)part->w * px);
    assert_non_null(*ret);
    r = cw_image_decode(&im, want, needed, *ret, (size_t)part->w * px, &arena, err);
    cw_image_close(&im);
    cw_arena_reset(&arena, 0);
    assert_int_equal(budget.used, 0);
    if (r < 0) {
        free(*ret);
        *ret = NULL;
    }
    if (ret_size)
        *ret_size = *part;
    return r;
}

struct rows {
    uint8_t *out;
    size_t row, slack;
    int64_t next;
};

static void take_row(void *arg, int64_t y, const uint8_t *pixels)
{
    struct rows *r = arg;
    assert_int_equal(y, r->next++);
    memcpy(r->out + (size_t)y * r->row, pixels, r->row);
    for (size_t i = 0; i < r->slack; i++) /* so that a read that is not allowed is seen */
        (void)*(const volatile uint8_t *)(pixels + r->row + i);
}

/* `part` (of the image as decoded with the options) comes the same row by row. */
static void check_rows(const void *data, size_t size, const struct cw_image_options *o,
                       const struct cw_rect *part, const uint8_t *want)
{
    struct cw_image im;
    assert_int_equal(cw_image_open(&im, data, size, o, NULL), 0);
    struct rows rows = {.row = (size_t)part->w * (size_t)im.channels * (o->wide ? 2 : 1), .slack = draw(200)};
    struct cw_image_rows to = {.put = take_row, .arg = &rows, .slack = rows.slack};
    rows.out = malloc(rows.row * (size_t)part->h);
    assert_non_null(rows.out);
    assert_int_equal(cw_image_decode_rows(&im, part, part, &to, &arena, NULL), 0);
    assert_int_equal(rows.next, part->h);
    assert_memory_equal(rows.out, want, rows.row * (size_t)part->h);
    cw_image_close(&im);
    cw_arena_reset(&arena, 0);
    assert_int_equal(budget.used, 0);
    free(rows.out);
}

static struct cw_rect random_rect(int64_t h, int64_t w)
{
    struct cw_rect r;
    r.h = 1 + draw((uint32_t)(draw(2) ? h : CW_MIN(h, 20)));
    r.w = 1 + draw((uint32_t)(draw(2) ? w : CW_MIN(w, 20)));
    r.y = draw((uint32_t)(h - r.h + 1));
    r.x = draw((uint32_t)(w - r.w + 1));
    return r;
}

static void test_regions(void **state)
{
    (void)state;
    unsigned long tried = 0;
    for (size_t s = 0; s < CW_COUNT_OF(samplings); s++)
        for (int kind = 0; kind < 6; kind++)
            for (int size = 0; size < 8; size++) {
                JDIMENSION w = 1 + draw(size % 2 ? 150 : 40), h = 1 + draw(size % 3 ? 120 : 40);
                unsigned char *file;
                unsigned long bytes;
                if (!make_jpeg(&samplings[s], w, h, kind, &file, &bytes))
                    continue;
                uint8_t *whole, *part;
                struct cw_error err = {0};
                if (decode(file, bytes, &plain, NULL, NULL, &whole, NULL, &err) < 0)
                    fail_msg("sampling %zu kind %d: %s", s, kind, err.message);
                size_t px = (size_t)samplings[s].components;
                for (int k = 0; k < (int)sample_size(24); k++, tried++) {
                    struct cw_rect r = random_rect(h, w), any = random_rect(h, w);
                    assert_int_equal(
                        decode(file, bytes, &plain, &r, draw(2) ? &any : NULL, &part, NULL, &err), 0);
                    for (int64_t y = 0; y < r.h; y++)
                        if (memcmp(part + (size_t)(y * r.w) * px, whole + (size_t)((r.y + y) * w + r.x) * px,
                                   (size_t)r.w * px) != 0)
                            fail_msg(
                                "sampling %zu kind %d, %u x %u: part y %d x %d h %d w %d differs in row %d",
                                s, kind, h, w, (int)r.y, (int)r.x, (int)r.h, (int)r.w, (int)y);
                    check_rows(file, bytes, &plain, &r, part);
                    free(part);
                }
                free(whole);
                free(file);
            }
    assert_true(tried > sample_size(15000));
}

/* Rows that are converted on the way: other channels, 16 bits. */
static void test_converted_rows(void **state)
{
    (void)state;
    for (size_t s = 0; s < CW_COUNT_OF(samplings); s++)
        for (int kind = 0; kind < 8; kind++) {
            static const int channels[] = {0, 1, 3, 4};
            struct cw_image_options o = {
                .channels = channels[kind / 2], .wide = kind % 2, .max_pixels = 1 << 20};
            unsigned char *file;
            unsigned long bytes;
            uint8_t *part;
            if (!make_jpeg(&samplings[s], 60, 45, 0, &file, &bytes))
                continue;
            struct cw_rect r = random_rect(45, 60);
            assert_int_equal(decode(file, bytes, &o, &r, NULL, &part, NULL, NULL), 0);
            check_rows(file, bytes, &o, &r, part);
            free(part);
            free(file);
        }
}

/* An APP1 segment with a tag, put after SOI. */
static unsigned char *with_exif(const unsigned char *file, unsigned long bytes, const uint8_t *tiff, size_t n,
                                size_t *ret_size)
{
    unsigned char *out = malloc(bytes + n + 10);
    memcpy(out, file, 2);
    memcpy(out + 2,
           (uint8_t[]){0xFF, 0xE1, (uint8_t)((n + 8) >> 8), (uint8_t)(n + 8), 'E', 'x', 'i', 'f', 0, 0}, 10);
    memcpy(out + 12, tiff, n);
    memcpy(out + 12 + n, file + 2, bytes - 2);
    *ret_size = bytes + n + 10;
    return out;
}

static void test_exif(void **state)
{
    (void)state;
    unsigned char *file;
    unsigned long bytes;
    size_t size;
    make_jpeg(&samplings[4], 20, 30, 0, &file, &bytes);
    uint8_t little[] = {'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0};
    uint8_t big[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0};
    unsigned char *turned = with_exif(file, bytes, little, sizeof(little), &size);
    assert_int_equal(cw_exif_orientation(little, sizeof(little)), 6);
    struct cw_image im;
    struct cw_image_options o = {.channels = 3, .orientation = true, .max_pixels = 600};
    for (size_t cut = 0; cut < size; cut++) { /* every truncation, in memory of that size */
        unsigned char *copy = malloc(cut + 1);
        memcpy(copy, little, CW_MIN(cut, sizeof(little)));
        int turn = cw_exif_orientation(copy, CW_MIN(cut, sizeof(little)));
        assert_true(turn == 1 || turn == 6);
        memcpy(copy, turned, cut);
        if (cw_image_open(&im, copy, cut, &o, NULL) >= 0)
            cw_image_close(&im);
        free(copy);
    }
    assert_int_equal(cw_image_open(&im, file, bytes, &o, NULL), 0);
    assert_int_equal(im.orientation, 1);
    cw_image_close(&im);
    assert_int_equal(cw_image_open(&im, turned, size, &o, NULL), 0);
    assert_int_equal(im.height, 20);
    assert_int_equal(im.width, 30);
    cw_image_close(&im);
    struct cw_rect part = {.y = 3, .x = 5, .h = 10, .w = 20};
    uint8_t *pixels;
    assert_int_equal(decode(turned, size, &o, &part, NULL, &pixels, NULL, NULL), 0);
    check_rows(turned, size, &o, &part, pixels);
    free(pixels);
    free(turned);
    turned = with_exif(file, bytes, big, sizeof(big), &size);
    assert_int_equal(cw_image_open(&im, turned, size, &o, NULL), 0);
    assert_int_equal(im.orientation, 8);
    cw_image_close(&im);
    assert_int_equal(cw_exif_orientation(big, sizeof(big)), 8);
    for (size_t i = 0; i < sizeof(big); i++) { /* any byte of it wrong: some orientation, no crash */
        for (int v = 0; v < 256; v += 5) {
            uint8_t before = big[i];
            big[i] = (uint8_t)v;
            int r = cw_exif_orientation(big, sizeof(big));
            assert_in_range(r, 1, 8);
            big[i] = before;
        }
    }
    free(turned);
    free(file);
}

static void test_limits(void **state)
{
    (void)state;
    seed = 1; /* pixels whose last scan may come again */
    unsigned char *file;
    unsigned long bytes;
    struct cw_error err = {0};
    uint8_t *out;
    make_jpeg(&samplings[4], 50, 20, 1, &file, &bytes);
    struct cw_image_options o = {.channels = 3, .max_pixels = 999};
    assert_int_equal(decode(file, bytes, &o, NULL, NULL, &out, NULL, &err), CW_E_RECORD);
    assert_non_null(strstr(err.message, "expected at most max_pixels, 999"));
    o.max_pixels = 1000;
    assert_int_equal(decode(file, bytes, &o, NULL, NULL, &out, NULL, &err), 0);
    free(out);
    budget.limit = 90000; /* less than a decoder is charged */
    assert_int_equal(decode(file, bytes, &o, NULL, NULL, &out, NULL, &err), CW_E_BUDGET);
    budget.limit = (size_t)1 << 30;

    /* A progressive file whose scans are repeated (refinements are not checked by libjpeg beyond a warning;
     * the last scan is harmless to repeat). */
    size_t at = bytes - 2;
    while (!(file[at] == 0xFF && file[at + 1] == 0xDA))
        at--;
    size_t scan = bytes - 2 - at, n = 0;
    unsigned char *many = malloc(bytes + 600 * scan);
    memcpy(many, file, bytes - 2);
    n = bytes - 2;
    for (int i = 0; i < 600; i++, n += scan)
        memcpy(many + n, file + at, scan);
    memcpy(many + n, file + bytes - 2, 2);
    assert_int_equal(decode(many, n + 2, &o, NULL, NULL, &out, NULL, &err), CW_E_RECORD);
    assert_non_null(strstr(err.message, "more than 500 scans"));
    free(many);
    free(file);
}

static void test_every_truncation_fails(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        unsigned char *file;
        unsigned long bytes;
        make_jpeg(&samplings[4], 24, 24, kind, &file, &bytes);
        for (unsigned long cut = 0; cut < bytes; cut++) {
            unsigned char *copy = malloc(cut + 1);
            memcpy(copy, file, cut);
            uint8_t *out;
            struct cw_error err = {0};
            assert_int_equal(decode(copy, cut, &plain, NULL, NULL, &out, NULL, &err), CW_E_RECORD);
            assert_true(err.message[0] != 0);
            free(copy);
        }
        free(file);
    }
}

static void test_png_round_trip(void **state)
{
    (void)state;
    const char *path = "test_image.tmp.png";
    uint8_t pixels[5 * 7 * 4], file[4096];
    for (int channels = 1; channels <= 4; channels++) {
        size_t n = 5 * 7 * (size_t)channels;
        for (size_t i = 0; i < n; i++)
            pixels[i] = (uint8_t)draw(256);
        assert_int_equal(cw_png_write(path, 5, 7, channels, pixels, NULL), 0);
        FILE *f = fopen(path, "rb");
        size_t bytes = fread(file, 1, sizeof(file), f);
        fclose(f);
        uint8_t *out;
        assert_int_equal(decode(file, bytes, &plain, NULL, NULL, &out, NULL, NULL), 0);
        assert_memory_equal(out, pixels, n);
        free(out);
        struct cw_rect r = {.y = 2, .x = 3, .h = 2, .w = 3};
        assert_int_equal(decode(file, bytes, &plain, &r, NULL, &out, NULL, NULL), 0);
        for (size_t y = 0; y < 2; y++)
            assert_memory_equal(out + y * 3 * (size_t)channels, pixels + ((2 + y) * 7 + 3) * (size_t)channels,
                                3 * (size_t)channels);
        check_rows(file, bytes, &plain, &r, out);
        free(out);
        /* what follows the pixels (a CRC, an empty chunk) is not needed */
        for (size_t cut = 0; cut + 16 < bytes; cut++)
            assert_int_equal(decode(file, cut, &plain, NULL, NULL, &out, NULL, NULL), CW_E_RECORD);
    }
    remove(path);
    struct cw_error err = {0};
    assert_int_equal(cw_png_write("/nonexistent/x.png", 5, 7, 3, pixels, &err), CW_E_IO);
}

int main(void)
{
    cw_budget_init(&budget, (size_t)1 << 30);
    cw_arena_init(&arena, &budget);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regions),
        cmocka_unit_test(test_converted_rows),
        cmocka_unit_test(test_exif),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_every_truncation_fails),
        cmocka_unit_test(test_png_round_trip),
    };
    int r = cmocka_run_group_tests_name("image", tests, NULL, NULL);
    cw_arena_deinit(&arena);
    return r;
}
