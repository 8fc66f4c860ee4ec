/*
 * The Huffman decoder of JPEG against libjpeg's own, coefficient by coefficient: files of all samplings and
 * tables, in part and whole, and damaged ones. The files are made here, through libjpeg.
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
#include <jerror.h>
#include <jpegint.h>

#include "formats/image_jpeg_entropy.h"

#define MAX_BLOCKS 4096

static uint64_t seed = 0x9E3779B97F4A7C15u;

static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)((seed >> 16) % n);
}

struct kind {
    int components, h, v;
    bool progressive, arithmetic;
    unsigned restart;
};

/* Noise of varying strength, so that there are short codes and long ones, with tables of its own or the usual
 * ones. */
static unsigned char *make(const struct kind *kind, JDIMENSION w, JDIMENSION h, unsigned long *ret_size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr e;
    unsigned char *file = NULL, row[4 * 256];
    c.err = jpeg_std_error(&e);
    jpeg_create_compress(&c);
    *ret_size = 0;
    jpeg_mem_dest(&c, &file, ret_size);
    c.image_width = w;
    c.image_height = h;
    c.input_components = kind->components;
    c.in_color_space = kind->components == 1 ? JCS_GRAYSCALE : kind->components == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 1 + (int)draw(100), TRUE);
    c.optimize_coding = !kind->arithmetic && draw(2);
    c.comp_info[0].h_samp_factor = kind->h;
    c.comp_info[0].v_samp_factor = kind->v;
    c.restart_interval = kind->restart;
    c.arith_code = kind->arithmetic;
    if (kind->progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    unsigned noise = 1 + draw(draw(2) ? 8 : 256);
    for (JDIMENSION y = 0; y < h; y++) {
        for (JDIMENSION x = 0; x < w * (JDIMENSION)kind->components; x++)
            row[x] = (unsigned char)(x + y * 2 + draw(noise));
        jpeg_write_scanlines(&c, (JSAMPROW[]){row}, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return file;
}

struct reader {
    struct jpeg_decompress_struct d; /* first: error callbacks cast back */
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    int told; /* the first warning since the scan began, or the error; 0: none */
};

static _Noreturn void on_error(j_common_ptr c)
{
    struct reader *r = (struct reader *)(void *)c;
    r->told = c->err->msg_code;
    longjmp(r->jump, 1);
}

static void on_message(j_common_ptr c, int level)
{
    struct reader *r = (struct reader *)(void *)c;
    if (level < 0 && !r->told)
        r->told = c->err->msg_code;
}

/* told_at: the first block that may be wrong */
struct outcome {
    size_t blocks, mcu;
    int told;
    size_t told_at;
    JBLOCK coefficients[MAX_BLOCKS];
};

/* Reads all MCUs; those that `pass` has a bit for (by number mod 64) only passed over, as libjpeg does above
 * a crop. Columns: those installed. */
static bool coefficients(const unsigned char *file, size_t size, bool ours, uint64_t pass, JDIMENSION left,
                         JDIMENSION width, struct outcome *o)
{
    struct reader r = {.told = 0};
    void *volatile state = NULL;
    o->blocks = o->told_at = 0;
    r.d.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    jpeg_create_decompress(&r.d);
    volatile bool usable = false;
    if (!setjmp(r.jump)) {
        jpeg_mem_src(&r.d, file, (unsigned long)size);
        usable = jpeg_read_header(&r.d, TRUE) == JPEG_HEADER_OK && cw_jpeg_entropy_fits(&r.d) &&
                 r.d.image_width <= 256 && r.d.image_height <= 256;
        if (usable) {
            jpeg_start_decompress(&r.d);
            r.told = 0;
            o->mcu = (size_t)r.d.blocks_in_MCU;
            state = malloc(cw_jpeg_entropy_bytes());
            if (ours)
                cw_jpeg_entropy_install(&r.d, state, left, width ? width : r.d.output_width);
            for (size_t k = 0; k < (size_t)r.d.MCUs_per_row * r.d.MCU_rows_in_scan; k++) {
                JBLOCKROW rows[D_MAX_BLOCKS_IN_MCU];
                assert_true(o->blocks + o->mcu <= MAX_BLOCKS);
                for (size_t i = 0; i < o->mcu; i++)
                    rows[i] = &o->coefficients[o->blocks + i];
                memset(rows[0], 0, o->mcu * sizeof(JBLOCK));
                r.d.entropy->decode_mcu(&r.d, pass >> (k % 64) & 1 ? NULL : rows);
                if (!r.told)
                    o->told_at = o->blocks + o->mcu;
                o->blocks += o->mcu;
            }
        }
    }
    o->told = r.told;
    jpeg_destroy_decompress(&r.d);
    free(state);
    return usable;
}

static struct outcome theirs, own;
static const struct kind kinds[] = {{1, 1, 1},
                                    {1, 2, 2},
                                    {3, 1, 1},
                                    {3, 2, 1},
                                    {3, 1, 2},
                                    {3, 2, 2},
                                    {3, 4, 1},
                                    {4, 1, 1},
                                    {4, 2, 2},
                                    {1, 1, 1, .restart = 1},
                                    {3, 1, 1, .restart = 7},
                                    {3, 2, 2, .restart = 3},
                                    {4, 2, 1, .restart = 40}};

static void test_same_coefficients(void **state)
{
    (void)state;
    for (int i = 0; i < 900; i++) {
        unsigned long size;
        unsigned char *file = make(&kinds[i % (int)CW_COUNT_OF(kinds)], 1 + draw(200), 1 + draw(150), &size);
        uint64_t pass = draw(2) ? 0 : (uint64_t)draw(1 << 30) << 20 ^ draw(1 << 30);
        assert_true(coefficients(file, size, false, pass, 0, 0, &theirs));
        assert_true(coefficients(file, size, true, pass, 0, 0, &own));
        assert_int_equal(theirs.told, 0);
        assert_int_equal(own.told, 0);
        assert_int_equal(own.blocks, theirs.blocks);
        assert_memory_equal(own.coefficients, theirs.coefficients, own.blocks * sizeof(JBLOCK));
        free(file);
    }
}

/* Columns that are not wanted stay zero, and the others are none the worse for it. */
static void test_columns(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        const struct kind *kind = &kinds[i % (int)CW_COUNT_OF(kinds)];
        JDIMENSION w = 1 + draw(200), left = draw(w), width = 1 + draw(w - left),
                   mcu = (JDIMENSION)(kind->components == 1 ? 1 : kind->h) * 8;
        unsigned long size;
        unsigned char *file = make(kind, w, 1 + draw(100), &size);
        assert_true(coefficients(file, size, false, 0, 0, 0, &theirs));
        assert_true(coefficients(file, size, true, 0, left, width, &own));
        static const JBLOCK nothing;
        for (size_t block = 0; block < own.blocks; block++) {
            JDIMENSION column = (JDIMENSION)(block / own.mcu) % ((w + mcu - 1) / mcu);
            bool wanted = column >= left / mcu && column <= (left + width - 1) / mcu;
            assert_memory_equal(own.coefficients[block], wanted ? theirs.coefficients[block] : nothing,
                                sizeof(JBLOCK));
        }
        free(file);
    }
}

/* All but the end-of-image marker, without which no file is decoded. */
static void spoil(unsigned char *file, size_t size)
{
    size -= 2;
    for (uint32_t n = draw(4) + 1; n > 0; n--) {
        size_t at = draw((uint32_t)size);
        file[at] = draw(4) == 0 ? 0xFF
                   : draw(2)    ? file[at] ^ (unsigned char)(1u << draw(8))
                                : (unsigned char)draw(256);
        if (file[at] == 0xFF && at + 1 < size && draw(2)) /* a marker, or a byte of data */
            file[at + 1] = draw(2) ? 0xD9 : 0;
    }
}

/* Two 0xFF and a 0: libjpeg mixes what it read up to there with what it reads after it. No encoder writes
 * that. */
static bool ambiguous(const unsigned char *file, size_t size)
{
    for (size_t i = 2; i + 1 < size; i++)
        if (file[i] == 0xFF && file[i + 1] == 0xFF)
            return true;
    return false;
}

/* Whatever libjpeg tells, ours tells, no later. All coefficients are the same, after damage too. */
static void test_damage(void **state)
{
    (void)state;
    unsigned silent = 0, told = 0;
    for (int i = 0; i < 6000; i++) {
        unsigned long size;
        unsigned char *file = make(&kinds[i % (int)CW_COUNT_OF(kinds)], 1 + draw(150), 1 + draw(100), &size);
        spoil(file, size);
        uint64_t pass = draw(2) ? 0 : draw(1 << 30);
        if (!ambiguous(file, size) && coefficients(file, size, false, pass, 0, 0, &theirs)) {
            assert_true(coefficients(file, size, true, pass, 0, 0, &own));
            if (theirs.told) {
                assert_int_not_equal(own.told, 0);
                assert_true(own.told_at <= theirs.told_at);
            }
            assert_int_equal(own.blocks, theirs.blocks);
            assert_memory_equal(own.coefficients, theirs.coefficients, own.blocks * sizeof(JBLOCK));
            own.told ? told++ : silent++;
        }
        free(file);
    }
    assert_true(silent > 500 && told > 500);
}

/* The place behind the scan's header. */
static size_t scan_data(const unsigned char *file)
{
    size_t at = 2;
    while (file[at + 1] != 0xDA)
        at += 2 + ((size_t)file[at + 2] << 8 | file[at + 3]);
    return at + 2 + ((size_t)file[at + 2] << 8 | file[at + 3]);
}

static void test_what_is_told(void **state)
{
    (void)state;
    unsigned long size;
    unsigned char *file = make(&(struct kind){3, 2, 2}, 100, 100, &size);
    size_t at = scan_data(file);
    unsigned char before[64];
    assert_true(at + sizeof(before) < size);
    memcpy(before, file + at, sizeof(before));
    for (size_t i = 0; i < 64; i += 2) /* ones only: no table has a code of them */
        memcpy(file + at + i, (unsigned char[]){0xFF, 0}, 2);
    assert_true(coefficients(file, size, true, 0, 0, 0, &own));
    assert_int_equal(own.told, JWRN_HUFF_BAD_CODE);
    assert_int_equal(own.told_at, 0);
    memcpy(file + at, before, sizeof(before));
    file[at + 20] = 0xFF; /* a marker in the middle */
    file[at + 21] = 0xD9;
    assert_true(coefficients(file, size, true, 0, 0, 0, &own));
    assert_int_equal(own.told, JWRN_HIT_MARKER);
    assert_true(own.told_at <= 20 * 8 / 2);
    /* the rest stays as it was */
    assert_memory_equal(&own.coefficients[own.blocks - 1], &(JBLOCK){0}, sizeof(JBLOCK));
    free(file);
}

/* A restart marker that is not the next one, or is missing. */
static void test_damaged_restarts(void **state)
{
    (void)state;
    unsigned long size;
    unsigned char *file = make(&(struct kind){3, 1, 1, .restart = 2}, 100, 100, &size);
    size_t at = scan_data(file);
    while (file[at] != 0xFF || file[at + 1] != 0xD1)
        at++;
    file[at + 1] = 0xD4;
    assert_true(coefficients(file, size, true, 0, 0, 0, &own));
    assert_int_equal(own.told, JWRN_MUST_RESYNC);
    memset(file + at, 0, 2);
    assert_true(coefficients(file, size, true, 0, 0, 0, &own));
    assert_int_equal(own.told, JWRN_EXTRANEOUS_DATA);
    assert_int_equal(own.told_at, 4 * 3);
    free(file);
}

static void test_what_is_left_to_libjpeg(void **state)
{
    (void)state;
    static const struct kind others[] = {{3, 2, 2, .progressive = true}, {3, 2, 2, .arithmetic = true}};
    for (size_t i = 0; i < CW_COUNT_OF(others); i++) {
        unsigned long size;
        unsigned char *file = make(&others[i], 60, 60, &size);
        assert_false(coefficients(file, size, true, 0, 0, 0, &own));
        free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_coefficients),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_damaged_restarts),
        cmocka_unit_test(test_what_is_left_to_libjpeg),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
