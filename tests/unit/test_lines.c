/* text and jsonl: lines found in any pieces, their indexes, what fails and how. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "formats/lines.h"
#include "pipeline/index.h"
#include "source_run.h"

static const char *put(const char *name, const char *text) { return temp_file(name, text, strlen(text)); }

/* ---- the walk ---- */

static void finds_lines_in_any_pieces(void **state)
{
    (void)state;
    static const char text[] = "one\r\ntwo\n\n\r\n\rx\r\r\nlast\r";
    static const struct { uint64_t offset, length; } expected[] = {{0, 3}, {5, 3}, {9, 0}, {10, 0}, {12, 3}, {17, 5}};
    for (size_t step = 1; step < sizeof(text); step++) {
        struct cw_line_walk w;
        assert_int_equal(cw_line_walk_init(&w, "pieces", UINT64_MAX, NULL), 0);
        for (size_t at = 0; at < sizeof(text) - 1; at += step)
            assert_int_equal(cw_walk_feed(&w.base, at, (const uint8_t *)text + at, CW_MIN(step, sizeof(text) - 1 - at), NULL), 0);
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
    static const struct { const char *line; size_t length; } cases[] = {{"", 0}, {"\n", 0}, {"\r\n", 0}, {"a\r\r\n", 2}, {"a\r", 2}, {"a\n", 1}, {"a", 1}};
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++)
        assert_int_equal(cw_line_trim((const uint8_t *)cases[i].line, strlen(cases[i].line)), cases[i].length);
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
    assert_true(x.segments[0].n_restarts >= x.segments[0].stream_size / (1 << 20)); /* lines begin in the middle of blocks, and yet */
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
        assert_string_equal(fault_of(&r, 1), "line 2 has 10000 bytes: max_line is 6");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_lines_in_any_pieces),
        cmocka_unit_test(trims_one_end),
        cmocka_unit_test(text_gives_lines),
        cmocka_unit_test(compressed_text_is_the_same_and_read_from_restart_points),
        cmocka_unit_test(a_line_over_the_limit_fails_and_is_not_read),
        cmocka_unit_test(text_and_tfrecord_keep_their_own_indexes),
    };
    return cmocka_run_group_tests_name("lines", tests, temp_make, temp_remove);
}
