/* text and jsonl: lines found in any pieces, their indexes, what fails and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "base/hash.h"
#include "data/convert.h"
#include "formats/json.h"
#include "formats/lines.h"
#include "formats/number.h"
#include "dataset/index.h"
#include "source_run.h"

static const char *put(const char *name, const char *text)
{
    return temp_file(name, text, strlen(text));
}

/* ---- the walk ---- */

static void finds_lines_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] = "one\r\ntwo\n\n\r\n\rx\r\r\nlast\r";

    static const struct {
        uint64_t offset, length;
    } expected[] = {{0, 3}, {5, 3}, {9, 0}, {10, 0}, {12, 3}, {17, 5}};

    for (size_t step = 1; step < sizeof(text); step++) {
        struct cw_line_walk w;
        assert_int_equal(cw_line_walk_init(&w, "pieces", UINT64_MAX, NULL), 0);
        for (size_t at = 0; at < sizeof(text) - 1; at += step)
            assert_int_equal(cw_walk_feed(&w.base, at, (const uint8_t *)text + at,
                                          CW_MIN(step, sizeof(text) - 1 - at), NULL),
                             0);
        assert_int_equal(cw_walk_end(&w.base, sizeof(text) - 1, NULL), 0);
        assert_int_equal(w.base.list.n, CW_COUNT_OF(expected));
        for (size_t i = 0; i < w.base.list.n; i++) {
            assert_int_equal(w.base.list.offsets[i], expected[i].offset);
            assert_int_equal(w.base.list.lengths[i], expected[i].length);
        }
        assert_int_equal(w.base.content, cw_hash64(text, sizeof(text) - 1));
        cw_walk_deinit(&w.base);
    }
}

static void trims_one_end(void **state)
{
    (void)state;

    static const struct {
        const char *line;
        size_t length;
    } cases[] = {{"", 0}, {"\n", 0}, {"\r\n", 0}, {"a\r\r\n", 2}, {"a\r", 2}, {"a\n", 1}, {"a", 1}};

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++)
        assert_int_equal(cw_line_trim((const uint8_t *)cases[i].line, strlen(cases[i].line)),
                         cases[i].length);
}

/* ---- text ---- */

static void text_gives_lines(void **state)
{
    (void)state;
    struct run r;
    put("t0.txt", "zero\none\r\n\nthree");
    put("t1.txt", "");
    put("t2.txt", "\n");
    put("t3.txt", "with\0nul\n");
    assert_int_equal(run_open(&r, "{\"op\": \"text\", \"files\": \"t[0-2].txt\"}"), 0);
    assert_int_equal(r.source->n_records, 5);
    assert_int_equal(r.source->n_chunks, 2);
    assert_int_equal(r.source->source_bytes, 4 + 3 + 0 + 5 + 0);
    assert_true(r.source->random_access);
    assert_int_equal(run_rows(&r, (uint64_t[]){4, 3, 1, 2, 0}, 5), 0);
    expect_text(&r, "text", 0, "");
    expect_text(&r, "text", 1, "three");
    expect_text(&r, "text", 2, "one");
    expect_text(&r, "text", 3, "");
    expect_text(&r, "text", 4, "zero");
    struct cw_record_id ids[2];
    r.source->ops->ids(r.source, (uint64_t[]){3, 4}, 2, ids);
    assert_true(ids[0].row == 3 && ids[1].row == 0 && ids[0].file_key != ids[1].file_key);
    struct bytes key = {0}; /* docs/semantics.md, section 1 */
    bytes_add(&key, "t2.txt", 7);
    bytes_add_u64(&key, 1);
    bytes_add_u64(&key, cw_hash64("\n", 1));
    assert_int_equal(ids[1].file_key, cw_hash64(key.data, key.size));
    bytes_free(&key);
    run_deinit(&r);
    expect_error("{\"op\": \"text\", \"files\": \"none*.txt\"}", CW_E_PIPELINE, "none*.txt");
    expect_error("{\"op\": \"text\", \"files\": \"t0.txt\", \"max_line\": 0}", CW_E_PIPELINE, "max_line");
}

static void compressed_text_is_the_same_and_read_from_restart_points(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    for (unsigned i = 0; i < 60000; i++) {
        char line[200];
        int n = snprintf(line, sizeof(line), "line %u %0*u\n", i, (int)(i * 7919u % 150), i * 2654435761u);
        bytes_add(&b, line, (size_t)n);
    }
    bytes_add_deflated(&packed, b.data, b.size, 31);
    temp_file("plain.txt", b.data, b.size);
    temp_file("packed.gz", packed.data, packed.size);
    struct run r[2];
    assert_int_equal(run_open(&r[0], "{\"op\": \"text\", \"files\": \"plain.txt\"}"), 0);
    assert_int_equal(run_open(&r[1], "{\"op\": \"text\", \"files\": \"packed.gz\"}"), 0);
    const uint64_t rows[] = {59999, 0, 31234, 1024, 1023, 59999};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].source->n_records, 60000);
        assert_int_equal(r[i].source->n_chunks, 59);
        assert_int_equal(r[i].source->random_access, i == 0);
        assert_int_equal(run_rows(&r[i], rows, 6), 0);
    }
    for (size_t i = 0; i < 6; i++) {
        struct cw_tensor a = value(&r[0], "text", i), z = value(&r[1], "text", i);
        assert_int_equal(a.size, z.size);
        assert_memory_equal(a.data, z.data, a.size);
    }
    run_deinit(&r[0]);
    run_deinit(&r[1]);
    struct cw_index_options o = {.format = CW_FORMAT_LINES, .threads = 1};
    struct cw_index x;
    char *path = (char *)temp_path("packed.gz");
    assert_int_equal(cw_index_open(&path, (size_t[]){0}, 1, &o, &x, NULL), 0);
    /* lines begin in the middle of blocks, and yet */
    assert_true(x.segments[0].n_restarts >= x.segments[0].stream_size / (1 << 20));
    cw_index_deinit(&x);
    bytes_free(&b);
    bytes_free(&packed);
}

static void a_line_over_the_limit_fails_and_is_not_read(void **state)
{
    (void)state;
    struct bytes b = {0}, packed = {0};
    struct run r;
    bytes_add(&b, "short\n", 6);
    for (int i = 0; i < 1000; i++)
        bytes_add(&b, "long long ", 10);
    bytes_add(&b, "\nsix...\n", 8);
    temp_file("long.txt", b.data, b.size);
    bytes_add_deflated(&packed, b.data, b.size, 31);
    temp_file("long.txt.gz", packed.data, packed.size);
    static const char *const names[] = {"long.txt", "long.txt.gz"};
    for (int i = 0; i < 2; i++) {
        char chain[100];
        snprintf(chain, sizeof(chain), "{\"op\": \"text\", \"files\": \"%s\", \"max_line\": 6}", names[i]);
        assert_int_equal(run_open(&r, chain), 0);
        assert_int_equal(run_rows(&r, (uint64_t[]){0, 1, 2}, 3), 0);
        expect_text(&r, "text", 0, "short");
        assert_string_equal(fault_of(&r, 1), "line 2 has 10000 bytes: expected at most max_line, 6");
        expect_text(&r, "text", 2, "six...");
        struct cw_extent e;
        if (r.source->ops->locate) {
            assert_int_equal(r.source->ops->locate(r.source, 1, &e, NULL), 0);
            assert_int_equal(e.length, 0);
        }
        run_deinit(&r);
    }
    bytes_free(&b);
    bytes_free(&packed);
}

static void text_and_tfrecord_keep_their_own_indexes(void **state)
{
    (void)state;
    struct bytes b = {0};
    bytes_add_numbered(&b, 1, 100);
    char *path = (char *)temp_file("both", b.data, b.size);
    size_t prefix = strlen(temp_dir) + 1;
    bytes_free(&b);
    struct cw_index_options o = {.threads = 1, .index_dir = temp_path("kept")};
    struct cw_index x;
    for (int round = 0; round < 2; round++)
        for (enum cw_record_format f = CW_FORMAT_TFRECORD; f <= CW_FORMAT_LINES; f++) {
            o.format = f;
            assert_int_equal(cw_index_open(&path, &prefix, 1, &o, &x, NULL), 0);
            assert_int_equal(x.report.n_reused, round);
            assert_int_equal(x.segments[0].format, f);
            cw_index_deinit(&x);
        }
    o = (struct cw_index_options){.threads = 1, .write_sidecar = true};
    assert_int_equal(cw_index_open(&path, &prefix, 1, &o, &x, NULL), 0); /* beside it, for TFRecord */
    cw_index_deinit(&x);
    o = (struct cw_index_options){.threads = 1, .format = CW_FORMAT_LINES};
    assert_int_equal(cw_index_open(&path, &prefix, 1, &o, &x, NULL), 0);
    assert_int_equal(x.report.n_reused, 0);
    cw_index_deinit(&x);
}

/* ---- JSON ---- */

/* 0: an object; else the reason, and at which byte. Members are counted. */
static const char *read_json(const char *text, size_t size, size_t *where, int *members)
{
    struct cw_json_walk w;
    struct cw_json_value key, value;
    int r = cw_json_open(&w, text, size);
    for (*members = 0; r >= 0 && (r = cw_json_member(&w, &key, &value)) > 0;)
        (*members)++;
    *where = r < 0 ? w.where : 0;
    return r < 0 ? w.why : NULL;
}

static void json_is_strict(void **state)
{
    (void)state;

    static const struct {
        const char *text;
        int members;
    } good[] = {
        {"{}", 0},
        {" \t{ } \r", 0},
        {"{\"a\":1}", 1},
        {"{\"a\" : -0.5e+3 , \"b\":[ ] }", 2},
        {"{\"a\":[[],{},[{\"x\":[null]}]],\"a\":true}", 2},
        {"{\"\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u20ac\"}", 1},
        {"{\"a\":NaN,\"b\":[-Infinity,Infinity]}", 2},
        {"{\"\xc3\xa4\":\"\xf0\x9f\x98\x80\"}", 1},
    };

    static const struct {
        const char *text;
        size_t where;
        const char *why;
    } bad[] = {
        {"", 0, "the text is empty"},
        {"[1]", 0, "expected an object"},
        {"{", 1, "a key"},
        {"{\"a\"", 4, "\":\""},
        {"{\"a\":", 5, "a value"},
        {"{\"a\":1", 6, "\"}\""},
        {"{\"a\":1,}", 7, "a key"},
        {"{\"a\":[1,]}", 8, "a value"},
        {"{\"a\":[1 2]}", 8, "\"]\""},
        {"{\"a\":{\"b\" 1}}", 10, "\":\""},
        {"{\"a\":01}", 5, "begins with 0"},
        {"{\"a\":1.}", 5, "point"},
        {"{\"a\":1e}", 5, "exponent"},
        {"{\"a\":+1}", 5, "a value"},
        {"{\"a\":nul}", 5, "a value"},
        {"{\"a\":nulll}", 9, "\"}\""},
        {"{\"a\":\"x}", 5, "without end"},
        {"{\"a\":\"\t\"}", 6, "control"},
        {"{\"a\":\"\\x\"}", 6, "escape"},
        {"{\"a\":\"\\u12g4\"}", 6, "escape"},
        {"{\"a\":\"\\ud800\"}", 6, "surrogate"},
        {"{\"a\":\"\\udc00\"}", 6, "surrogate"},
        {"{\"a\":\"\\ud800\\u0041\"}", 6, "surrogate"},
        {"{\"a\":\"\xff\"}", 6, "UTF-8"},
        {"{\"a\":\"\xc0\x80\"}", 6, "UTF-8"},
        {"{\"a\":\"\xed\xa0\x80\"}", 6, "UTF-8"},
        {"{\"a\":\"\xf4\x90\x80\x80\"}", 6, "UTF-8"},
        {"{} x", 3, "after the object"},
        {"{}{}", 2, "after the object"},
        {"{a:1}", 1, "a key"},
        {"{\"a\":[}]}", 6, "a value"},
        {"{\"a\":{]}", 6, "a key"},
    };

    size_t where;
    int members;
    for (size_t i = 0; i < CW_COUNT_OF(good); i++) {
        size_t size = strlen(good[i].text);
        char *exact = malloc(size + 1); /* its end is watched by ASan */
        memcpy(exact, good[i].text, size);
        const char *why = read_json(exact, size, &where, &members);
        if (why || members != good[i].members)
            fail_msg("%s: %s, %d members", good[i].text, why ? why : "", members);
        free(exact);
    }
    for (size_t i = 0; i < CW_COUNT_OF(bad); i++) {
        const char *why = read_json(bad[i].text, strlen(bad[i].text), &where, &members);
        if (!why || !strstr(why, bad[i].why) || where != bad[i].where)
            fail_msg("%s: %s at %zu", bad[i].text, why ? why : "good", where);
    }
    char deep[5 + 2 * 1000 + 1];
    for (int depth = CW_JSON_DEPTH; depth <= CW_JSON_DEPTH + 1; depth++) {
        memcpy(deep, "{\"a\":", 5);
        memset(deep + 5, '[', (size_t)depth);
        memset(deep + 5 + depth, ']', (size_t)depth);
        deep[5 + 2 * depth] = '}';
        const char *why = read_json(deep, (size_t)(6 + 2 * depth), &where, &members);
        assert_true(depth == CW_JSON_DEPTH ? !why : why && strstr(why, "too deeply"));
    }
}

static void strings_lose_their_escapes(void **state)
{
    (void)state;
    struct cw_json_walk w;
    struct cw_json_value key, value;
    static const char text[] = "{\"k\\u0065y\": \"a\\n\\u0000\\u00e9\\u20AC\\ud83d\\ude00\\\\z\"}",
                      expected[] = "a\n\0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\z";
    char out[sizeof(text)];
    assert_int_equal(cw_json_open(&w, text, sizeof(text) - 1), 0);
    assert_int_equal(cw_json_member(&w, &key, &value), 1);
    assert_true(cw_json_string_is(&key, "key", 3));
    assert_false(cw_json_string_is(&key, "ke", 2));
    assert_false(cw_json_string_is(&key, "keyx", 4));
    assert_false(cw_json_string_is(&key, "kfy", 3));
    assert_int_equal(cw_json_unescape(&value, out), sizeof(expected) - 1);
    assert_memory_equal(out, expected, sizeof(expected) - 1);
}

/* ---- numbers ---- */

static void numbers_of_every_dtype(void **state)
{
    (void)state;

    static const struct {
        const char *text;
        enum cw_dtype dtype;
        enum cw_number result;
        double value;
    } cases[] = {
        {"255", CW_UINT8, 0, 255},
        {"256", CW_UINT8, CW_NUMBER_RANGE, 0},
        {"-1", CW_UINT8, CW_NUMBER_RANGE, 0},
        {"-0", CW_UINT8, 0, 0},
        {"-128", CW_INT8, 0, -128},
        {"-129", CW_INT8, CW_NUMBER_RANGE, 0},
        {"128", CW_INT8, CW_NUMBER_RANGE, 0},
        {"1.5", CW_INT32, CW_NUMBER_FRACTION, 0},
        {"3.0", CW_INT32, 0, 3},
        {"1e2", CW_INT32, 0, 100},
        {"1e300", CW_INT64, CW_NUMBER_RANGE, 0},
        {"99999999999999999999", CW_INT64, CW_NUMBER_RANGE, 0},
        {"007", CW_INT16, 0, 7},
        {"+7", CW_INT16, 0, 7},
        {"1", CW_BOOL, 0, 1},
        {"2", CW_BOOL, CW_NUMBER_RANGE, 0},
        {"NaN", CW_INT8, CW_NUMBER_RANGE, 0},
        {"", CW_INT8, CW_NUMBER_SYNTAX, 0},
        {"-", CW_INT8, CW_NUMBER_SYNTAX, 0},
        {"1 ", CW_INT8, CW_NUMBER_SYNTAX, 0},
        {"0x10", CW_INT32, CW_NUMBER_SYNTAX, 0},
        {"1e", CW_FLOAT32, CW_NUMBER_SYNTAX, 0},
        {".", CW_FLOAT32, CW_NUMBER_SYNTAX, 0},
        {".5", CW_FLOAT32, 0, 0.5},
        {"5.", CW_FLOAT32, 0, 5},
        {"1e39", CW_FLOAT32, CW_NUMBER_RANGE, 0},
        {"-inf", CW_FLOAT32, 0, -INFINITY},
        {"Infinity", CW_FLOAT64, 0, INFINITY},
        {"1e400", CW_FLOAT64, CW_NUMBER_RANGE, 0},
        {"1e-400", CW_FLOAT64, 0, 0},
        {"65504", CW_FLOAT16, 0, 65504},
        {"65520", CW_FLOAT16, CW_NUMBER_RANGE, 0},
        {"0.1", CW_FLOAT64, 0, 0.1},
        {"0.1", CW_FLOAT32, 0, 0.1f},
        {"123456789012345678901234567890", CW_FLOAT64, 0, 123456789012345678901234567890.},
        {"9007199254740993", CW_FLOAT64, 0, 9007199254740992.},
        {"2.2250738585072011e-308", CW_FLOAT64, 0, 2.2250738585072011e-308},
        {"1e22", CW_FLOAT64, 0, 1e22},
        {"1e23", CW_FLOAT64, 0, 1e23},
        {"8.5e-23", CW_FLOAT64, 0, 8.5e-23},
        {"1e99999999999999999999", CW_FLOAT64, CW_NUMBER_RANGE, 0},
        {"0e99999999999999999999", CW_FLOAT64, 0, 0},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        union {
            uint8_t u8;
            int8_t i8;
            int16_t i16;
            int32_t i32;
            int64_t i64;
            uint16_t half;
            float f;
            double d;
        } out;
        enum cw_number n = cw_number_parse(cases[i].text, strlen(cases[i].text), cases[i].dtype, &out);
        enum cw_dtype t = cases[i].dtype;
        float half;
        cw_convert(CW_FLOAT16, CW_FLOAT32, &half, &out.half, 1);
        double got = n                               ? 0
                     : t == CW_UINT8 || t == CW_BOOL ? out.u8
                     : t == CW_INT8                  ? out.i8
                     : t == CW_INT16                 ? out.i16
                     : t == CW_INT32                 ? out.i32
                     : t == CW_INT64                 ? (double)out.i64
                     : t == CW_FLOAT16               ? half
                     : t == CW_FLOAT32               ? out.f
                                                     : out.d;
        if (n != cases[i].result || memcmp(&got, &cases[i].value, 8) != 0)
            fail_msg("%s as %s: %d, %.17g", cases[i].text, cw_dtype_name(t), n, got);
    }
    uint64_t u;
    int64_t v;
    assert_int_equal(cw_number_parse("18446744073709551615", 20, CW_UINT64, &u), 0);
    assert_true(u == UINT64_MAX);
    assert_int_equal(cw_number_parse("18446744073709551616", 20, CW_UINT64, &u), CW_NUMBER_RANGE);
    assert_int_equal(cw_number_parse("-9223372036854775808", 20, CW_INT64, &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(cw_number_parse("-9223372036854775809", 20, CW_INT64, &v), CW_NUMBER_RANGE);
    char many[2001];
    memset(many, '1', 2001);
    assert_int_equal(cw_number_parse(many, 2001, CW_FLOAT64, &u), CW_NUMBER_SYNTAX);
}

/* ---- jsonl ---- */

#define JSONL(file, features) "{\"op\": \"jsonl\", \"files\": \"" file "\", \"features\": " features "}"

static void jsonl_gives_components(void **state)
{
    (void)state;
    struct run r;
    put("a.jsonl", "{\"id\": 1, \"s\": \"\\u00e9t\\u00e9\", \"v\": [[1, 2.5], [-3, 4e0]], \"ok\": true, "
                   "\"t\": [5, 6, 7]}\n"
                   "{\"t\": [], \"v\": [[0, 0], [0, 0]], \"id\": 2, \"ok\": false, \"more\": {\"id\": 9}}\r\n"
                   "{\"id\": 4, \"id\": 3, \"s\": null, \"t\": null, \"ok\": false, \"v\": [[0, 0], [0, 1]], "
                   "\"d\": [7, 8]}");
    assert_int_equal(
        run_open(&r, JSONL("a.jsonl", "{\"number\": {\"key\": \"id\", \"dtype\": \"uint8\"}, \"s\": "
                                      "{\"dtype\": \"bytes\", \"default\": \"none\"}, \"v\": {\"dtype\": "
                                      "\"float64\", \"shape\": [2, 2]}, \"ok\": \"bool\", \"t\": {\"dtype\": "
                                      "\"int16\", \"variable\": true}, "
                                      "\"d\": {\"dtype\": \"uint64\", \"shape\": [2], \"default\": 4}}")),
        0);
    assert_int_equal(run_rows(&r, (uint64_t[]){0, 1, 2}, 3), 0);
    assert_true(r.b.all_ok);
    assert_int_equal(*(uint8_t *)value(&r, "number", 0).data, 1);
    assert_int_equal(*(uint8_t *)value(&r, "number", 2).data, 3); /* the last one counts */
    expect_text(&r, "s", 0, "\xc3\xa9t\xc3\xa9");
    expect_text(&r, "s", 1, "none");
    expect_text(&r, "s", 2, "none");
    assert_memory_equal(value(&r, "v", 0).data, ((double[]){1, 2.5, -3, 4}), 32);
    assert_true(*(uint8_t *)value(&r, "ok", 0).data && !*(uint8_t *)value(&r, "ok", 1).data);
    assert_int_equal(value(&r, "t", 0).dims[0], 3);
    assert_memory_equal(value(&r, "t", 0).data, ((int16_t[]){5, 6, 7}), 6);
    assert_int_equal(value(&r, "t", 1).dims[0], 0);
    assert_int_equal(value(&r, "t", 2).dims[0], 0);
    assert_memory_equal(value(&r, "d", 0).data, ((uint64_t[]){4, 4}), 16);
    assert_memory_equal(value(&r, "d", 2).data, ((uint64_t[]){7, 8}), 16);
    run_deinit(&r);
}

static void jsonl_says_what_is_wrong_and_on_which_line(void **state)
{
    (void)state;

    static const struct {
        const char *line, *why;
    } cases[] = {
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, 2], \"b\": true}", ""},
        {"{\"a\": 300, \"s\": \"\", \"v\": [1, 2], \"b\": true}",
         "line 2: \"a\" holds 300, which is out of range for uint8"},
        {"{\"a\": 1.5, \"s\": \"\", \"v\": [1, 2], \"b\": true}",
         "line 3: \"a\" holds 1.5, which is not an integer for uint8"},
        {"{\"a\": \"1\", \"s\": \"\", \"v\": [1, 2], \"b\": true}",
         "line 4: \"a\" holds a string, expected uint8"},
        {"{\"a\": null, \"s\": \"\", \"v\": [1, 2], \"b\": true}",
         "line 5: \"a\" (uint8) is null and has no default"},
        {"{\"s\": \"\", \"v\": [1, 2], \"b\": true}", "line 6: \"a\" (uint8) is missing and has no default"},
        {"{\"a\": 1, \"s\": 5, \"v\": [1, 2], \"b\": true}",
         "line 7: \"s\" holds a number, expected a string"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1], \"b\": true}",
         "line 8: \"v\" has an array of 1 values where 2 are expected"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, 2, 3], \"b\": true}",
         "line 9: \"v\" has an array of more than 2 values where 2 are expected"},
        {"{\"a\": 1, \"s\": \"\", \"v\": 1, \"b\": true}",
         "line 10: \"v\" holds a number where an array is expected"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, [2]], \"b\": true}",
         "line 11: \"v\" holds an array, expected float32"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, 2], \"b\": 1}",
         "line 12: \"b\" holds a number, expected true or false"},
        {"{\"a\": [1], \"s\": \"\", \"v\": [1, 2], \"b\": true}",
         "line 13: \"a\" holds an array, expected uint8"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, 2], \"b\": true",
         "line 14: malformed JSON: expected \",\" or \"}\" at byte 40 of 40"},
        {"", "line 15: malformed JSON: expected an object, but the text is empty at byte 0 of 0"},
        {"{\"a\": 1, \"s\": \"\", \"v\": [1, 1e39], \"b\": true}",
         "line 16: \"v\" holds 1e39, which is out of range for float32"},
        {"{\"a\": 2, \"s\": \"\", \"v\": [1, 2], \"b\": false}", ""},
    };
    struct bytes b = {0};
    uint64_t rows[CW_COUNT_OF(cases)];
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        rows[i] = i;
        bytes_add(&b, cases[i].line, strlen(cases[i].line));
        bytes_add(&b, "\n", 1);
    }
    temp_file("bad.jsonl", b.data, b.size);
    bytes_free(&b);
    struct run r;
    assert_int_equal(
        run_open(&r, JSONL("bad.jsonl", "{\"a\": \"uint8\", \"s\": \"bytes\", \"v\": {\"dtype\": "
                                        "\"float32\", \"shape\": [2]}, \"b\": \"bool\"}")),
        0);
    assert_int_equal(run_rows(&r, rows, CW_COUNT_OF(cases)), 0);
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        assert_string_equal(fault_of(&r, i), cases[i].why);
        assert_int_equal(r.b.status[i], *cases[i].why ? CW_ROW_FAILED : CW_ROW_OK);
    }
    assert_int_equal(*(uint8_t *)value(&r, "a", 16).data, 2);
    run_deinit(&r);
}

static void jsonl_attributes_are_checked(void **state)
{
    (void)state;

    static const struct {
        const char *features, *part;
    } bad[] = {
        {"{}", "1 to 64 features"},
        {"{\"x\": \"int33\"}", "a dtype (\"bytes\""},
        {"{\"x\": {\"dtype\": \"uint8\", \"default\": 256}}", "a default that is one number"},
        {"{\"x\": {\"dtype\": \"uint8\", \"default\": -1}}", "a default that is one number"},
        {"{\"x\": {\"dtype\": \"bool\", \"default\": 1}}", "a default that is one number"},
        {"{\"x\": {\"dtype\": \"float16\", \"default\": 1e6}}", "a default that is one number"},
        {"{\"x\": {\"dtype\": \"bytes\", \"default\": 1}}", "a string as default"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(bad); i++) {
        char chain[300];
        snprintf(chain, sizeof(chain), "{\"op\": \"jsonl\", \"files\": \"a.jsonl\", \"features\": %s}",
                 bad[i].features);
        expect_error(chain, CW_E_PIPELINE, bad[i].part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_lines_in_any_pieces),
        cmocka_unit_test(trims_one_end),
        cmocka_unit_test(text_gives_lines),
        cmocka_unit_test(compressed_text_is_the_same_and_read_from_restart_points),
        cmocka_unit_test(a_line_over_the_limit_fails_and_is_not_read),
        cmocka_unit_test(text_and_tfrecord_keep_their_own_indexes),
        cmocka_unit_test(json_is_strict),
        cmocka_unit_test(strings_lose_their_escapes),
        cmocka_unit_test(numbers_of_every_dtype),
        cmocka_unit_test(jsonl_gives_components),
        cmocka_unit_test(jsonl_says_what_is_wrong_and_on_which_line),
        cmocka_unit_test(jsonl_attributes_are_checked),
    };
    return cmocka_run_group_tests_name("lines", tests, temp_make, temp_remove);
}
