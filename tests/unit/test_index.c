/* Index segments and files of them: built, kept, reused, refused; reading through them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <time.h>

#include "base/hash.h"
#include "data_files.h"
#include "dataset/file_index.h"
#include "dataset/index.h"

static void touch(const char *path, time_t s)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = s}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static int open_one(const char *path, const struct cw_index_options *o, struct cw_index *ret,
                    struct cw_error *err)
{
    char *paths[] = {(char *)path};
    size_t prefix = strlen(temp_dir) + 1;
    return cw_index_open(paths, &prefix, 1, o, ret, err);
}

static void cuts_chunks(void **state)
{
    (void)state;
    static uint64_t lengths[3000];
    for (size_t i = 0; i < 3000; i++)
        lengths[i] = 10;
    assert_int_equal(cw_chunk_end(lengths, 0, 3000), 1024);
    assert_int_equal(cw_chunk_end(lengths, 2048, 3000), 3000);
    lengths[1] = (4 << 20) - 10; /* exactly full */
    assert_int_equal(cw_chunk_end(lengths, 0, 3000), 2);
    lengths[1]++;
    assert_int_equal(cw_chunk_end(lengths, 0, 3000), 1);
    lengths[0] = UINT64_MAX; /* one large record is a chunk */
    assert_int_equal(cw_chunk_end(lengths, 0, 3000), 1);
    assert_int_equal(cw_chunk_end(lengths, 3000, 3000), 3000);
}

/* The key of docs/semantics.md, spelled out. */
static void keys_are_as_documented(void **state)
{
    (void)state;
    struct bytes b = {0}, key = {0};
    struct cw_index x;
    for (uint32_t i = 0; i < 5; i++)
        bytes_add_numbered(&b, i, i * 10);
    const char *path = temp_file("key.tfrecord", b.data, b.size);
    bytes_add(&key, "key.tfrecord", 13);
    bytes_add_u64(&key, b.size);
    for (size_t i = 0, at = 0; i < 5; at += i * 10 + 16, i++) {
        bytes_add(&key, b.data + at, 12);
        bytes_add(&key, b.data + at + 12 + i * 10, 4);
    }
    struct cw_index_options o = {.threads = 2};
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    assert_int_equal(x.segments[0].file_key, cw_hash64(key.data, key.size));
    assert_int_equal(x.report.n_records, 5);
    assert_int_equal(x.report.data_bytes, 100);
    cw_index_deinit(&x);

    /* indexed under another pattern: its own relative path counts */
    size_t prefix = 0;
    char *paths[] = {(char *)path};
    o.index_dir = temp_path("cache-key");
    assert_int_equal(cw_index_open(paths, &prefix, 1, &o, &x, NULL), 0);
    cw_index_deinit(&x);
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    assert_int_equal(x.report.n_reused, 1);
    assert_int_equal(x.segments[0].file_key, cw_hash64(key.data, key.size));
    cw_index_deinit(&x);
    bytes_free(&b);
    bytes_free(&key);
}

static void keeps_and_renews(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct cw_index x;
    for (uint32_t i = 0; i < 3000; i++)
        bytes_add_numbered(&b, i, 20);
    const char *path = temp_file("kept", b.data, b.size);
    touch(path, 1000);
    struct cw_index_options o = {.threads = 2, .index_dir = temp_path("cache")};
    for (size_t turn = 0; turn < 2; turn++) {
        assert_int_equal(open_one(path, &o, &x, NULL), 0);
        assert_int_equal(x.report.n_reused, turn);
        assert_int_equal(x.segments[0].n_chunks, 3);
        assert_int_equal(x.segments[0].chunk_ends[1], 2048);
        cw_index_deinit(&x);
    }
    touch(path, 2000);
    uint64_t keys[2];
    for (size_t turn = 0; turn < 2; turn++) {
        assert_int_equal(open_one(path, &o, &x, NULL), 0);
        assert_int_equal(x.report.n_reused, turn);
        keys[turn] = x.segments[0].file_key;
        cw_index_deinit(&x);
    }
    assert_int_equal(keys[0], keys[1]); /* the content is as it was */

    o = (struct cw_index_options){.threads = 1, .write_sidecar = true};
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    assert_int_equal(x.report.n_reused, 0);
    cw_index_deinit(&x);
    assert_int_equal(access(temp_path("kept.cwx"), R_OK), 0);
    o.write_sidecar = false;
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    assert_int_equal(x.report.n_reused, 1);
    cw_index_deinit(&x);
    o.codec = CW_CODEC_GZIP; /* asked for something else: the file is read, and is none */
    struct cw_error err = {0};
    assert_int_equal(open_one(path, &o, &x, &err), CW_E_DATA);
    assert_contains(err.message, "gzip");

    o = (struct cw_index_options){.threads = 1, .index_dir = "/proc/none"}; /* can't be written: no error */
    assert_int_equal(open_one(temp_file("other", b.data, b.size), &o, &x, NULL), 0);
    cw_index_deinit(&x);
    bytes_free(&b);
}

/* As cp -p, rsync -t and touch -r may leave a file: only its change time tells. */
static void another_content_of_the_same_size_and_time_is_indexed_anew(void **state)
{
    (void)state;
    struct bytes b[2] = {{0}};
    bytes_add_numbered(&b[0], 1, 20);
    bytes_add_numbered(&b[1], 2, 20);
    struct cw_index_options o = {.threads = 1, .index_dir = temp_path("again")};
    struct cw_file_index_options list = {
        .threads = 1, .index_dir = temp_path("again"), .index_path = temp_path("again/list.cwx")};
    uint64_t keys[2][2];
    for (size_t turn = 0; turn < 2; turn++) {
        struct cw_index x;
        struct cw_file_index y;
        char *path = (char *)temp_file("again.tfrecord", b[turn].data, b[0].size);
        size_t prefix = strlen(temp_dir) + 1;
        touch(path, 1000);
        assert_int_equal(open_one(path, &o, &x, NULL), 0);
        assert_int_equal(cw_file_index_open(&path, &prefix, 1, &list, &y, NULL), 0);
        assert_int_equal(x.report.n_reused + y.n_reused, 0);
        keys[turn][0] = x.segments[0].file_key;
        keys[turn][1] = y.keys[0];
        cw_index_deinit(&x);
        cw_file_index_deinit(&y);
    }
    assert_int_not_equal(keys[0][0], keys[1][0]);
    assert_int_not_equal(keys[0][1], keys[1][1]);
    bytes_free(&b[0]);
    bytes_free(&b[1]);
}

/* Whatever is in the index file, the result is the same. */
static void ignores_damaged_index_files(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    for (uint32_t i = 0; i < 20; i++)
        bytes_add_numbered(&b, i, 50);
    const char *path = temp_file("data", b.data, b.size);
    struct cw_index_options o = {.threads = 1, .write_sidecar = true};
    struct cw_index x;
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    size_t size = x.segments[0].size;
    uint64_t key = x.segments[0].file_key;
    uint8_t *good = malloc(size), *bad = malloc(size);
    memcpy(good, x.segments[0].base, size);
    cw_index_deinit(&x);
    o.write_sidecar = false;
    for (size_t at = 0; at < size; at += 3) {
        memcpy(bad, good, size);
        bad[at] ^= 0x81;
        temp_file("data.cwx", bad, size);
        assert_int_equal(open_one(path, &o, &x, NULL), 0);
        assert_int_equal(x.report.n_reused, 0);
        assert_int_equal(x.segments[0].file_key, key);
        cw_index_deinit(&x);
        temp_file("data.cwx", good, at); /* truncated */
        assert_int_equal(open_one(path, &o, &x, NULL), 0);
        assert_int_equal(x.report.n_reused, 0);
        cw_index_deinit(&x);
    }
    /* With a checksum that fits, the numbers themselves are checked. */
    struct cw_segment s;
    for (size_t at = sizeof(struct cw_index_header); at < size; at++)
        for (int bit = 0; bit < 8; bit += 3) {
            memcpy(bad, good, size);
            bad[at] ^= (uint8_t)(1 << bit);
            cw_index_seal(bad, size, CW_INDEX_TFRECORD);
            if (cw_segment_attach(bad, size, &s) == 0) {
                /* then it must be good for reading: all within the file */
                assert_true(s.n_records == 20 && s.stream_size == b.size);
                assert_int_equal(s.offsets[19] + s.lengths[19] + 16, b.size);
            }
        }
    free(good);
    free(bad);
    bytes_free(&b);
    bytes_free(&packed);
}

/* Any record of a compressed file, in ascending selections, from restart points. */
static void reads_compressed(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    size_t at[401] = {0};
    for (uint32_t i = 0; i < 400; i++) {
        bytes_add_numbered(&b, i, 100 + i * 331 % 70000);
        at[i + 1] = b.size;
    }
    bytes_add_deflated(&packed, b.data, b.size / 2, 31);
    bytes_add_deflated(&packed, b.data + b.size / 2, b.size - b.size / 2, 31);
    const char *path = temp_file("big.gz", packed.data, packed.size);
    struct cw_index_options o = {.threads = 1};
    struct cw_index x;
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    const struct cw_segment *s = &x.segments[0];
    assert_int_equal(s->codec, CW_CODEC_GZIP);
    assert_int_equal(s->n_records, 400);
    assert_true(s->n_chunks >= 3);
    assert_true(s->n_restarts + 1 == s->n_chunks); /* one for every chunk but the first */
    for (size_t i = 0; i < s->n_restarts; i++) {
        uint64_t start = s->offsets[s->chunk_ends[i]];
        assert_true(s->restarts[i].out <= start && start - s->restarts[i].out < 200000);
    }
    struct cw_file *f = open_file(path);
    for (unsigned step = 1; step < 400; step = step * 3 + 1) {
        uint64_t records[400];
        uint8_t *into[400];
        size_t n = 0;
        for (uint64_t r = step / 2; r < 400; r += step, n++) {
            records[n] = r;
            into[n] = malloc(at[r + 1] - at[r]);
        }
        struct cw_decompress *z = NULL;
        assert_int_equal(cw_segment_read(s, f, records, n, into, &z, NULL), 0);
        cw_decompress_free(z);
        for (size_t i = 0; i < n; i++) {
            assert_memory_equal(into[i], b.data + at[records[i]], at[records[i] + 1] - at[records[i]]);
            free(into[i]);
        }
    }
    cw_file_free(f);
    cw_index_deinit(&x);
    bytes_free(&b);
    bytes_free(&packed);
}

/* A file without restart points: a stream that an earlier call has left is read on, also by a call that skips
 * records; only a call for earlier records begins anew. */
static void reads_on_from_the_last_record(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    struct cw_index_options o = {.threads = 1};
    struct cw_index x;
    uint8_t *into = malloc(1016);
    assert_non_null(into);
    for (uint32_t i = 0; i < 100; i++)
        bytes_add_numbered(&b, i, 1000);
    bytes_add_zstd(&packed, b.data, b.size);
    const char *path = temp_file("one-frame", packed.data, packed.size);
    assert_int_equal(open_one(path, &o, &x, NULL), 0);
    assert_int_equal(x.segments[0].n_restarts, 0);
    struct cw_file *f = open_file(path);
    struct cw_decompress *z = NULL, *first = NULL;
    static const uint64_t records[] = {3, 4, 50, 99, 2};
    for (size_t i = 0; i < CW_COUNT_OF(records); i++) {
        assert_int_equal(cw_segment_read(&x.segments[0], f, &records[i], 1, &into, &z, NULL), 0);
        assert_memory_equal(into, b.data + records[i] * 1016, 1016);
        assert_int_equal(cw_decompress_position(z), (records[i] + 1) * 1016);
        first = first ? first : z;
        assert_true(z == first || records[i] == 2);
    }
    cw_decompress_free(z);
    cw_file_free(f);
    cw_index_deinit(&x);
    bytes_free(&b);
    bytes_free(&packed);
    free(into);
}

/* What must be decompressed and discarded to reach a chunk. */
static void counts_what_is_discarded(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    struct cw_index_options o = {.threads = 1};
    struct cw_index x;
    uint8_t *zeros = calloc(1, 3 << 20);
    assert_non_null(zeros);
    for (int i = 0; i < 4; i++)
        bytes_add_record(&b, zeros, 3 << 20); /* each is a chunk */
    size_t frame = b.size / 4;
    bytes_add_zstd(&packed, b.data, b.size);
    assert_int_equal(open_one(temp_file("one", packed.data, packed.size), &o, &x, NULL), 0);
    assert_int_equal(x.segments[0].n_chunks, 4);
    assert_int_equal(cw_segment_discarded(&x.segments[0]), 3 * frame);
    cw_index_deinit(&x);
    packed.size = 0;
    for (size_t i = 0; i < 4; i++)
        bytes_add_zstd(&packed, b.data + i * frame, frame);
    assert_int_equal(open_one(temp_file("four", packed.data, packed.size), &o, &x, NULL), 0);
    assert_int_equal(x.segments[0].n_restarts, 3);
    assert_int_equal(cw_segment_discarded(&x.segments[0]), 0);
    cw_index_deinit(&x);
    assert_int_equal(open_one(temp_file("plain", b.data, b.size), &o, &x, NULL), 0);
    assert_int_equal(cw_segment_discarded(&x.segments[0]), 0);
    cw_index_deinit(&x);
    bytes_free(&b);
    bytes_free(&packed);
    free(zeros);
}

/* gzip's first bytes may be a plain file's length. */
static void tells_plain_from_gzip(void **state)
{
    (void)state;
    struct bytes b = {0};
    bytes_add_numbered(&b, 1, 0x08 << 16 | 0x8b1f);
    struct cw_index_options o = {.threads = 1};
    struct cw_index x;
    assert_int_equal(cw_codec_detect(b.data, b.size), CW_CODEC_GZIP);
    assert_int_equal(open_one(temp_file("looks-packed", b.data, b.size), &o, &x, NULL), 0);
    assert_int_equal(x.segments[0].codec, CW_CODEC_PLAIN);
    cw_index_deinit(&x);
    bytes_free(&b);
}

static void reports_the_first_of_many(void **state)
{
    (void)state;
    char *paths[40];
    size_t prefixes[40];
    struct bytes b = {0};
    struct cw_index x;
    bytes_add_numbered(&b, 1, 500);
    for (int i = 0; i < 40; i++) {
        char name[16];
        snprintf(name, sizeof(name), "m%02d", i);
        paths[i] = strdup(temp_file(name, b.data, i % 10 == 7 ? b.size - 1 : b.size));
        prefixes[i] = strlen(temp_dir) + 1;
    }
    struct cw_index_options o = {.threads = 4};
    for (int turn = 0; turn < 20; turn++) {
        struct cw_error err = {0};
        assert_int_equal(cw_index_open(paths, prefixes, 40, &o, &x, &err), CW_E_DATA);
        assert_contains(err.message, "/m07: record 0");
    }
    assert_int_equal(cw_index_open(paths + 8, prefixes, 9, &o, &x, NULL), 0);
    assert_int_equal(x.report.n_records, 9);
    cw_index_deinit(&x);
    for (int i = 0; i < 40; i++)
        free(paths[i]);
    bytes_free(&b);
}

static void indexes_whole_files(void **state)
{
    (void)state;
    char *paths[50];
    size_t prefixes[50];
    uint8_t *big = calloc(1, 200000);
    struct bytes key = {0};
    struct cw_file_index x;
    for (int i = 0; i < 50; i++) {
        char name[24];
        snprintf(name, sizeof(name), "w%02d.jpg", i);
        big[0] = (uint8_t)i;
        big[199999] = (uint8_t)(i + 1);
        paths[i] = strdup(temp_file(name, big, i == 0 ? 200000 : i == 1 ? 131072 : (size_t)i));
        prefixes[i] = strlen(temp_dir) + 1;
    }
    struct cw_file_index_options o = {
        .threads = 3, .index_dir = temp_path("lists"), .index_path = temp_path("lists/x.cwx")};
    for (size_t turn = 0; turn < 2; turn++) {
        assert_int_equal(cw_file_index_open(paths, prefixes, 50, &o, &x, NULL), 0);
        assert_int_equal(x.n_reused, turn * 50);
        assert_string_equal(cw_file_index_relative(&x, 7), "w07.jpg");
        assert_int_equal(x.sizes[0], 200000);
        assert_int_equal(x.total_bytes, 200000 + 131072 + 49 * 50 / 2 - 1);
        bytes_add(&key, "w00.jpg", 8);
        bytes_add_u64(&key, 200000);
        big[0] = 0;
        big[199999] = 1;
        bytes_add(&key, big, 65536);
        bytes_add(&key, big + 200000 - 65536, 65536);
        assert_int_equal(x.keys[0], cw_hash64(key.data, key.size));
        key.size = 0;
        cw_file_index_deinit(&x);
    }
    touch(paths[3], 5000);
    assert_int_equal(cw_file_index_open(paths + 2, prefixes, 40, &o, &x, NULL), 0); /* fewer, one touched */
    assert_int_equal(x.n_reused, 39);
    /* forged: never out of bounds */
    uint8_t *bad = malloc(x.size);
    for (size_t at = 0; at < x.size; at++) {
        struct cw_file_index y;
        memcpy(bad, x.base, x.size);
        bad[at] ^= 0x10;
        assert_true(cw_file_index_attach(bad, x.size, &y) < 0 || at < 8);
        cw_index_seal(bad, x.size, CW_INDEX_FILES);
        if (cw_file_index_attach(bad, x.size, &y) == 0)
            for (size_t i = 0; i < y.n; i++)
                assert_true(strlen(cw_file_index_relative(&y, i)) < 100);
        assert_true(cw_file_index_attach(x.base, at / 8 * 8, &y) < 0);
    }
    free(bad);
    cw_file_index_deinit(&x);
    unlink(paths[5]);
    struct cw_error err = {0};
    assert_int_equal(cw_file_index_open(paths, prefixes, 50, &o, &x, &err), CW_E_IO);
    assert_contains(err.message, "w05.jpg");
    for (int i = 0; i < 50; i++)
        free(paths[i]);
    free(big);
    bytes_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_chunks),
        cmocka_unit_test(keys_are_as_documented),
        cmocka_unit_test(keeps_and_renews),
        cmocka_unit_test(ignores_damaged_index_files),
        cmocka_unit_test(reads_compressed),
        cmocka_unit_test(reads_on_from_the_last_record),
        cmocka_unit_test(counts_what_is_discarded),
        cmocka_unit_test(tells_plain_from_gzip),
        cmocka_unit_test(reports_the_first_of_many),
        cmocka_unit_test(indexes_whole_files),
        cmocka_unit_test(another_content_of_the_same_size_and_time_is_indexed_anew),
    };
    return cmocka_run_group_tests_name("index", tests, temp_make, temp_remove);
}
