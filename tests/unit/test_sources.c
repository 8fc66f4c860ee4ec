/* The sources and parse_example, each on small data: columns, ids, chunks, and what fails how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/philox.h"
#include "data/arrays.h"
#include "data_files.h"
#include "source_run.h"

static void range_is_pythons(void **state)
{
    (void)state;

    static const struct {
        const char *chain;
        uint64_t n;
        int64_t first, last;
    } cases[] = {
        {"{\"op\": \"range\", \"stop\": 5}", 5, 0, 4},
        {"{\"op\": \"range\", \"start\": -3, \"stop\": 4, \"step\": 3}", 3, -3, 3},
        {"{\"op\": \"range\", \"start\": 10, \"stop\": 0, \"step\": -4}", 3, 10, 2},
        {"{\"op\": \"range\", \"start\": 9223372036854775800, \"stop\": 9223372036854775807}", 7,
         9223372036854775800, 9223372036854775806},
        {"{\"op\": \"range\", \"start\": -9223372036854775807, \"stop\": 9223372036854775807, \"step\": "
         "9223372036854775807}",
         2, -9223372036854775807, 0},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct run r;
        assert_int_equal(run_open(&r, cases[i].chain), 0);
        assert_int_equal(r.source->n_records, cases[i].n);
        assert_int_equal(run_rows(&r, (uint64_t[]){0, cases[i].n - 1}, 2), 0);
        assert_int_equal(int_of(&r, "value", 0), cases[i].first);
        assert_int_equal(int_of(&r, "value", 1), cases[i].last);
        run_deinit(&r);
    }
    struct run r;
    assert_int_equal(run_open(&r, "{\"op\": \"range\", \"stop\": -1}"), 0);
    assert_int_equal(r.source->n_records + r.source->n_chunks, 0);
    run_deinit(&r);
    expect_error("{\"op\": \"range\", \"stop\": 1, \"step\": 0}", CW_E_PIPELINE, "range: step is 0");
    expect_error("{\"op\": \"range\", \"stop\": 9223372036854775807}", CW_E_PIPELINE, "2^56");
}

static void synthetic_is_as_documented(void **state)
{
    (void)state;
    struct run r;
    uint32_t words[4];
    uint64_t row = 70, key = cw_hash64("synthetic", 9);
    assert_int_equal(
        run_open(&r, "{\"op\": \"synthetic\", \"count\": 100, \"shape\": [3], \"dtype\": \"int64\"}"), 0);
    assert_int_equal(r.source->source_bytes, 2400);
    assert_int_equal(run_rows(&r, &row, 1), 0);
    cw_philox(key, (uint32_t[]){70, 0, 1, 2}, words);
    assert_int_equal(((int64_t *)value(&r, "data", 0).data)[2],
                     (int64_t)(words[0] | (uint64_t)words[1] << 32));
    run_deinit(&r);
    assert_int_equal(
        run_open(&r, "{\"op\": \"synthetic\", \"count\": 100, \"shape\": [2, 3], \"cost_us\": 200}"), 0);
    assert_int_equal(run_rows(&r, &row, 1), 0);
    cw_philox(key, (uint32_t[]){70, 0, 1, 2}, words);
    assert_true(((float *)value(&r, "data", 0).data)[5] == (float)cw_uniform(words[1]));
    run_deinit(&r);
    assert_int_equal(
        run_open(&r, "{\"op\": \"synthetic\", \"count\": 100, \"fill\": \"none\", \"dtype\": \"float64\"}"),
        0);
    assert_int_equal(run_rows(&r, &row, 1), 0);
    assert_int_equal(int_of(&r, "data", 0), 0);
    run_deinit(&r);
}

static void image_folder_takes_images(void **state)
{
    (void)state;
    static const char *const dirs[] = {"im", "im/b", "im/a", "im/empty", "im/b/d.png", "none", "none/x"};
    struct run r;
    for (size_t i = 0; i < CW_COUNT_OF(dirs); i++)
        mkdir(temp_path(dirs[i]), 0777);
    temp_file("im/b/2.JPG", "two", 3);
    temp_file("im/b/10.webp", "ten", 3);
    temp_file("im/b/notes.txt", "?", 1);
    temp_file("im/b/.png", "?", 1);
    temp_file("im/a/1.jpeg", "one", 3);
    temp_file("im/stray.jpg", "?", 1);
    temp_file("none/x/readme", "?", 1);
    assert_int_equal(run_open(&r, "{\"op\": \"image_folder\", \"root\": \"im/\"}"), 0);
    assert_int_equal(r.source->n_records, 3);
    assert_true(r.source->one_file_per_record && r.source->chunk_records == 1);
    assert_int_equal(run_rows(&r, (uint64_t[]){2, 0, 1}, 3), 0);
    expect_text(&r, "path", 0, "b/2.JPG");
    expect_text(&r, "path", 1, "a/1.jpeg");
    expect_text(&r, "image", 2, "ten");
    assert_int_equal(int_of(&r, "label", 0), 1); /* a, b, empty */
    assert_int_equal(int_of(&r, "label", 1), 0);
    run_deinit(&r);
    expect_error("{\"op\": \"image_folder\", \"root\": \"none\"}", CW_E_PIPELINE, "/none holds no image");
    expect_error("{\"op\": \"image_folder\", \"root\": \"im/a\"}", CW_E_PIPELINE, "im/a holds no directory");
    expect_error("{\"op\": \"image_folder\", \"root\": \"absent\"}", CW_E_PIPELINE, "absent is no directory");
}

static void files_keep_the_order_of_patterns(void **state)
{
    (void)state;
    struct run r;
    mkdir(temp_path("fl"), 0777);
    temp_file("fl/b1", "1", 1);
    temp_file("fl/b0", "0", 1);
    temp_file("fl/a", "a", 1);
    temp_file("fl/b.cwx", "index", 5);
    assert_int_equal(run_open(&r, "{\"op\": \"files\", \"files\": [\"fl/b*\", \"fl/a\"]}"), 0);
    assert_int_equal(r.source->n_records, 3);
    assert_int_equal(run_rows(&r, (uint64_t[]){0, 1, 2}, 3), 0);
    expect_text(&r, "path", 0, "b0");
    expect_text(&r, "data", 1, "1");
    expect_text(&r, "path", 2, "a");
    struct cw_record_id id;
    uint8_t key[] = "a\0\1\0\0\0\0\0\0\0a";
    r.source->ops->ids(r.source, (uint64_t[]){2}, 1, &id);
    assert_int_equal(id.file_key, cw_hash64(key, sizeof(key) - 1));
    assert_int_equal(id.row, 0);
    run_deinit(&r);
    assert_int_equal(run_open(&r, "{\"op\": \"files\", \"files\": \"fl/[ab]*\"}"), 0);
    temp_file("fl/b0", "longer", 6);                               /* between index and run */
    assert_int_equal(run_rows(&r, (uint64_t[]){1}, 1), CW_E_DATA); /* a, b0, b1 */
    assert_contains(r.err.message, "fl/b0: changed since it was indexed");
    unlink(temp_path("fl/b1"));
    assert_int_equal(run_rows(&r, (uint64_t[]){2}, 1), CW_E_DATA);
    assert_contains(r.err.message, "fl/b1: was deleted since it was indexed");
    assert_int_equal(run_rows(&r, (uint64_t[]){0}, 1), 0);
    run_deinit(&r);
    expect_error("{\"op\": \"files\", \"files\": \"fl/*.none\"}", CW_E_PIPELINE, "fl/*.none");
    expect_error("{\"op\": \"files\", \"files\": \"fl/*.cwx\"}", CW_E_PIPELINE, "only index files");
    expect_error("{\"op\": \"files\", \"files\": []}", CW_E_PIPELINE, "files");
}

/* 30 records in three files, the middle one empty, in a codec. */
static void write_tfrecords(const char *const *names, int window_bits)
{
    for (uint32_t k = 0; k < 3; k++) {
        struct bytes b = {0}, packed = {0};
        for (uint32_t i = 0; k != 1 && i < 15; i++)
            bytes_add_numbered(&b, k * 100 + i, 50 + i);
        if (window_bits)
            bytes_add_deflated(&packed, b.data, b.size, window_bits);
        struct bytes *out = window_bits ? &packed : &b;
        temp_file(names[k], out->data, out->size);
        bytes_free(&b);
        bytes_free(&packed);
    }
}

static void tfrecord_plain_and_compressed(void **state)
{
    (void)state;
    static const char *const plain[] = {"p0.tfrecord", "p1.tfrecord", "p2.tfrecord"},
                             *const gz[] = {"g0.gz", "g1.gz", "g2.gz"},
                             *const zl[] = {"z0.z", "z1.z", "z2.z"};
    static const char *const patterns[] = {"p*.tfrecord", "g*.gz", "z*.z"};
    write_tfrecords(plain, 0);
    write_tfrecords(gz, 31);
    write_tfrecords(zl, 15);
    for (int codec = 0; codec < 3; codec++) {
        struct run r;
        char chain[100];
        snprintf(chain, sizeof(chain), "{\"op\": \"tfrecord\", \"files\": \"%s\"}", patterns[codec]);
        assert_int_equal(run_open(&r, chain), 0);
        assert_int_equal(r.source->n_records, 30);
        assert_int_equal(r.source->n_chunks, 2);
        assert_int_equal(r.source->chunk_ends[0], 15);
        assert_int_equal(r.source->source_bytes, 2 * (15 * 50 + 105));
        assert_int_equal(r.source->random_access, codec == 0);
        const uint64_t rows[] = {29, 0, 15, 14, 15};
        struct cw_record_id ids[5];
        r.source->ops->ids(r.source, rows, 5, ids);
        assert_true(ids[0].row == 14 && ids[1].row == 0 && ids[2].row == 0 &&
                    ids[0].file_key == ids[2].file_key && ids[1].file_key == ids[3].file_key &&
                    ids[0].file_key != ids[1].file_key);
        assert_contains(r.source->ops->path(r.source, 15), codec == 0 ? "p2" : codec == 1 ? "g2" : "z2");
        assert_int_equal(run_rows(&r, rows, 5), 0);
        assert_true(r.b.all_ok);
        static const uint32_t numbers[] = {214, 0, 200, 14, 200};
        for (size_t i = 0; i < 5; i++) {
            struct bytes b = {0};
            bytes_add_numbered(&b, numbers[i], 50 + numbers[i] % 100);
            struct cw_tensor t = value(&r, "record", i);
            assert_int_equal(t.size, b.size - 16);
            assert_memory_equal(t.data, b.data + 12, t.size);
            bytes_free(&b);
        }
        run_deinit(&r);
    }
    expect_error("{\"op\": \"tfrecord\", \"files\": \"p0.tfrecord\", \"compression\": \"zip\"}",
                 CW_E_PIPELINE, "compression");
    expect_error("{\"op\": \"tfrecord\", \"files\": \"p0.tfrecord\", \"compression\": \"gzip\"}", CW_E_DATA,
                 "p0.tfrecord: damaged gzip");
}

static void tfrecord_verifies(void **state)
{
    (void)state;
    struct bytes b = {0};
    struct run r;
    for (uint32_t i = 0; i < 3; i++)
        bytes_add_numbered(&b, i, 100);
    b.data[116 + 50] ^= 4; /* data of record 1 */
    temp_file("bad-data", b.data, b.size);
    bytes_free(&b);
    assert_int_equal(run_open(&r, "{\"op\": \"tfrecord\", \"files\": \"bad-data\"}"), 0);
    assert_int_equal(run_rows(&r, (uint64_t[]){0, 1, 2}, 3), 0);
    assert_true(r.b.status[0] == CW_ROW_OK && r.b.status[1] == CW_ROW_FAILED && r.b.status[2] == CW_ROW_OK);
    assert_contains(r.b.faults->message, "the checksum of its data does not match");
    run_deinit(&r);
    assert_int_equal(run_open(&r, "{\"op\": \"tfrecord\", \"files\": \"bad-data\", \"verify\": false}"), 0);
    assert_int_equal(run_rows(&r, (uint64_t[]){1}, 1), 0);
    assert_true(r.b.all_ok);
    run_deinit(&r);
}

/* Examples as bytes: {"n": int64 [5], "s": bytes ["hi"], "v": float [1, 2]}, and others. */
static void parse_example_extracts(void **state)
{
    (void)state;
    static const char n1[] = "\x0a\x0a\x0a\x01n\x12\x05\x1a\x03\x0a\x01\x05",
                      s1[] = "\x0a\x0b\x0a\x01s\x12\x06\x0a\x04\x0a\x02hi",
                      v2[] = "\x0a\x11\x0a\x01v\x12\x0c\x12\x0a\x0a\x08\0\0\x80?\0\0\0@",
                      t3[] = "\x0a\x0c\x0a\x01t\x12\x07\x1a\x05\x0a\x03\x05\x06\x07",
                      n_text[] = "\x0a\x0b\x0a\x01n\x12\x06\x0a\x04\x0a\x02hi";

    struct {
        const char *data[4];
        size_t size[4];
    } records[] = {
        {{n1, s1, v2, t3}, {sizeof(n1) - 1, sizeof(s1) - 1, sizeof(v2) - 1, sizeof(t3) - 1}}, /* all there */
        {{s1, n1}, {sizeof(s1) - 1, sizeof(n1) - 1}},                                         /* defaults */
        {{n_text, s1}, {sizeof(n_text) - 1, sizeof(s1) - 1}},                                 /* n is bytes */
        {{n1}, {sizeof(n1) - 1}},                                                             /* no s */
        /* n: the last one counts */
        {{n1, n_text, n1, s1}, {sizeof(n1) - 1, sizeof(n_text) - 1, sizeof(n1) - 1, sizeof(s1) - 1}},
    };
    struct bytes b = {0};
    for (size_t i = 0; i < CW_COUNT_OF(records); i++) {
        struct bytes features = {0}, example = {0};
        for (int k = 0; k < 4; k++)
            bytes_add(&features, records[i].data[k], records[i].size[k]);
        bytes_add(&example, "\x0a", 1);
        bytes_add(&example, &(uint8_t){(uint8_t)features.size}, 1);
        bytes_add(&example, features.data, features.size);
        bytes_add_record(&b, example.data, example.size);
        bytes_free(&features);
        bytes_free(&example);
    }
    bytes_add_record(&b,
                     "\x0a\x09"
                     "broken",
                     8);
    temp_file("examples", b.data, b.size);
    bytes_free(&b);
    struct run r;
    const char *source = "{\"op\": \"tfrecord\", \"files\": \"examples\"}";
    char chain[1000];
    snprintf(chain, sizeof(chain), "%s, %s", source,
             "{\"op\": \"parse_example\", \"features\": {\"number\": {\"key\": \"n\", \"dtype\": "
             "\"int64\"}, \"s\": \"bytes\", \"v\": {\"dtype\": "
             "\"float32\", \"shape\": [2, 1], \"default\": [3, 4.5]}, \"t\": {\"dtype\": \"int64\", "
             "\"variable\": true}}}");
    assert_int_equal(run_open(&r, chain), 0);
    assert_int_equal(r.compiled->programs[0].n_outputs, 4); /* record is dropped */
    assert_int_equal(run_rows(&r, (uint64_t[]){0, 1, 2, 3, 4, 5}, 6), 0);
    assert_int_equal(int_of(&r, "number", 0), 5);
    expect_text(&r, "s", 0, "hi");
    struct cw_tensor t = value(&r, "t", 0);
    assert_true(t.ndim == 1 && t.dims[0] == 3 && ((int64_t *)t.data)[2] == 7);
    assert_true(((float *)value(&r, "v", 0).data)[1] == 2.0f);
    assert_true(((float *)value(&r, "v", 1).data)[1] == 4.5f);
    assert_int_equal(value(&r, "t", 1).dims[0], 0);
    assert_int_equal(int_of(&r, "number", 4), 5);
    static const uint8_t status[] = {CW_ROW_OK,     CW_ROW_OK, CW_ROW_FAILED,
                                     CW_ROW_FAILED, CW_ROW_OK, CW_ROW_FAILED};
    assert_memory_equal(r.b.status, status, 6);
    const struct cw_fault *f = r.b.faults; /* the last one first */
    assert_contains(f->message, "malformed Example: a field runs past the end at byte 0");
    assert_contains(f->next->message, "the feature \"s\" (bytes) is missing");
    assert_contains(f->next->next->message, "the feature \"n\" holds bytes, expected int64");
    run_deinit(&r);

    static const struct {
        const char *features, *part;
    } bad[] = {
        {"{}", "1 to 64 features"},
        {"{\"x\": \"int32\"}", "\"bytes\", \"int64\" or \"float32\""},
        {"{\"x\": {\"shape\": [1]}}", "\"x\" a dtype"},
        {"{\"x\": {\"dtype\": \"bytes\", \"variable\": true}}", "neither shape nor variable"},
        {"{\"x\": {\"dtype\": \"bytes\", \"shape\": [2]}}", "neither shape nor variable"},
        {"{\"x\": {\"dtype\": \"int64\", \"shape\": [0]}}", "positive"},
        {"{\"x\": {\"dtype\": \"int64\", \"default\": 1.5}}", "a default that is one number"},
        {"{\"x\": {\"dtype\": \"int64\", \"shape\": [3], \"default\": [1, 2]}}",
         "a default that is one number"},
        {"{\"x\": {\"dtype\": \"int64\", \"what\": 1}}", "key, dtype, shape, variable and default"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(bad); i++) {
        snprintf(chain, sizeof(chain), "%s, {\"op\": \"parse_example\", \"features\": %s}", source,
                 bad[i].features);
        expect_error(chain, CW_E_PIPELINE, bad[i].part);
    }
    expect_error("{\"op\": \"range\", \"stop\": 3}, {\"op\": \"parse_example\", \"component\": "
                 "\"value\", \"features\": {\"x\": \"int64\"}}",
                 CW_E_PIPELINE, "a component of bytes (it is int64)");
}

/* ---- arrays ---- */

static int count_down(void *left)
{
    return --*(int *)left == 0;
}

/* How often it is asked whether it is cancelled, where the answer is yes the given time. */
static int held(const char *chain, int at, int expected)
{
    struct run r;
    int left = at;
    assert_int_equal(run_open(&r, chain), 0);
    assert_int_equal(r.source->ops->hold(r.source, r.compiled->programs[0].ops[0], count_down, &left, &r.err),
                     expected);
    run_deinit(&r);
    return at - left;
}

/* It had to be waited for until all was read, twice. */
static void arrays_that_are_held_are_interrupted(void **state)
{
    (void)state;

    enum { ROW = 1 << 20, ROWS = 48, NEVER = 1 << 30 };

    static uint8_t data[ROWS][ROW];
    struct cw_error err = {0};
    struct cw_arrays *a = cw_arrays_new(1, 1);
    assert_non_null(a);
    assert_int_equal(
        cw_arrays_column(a, 0, "x", &(struct cw_type){.dtype = CW_UINT8, .ndim = 1, .dims = {ROW}}, &err), 0);
    a->columns[0].pieces[0].data = data[0];
    a->first[1] = ROWS;
    assert_int_equal(cw_arrays_register(a, &err), 0);
    char chain[200];
    snprintf(chain, sizeof(chain), "{\"op\": \"arrays\", \"data\": \"%s\"}", a->id);
    int looks = held(chain, NEVER, 0);
    assert_in_range(looks, 6, 2 * ROWS); /* 16 MiB after the other, in the elements and then in the whole */
    assert_int_equal(held(chain, 1, CW_E_INTERRUPTED), 1);
    assert_int_equal(held(chain, 2, CW_E_INTERRUPTED), 2);
    assert_int_equal(held(chain, looks, CW_E_INTERRUPTED), looks);
    cw_arrays_unref(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(range_is_pythons),
        cmocka_unit_test(synthetic_is_as_documented),
        cmocka_unit_test(image_folder_takes_images),
        cmocka_unit_test(files_keep_the_order_of_patterns),
        cmocka_unit_test(tfrecord_plain_and_compressed),
        cmocka_unit_test(tfrecord_verifies),
        cmocka_unit_test(parse_example_extracts),
        cmocka_unit_test(arrays_that_are_held_are_interrupted),
    };
    return cmocka_run_group_tests_name("sources", tests, temp_make, temp_remove);
}
