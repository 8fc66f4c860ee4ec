/* formats/example.h: the wire parser of tf.train.Example. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "data_files.h"
#include "formats/example.h"

static void add_varint(struct bytes *b, uint64_t v)
{
    do {
        uint8_t byte = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
        bytes_add(b, &byte, 1);
        v >>= 7;
    } while (v);
}

/* A length-delimited field; takes content over. */
static void add_field(struct bytes *b, unsigned number, struct bytes content)
{
    add_varint(b, number << 3 | 2);
    add_varint(b, content.size);
    bytes_add(b, content.data, content.size);
    bytes_free(&content);
}

static struct bytes text(const char *s)
{
    struct bytes b = {0};
    bytes_add(&b, s, strlen(s));
    return b;
}

static struct bytes wrap(unsigned number, struct bytes content)
{
    struct bytes b = {0};
    add_field(&b, number, content);
    return b;
}

static struct bytes ints(bool packed, size_t n, const int64_t *v)
{
    struct bytes list = {0}, values = {0};
    for (size_t i = 0; i < n; i++) {
        if (!packed)
            add_varint(&list, 1 << 3);
        add_varint(packed ? &values : &list, (uint64_t)v[i]);
    }
    if (packed)
        add_field(&list, 1, values);
    return wrap(3, list);
}

static struct bytes floats(bool packed, size_t n, const float *v)
{
    struct bytes list = {0}, values = {0};
    for (size_t i = 0; i < n; i++) {
        if (!packed)
            add_varint(&list, 1 << 3 | 5);
        bytes_add(packed ? &values : &list, &v[i], 4);
    }
    if (packed)
        add_field(&list, 1, values);
    return wrap(2, list);
}

static struct bytes texts(size_t n, const char *const *v)
{
    struct bytes list = {0};
    for (size_t i = 0; i < n; i++)
        add_field(&list, 1, text(v[i]));
    return wrap(1, list);
}

static void add_entry(struct bytes *features, const char *key, struct bytes feature)
{
    struct bytes entry = {0};
    add_field(&entry, 1, text(key));
    add_field(&entry, 2, feature);
    add_field(features, 1, entry);
}

/* The last feature of that key in an Example; kind NONE if it is not there. Asserts that the walk goes well.
 */
static struct cw_feature find(const struct bytes *b, const char *key)
{
    struct cw_example_walk w;
    struct cw_feature f, found = {0};
    int r;
    cw_example_walk_init(&w, b->data, b->size);
    while ((r = cw_example_next(&w, &f)) > 0)
        if (f.key_size == strlen(key) && memcmp(f.key, key, f.key_size) == 0)
            found = f;
    assert_int_equal(r, 0);
    return found;
}

static void reads_all_kinds(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0, 1, -1, 127, 128, INT64_MAX, INT64_MIN, 300};
    static const float reals[] = {0.0f, -1.5f, 1e30f};
    static const char *const names[] = {"first", "", "third"};
    for (int packed = 0; packed < 2; packed++) {
        struct bytes features = {0}, example = {0};
        add_entry(&features, "ints", ints(packed, 8, numbers));
        add_entry(&features, "floats", floats(packed, 3, reals));
        add_entry(&features, "bytes", texts(3, names));
        add_entry(&features, "empty", (struct bytes){0});
        add_field(&example, 7, text("unknown field"));
        add_field(&example, 1, features);
        struct cw_feature f = find(&example, "ints");
        int64_t n[8];
        assert_int_equal(f.kind, CW_FEATURE_INT64);
        assert_int_equal(cw_feature_count(&f), 8);
        cw_feature_integers(&f, sizeof(int64_t), n);
        assert_memory_equal(n, numbers, sizeof(n));
        f = find(&example, "floats");
        float x[3];
        assert_int_equal(f.kind, CW_FEATURE_FLOAT);
        assert_int_equal(cw_feature_count(&f), 3);
        cw_feature_floats(&f, x);
        assert_memory_equal(x, reals, sizeof(x));
        f = find(&example, "bytes");
        struct cw_bytes_view v[3];
        assert_int_equal(cw_feature_count(&f), 3);
        cw_feature_bytes(&f, v);
        assert_int_equal(v[1].size, 0);
        assert_int_equal(v[2].size, 5);
        assert_memory_equal(v[2].data, "third", 5);
        f = find(&example, "empty");
        assert_int_equal(f.kind, CW_FEATURE_NONE);
        assert_non_null(f.key);
        assert_int_equal(find(&example, "absent").kind, CW_FEATURE_NONE);
        bytes_free(&example);
    }
    struct cw_example_walk w;
    struct cw_feature f;
    cw_example_walk_init(&w, NULL, 0); /* an empty Example */
    assert_int_equal(cw_example_next(&w, &f), 0);
}

static void merges_as_protobuf(void **state)
{
    (void)state;
    struct bytes features = {0}, more = {0}, example = {0}, feature = {0}, entry = {0};
    add_entry(&features, "twice", ints(true, 1, (int64_t[]){1}));
    add_entry(&features, "twice", ints(true, 2, (int64_t[]){2, 3})); /* the last one counts */
    /* one Feature: ints, then floats (drops them), then floats again (appended) */
    struct bytes part = ints(true, 1, (int64_t[]){9});
    bytes_add(&feature, part.data, part.size);
    bytes_free(&part);
    part = floats(true, 1, (float[]){1.0f});
    bytes_add(&feature, part.data, part.size);
    bytes_free(&part);
    part = floats(false, 2, (float[]){2.0f, 3.0f});
    bytes_add(&feature, part.data, part.size);
    bytes_free(&part);
    add_entry(&features, "oneof", feature);
    add_field(&example, 1, features);
    /* a second Features message; an entry with value before key, and its value in two pieces */
    add_field(&entry, 2, ints(true, 1, (int64_t[]){4}));
    add_field(&entry, 9, text("?"));
    add_field(&entry, 1, text("pieces"));
    add_field(&entry, 2, ints(false, 2, (int64_t[]){5, 6}));
    add_field(&more, 1, entry);
    add_field(&example, 1, more);

    int64_t n[3];
    float x[3];
    struct cw_feature f = find(&example, "twice");
    assert_int_equal(cw_feature_count(&f), 2);
    cw_feature_integers(&f, sizeof(int64_t), n);
    assert_int_equal(n[1], 3);
    f = find(&example, "oneof");
    assert_int_equal(f.kind, CW_FEATURE_FLOAT);
    assert_int_equal(f.n_lists, 2);
    assert_int_equal(cw_feature_count(&f), 3);
    cw_feature_floats(&f, x);
    assert_true(x[0] == 1.0f && x[1] == 2.0f && x[2] == 3.0f);
    f = find(&example, "pieces");
    assert_int_equal(cw_feature_count(&f), 3);
    cw_feature_integers(&f, sizeof(int64_t), n);
    assert_true(n[0] == 4 && n[1] == 5 && n[2] == 6);
    bytes_free(&example);
}

static void refuses_malformed(void **state)
{
    (void)state;

    static const struct {
        const char *data;
        size_t size;
        const char *why;
        size_t where;
    } cases[] = {
        {"\x0a\x05"
         "ab",
         4, "a field runs past the end", 0},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "a field runs past the end", 0},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "a length is cut off", 0},
        {"\x0a\x80", 2, "a length is cut off", 0},
        {"\x0a", 1, "a length is cut off", 0},
        {"\x00\x00", 2, "no valid field tag", 0},
        {"\x0b", 1, "no valid wire type", 0},
        {"\x0f", 1, "no valid wire type", 0},
        {"\x10\x80", 2, "a number is cut off", 0},
        {"\x11\x00\x00", 3, "a field runs past the end", 0},
        {"\x0a\x03\x0a\x01\x80", 5, "no valid field tag", 4},
        {"\x0a\x06\x0a\x04\x12\x02\x1a\x01", 8, "a field runs past the end", 4},
    };

    for (size_t i = 0; i < CW_COUNT_OF(cases); i++) {
        struct cw_example_walk w;
        struct cw_feature f;
        int r;
        cw_example_walk_init(&w, cases[i].data, cases[i].size);
        while ((r = cw_example_next(&w, &f)) > 0)
            ;
        assert_int_equal(r, -1);
        assert_string_equal(w.why, cases[i].why);
        assert_int_equal(w.where, cases[i].where);
    }

    /* lists are looked into by cw_feature_count */
    static const struct {
        unsigned kind;
        const char *list;
        size_t size;
    } lists[] = {
        {2,
         "\x0a\x03"
         "abc",
         5},
        {3, "\x0a\x01\x80", 3},
        {3, "\x0a\x0b\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13},
        {3, "\x08", 1},
        {1,
         "\x0a\x07"
         "abc",
         5},
        {2,
         "\x0d"
         "ab",
         3},
    };

    for (size_t i = 0; i < CW_COUNT_OF(lists); i++) {
        struct bytes features = {0}, example = {0}, list = {0};
        bytes_add(&list, lists[i].list, lists[i].size);
        add_entry(&features, "x", wrap(lists[i].kind, list));
        add_field(&example, 1, features);
        struct cw_feature f = find(&example, "x");
        assert_int_equal(cw_feature_count(&f), -1);
        bytes_free(&example);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_kinds),
        cmocka_unit_test(merges_as_protobuf),
        cmocka_unit_test(refuses_malformed),
    };
    return cmocka_run_group_tests_name("example", tests, NULL, NULL);
}
