/*
 * Random JPEG files: any part of an image has the pixels that libjpeg gives by itself when it decodes the
 * whole file, turned as its EXIF orientation says, also at 1/2, 1/4 and 1/8 of its size. Qualities,
 * samplings, sizes, restart markers and scans are drawn.
 *
 * usage: test_jpeg_crops [N [SEED]]    tries N files
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
#include "sample.h"

#define MOST 160 /* pixels of a side */

static uint64_t n_files = 1200, first_seed = 1;
static uint64_t file_seed; /* of the file that is being tried: `test_jpeg_crops 1 SEED` repeats it */
static uint64_t seed;

static uint32_t draw(uint32_t n)
{
    uint64_t z = seed += 0x9E3779B97F4A7C15u; /* SplitMix64 */
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(((z ^ z >> 31) >> 32) * n >> 32);
}

struct file {
    unsigned char *data;
    unsigned long size;
    JDIMENSION w, h;
    int components, orientation; /* orientation 0: no EXIF data */
    int by;                      /* the image is decoded at 1/by of its size */
};

/* One in four of the EXIF segments comes after another APP1 segment. */
static void write_exif(struct jpeg_compress_struct *c, int orientation)
{
    unsigned char exif[] = {'E', 'x', 'i',  'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0,
                            1,   0,   0x12, 1,   3, 0, 1,   0,   0,  0, 0, 0, 0, 0};
    exif[24] = (unsigned char)orientation;
    if (draw(4) == 0)
        jpeg_write_marker(c, JPEG_APP0 + 1, (const JOCTET *)"http://ns.adobe.com/xap/1.0/", 28);
    jpeg_write_marker(c, JPEG_APP0 + 1, exif, sizeof(exif));
}

/* Flat areas, edges and noise of a drawn strength, so that there are short blocks and long ones. */
static void fill_row(unsigned char *row, JDIMENSION n, JDIMENSION y, const uint32_t *shape)
{
    for (JDIMENSION x = 0; x < n; x++) {
        uint32_t area = (x / shape[0] + y / shape[1]) % 3;
        row[x] = (unsigned char)(area * 60 + (area == 1 ? x * shape[2] / 16 + y : 0) +
                                 (area == 2 ? draw(shape[3]) : 0));
    }
}

static void no_message(j_common_ptr c, int level)
{
    (void)c;
    (void)level;
}

static void make(struct file *f)
{
    static const struct {
        int components, h[4], v[4];
    } kinds[] = {{1, {1}, {1}},
                 {1, {2}, {2}},
                 {3, {1, 1, 1}, {1, 1, 1}},
                 {3, {2, 1, 1}, {1, 1, 1}},
                 {3, {2, 1, 1}, {2, 1, 1}},
                 {3, {1, 1, 1}, {2, 1, 1}},
                 {3, {4, 1, 1}, {1, 1, 1}},
                 {3, {2, 2, 1}, {2, 1, 1}},
                 {4, {1, 1, 1, 1}, {1, 1, 1, 1}},
                 {4, {2, 1, 1, 2}, {2, 1, 1, 2}}};
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char row[4 * MOST];
    size_t kind = draw(3) ? 2 + draw(3) : draw(CW_COUNT_OF(kinds));
    *f = (struct file){.w = 1 + draw(MOST), .h = 1 + draw(MOST), .components = kinds[kind].components};
    f->by = draw(3) ? 1 : 1 << draw(4);
    c.err = jpeg_std_error(&e);
    e.emit_message = no_message; /* of coarse quantization */
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &f->data, &f->size);
    c.image_width = f->w;
    c.image_height = f->h;
    c.input_components = f->components;
    c.in_color_space = f->components == 1 ? JCS_GRAYSCALE : f->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    if (f->components == 4 && draw(2))
        jpeg_set_colorspace(&c, JCS_YCCK);
    jpeg_set_quality(&c, draw(3) ? 70 + (int)draw(31) : 1 + (int)draw(100), draw(8) != 0);
    c.optimize_coding = draw(2) != 0;
    if (draw(6) == 0)
        jpeg_simple_progression(&c);
    if (draw(4) == 0)
        c.restart_interval = 1 + draw(draw(2) ? 4 : 40);
    for (int i = 0; i < f->components; i++) {
        c.comp_info[i].h_samp_factor = kinds[kind].h[i];
        c.comp_info[i].v_samp_factor = kinds[kind].v[i];
    }
    jpeg_start_compress(&c, TRUE);
    if (draw(3) == 0)
        write_exif(&c, f->orientation = 1 + (int)draw(8));
    const uint32_t shape[] = {1 + draw(90), 1 + draw(40), 1 + draw(60), 1 + draw(draw(2) ? 20 : 196)};
    for (JDIMENSION y = 0; y < f->h; y++) {
        fill_row(row, f->w * (JDIMENSION)f->components, y, shape);
        jpeg_write_scanlines(&c, (JSAMPROW[]){row}, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
}

/* Decodes the whole file with libjpeg alone, at 1/by of its size, and sets w and h to that size. */
static uint8_t *decode_with_libjpeg(struct file *f)
{
    struct jpeg_error_mgr e;
    struct jpeg_decompress_struct d = {.err = jpeg_std_error(&e)};
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, f->data, f->size);
    jpeg_read_header(&d, TRUE);
    d.do_block_smoothing = FALSE;
    d.out_color_space = f->components == 1 ? JCS_GRAYSCALE : f->components == 3 ? JCS_RGB : JCS_CMYK;
    d.scale_denom = (unsigned)f->by;
    jpeg_start_decompress(&d);
    f->w = d.output_width;
    f->h = d.output_height;
    size_t stride = (size_t)f->w * (size_t)f->components;
    uint8_t *pixels = malloc(stride * f->h);
    assert_non_null(pixels);
    while (d.output_scanline < f->h)
        jpeg_read_scanlines(&d, (JSAMPROW[]){pixels + d.output_scanline * stride}, 1);
    if (f->components == 4)
        for (size_t i = 0; i < stride * f->h; i++)
            pixels[i] = (uint8_t)(255 - pixels[i]);
    assert_int_equal(e.num_warnings, 0);
    jpeg_finish_decompress(&d);
    jpeg_destroy_decompress(&d);
    return pixels;
}

/* The pixel of the file that is pixel (y, x) of the image as delivered (docs/pixels.md, section 5). */
static size_t pixel_in_file(const struct file *f, int64_t y, int64_t x)
{
    const int64_t w = f->w, h = f->h;
    const int64_t places[9][2] = {{y, x},         {y, x}, {y, w - 1 - x}, {h - 1 - y, w - 1 - x},
                                  {h - 1 - y, x}, {x, y}, {h - 1 - x, y}, {h - 1 - x, w - 1 - y},
                                  {x, w - 1 - y}};
    return (size_t)(places[f->orientation][0] * w + places[f->orientation][1]);
}

static void draw_side(int64_t length, int64_t *ret_at, int64_t *ret_n)
{
    *ret_n = draw(4) ? 1 + draw((uint32_t)length) : length;
    *ret_at = draw((uint32_t)(length - *ret_n + 1));
}

static void check_part(const struct file *f, const uint8_t *whole, struct cw_arena *arena)
{
    const struct cw_image_options options = {.orientation = true, .max_pixels = MOST * MOST};
    struct cw_image im;
    struct cw_error err;
    struct cw_rect r;
    assert_int_equal(cw_image_open(&im, f->data, f->size, &options, &err), 0);
    if (f->by > 1)
        cw_image_reduce(&im, f->by);
    bool turned = f->orientation >= 5;
    assert_int_equal(im.width, turned ? f->h : f->w);
    assert_int_equal(im.height, turned ? f->w : f->h);
    draw_side(im.height, &r.y, &r.h);
    draw_side(im.width, &r.x, &r.w);
    size_t px = (size_t)f->components, stride = (size_t)r.w * px;
    uint8_t *part = malloc(stride * (size_t)r.h);
    assert_non_null(part);
    assert_int_equal(cw_image_decode(&im, &r, draw(2) ? &r : NULL, part, stride, arena, &err), 0);
    cw_image_close(&im);
    cw_arena_reset(arena, 0);
    for (int64_t y = 0; y < r.h; y++)
        for (int64_t x = 0; x < r.w; x++)
            if (memcmp(part + (size_t)y * stride + (size_t)x * px,
                       whole + pixel_in_file(f, r.y + y, r.x + x) * px, px) != 0)
                fail_msg("seed %llu: part y %d x %d h %d w %d differs in row %d, column %d",
                         (unsigned long long)file_seed, (int)r.y, (int)r.x, (int)r.h, (int)r.w, (int)y,
                         (int)x);
    free(part);
}

static void test_parts_of_random_files(void **state)
{
    (void)state;
    struct cw_budget budget;
    struct cw_arena arena;
    cw_budget_init(&budget, 1 << 26);
    cw_arena_init(&arena, &budget);
    for (uint64_t i = first_seed; i < first_seed + sample_size(n_files); i++) {
        struct file f;
        file_seed = i;
        seed = i * 0xD1342543DE82EF95u;
        make(&f);
        uint8_t *whole = decode_with_libjpeg(&f);
        for (int k = 0; k < 3; k++)
            check_part(&f, whole, &arena);
        free(whole);
        free(f.data);
    }
    cw_arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_files = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts_of_random_files)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
