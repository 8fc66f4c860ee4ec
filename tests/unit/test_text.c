/* Edit distance, nearest names, growing strings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/text.h"

/* The recurrence itself (optimal string alignment), without tables. */
static unsigned slow_distance(const char *a, size_t n, const char *b, size_t m)
{
    if (n == 0 || m == 0)
        return (unsigned)(n + m);
    unsigned d = slow_distance(a, n - 1, b, m - 1) + (a[n - 1] != b[m - 1]);
    d = CW_MIN(d, slow_distance(a, n - 1, b, m) + 1);
    d = CW_MIN(d, slow_distance(a, n, b, m - 1) + 1);
    if (n > 1 && m > 1 && a[n - 1] == b[m - 2] && a[n - 2] == b[m - 1])
        d = CW_MIN(d, slow_distance(a, n - 2, b, m - 2) + 1);
    return d;
}

static void test_distance(void **state)
{
    (void)state;

    static const struct {
        const char *a, *b;
        unsigned d;
    } cases[] = {
        {"", "", 0},
        {"abc", "", 3},
        {"", "abc", 3},
        {"batch", "batch", 0},
        {"bacth", "batch", 1},
        {"shufle", "shuffle", 1},
        {"kitten", "sitting", 3},
        {"resize", "resise", 1},
        {"decode_image", "decode-image", 1},
        {"ca", "abc", 3},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        assert_int_equal(cw_edit_distance(cases[i].a, cases[i].b), cases[i].d);
        assert_int_equal(cw_edit_distance(cases[i].b, cases[i].a), cases[i].d);
    }
}

/* All pairs of strings over {a, b, c} of up to 4 letters. */
static void test_distance_exhaustive(void **state)
{
    (void)state;
    char words[121][5];
    size_t n = 0;
    for (size_t length = 0, count = 1; length <= 4; length++, count *= 3)
        for (size_t w = 0; w < count; w++, n++) {
            size_t rest = w;
            for (size_t i = 0; i < length; i++, rest /= 3)
                words[n][i] = (char)('a' + rest % 3);
            words[n][length] = '\0';
        }
    assert_int_equal(n, CW_COUNT_OF(words));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            assert_int_equal(cw_edit_distance(words[i], words[k]),
                             slow_distance(words[i], strlen(words[i]), words[k], strlen(words[k])));
}

static void test_long_names_are_cut(void **state)
{
    (void)state;
    char a[200], b[200];
    memset(a, 'x', sizeof(a));
    a[sizeof(a) - 1] = '\0';
    memset(b, 'y', sizeof(b));
    b[sizeof(b) - 1] = '\0';
    assert_int_equal(cw_edit_distance(a, b), 63);
    assert_int_equal(cw_edit_distance(a, a), 0);
    assert_int_equal(cw_edit_distance(a, ""), 63);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"batch",  "cast", "filter", "random_crop", "random_resized_crop",
                                        "resize", "take"};
    size_t n = CW_COUNT_OF(names);
    assert_string_equal(cw_nearest("bacth", names, n), "batch");
    assert_string_equal(cw_nearest("resise", names, n), "resize");
    assert_string_equal(cw_nearest("random_resizd_crop", names, n), "random_resized_crop");
    assert_string_equal(cw_nearest("tak", names, n), "take");
    assert_null(cw_nearest("normalise", names, n));
    assert_null(cw_nearest("xy", names, n));
    assert_null(cw_nearest("batch", names, 0));
}

static void test_growing_text(void **state)
{
    (void)state;
    struct cw_text t = {0};
    char expected[4000] = "";
    size_t at = 0;
    for (int i = 0; i < 500; i++) {
        cw_text_add(&t, "%d,", i);
        at += (size_t)snprintf(expected + at, sizeof(expected) - at, "%d,", i);
    }
    assert_int_equal(t.failed, 0);
    assert_int_equal(t.size, at);
    assert_string_equal(t.data, expected);
    cw_text_add(&t, "%s", "");
    assert_int_equal(t.size, at);
    cw_text_deinit(&t);
    assert_null(t.data);
    cw_text_deinit(&t);
}

static void test_errors_keep_the_first_facts(void **state)
{
    (void)state;
    struct cw_error err = {0};
    assert_int_equal(cw_error_set(&err, CW_E_DATA, "file %s", "a"), CW_E_DATA);
    assert_int_equal(err.status, CW_E_DATA);
    assert_string_equal(err.message, "file a");
    cw_error_op(&err, "batch");
    cw_error_op(&err, "take");
    assert_string_equal(err.op, "batch");
    cw_error_file(&err, "x");
    cw_error_file(&err, "y");
    assert_string_equal(err.file, "x");
    assert_int_equal(cw_error_set(NULL, CW_E_IO, "nobody listens"), CW_E_IO);
    cw_error_op(NULL, "batch");

    static const struct {
        int status, code;
        const char *name;
    } codes[] = {
        {CW_E_RECORD, 1, "record"},
        {CW_E_DATA, 1, "data"},
        {CW_E_IO, 1, "io"},
        {CW_E_MEMORY, 1, "memory"},
        {CW_E_BUDGET, 2, "budget"},
        {CW_E_PIPELINE, 2, "pipeline"},
        {CW_E_OPTION, 2, "option"},
        {CW_E_STATE, 2, "state"},
        {CW_E_SERVICE, 3, "service"},
        {CW_E_DEADLINE, 4, "deadline"},
        {CW_E_INTERRUPTED, 130, "interrupted"},
        {CW_E_BUG, 1, "internal"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(codes); i++) {
        assert_string_equal(cw_status_name(codes[i].status), codes[i].name);
        assert_int_equal(cw_status_exit(codes[i].status), codes[i].code);
    }
}

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "abc",
                                       "\x7f",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "a\xe2\x82\xac.b"};
    static const char *const bad[] = {"\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2.a",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xe2\x82",
                                      "\xe2\x82.a",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "ok\xf0\x90\x80"};
    for (size_t i = 0; i < CW_COUNT_OF(good); i++)
        if (!cw_text_utf8(good[i], strlen(good[i])))
            fail_msg("good string %zu is refused", i);
    for (size_t i = 0; i < CW_COUNT_OF(bad); i++)
        if (cw_text_utf8(bad[i], strlen(bad[i])))
            fail_msg("bad string %zu is taken", i);
    assert_true(cw_text_utf8("a\0b", 3));
}

/* What people see of names: nothing that moves the cursor, turns text round or has no width, and nothing of
 * a character that was cut. */
static void test_names_are_shown_escaped(void **state)
{
    (void)state;

    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"resnet-\xc3\xa9t\xc3\xa9", "resnet-\xc3\xa9t\xc3\xa9"},
        {"a\x1b[31mb", "a\\u001b[31mb"},
        {"line\none\r\ttwo\x7f", "line\\none\\r\\ttwo\\u007f"},
        {"a\xe2\x80\xae"
         "b",
         "a\\u202eb"},
        {"\xe2\x80\x8b", "\\u200b"},
        {"\xe2\x81\xa6x\xe2\x81\xa9", "\\u2066x\\u2069"},
        {"\xef\xbb\xbf", "\\ufeff"},
        {"\xc2\x9b", "\\u009b"},
        {"\xf3\xa0\x81\x81", "\\U000e0041"},
        {"cut \xe2\x82", "cut "},
        {"cut \xe2\x82 within \xf0\x90\x80", "cut  within "},
        {"bad \xff\xc0\x80", "bad \\xff\\xc0\\x80"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
    };

    char buf[64], all[400] = "";
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        cw_text_show(buf, sizeof(buf), cases[i].text);
        assert_string_equal(buf, cases[i].shown);
        assert_string_equal(cw_text_clean(buf, sizeof(buf)), cases[i].shown); /* once is enough */
        strcat(all, cases[i].text);
    }
    for (size_t size = 1; size < sizeof(all); size++) {
        char small[400];
        cw_text_show(small, size, all);
        assert_true(strlen(small) < size && cw_text_utf8(small, strlen(small)));
        const char *last = strrchr(small, '\\');
        assert_true(!last || strlen(last) >= 2); /* no half escape: the shortest has a letter */
    }
}

static void test_text_is_cut_between_characters(void **state)
{
    (void)state;
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};
    for (size_t most = 0; most < CW_COUNT_OF(whole); most++) {
        char *copy = cw_text_dup(text, most);
        assert_int_equal(cw_text_whole(text, most), whole[most]);
        assert_int_equal(strlen(copy), whole[most]);
        free(copy);
    }
    struct cw_error err = {0};
    char name[400];
    for (size_t i = 0; i + 1 < sizeof(name); i++)
        name[i] = "\xe2\x82\xac"[i % 3];
    name[399] = '\0';
    for (int most = 30; most < 36; most++) {
        (void)cw_error_set(&err, CW_E_OPTION, "there is no job \"%.*s\"", most, name);
        assert_true(cw_text_utf8(err.message, strlen(err.message)));
    }
    cw_error_attribute(&err, "job", name, "x");
    assert_true(cw_text_utf8(err.value, strlen(err.value)) && strlen(err.value) == 126);
}

static void test_sizes_for_people(void **state)
{
    (void)state;

    static const struct {
        double bytes;
        const char *text;
    } cases[] = {
        {0, "0 bytes"},           {999, "999 bytes"},  {1000, "1.0 kB"},
        {65852, "65.9 kB"},       {99949, "99.9 kB"},  {99950, "100 kB"},
        {446.4e6, "446 MB"},      {999.4e6, "999 MB"}, {999.6e6, "1.0 GB"},
        {12638255104, "12.6 GB"}, {1e13, "10.0 TB"},   {18446744073709551615.0, "18.4 EB"},
    };

    char buf[32];
    for (size_t i = 0; i < CW_COUNT_OF(cases); i++)
        assert_string_equal(cw_text_bytes(cases[i].bytes, buf), cases[i].text);
}

static void test_base36_comes_back(void **state)
{
    (void)state;

    static const struct {
        uint64_t value;
        const char *text;
    } cases[] = {
        {0, "0"}, {35, "z"}, {36, "10"}, {46655, "zzz"}, {UINT64_MAX, "3w5e11264sgsf"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_text t = {0};
        cw_text_add_base36(&t, cases[i].value);
        assert_string_equal(t.data, cases[i].text);
        cw_text_add(&t, " 7");
        const char *at = t.data;
        uint64_t back;
        assert_true(cw_text_base36(&at, &back) && back == cases[i].value && *at == ' ');
        cw_text_deinit(&t);
    }
    static const char *const bad[] = {"", " 1", "-1", "+1", "A", "3w5e11264sgsg", "10000000000000"};
    for (size_t i = 0; i < CW_COUNT_OF(bad); i++) {
        const char *at = bad[i];
        uint64_t back;
        assert_false(cw_text_base36(&at, &back));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_distance_exhaustive),
        cmocka_unit_test(test_long_names_are_cut),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_growing_text),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_names_are_shown_escaped),
        cmocka_unit_test(test_text_is_cut_between_characters),
        cmocka_unit_test(test_sizes_for_people),
        cmocka_unit_test(test_base36_comes_back),
        cmocka_unit_test(test_errors_keep_the_first_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
