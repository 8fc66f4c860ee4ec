/*
 * Entry points of JPEGs: crops decoded with and without tables against libjpeg's decoding of everything, for
 * all kinds of files; damaged and forged tables; damaged files. The files are made here, through libjpeg.
 *
 * usage: test_jpeg_points [CASES [SEED]]     (without: the numbers of cases of the test)
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jpeglib.h>

#include "formats/image.h"
#include "sample.h"
#include "storage/memo.h"

#define SIDE_MOST 400

static uint64_t seed = 0x2545F4914F6CDD1Du;
static size_t cases; /* 0: those of the test */

static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % n);
}

static size_t case_count(size_t n)
{
    return cases ? cases : sample_size(n);
}

/* ---- files ---- */

struct file {
    unsigned char *data;
    unsigned long size;
    JDIMENSION w, h;
};

static const struct kind {
    int components, h, v;
} kinds[] = {{3, 2, 2}, {3, 2, 1}, {3, 1, 1}, {3, 1, 2}, {1, 1, 1},
             {1, 2, 2}, {3, 4, 1}, {4, 1, 1}, {4, 2, 2}};

/* Smooth areas, noisy ones and edges, so that MCUs differ in length and DC. */
static unsigned char value_at(JDIMENSION x, JDIMENSION y, uint32_t noise)
{
    uint32_t area = (x / 64 * 7 + y / 48 * 13) % 5;
    return (unsigned char)(x * (area + 1) / 3 + y + area * 40 + (area > 1 ? draw(1 + noise * area) : 0));
}

static struct file file_make(const struct kind *kind, bool plain)
{
    struct file f = {.w = 1 + draw(SIDE_MOST), .h = 1 + draw(SIDE_MOST)};
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &f.data, &f.size);
    c.image_width = f.w;
    c.image_height = f.h;
    c.input_components = kind->components;
    c.in_color_space = kind->components == 1 ? JCS_GRAYSCALE : kind->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 20 + (int)draw(80), TRUE);
    c.optimize_coding = draw(3) == 0;
    c.comp_info[0].h_samp_factor = kind->h;
    c.comp_info[0].v_samp_factor = kind->v;
    if (!plain && draw(8) == 0)
        c.restart_interval = 1 + draw(40);
    if (!plain && draw(8) == 0)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    const unsigned char orientation[] = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0?\0\0\0\0\0\0";
    unsigned char exif[sizeof(orientation)], row[4 * SIDE_MOST];
    memcpy(exif, orientation, sizeof(exif));
    exif[24] = (unsigned char)draw(9);
    jpeg_write_marker(&c, JPEG_APP0 + 1, exif, sizeof(exif));
    uint32_t noise = 1 + draw(60);
    for (JDIMENSION y = 0; y < f.h; y++) {
        for (JDIMENSION x = 0; x < f.w * (JDIMENSION)kind->components; x++)
            row[x] = value_at(x / (JDIMENSION)kind->components, y, noise);
        jpeg_write_scanlines(&c, (JSAMPROW[]){row}, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return f;
}

/* All pixels, by libjpeg alone; CMYK as Adobe writes it. */
static uint8_t *file_pixels(const struct file *f)
{
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr e;
    d.err = jpeg_std_error(&e);
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, f->data, f->size);
    jpeg_read_header(&d, TRUE);
    d.do_block_smoothing = FALSE;
    d.out_color_space = d.num_components == 4 ? JCS_CMYK : d.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&d);
    size_t stride = (size_t)f->w * (size_t)d.num_components;
    uint8_t *ret = malloc(stride * f->h);
    while (d.output_scanline < f->h)
        jpeg_read_scanlines(&d, (JSAMPROW[]){ret + stride * d.output_scanline}, 1);
    for (size_t i = 0; d.num_components == 4 && i < stride * f->h; i++)
        ret[i] = (uint8_t)(255 - ret[i]);
    jpeg_destroy_decompress(&d);
    return ret;
}

/* ---- decoding ---- */

static struct cw_budget budget;
static struct cw_arena arena;
static char dir[] = "/tmp/cachew-points-XXXXXX", path[100];
static struct cw_memo *memo;

static int set_up(void **state CW_UNUSED)
{
    cw_budget_init(&budget, 256 << 20);
    cw_arena_init(&arena, &budget);
    snprintf(path, sizeof(path), "%s/points-%u", mkdtemp(dir), (unsigned)geteuid());
    return cw_memo_new(dir, "points", 16 << 20, &memo, NULL);
}

static int tear_down(void **state CW_UNUSED)
{
    memo = cw_memo_free(memo);
    cw_arena_deinit(&arena);
    unlink(path);
    return rmdir(dir);
}

struct result {
    int status;
    char message[sizeof(((struct cw_error *)0)->message)];
    uint8_t *pixels;
    size_t size;
};

/* Decodes a crop as image_chain.c does: once more if the table was wrong. counts[1] counts that. */
static struct result decode(const struct file *f, const struct cw_rect *crop, bool turn, struct cw_memo *m,
                            size_t counts[2])
{
    const struct cw_image_options options = {.orientation = turn, .max_pixels = 1 << 20};
    struct result ret = {.status = 1};
    for (int i = 0; i < 2 && ret.status == 1; i++) {
        struct cw_image im;
        struct cw_error err = {0};
        ret.status = cw_image_open(&im, f->data, f->size, &options, &err);
        if (ret.status == 0) {
            im.memo = m;
            im.memo_wrong = i == 1;
            struct cw_rect part = *crop;
            if (im.orientation >= 5)
                part = (struct cw_rect){.y = crop->x, .x = crop->y, .h = crop->w, .w = crop->h};
            size_t stride = (size_t)part.w * (size_t)im.channels;
            free(ret.pixels);
            ret.size = stride * (size_t)part.h;
            ret.pixels = malloc(ret.size);
            ret.status = cw_image_decode(&im, &part, &part, ret.pixels, stride, &arena, &err);
            cw_image_close(&im);
        }
        counts[0]++;
        counts[1] += ret.status == 1;
        memcpy(ret.message, err.message, sizeof(ret.message));
    }
    assert_int_not_equal(ret.status, 1);
    cw_arena_reset(&arena, 0);
    assert_int_equal(budget.used, 0);
    return ret;
}

static struct cw_rect crop_draw(const struct file *f)
{
    struct cw_rect r = {.h = 1 + draw(f->h), .w = 1 + draw(f->w)};
    r.y = draw(f->h - (uint32_t)r.h + 1);
    r.x = draw(f->w - (uint32_t)r.w + 1);
    return r;
}

static struct cw_hash128 file_key(const struct file *f)
{
    XXH128_hash_t h = XXH3_128bits(f->data, f->size);
    return (struct cw_hash128){.lo = h.low64, .hi = h.high64};
}

static size_t table_of(const struct file *f, uint8_t *table)
{
    size_t size;
    return cw_memo_get(memo, file_key(f), table, &size) == CW_MEMO_FOUND ? size : 0;
}

static void expect_part(const struct result *r, const uint8_t *all, const struct file *f,
                        const struct cw_rect *crop)
{
    assert_int_equal(r->status, 0);
    size_t px = r->size / (size_t)(crop->h * crop->w), row = (size_t)crop->w * px;
    for (int64_t y = 0; y < crop->h; y++)
        assert_memory_equal(r->pixels + (size_t)y * row,
                            all + ((size_t)(crop->y + y) * f->w + (size_t)crop->x) * px, row);
}

/* ---- tests ---- */

static void test_crops(void **state CW_UNUSED)
{
    size_t counts[2] = {0}, tables = 0, bytes = 0, table_bytes = 0;
    uint8_t table[CW_MEMO_VALUE_MOST];
    for (size_t i = 0; i < case_count(300); i++) {
        struct file f = file_make(&kinds[i % CW_COUNT_OF(kinds)], false);
        uint8_t *all = file_pixels(&f);
        for (int k = 0; k < 4; k++) {
            struct cw_rect crop = crop_draw(&f);
            struct result r = decode(&f, &crop, false, memo, counts);
            expect_part(&r, all, &f, &crop);
            free(r.pixels);
            struct result turned = decode(&f, &crop, true, memo, counts),
                          plain = decode(&f, &crop, true, NULL, counts);
            assert_int_equal(turned.status, 0);
            assert_int_equal(turned.size, plain.size);
            assert_memory_equal(turned.pixels, plain.pixels, plain.size);
            free(turned.pixels);
            free(plain.pixels);
        }
        size_t size = table_of(&f, table);
        assert_true(size <= f.size / 50);
        tables += size > 0;
        table_bytes += size;
        bytes += size ? f.size : 0;
        free(all);
        free(f.data);
    }
    assert_int_equal(counts[1], 0);
    assert_true(tables > case_count(300) / 3);
    assert_true(table_bytes > bytes / 200); /* otherwise entry points are few */
}

/* The memo's file is damaged: what is read of it is right, or is not found. */
static void test_damaged_memo(void **state CW_UNUSED)
{
    size_t counts[2] = {0};
    for (size_t i = 0; i < case_count(300); i++) {
        struct file f = file_make(&kinds[i % CW_COUNT_OF(kinds)], true);
        uint8_t *all = file_pixels(&f);
        for (int k = 0; k < 6; k++) {
            struct cw_rect crop = crop_draw(&f);
            struct result r = decode(&f, &crop, false, memo, counts);
            expect_part(&r, all, &f, &crop);
            free(r.pixels);
            int fd = open(path, O_WRONLY);
            struct stat s;
            assert_true(fd >= 0 && fstat(fd, &s) == 0);
            for (uint32_t n = s.st_size ? 1 + draw(200) : 0; n > 0; n--) {
                uint8_t byte = (uint8_t)draw(256);
                uint64_t bucket = file_key(&f).lo % 64; /* in half of the cases, where the file's table is */
                uint64_t at = draw(2) ? bucket * 8192 + draw(2000) : draw((uint32_t)s.st_size);
                assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
            }
            close(fd);
        }
        free(all);
        free(f.data);
    }
    assert_int_equal(counts[1], 0);
}

/* Tables that are not those of the file, with valid checksums: memory-safe, and always an end. Most are found
 * out where the decoder comes past an entry point. */
static void test_forged_tables(void **state CW_UNUSED)
{
    size_t counts[2] = {0}, right = 0, n = 0;
    uint8_t table[CW_MEMO_VALUE_MOST];
    for (size_t i = 0; i < case_count(900); i++) {
        struct file f = file_make(&kinds[i % CW_COUNT_OF(kinds)], true);
        uint8_t *all = file_pixels(&f);
        struct cw_rect crop = {.y = f.h / 2, .x = f.w / 2, .h = f.h - f.h / 2, .w = f.w - f.w / 2};
        struct result r = decode(&f, &crop, false, memo, counts);
        free(r.pixels);
        size_t size = table_of(&f, table);
        if (size > 4) {
            for (uint32_t k = 1 + draw(4); k > 0; k--)
                table[draw((uint32_t)size)] = (uint8_t)draw(256);
            if (draw(4) == 0)
                size = 1 + draw((uint32_t)size);
            cw_memo_put(memo, file_key(&f), table, size);
            r = decode(&f, &crop, false, memo, counts);
            assert_int_equal(r.status, 0);
            size_t px = r.size / (size_t)(crop.h * crop.w), row = (size_t)crop.w * px;
            bool same = true;
            for (int64_t y = 0; y < crop.h; y++)
                same &= memcmp(r.pixels + (size_t)y * row,
                               all + ((size_t)(crop.y + y) * f.w + (size_t)crop.x) * px, row) == 0;
            right += same;
            n++;
            free(r.pixels);
        }
        free(all);
        free(f.data);
    }
    print_message("forged tables: %zu, found out %zu, right pixels %zu\n", n, counts[1], right);
    assert_true(counts[1] > n / 2);
}

/* With a memo, a damaged file gives the same pixels or the same error as without. */
static void test_damaged_files(void **state CW_UNUSED)
{
    size_t counts[2] = {0}, failed = 0, tables = 0;
    uint8_t table[CW_MEMO_VALUE_MOST];
    for (size_t i = 0; i < case_count(500); i++) {
        struct file f = file_make(&kinds[i % CW_COUNT_OF(kinds)], true);
        for (uint32_t n = 1 + draw(3); n > 0; n--) {
            size_t at = f.size / 4 + draw((uint32_t)(f.size - f.size / 4 - 2));
            f.data[at] = draw(4) == 0 ? 0xFF : (uint8_t)draw(256);
            if (f.data[at] == 0xFF && at + 3 < f.size)
                f.data[at + 1] = draw(2) ? 0xD9 : draw(2) ? 0xFF : 0;
        }
        for (int k = 0; k < 6; k++) {
            struct cw_rect crop = crop_draw(&f);
            struct result with = decode(&f, &crop, false, memo, counts),
                          without = decode(&f, &crop, false, NULL, counts);
            assert_int_equal(with.status, without.status);
            assert_string_equal(with.message, without.message);
            if (with.status == 0)
                assert_memory_equal(with.pixels, without.pixels, without.size);
            failed += with.status < 0;
            free(with.pixels);
            free(without.pixels);
        }
        tables += table_of(&f, table) > 0;
        free(f.data);
    }
    assert_true(failed > case_count(500) / 4 && tables > case_count(500) / 4);
}

/* Fill bytes before a stuffed zero, which are no data: what follows them has no known place. */
static void test_fill_bytes(void **state CW_UNUSED)
{
    size_t counts[2] = {0};
    for (size_t i = 0; i < sample_size(60); i++) {
        struct file f = file_make(&kinds[i % CW_COUNT_OF(kinds)], true);
        size_t at = f.size / 3;
        while (at + 2 < f.size && !(f.data[at] == 0xFF && f.data[at + 1] == 0))
            at++;
        unsigned char *filled = malloc(f.size + 1);
        memcpy(filled, f.data, at);
        filled[at] = 0xFF;
        memcpy(filled + at + 1, f.data + at, f.size - at);
        free(f.data);
        f.data = filled;
        f.size++;
        for (int k = 0; k < 6; k++) {
            struct cw_rect crop = crop_draw(&f);
            struct result with = decode(&f, &crop, false, memo, counts),
                          without = decode(&f, &crop, false, NULL, counts);
            assert_int_equal(with.status, without.status);
            if (with.status == 0)
                assert_memory_equal(with.pixels, without.pixels, without.size);
            free(with.pixels);
            free(without.pixels);
        }
        free(f.data);
    }
}

int main(int argc, char **argv)
{
    cases = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
    seed ^= argc > 2 ? strtoul(argv[2], NULL, 0) * 0x9E3779B97F4A7C15u : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crops),         cmocka_unit_test(test_damaged_memo),
        cmocka_unit_test(test_forged_tables), cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_fill_bytes),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
