/* CRC-32C, TFRecord framing, and compressed streams with restart points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data_files.h"
#include "formats/decompress.h"
#include "formats/tfrecord.h"

static void crc_vectors(void **state)
{
    (void)state;
    uint8_t data[32];
    memset(data, 0, 32); /* RFC 3720, B.4 */
    assert_int_equal(cw_crc32c(data, 32), 0x8a9136aa);
    memset(data, 0xff, 32);
    assert_int_equal(cw_crc32c(data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    assert_int_equal(cw_crc32c(data, 32), 0x46dd794e);
    assert_int_equal(cw_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(cw_crc32c("", 0), 0);
    assert_int_equal(cw_crc32c_mask(0), 0xa282ead8);
}

static void crc_is_portable(void **state)
{
    (void)state;
    size_t n = 40000;
    uint8_t *data = malloc(n);
    for (size_t i = 0; i < n; i++)
        data[i] = (uint8_t)(i * i >> 3);
    for (size_t size = 0; size < n - 16; size += size < 900 ? 1 : 379) {
        const uint8_t *p = data + size % 16;
        assert_int_equal(cw_crc32c(p, size), cw_crc32c_portable(0, p, size));
    }
    assert_int_equal(cw_crc32c_portable(cw_crc32c(data, 12345), data + 12345, n - 12345), cw_crc32c(data, n));
    free(data);
}

/* Walks the file; the error's message in err. */
static int scan(const char *path, struct cw_tfrecord_walk *w, struct cw_error *err)
{
    struct cw_file *f = open_file(path);
    cw_tfrecord_walk_init(w, path, cw_file_size(f));
    int r = cw_walk_scan(&w->base, f, NULL, NULL, err);
    cw_file_free(f);
    return r;
}

static void finds_records(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 70000, 5, 40000, 40000, 300000, 0, 100, 33000};
    struct bytes b = {0};
    struct cw_tfrecord_walk w;
    uint64_t at = 0;
    for (uint32_t i = 0; i < CW_COUNT_OF(sizes); i++)
        bytes_add_numbered(&b, i, sizes[i]);
    assert_int_equal(scan(temp_file("good", b.data, b.size), &w, NULL), 0);
    assert_int_equal(w.base.list.n, CW_COUNT_OF(sizes));
    for (size_t i = 0; i < w.base.list.n; i++) {
        char why[160];
        assert_int_equal(w.base.list.lengths[i], sizes[i]);
        assert_int_equal(w.base.list.offsets[i], at);
        assert_null(cw_tfrecord_check(b.data + at, sizes[i] + 16, why));
        at += sizes[i] + 16;
    }
    cw_walk_deinit(&w.base);

    /* the same, byte by byte */
    cw_tfrecord_walk_init(&w, "bytes", UINT64_MAX);
    for (size_t i = 0; i < b.size; i++)
        assert_int_equal(cw_walk_feed(&w.base, i, b.data + i, 1, NULL), 0);
    assert_int_equal(cw_walk_end(&w.base, b.size, NULL), 0);
    assert_int_equal(w.base.list.n, CW_COUNT_OF(sizes));
    cw_walk_deinit(&w.base);
    bytes_free(&b);

    assert_int_equal(scan(temp_file("empty", "", 0), &w, NULL), 0);
    assert_int_equal(w.base.list.n, 0);
    cw_walk_deinit(&w.base);
}

static void names_damage(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct cw_tfrecord_walk w;
    struct cw_error err = {0};
    bytes_add_numbered(&b, 0, 100);
    bytes_add_numbered(&b, 1, 200);
    size_t second = 116;

    for (size_t cut = second + 1; cut < b.size; cut += 7) { /* truncated anywhere in the second */
        err = (struct cw_error){0};
        assert_int_equal(scan(temp_file("cut", b.data, cut), &w, &err), CW_E_DATA);
        assert_contains(err.message, "/cut: record 1 at byte 116");
        assert_contains(err.message, "truncated");
        assert_contains(err.file, "/cut");
        assert_string_equal(err.record, "1");
        cw_walk_deinit(&w.base);
    }
    for (size_t bit = 0; bit < 12 * 8; bit++) { /* any bit of a header */
        b.data[second + bit / 8] ^= (uint8_t)(1 << bit % 8);
        err = (struct cw_error){0};
        assert_int_equal(scan(temp_file("flipped", b.data, b.size), &w, &err), CW_E_DATA);
        assert_contains(err.message, "record 1 at byte 116: the checksum of its length does not match");
        b.data[second + bit / 8] ^= (uint8_t)(1 << bit % 8);
        cw_walk_deinit(&w.base);
    }
    for (size_t at = 0; at < 216; at++) { /* any byte of a record */
        char why[160];
        b.data[second + at] ^= 0x40;
        if (at < 8 || at >= 12)
            assert_non_null(cw_tfrecord_check(b.data + second, 216, why));
        b.data[second + at] ^= 0x40;
    }
    static const uint64_t lengths[] = {(uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 15, INT64_MAX,
                                       INT64_MAX - 16};
    for (size_t i = 0; i < CW_COUNT_OF(lengths); i++) {
        b.size = 316 + 16;
        bytes_add_header(&b, lengths[i]);
        bytes_add(&b, "some data", 9);
        err = (struct cw_error){0};
        assert_int_equal(scan(temp_file("huge", b.data, b.size), &w, &err), CW_E_DATA);
        assert_contains(err.message, "record 2 at byte 332");
        assert_contains(err.message, "impossible");
        cw_walk_deinit(&w.base);
    }
    bytes_free(&b);
}

static void reads_all(struct cw_decompress *z, const struct bytes *plain, size_t step)
{
    uint8_t *buffer = malloc(step);
    for (;;) {
        size_t at = cw_decompress_position(z), n;
        assert_int_equal(cw_decompress_read(z, buffer, step, false, &n, NULL), 0);
        assert_int_equal(n, CW_MIN(step, plain->size - at));
        assert_memory_equal(buffer, plain->data + at, n);
        if (n == 0)
            break;
    }
    assert_true(cw_decompress_ended(z));
    free(buffer);
}

static void add_packed(struct bytes *b, enum cw_codec codec, const uint8_t *data, size_t size)
{
    switch (codec) {
    case CW_CODEC_ZSTD:
        bytes_add_zstd(b, data, size);
        break;
    case CW_CODEC_BZIP2:
        bytes_add_bzip2(b, data, size);
        break;
    case CW_CODEC_XZ:
        bytes_add_xz(b, data, size, 50000);
        break;
    default:
        bytes_add_deflated(b, data, size, codec == CW_CODEC_GZIP ? 31 : 15);
    }
}

/* Every place that can be a restart point must do as one; there are at least `least`. */
static void restarts_anywhere(enum cw_codec codec, int members, size_t least)
{
    struct bytes plain = {0}, packed = {0};
    for (uint32_t i = 0; i < 40; i++)
        bytes_add_numbered(&plain, i, 9000 + i * 100);
    for (int m = 0; m < members; m++) {
        size_t from = plain.size * (size_t)m / (size_t)members,
               to = plain.size * (size_t)(m + 1) / (size_t)members;
        add_packed(&packed, codec, plain.data + from, to - from);
    }
    if (codec == CW_CODEC_GZIP)
        bytes_add(&packed, "\0\0\0", 3); /* padding */
    assert_int_equal(cw_codec_detect(packed.data, packed.size), codec);
    struct cw_file *f = open_file(temp_file("packed", packed.data, packed.size));
    struct cw_decompress *z, *from;
    assert_int_equal(cw_decompress_open(f, codec, 0, NULL, NULL, &z, NULL), 0);
    reads_all(z, &plain, 1000003);
    size_t memory = cw_decompress_memory(z);
    cw_decompress_free(z);
    assert_int_equal(cw_decompress_open(f, codec, memory, NULL, NULL, &z, NULL), 0);
    uint8_t buffer[65536], window[CW_RESTART_WINDOW];
    size_t n, taken = 0;
    while (!cw_decompress_ended(z)) {
        struct cw_restart r;
        assert_int_equal(cw_decompress_read(z, buffer, sizeof(buffer), true, &n, NULL), 0);
        if (!cw_decompress_restart(z, &r, window))
            continue;
        taken++;
        assert_int_equal(r.out, cw_decompress_position(z));
        assert_int_equal(cw_decompress_open(f, codec, memory, &r, window, &from, NULL), 0);
        reads_all(from, &plain, 7777);
        cw_decompress_free(from);
    }
    assert_true(taken >= least);
    cw_decompress_free(z);
    cw_file_free(f);
    bytes_free(&plain);
    bytes_free(&packed);
}

static void restarts_gzip(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_GZIP, 1, 3);
}

static void restarts_gzip_members(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_GZIP, 3, 3);
}

static void restarts_zlib(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_ZLIB, 1, 3);
}

static void restarts_zstd(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_ZSTD, 5, 4);
}

static void restarts_bzip2(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_BZIP2, 5, 4);
}

static void restarts_xz(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_XZ, 1, 8);
}

static void restarts_xz_streams(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_XZ, 3, 8);
}

/* Decompresses a file. *ret_plain (may be NULL) gets what it gave. */
static int decompress_all(const char *path, enum cw_codec codec, size_t most, struct bytes *ret_plain,
                          struct cw_error *err)
{
    struct cw_file *f = open_file(path);
    struct cw_decompress *z = NULL;
    uint8_t buffer[4096];
    size_t n = 1;
    int r = cw_decompress_open(f, codec, most, NULL, NULL, &z, err);
    while (r == 0 && n > 0) {
        r = cw_decompress_read(z, buffer, sizeof(buffer), false, &n, err);
        if (r == 0 && ret_plain)
            bytes_add(ret_plain, buffer, n);
    }
    cw_decompress_free(z);
    cw_file_free(f);
    return r;
}

static const enum cw_codec codecs[] = {CW_CODEC_GZIP, CW_CODEC_ZLIB, CW_CODEC_ZSTD, CW_CODEC_BZIP2,
                                       CW_CODEC_XZ};

static void damaged_streams(void **state)
{
    (void)state;
    for (size_t i = 0; i < CW_COUNT_OF(codecs); i++) {
        enum cw_codec codec = codecs[i];
        struct bytes plain = {0}, packed = {0};
        struct cw_error err = {0};
        bytes_add_numbered(&plain, 1, 5000);
        add_packed(&packed, codec, plain.data, plain.size);
        assert_int_equal(decompress_all(temp_file("ok", packed.data, packed.size), codec, 0, NULL, NULL), 0);
        assert_int_equal(decompress_all(temp_file("empty", "", 0), codec, 0, NULL, NULL), 0);
        for (size_t cut = 1; cut < packed.size; cut += cut < 40 || cut + 60 > packed.size ? 1 : 97) {
            err = (struct cw_error){0};
            assert_int_equal(decompress_all(temp_file("cut", packed.data, cut), codec, 0, NULL, &err),
                             CW_E_DATA);
            assert_contains(err.message, "truncated");
            assert_contains(err.message, cw_codec_name(codec));
        }
        bytes_add(&packed, "\0x", 2);
        err = (struct cw_error){0};
        assert_int_equal(decompress_all(temp_file("tail", packed.data, packed.size), codec, 0, NULL, &err),
                         CW_E_DATA);
        if (codec != CW_CODEC_XZ) /* whose streams may have zero bytes between them */
            assert_contains(err.message, "other data after");
        assert_int_equal(decompress_all(temp_file("plain", plain.data, plain.size), codec, 0, NULL, &err),
                         CW_E_DATA);
        bytes_free(&plain);
        bytes_free(&packed);
    }
}

/* A byte that is wrong, wherever it is, is an error that names the codec, or changes nothing (it may be a
 * flag that decompression does not need). */
static void wrong_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < CW_COUNT_OF(codecs); i++) {
        struct bytes plain = {0}, packed = {0};
        bytes_add_numbered(&plain, 1, 700);
        add_packed(&packed, codecs[i], plain.data, plain.size);
        size_t unnoticed = 0;
        for (size_t at = 0; at < packed.size; at++) {
            struct cw_error err = {0};
            struct bytes got = {0};
            packed.data[at] ^= 0x10;
            int r = decompress_all(temp_file("wrong", packed.data, packed.size), codecs[i], 1 << 24, &got,
                                   &err);
            packed.data[at] ^= 0x10;
            if (r == 0) {
                unnoticed++;
                assert_int_equal(got.size, plain.size);
                assert_memory_equal(got.data, plain.data, got.size);
            } else {
                assert_true(r == CW_E_DATA || r == CW_E_BUDGET);
                assert_contains(err.message, cw_codec_name(codecs[i]));
            }
            bytes_free(&got);
        }
        assert_true(unnoticed < 12);
        bytes_free(&plain);
        bytes_free(&packed);
    }
}

static void keeps_to_its_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < CW_COUNT_OF(codecs); i++) {
        struct bytes plain = {0}, packed = {0};
        struct cw_error err = {0};
        bytes_add_numbered(&plain, 1, 5000);
        add_packed(&packed, codecs[i], plain.data, plain.size);
        const char *path = temp_file("packed", packed.data, packed.size);
        assert_int_equal(decompress_all(path, codecs[i], 1000, NULL, &err), CW_E_BUDGET);
        assert_contains(err.message, "memory budget 1000 is too small: decompressing the ");
        assert_string_equal(err.file, path);
        assert_string_equal(err.value, "1000");
        bytes_free(&plain);
        bytes_free(&packed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_vectors),         cmocka_unit_test(crc_is_portable),
        cmocka_unit_test(finds_records),       cmocka_unit_test(names_damage),
        cmocka_unit_test(restarts_gzip),       cmocka_unit_test(restarts_gzip_members),
        cmocka_unit_test(restarts_zlib),       cmocka_unit_test(restarts_zstd),
        cmocka_unit_test(restarts_bzip2),      cmocka_unit_test(restarts_xz),
        cmocka_unit_test(restarts_xz_streams), cmocka_unit_test(damaged_streams),
        cmocka_unit_test(wrong_bytes),         cmocka_unit_test(keeps_to_its_memory),
    };
    return cmocka_run_group_tests_name("tfrecord", tests, temp_make, temp_remove);
}
