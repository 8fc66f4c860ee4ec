/* Arrow streams as data sets in memory: every layout that is taken, with offsets everywhere, and what is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>

#include "arrays_run.h"
#include <cachew/arrow.h>

static const char text[] = "onetwothree";
static const char *const strings[] = {"one", "two", "three"};

/* ---- Arrow: a stream of batches that the test fills in ---- */

#define MAX_NODES 64
static int live_arrays, live_schemas, live_streams;

static void schema_release(struct ArrowSchema *s)
{
    s->release = NULL;
    live_schemas--;
}

static void array_release(struct ArrowArray *a)
{
    a->release = NULL;
    live_arrays--;
}

static struct {
    struct ArrowSchema s[MAX_NODES];
    struct ArrowArray a[MAX_NODES];
    size_t n_s, n_a;
} pool;

static struct ArrowSchema *schema(const char *format, const char *name, struct ArrowSchema **children,
                                  int64_t n)
{
    struct ArrowSchema *s = &pool.s[pool.n_s++];
    *s = (struct ArrowSchema){
        .format = format, .name = name, .n_children = n, .children = children, .release = schema_release};
    return s;
}

static struct ArrowArray *array(int64_t length, int64_t offset, const void **buffers, int64_t n_buffers,
                                struct ArrowArray **children, int64_t n)
{
    struct ArrowArray *a = &pool.a[pool.n_a++];
    *a = (struct ArrowArray){.length = length,
                             .offset = offset,
                             .n_buffers = n_buffers,
                             .buffers = buffers,
                             .n_children = n,
                             .children = children,
                             .release = array_release};
    return a;
}

struct stream {
    struct ArrowSchema *schema;
    struct ArrowArray *batches[4];
    size_t n, at;
    int fail_at;
};

static int get_schema(struct ArrowArrayStream *s, struct ArrowSchema *out)
{
    *out = *((struct stream *)s->private_data)->schema;
    live_schemas++;
    return 0;
}

static int get_next(struct ArrowArrayStream *s, struct ArrowArray *out)
{
    struct stream *t = s->private_data;
    if (t->fail_at && (int)t->at + 1 == t->fail_at)
        return EIO;
    if (t->at == t->n) {
        out->release = NULL;
        return 0;
    }
    *out = *t->batches[t->at++];
    live_arrays++;
    return 0;
}

static const char *last_error(struct ArrowArrayStream *s)
{
    (void)s;
    return "the disk is gone";
}

static void stream_release(struct ArrowArrayStream *s)
{
    s->release = NULL;
    live_streams--;
}

static int import_rows(struct stream *t, const uint64_t *rows, uint64_t n, struct cachew_arrays **ret,
                       struct cachew_error **err)
{
    struct ArrowArrayStream s = {.get_schema = get_schema,
                                 .get_next = get_next,
                                 .get_last_error = last_error,
                                 .release = stream_release,
                                 .private_data = t};
    live_streams++;
    t->at = 0;
    int r = rows ? cachew_arrays_from_arrow_rows(&s, rows, n, ret, err)
                 : cachew_arrays_from_arrow(&s, ret, err);
    assert_null(s.release);
    assert_int_equal(live_streams + live_schemas, 0);
    if (r < 0)
        assert_int_equal(live_arrays, 0);
    return r;
}

static int import(struct stream *t, struct cachew_arrays **ret, struct cachew_error **err)
{
    return import_rows(t, NULL, 0, ret, err);
}

/* A stream of one column in one batch of length rows; the batch itself starts at row `offset` of its column.
 */
static struct stream one_column(struct ArrowSchema *s, struct ArrowArray *a, int64_t length, int64_t offset)
{
    static struct ArrowSchema *schemas[1];
    static struct ArrowArray *arrays[1];
    static const void *no_buffers[1];
    schemas[0] = s;
    arrays[0] = a;
    return (struct stream){.schema = schema("+s", "", schemas, 1),
                           .batches = {array(length, offset, no_buffers, 1, arrays, 1)},
                           .n = 1};
}

static int reset(void **state)
{
    (void)state;
    pool.n_s = pool.n_a = 0;
    live_arrays = live_schemas = live_streams = 0;
    return 0;
}

static void arrow_numbers_with_offsets_everywhere(void **state)
{
    (void)state;
    static const int16_t values[] = {0, 1, 2, 3, 4, 5, 6, 7};
    static const void *buffers[] = {NULL, values};

    static const struct {
        const char *format;
        size_t size;
    } formats[] = {{"c", 1}, {"C", 1}, {"s", 2}, {"S", 2}, {"i", 4}, {"I", 4},
                   {"l", 8}, {"L", 8}, {"e", 2}, {"f", 4}, {"g", 8}};
    struct cachew_arrays *a;
    /* 1 + 2: from 3 on */
    struct stream t = one_column(schema("s", "x", NULL, 0), array(7, 1, buffers, 2, NULL, 0), 4, 2);
    assert_int_equal(import(&t, &a, NULL), 0);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "x", values + 3, 8);
    assert_int_equal(live_arrays, 1);
    cachew_batch_release(b);
    cachew_arrays_free(a);
    assert_int_equal(live_arrays, 0);
    static const uint64_t wide[] = {1, 2};
    static const void *wide_buffers[] = {NULL, wide};
    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        reset(NULL);
        t = one_column(schema(formats[i].format, "x", NULL, 0), array(2, 0, wide_buffers, 2, NULL, 0), 2, 0);
        assert_int_equal(import(&t, &a, NULL), 0);
        b = all_of(a);
        expect_values(b, "x", wide, 2 * formats[i].size);
        cachew_batch_release(b);
        cachew_arrays_free(a);
    }
}

static void arrow_bits_become_bools(void **state)
{
    (void)state;
    static const uint8_t bits[] = {0xb4, 0x01}; /* 0 0 1 0 1 1 0 1 1 */
    static const void *buffers[] = {NULL, bits};
    struct cachew_arrays *a;
    struct stream t = one_column(schema("b", "x", NULL, 0), array(8, 1, buffers, 2, NULL, 0), 7, 1);
    assert_int_equal(import(&t, &a, NULL), 0);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "x", (uint8_t[]){1, 0, 1, 1, 0, 1, 1}, 7);
    cachew_batch_release(b);
    cachew_arrays_free(a);
}

static void arrow_strings_of_all_kinds(void **state)
{
    (void)state;
    static const int32_t small[] = {0, 0, 3, 6, 11};
    static const int64_t large[] = {0, 0, 3, 6, 11};
    static const char long_text[] = "0123456789 a longer text, three";

    struct __attribute__((packed)) {
        int32_t size;
        char text[4];
        int32_t buffer, offset;
    } views[4] = {{0, "", 0, 0}, {3, "one", 0, 0}, {3, "two", 0, 0}, {20, "a lo", 1, 11}};

    const int64_t sizes[] = {0, sizeof(long_text)};
    static const char *const with_long[] = {"one", "two", "a longer text, three"};

    const struct {
        const char *format;
        const void *buffers[5];
        int64_t n;
        const char *const *expected;
    } cases[] = {
        {"u", {NULL, small, text}, 3, strings},
        {"z", {NULL, small, text}, 3, strings},
        {"U", {NULL, large, text}, 3, strings},
        {"Z", {NULL, large, text}, 3, strings},
        {"vu", {NULL, views, text, long_text, sizes}, 5, with_long},
        {"vz", {NULL, views, text, long_text, sizes}, 5, with_long},
    };

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct cachew_arrays *a;
        reset(NULL);
        struct stream t = one_column(schema(cases[i].format, "s", NULL, 0),
                                     array(4, 0, (const void **)cases[i].buffers, cases[i].n, NULL, 0), 3, 1);
        assert_int_equal(import(&t, &a, NULL), 0);
        struct cachew_batch *b = all_of(a);
        expect_strings(b, "s", cases[i].expected, 3);
        cachew_batch_release(b);
        cachew_arrays_free(a);
    }
    static const void *fixed[] = {NULL, "...etowos"}; /* element 0 is not used */
    static const char *const words[] = {"eto", "wos"};
    struct cachew_arrays *a;
    struct stream t = one_column(schema("w:3", "s", NULL, 0), array(2, 1, fixed, 2, NULL, 0), 2, 0);
    assert_int_equal(import(&t, &a, NULL), 0);
    struct cachew_batch *b = all_of(a);
    expect_strings(b, "s", words, 2);
    cachew_batch_release(b);
    cachew_arrays_free(a);
}

static void arrow_lists_are_dimensions(void **state)
{
    (void)state;
    static const int32_t numbers[] = {-1, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
    static const void *leaf[] = {NULL, numbers}, *none[] = {NULL};
    static const int32_t ends[] = {0, 0, 1, 3, 3};
    static const int64_t large_ends[] = {0, 0, 1, 3, 3};
    struct cachew_arrays *a;
    struct ArrowSchema *inner[] = {schema("i", "item", NULL, 0)},
                       *middle[] = {schema("+w:2", "item", inner, 1)};
    struct ArrowArray *inner_a[] = {array(14, 2, leaf, 2, NULL, 0)},
                      *middle_a[] = {array(6, 1, none, 1, inner_a, 1)};
    /* fixed [2, 2]: outer 2 rows from row 1 of an array that starts at 0; the middle one is shifted by 1, the
     * leaf by 2 */
    struct stream t = one_column(schema("+w:2", "x", middle, 1), array(3, 0, none, 1, middle_a, 1), 2, 1);
    assert_int_equal(import(&t, &a, NULL), 0);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "x", (int32_t[]){6, 7, 8, 9, 10, 11, 12, 13}, 32);
    assert_int_equal(cachew_batch_find(b, "x")->ndim, 3);
    cachew_batch_release(b);
    cachew_arrays_free(a);

    /* variable, of pairs: [[1 pair], [2 pairs], []] from row 1 on */
    const struct {
        const char *format;
        const void *ends;
    } kinds[] = {{"+l", ends}, {"+L", large_ends}};

    for (int k = 0; k < 2; k++) {
        const void *list[] = {NULL, kinds[k].ends};
        t = one_column(schema(kinds[k].format, "x", middle, 1), array(4, 0, list, 2, middle_a, 1), 3, 1);
        assert_int_equal(import(&t, &a, NULL), 0);
        struct cachew_iterator *it = open_id(cachew_arrays_id(a), "");

        static const struct {
            int64_t n;
            int32_t values[4];
        } rows[] = {{1, {2, 3}}, {2, {4, 5, 6, 7}}, {0, {0}}};

        for (size_t i = 0; i < 3; i++) {
            b = one_batch(it);
            const struct cachew_component *c = cachew_batch_find(b, "x");
            assert_true(c->ndim == 2 && c->dims[0] == rows[i].n && c->dims[1] == 2);
            expect_values(b, "x", rows[i].values, (size_t)rows[i].n * 8);
            cachew_batch_release(b);
        }
        cachew_iterator_free(it);
        cachew_arrays_free(a);
    }
    /* lists of bools, whose bits are expanded from the first that is used on */
    static const uint8_t bits[] = {0x16}; /* 0 1 1 0 1 */
    static const int32_t bool_ends[] = {1, 2, 5};
    static const void *bit_leaf[] = {NULL, bits}, *bool_list[] = {NULL, bool_ends};
    struct ArrowSchema *bools[] = {schema("b", "item", NULL, 0)};
    struct ArrowArray *bools_a[] = {array(5, 0, bit_leaf, 2, NULL, 0)};
    t = one_column(schema("+l", "x", bools, 1), array(2, 0, bool_list, 2, bools_a, 1), 1, 1);
    assert_int_equal(import(&t, &a, NULL), 0);
    b = all_of(a);
    expect_values(b, "x", (uint8_t[]){1, 0, 1}, 3);
    cachew_batch_release(b);
    cachew_arrays_free(a);
}

static void arrow_dictionaries_are_looked_up(void **state)
{
    (void)state;
    static const int8_t indices[] = {9, 2, 0, 1, 2};
    static const uint16_t wide[] = {9, 2, 0, 1, 2};
    static const int32_t ends[] = {0, 3, 6, 11};
    static const double numbers[] = {0.5, 1.5, 2.5};
    static const void *text_buffers[] = {NULL, ends, text}, *number_buffers[] = {NULL, numbers};
    static const char *const expected[] = {"one", "two", "three"};
    struct cachew_arrays *a;
    for (int k = 0; k < 2; k++) {
        const void *index_buffers[] = {NULL, k ? (const void *)wide : indices};
        struct ArrowSchema *s = schema(k ? "S" : "c", "x", NULL, 0);
        struct ArrowArray *x = array(4, 1, index_buffers, 2, NULL, 0);
        s->dictionary = schema("u", "", NULL, 0);
        x->dictionary = array(3, 0, text_buffers, 3, NULL, 0);
        struct stream t = one_column(s, x, 3, 1);
        assert_int_equal(import(&t, &a, NULL), 0);
        struct cachew_batch *b = all_of(a);
        expect_strings(b, "x", expected, 3);
        cachew_batch_release(b);
        cachew_arrays_free(a);
        s->dictionary = schema("g", "", NULL, 0);
        x->dictionary = array(3, 0, number_buffers, 2, NULL, 0);
        t = one_column(s, x, 3, 1);
        assert_int_equal(import(&t, &a, NULL), 0);
        b = all_of(a);
        expect_values(b, "x", (double[]){0.5, 1.5, 2.5}, 24);
        cachew_batch_release(b);
        cachew_arrays_free(a);
    }
    const void *index_buffers[] = {NULL, indices};
    struct ArrowSchema *s = schema("c", "x", NULL, 0);
    struct ArrowArray *x = array(5, 0, index_buffers, 2, NULL, 0);
    s->dictionary = schema("g", "", NULL, 0);
    x->dictionary = array(3, 0, number_buffers, 2, NULL, 0);
    struct stream t = one_column(s, x, 5, 0);
    struct cachew_error *err = NULL;
    assert_int_equal(import(&t, &a, &err), CACHEW_E_DATA); /* 9 is no index */
    assert_contains(cachew_error_message(err), "\"x\" is malformed");
    cachew_error_free(err);
}

static void arrow_batches_are_one_data_set_however_they_are_cut(void **state)
{
    (void)state;
    static const int32_t numbers[] = {1, 2, 3, 4, 5, 6};
    static const int32_t ends[] = {0, 3, 6, 11};
    static const void *number_buffers[] = {NULL, numbers}, *text_buffers[] = {NULL, ends, text},
                      *none[] = {NULL};
    struct ArrowSchema *schemas[] = {schema("i", "n", NULL, 0), schema("u", "s", NULL, 0)};
    struct ArrowArray *columns[] = {array(3, 0, number_buffers, 2, NULL, 0),
                                    array(3, 0, text_buffers, 3, NULL, 0)};
    struct stream whole = {
        .schema = schema("+s", "", schemas, 2), .batches = {array(3, 0, none, 1, columns, 2)}, .n = 1};
    struct stream cut = {.schema = whole.schema,
                         .batches = {array(1, 0, none, 1, columns, 2), array(0, 0, none, 1, columns, 2),
                                     array(2, 1, none, 1, columns, 2)},
                         .n = 3};
    struct cachew_arrays *a, *z;
    assert_int_equal(import(&whole, &a, NULL), 0);
    assert_int_equal(import(&cut, &z, NULL), 0);
    assert_string_equal(cachew_arrays_id(a), cachew_arrays_id(z));
    assert_int_equal(live_arrays, 3); /* the empty batch is given back at once */
    cachew_arrays_free(a);
    struct cachew_batch *b = all_of(z);
    expect_values(b, "n", numbers, 12);
    expect_strings(b, "s", strings, 3);
    cachew_batch_release(b);
    cachew_arrays_free(z);
    assert_int_equal(live_arrays, 0);
    struct stream none_at_all = {.schema = whole.schema};
    assert_int_equal(import(&none_at_all, &a, NULL), 0);
    assert_int_equal(cachew_arrays_count(a), 0);
    cachew_arrays_free(a);
}

static void arrow_rows_can_be_chosen(void **state)
{
    (void)state;
    static const int32_t numbers[] = {1, 2, 3, 4, 5, 6}, chosen_numbers[] = {6, 1, 6, 4};
    static const int32_t ends[] = {0, 3, 6, 11, 11, 11, 14}, chosen_ends[] = {0, 3, 6, 9, 9};
    static const uint8_t valid[] = {0xed}; /* elements 1 and 4 are null */
    static const void *number_buffers[] = {valid, numbers}, *text_buffers[] = {NULL, ends, "onetwothreesix"},
                      *none[] = {NULL}, *chosen_number_buffers[] = {NULL, chosen_numbers},
                      *chosen_text_buffers[] = {NULL, chosen_ends, "sixonesix"};
    struct ArrowSchema *schemas[] = {schema("i", "n", NULL, 0), schema("u", "s", NULL, 0)};
    struct ArrowArray *columns[] = {array(6, 0, number_buffers, 2, NULL, 0),
                                    array(6, 0, text_buffers, 3, NULL, 0)},
                      *chosen[] = {array(4, 0, chosen_number_buffers, 2, NULL, 0),
                                   array(4, 0, chosen_text_buffers, 3, NULL, 0)};
    columns[0]->null_count = 2;
    struct stream cut = {.schema = schema("+s", "", schemas, 2),
                         .batches = {array(2, 0, none, 1, columns, 2), array(4, 2, none, 1, columns, 2)},
                         .n = 2};
    struct stream same = {.schema = cut.schema, .batches = {array(4, 0, none, 1, chosen, 2)}, .n = 1};
    struct cachew_arrays *a, *z;
    struct cachew_error *err = NULL;
    assert_int_equal(import_rows(&cut, (const uint64_t[]){5, 0, 5, 3}, 4, &a, NULL), 0);
    assert_int_equal(import(&same, &z, NULL), 0);
    assert_int_equal(cachew_arrays_count(a), 4);
    assert_string_equal(cachew_arrays_id(a), cachew_arrays_id(z));
    cachew_arrays_free(z);
    struct cachew_batch *b = all_of(a);
    expect_values(b, "n", chosen_numbers, 16);
    expect_strings(b, "s", (const char *const[]){"six", "one", "six", ""}, 4);
    cachew_batch_release(b);
    cachew_arrays_free(a);
    assert_int_equal(live_arrays, 0);

    assert_int_equal(import_rows(&cut, (const uint64_t[]){0}, 0, &a, NULL), 0);
    assert_int_equal(cachew_arrays_count(a), 0);
    cachew_arrays_free(a);
    assert_int_equal(import_rows(&cut, (const uint64_t[]){0, 2, 4}, 3, &a, &err), CACHEW_E_DATA);
    assert_contains(cachew_error_message(err), "the column \"n\" has a null in row 2");
    cachew_error_free(err);
    assert_int_equal(import_rows(&cut, (const uint64_t[]){0, 6}, 2, &a, &err), CACHEW_E_OPTION);
    assert_contains(cachew_error_message(err), "rows[1] is 6: expected a row below 6");
    cachew_error_free(err);
}

static void expect_refused(struct stream *t, const char *part)
{
    struct cachew_arrays *a;
    struct cachew_error *err = NULL;
    assert_int_equal(import(t, &a, &err), CACHEW_E_DATA);
    assert_contains(cachew_error_message(err), part);
    cachew_error_free(err);
}

static void arrow_nulls_and_other_types_are_refused(void **state)
{
    (void)state;
    static const uint64_t numbers[8];
    static const uint8_t valid[] = {0xef}; /* element 4 is null */
    static const int32_t ends[] = {0, 2, 6};
    static const void *buffers[] = {valid, numbers, NULL}, *none[] = {NULL}, *list_buffers[] = {NULL, ends};
    struct ArrowArray *x = array(6, 0, buffers, 2, NULL, 0);
    struct stream t = one_column(schema("l", "price", NULL, 0), x, 3, 2);
    x->null_count = -1;
    expect_refused(&t, "the column \"price\" has a null in row 2");
    x->null_count = 1;
    expect_refused(&t, "the column \"price\" has a null in row 2");
    struct cachew_arrays *a;
    t = one_column(schema("l", "price", NULL, 0), x, 2, 2); /* null, but not in the slice */
    assert_int_equal(import(&t, &a, NULL), 0);
    cachew_arrays_free(a);
    struct ArrowSchema *item[] = {schema("l", "item", NULL, 0)};
    struct ArrowArray *items[] = {x};
    t = one_column(schema("+w:2", "pairs", item, 1), array(3, 0, none, 1, items, 1), 3, 0);
    expect_refused(&t, "the column \"pairs\" has a null in row 2");
    t = one_column(schema("+l", "many", item, 1), array(2, 0, list_buffers, 2, items, 1), 2, 0);
    expect_refused(&t, "the column \"many\" has a null in a list, in row 1");
    assert_int_equal(import_rows(&t, (const uint64_t[]){0}, 1, &a, NULL), 0); /* without that row */
    cachew_arrays_free(a);

    static const struct {
        const char *format, *part;
    } formats[] = {
        {"tsu:UTC",
         "\"c\" is or holds a timestamp (Arrow format \"tsu:UTC\"), which is not supported: select "
         "other columns"},
        {"tdD", "a date"},
        {"ttu", "a time"},
        {"tDs", "a duration"},
        {"d:10,2", "a decimal"},
        {"n", "null"},
        {"+s", "a struct"},
        {"+m", "a map"},
        {"+ud:0,1", "a union"},
        {"+r", "run-end"},
        {"+vl", "a list view"},
        {"?", "an unknown type"},
        {"w:0", "unknown"},
        {"+l", "a list whose items are not numbers"},
    };

    for (size_t i = 0; i < COUNT_OF(formats); i++) {
        t = one_column(schema(formats[i].format, "c", NULL, 0), array(1, 0, buffers, 2, NULL, 0), 1, 0);
        expect_refused(&t, formats[i].part);
    }
    struct ArrowSchema *texts[] = {schema("u", "item", NULL, 0)};
    t = one_column(schema("+l", "words", texts, 1), array(1, 0, buffers, 2, items, 1), 1, 0);
    expect_refused(&t, "\"words\" is or holds strings");
    t = (struct stream){.schema = schema("l", "", NULL, 0)};
    expect_refused(&t, "expected structs");
}

static void arrow_streams_that_fail_or_lie(void **state)
{
    (void)state;
    static const uint64_t numbers[8];
    static const int32_t ends[] = {5, 2};
    static const void *buffers[] = {NULL, numbers}, *missing[] = {NULL, NULL},
                      *falling[] = {NULL, ends, text};
    struct stream t = one_column(schema("l", "x", NULL, 0), array(8, 0, buffers, 2, NULL, 0), 8, 0);
    t.fail_at = 2;
    expect_refused(&t, "the Arrow stream failed: the disk is gone");
    t = one_column(schema("l", "x", NULL, 0), array(7, 0, buffers, 2, NULL, 0), 8, 0);
    expect_refused(&t, "\"x\" is malformed"); /* shorter than its batch */
    t = one_column(schema("l", "x", NULL, 0), array(8, 0, missing, 2, NULL, 0), 8, 0);
    expect_refused(&t, "\"x\" is malformed");
    t = one_column(schema("l", "x", NULL, 0), array(8, 0, buffers, 2, NULL, 0), 8, 0);
    t.batches[0]->n_children = 0;
    expect_refused(&t, "does not have the columns");
    t = one_column(schema("vu", "x", NULL, 0),
                   array(1, 0, (const void *[]){NULL, (int32_t[]){20, 0, 5, 0}, NULL}, 3, NULL, 0), 1, 0);
    expect_refused(&t, "\"x\" is malformed"); /* its view names buffer 5 */
    t = one_column(schema("u", "", NULL, 0), array(1, 0, falling, 3, NULL, 0), 1, 0);
    struct cachew_arrays *a;
    struct cachew_error *err = NULL;
    assert_int_equal(import(&t, &a, &err), CACHEW_E_OPTION);
    assert_contains(cachew_error_message(err), "no name");
    cachew_error_free(err);
    t = one_column(schema("u", "x", NULL, 0), array(1, 0, falling, 3, NULL, 0), 1, 0);
    err = NULL;
    assert_int_equal(import(&t, &a, &err), CACHEW_E_OPTION);
    assert_contains(cachew_error_message(err), "offsets in ascending order");
    cachew_error_free(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(arrow_numbers_with_offsets_everywhere, reset),
        cmocka_unit_test_setup(arrow_bits_become_bools, reset),
        cmocka_unit_test_setup(arrow_strings_of_all_kinds, reset),
        cmocka_unit_test_setup(arrow_lists_are_dimensions, reset),
        cmocka_unit_test_setup(arrow_dictionaries_are_looked_up, reset),
        cmocka_unit_test_setup(arrow_batches_are_one_data_set_however_they_are_cut, reset),
        cmocka_unit_test_setup(arrow_rows_can_be_chosen, reset),
        cmocka_unit_test_setup(arrow_nulls_and_other_types_are_refused, reset),
        cmocka_unit_test_setup(arrow_streams_that_fail_or_lie, reset),
    };
    return cmocka_run_group_tests_name("arrow", tests, NULL, NULL);
}
