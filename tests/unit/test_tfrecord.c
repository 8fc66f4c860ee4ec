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

/* Every place between two blocks must do as a restart point. */
static void restarts_anywhere(enum cw_codec codec, int window_bits, int members)
{
    struct bytes plain = {0}, packed = {0};
    for (uint32_t i = 0; i < 40; i++)
        bytes_add_numbered(&plain, i, 9000 + i * 100);
    for (int m = 0; m < members; m++) {
        size_t from = plain.size * (size_t)m / (size_t)members,
               to = plain.size * (size_t)(m + 1) / (size_t)members;
        bytes_add_deflated(&packed, plain.data + from, to - from, window_bits);
    }
    if (codec == CW_CODEC_GZIP)
        bytes_add(&packed, "\0\0\0", 3); /* padding */
    assert_int_equal(cw_codec_detect(packed.data, packed.size), codec);
    struct cw_file *f = open_file(temp_file("packed", packed.data, packed.size));
    struct cw_decompress *z, *from;
    assert_int_equal(cw_decompress_open(f, codec, 0, NULL, NULL, &z, NULL), 0);
    reads_all(z, &plain, 1000003);
    cw_decompress_free(z);
    assert_int_equal(cw_decompress_open(f, codec, 0, NULL, NULL, &z, NULL), 0);
    uint8_t buffer[65536], window[CW_RESTART_WINDOW];
    size_t n, taken = 0;
    while (!cw_decompress_ended(z)) {
        struct cw_restart r;
        assert_int_equal(cw_decompress_read(z, buffer, sizeof(buffer), true, &n, NULL), 0);
        if (!cw_decompress_restart(z, &r, window))
            continue;
        taken++;
        assert_int_equal(r.out, cw_decompress_position(z));
        assert_int_equal(cw_decompress_open(f, codec, 0, &r, window, &from, NULL), 0);
        reads_all(from, &plain, 7777);
        cw_decompress_free(from);
    }
    assert_true(taken >= 3);
    cw_decompress_free(z);
    cw_file_free(f);
    bytes_free(&plain);
    bytes_free(&packed);
}

static void restarts_gzip(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_GZIP, 31, 1);
}

static void restarts_gzip_members(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_GZIP, 31, 3);
}

static void restarts_zlib(void **state)
{
    (void)state, restarts_anywhere(CW_CODEC_ZLIB, 15, 1);
}

static int inflate_all(const char *path, enum cw_codec codec, struct cw_error *err)
{
    struct cw_file *f = open_file(path);
    struct cw_decompress *z;
    uint8_t buffer[4096];
    size_t n = 1;
    int r = cw_decompress_open(f, codec, 0, NULL, NULL, &z, err);
    assert_int_equal(r, 0);
    while (r == 0 && n > 0)
        r = cw_decompress_read(z, buffer, sizeof(buffer), false, &n, err);
    cw_decompress_free(z);
    cw_file_free(f);
    return r;
}

static void damaged_streams(void **state)
{
    (void)state;
    struct bytes plain = {0}, packed = {0};
    struct cw_error err = {0};
    bytes_add_numbered(&plain, 1, 5000);
    bytes_add_deflated(&packed, plain.data, plain.size, 31);
    assert_int_equal(inflate_all(temp_file("ok.gz", packed.data, packed.size), CW_CODEC_GZIP, NULL), 0);
    assert_int_equal(inflate_all(temp_file("empty.gz", "", 0), CW_CODEC_GZIP, NULL), 0);
    for (size_t cut = 1; cut < packed.size; cut += 97) {
        err = (struct cw_error){0};
        assert_int_equal(inflate_all(temp_file("cut.gz", packed.data, cut), CW_CODEC_GZIP, &err), CW_E_DATA);
        assert_contains(err.message, "truncated");
    }
    packed.data[packed.size - 6] ^= 1; /* the stored CRC */
    assert_int_equal(inflate_all(temp_file("crc.gz", packed.data, packed.size), CW_CODEC_GZIP, &err),
                     CW_E_DATA);
    packed.data[packed.size - 6] ^= 1;
    bytes_add(&packed, "\0x", 2);
    err = (struct cw_error){0};
    assert_int_equal(inflate_all(temp_file("tail.gz", packed.data, packed.size), CW_CODEC_GZIP, &err),
                     CW_E_DATA);
    assert_contains(err.message, "other data after");
    assert_int_equal(inflate_all(temp_file("plain", plain.data, plain.size), CW_CODEC_GZIP, &err), CW_E_DATA);
    bytes_free(&plain);
    bytes_free(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc_vectors),   cmocka_unit_test(crc_is_portable),
        cmocka_unit_test(finds_records), cmocka_unit_test(names_damage),
        cmocka_unit_test(restarts_gzip), cmocka_unit_test(restarts_gzip_members),
        cmocka_unit_test(restarts_zlib), cmocka_unit_test(damaged_streams),
    };
    return cmocka_run_group_tests_name("tfrecord", tests, temp_make, temp_remove);
}
