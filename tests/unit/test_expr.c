/* ops/expr/expr.h: grammar, types, errors, evaluation over the ways rows can lie, records that fail. NumPy's
 * results are tests/expr_numpy.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/math.h"
#include "data/convert.h"
#include "ops/expr/expr.h"
#include "pipeline/op.h"

#define N 5000 /* rows: several pieces, the last one short */

enum { X, Y, F, B, A, BIG, V, S, T, I8, H, U64, N_COLUMNS, OUT = N_COLUMNS };

static const struct {
    const char *name;
    struct cw_type type;
} schema[N_COLUMNS] = {
    [X] = {"x", {.dtype = CW_INT64}},
    [Y] = {"y", {.dtype = CW_INT64}},
    [F] = {"f", {.dtype = CW_FLOAT32}},
    [B] = {"b", {.dtype = CW_BOOL}},
    [A] = {"a", {.dtype = CW_INT32, .ndim = 1, .dims = {3}}},
    [BIG] = {"big", {.dtype = CW_FLOAT32, .ndim = 1, .dims = {2500}}},
    [V] = {"tokens", {.dtype = CW_INT32, .ndim = 1, .dims = {CW_VARIES}}},
    [S] = {"image/encoded", {.dtype = CW_BYTES}},
    [T] = {"s", {.dtype = CW_BYTES}},
    [I8] = {"i", {.dtype = CW_INT8}},
    [H] = {"h", {.dtype = CW_FLOAT16}},
    [U64] = {"w", {.dtype = CW_UINT64}},
};

static int lookup(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err)
{
    (void)arg;
    for (int i = 0; i < N_COLUMNS; i++)
        if (strcmp(schema[i].name, name) == 0) {
            *ret_type = schema[i].type;
            return i;
        }
    return cw_error_set(err, CW_E_PIPELINE, "there is no component \"%s\"; did you mean \"tokens\"?", name);
}

struct fixture {
    struct cw_budget budget;
    struct cw_arena arena;
    struct cw_column columns[N_COLUMNS + 1];
    struct cw_port ports[N_COLUMNS];
    uint8_t status[N];
    struct cw_block block;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        return -1;
    cw_budget_init(&f->budget, (size_t)256 << 20);
    cw_arena_init(&f->arena, &f->budget);
    f->block = (struct cw_block){
        .n = N, .status = f->status, .all_ok = true, .columns = f->columns, .arena = &f->arena};
    for (unsigned k = 0; k < N_COLUMNS; k++) {
        const struct cw_type *t = &schema[k].type;
        f->ports[k] = (struct cw_port){.value = k, .type = *t};
        if (cw_type_fixed(t))
            assert_int_equal(cw_block_dense(&f->block, k, t, NULL), 0);
        else
            assert_int_equal(cw_block_ragged(&f->block, k, NULL), 0);
    }
    static const char *const words[] = {"cat", "dog", "", "category"};
    for (int i = 0; i < N; i++) {
        ((int64_t *)f->columns[X].data)[i] = i - 10;
        ((int64_t *)f->columns[Y].data)[i] = i % 5;
        ((float *)f->columns[F].data)[i] = (float)i * 0.25f;
        f->columns[B].data[i] = i % 3 == 0;
        ((int8_t *)f->columns[I8].data)[i] = (int8_t)i;
        cw_convert(CW_FLOAT32, CW_FLOAT16, (uint16_t *)f->columns[H].data + i, &(float){(float)i}, 1);
        ((uint64_t *)f->columns[U64].data)[i] = (uint64_t)i << 52;
        for (int k = 0; k < 3; k++)
            ((int32_t *)f->columns[A].data)[3 * i + k] = i * (k + 1);
        if (i < 20)
            for (int k = 0; k < 2500; k++)
                ((float *)f->columns[BIG].data)[2500 * i + k] = (float)(k + i);
        int64_t dims[1] = {i % 4};
        int32_t *tokens = cw_block_row_out(&f->block, V, &schema[V].type, (size_t)i, dims, 1, NULL);
        for (int k = 0; k < i % 4; k++)
            tokens[k] = 100 * i + k;
        f->columns[S].rows[i] = (struct cw_tensor){.data = (void *)words[i % 4],
                                                   .size = strlen(words[i % 4])};
        f->columns[T].rows[i] = (struct cw_tensor){.data = (void *)words[i % 2],
                                                   .size = strlen(words[i % 2])};
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    cw_arena_deinit(&f->arena);
    assert_int_equal(f->budget.used, 0);
    free(f);
    return 0;
}

static const struct cw_column *eval(struct fixture *f, const char *text, const char *type)
{
    static struct cw_expr *kept; /* the column refers to its type until the next call */
    struct cw_error err = {0};
    char printed[160];
    cw_expr_free(kept);
    kept = NULL;
    if (!text)
        return NULL;
    if (cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &kept, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    if (strcmp(cw_type_print(cw_expr_type(kept), printed), type) != 0)
        fail_msg("%s: is %s, expected %s", text, printed, type);
    if (cw_expr_eval(kept, f->ports, "test", &f->block, OUT, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    return &f->columns[OUT];
}

#define CHECK_ALL(T, column, want) \
    do { \
        const T *data_ = (const T *)(column)->data; \
        for (int64_t i = 0; i < N; i++) \
            if (data_[i] != (T)(want)) \
                fail_msg("row %d: %g instead of %g", (int)i, (double)data_[i], (double)(T)(want)); \
    } while (0)

static void scalars(void **state)
{
    struct fixture *f = *state;
    CHECK_ALL(int64_t, eval(f, "x * 3 + 1", "int64"), (i - 10) * 3 + 1);
    CHECK_ALL(uint8_t, eval(f, "x % 2 == 0", "bool"), i % 2 == 0);
    CHECK_ALL(int64_t, eval(f, "x % 7", "int64"), ((i - 10) % 7 + 7) % 7);
    CHECK_ALL(int64_t, eval(f, "x // 7", "int64"), (i - 10 + 14) / 7 - 2);
    CHECK_ALL(int64_t, eval(f, "x // -7", "int64"), -((i - 10 + 700 + 6) / 7 - 100));
    CHECK_ALL(uint8_t, eval(f, "y == 2 or not b and 3 < x <= 5", "bool"),
              i % 5 == 2 || (i % 3 != 0 && i > 13 && i <= 15));
    CHECK_ALL(float, eval(f, "f * 2 + 1", "float32"), (float)i * 0.5f + 1);
    CHECK_ALL(int64_t, eval(f, "where(b, x, -y)", "int64"), i % 3 == 0 ? i - 10 : -(i % 5));
    CHECK_ALL(int8_t, eval(f, "i * i", "int8"), (int8_t)((uint8_t)i * (uint8_t)i));
    CHECK_ALL(uint8_t, eval(f, "w > x", "bool"), ((uint64_t)i << 52) > (uint64_t)i || i < 10);
    CHECK_ALL(double, eval(f, "x / 4", "float64"), (double)(i - 10) / 4);
    CHECK_ALL(int64_t, eval(f, "2 ** 10 - 24", "int64"), 1000);
    CHECK_ALL(float, eval(f, "exp(f)", "float32"), (float)cw_exp((double)((float)i * 0.25f)));
    CHECK_ALL(int64_t, eval(f, "length(tokens)", "int64"), i % 4);
    CHECK_ALL(int64_t, eval(f, "length(`image/encoded`)", "int64"), i % 4 == 2 ? 0 : i % 4 == 3 ? 8 : 3);
    CHECK_ALL(uint8_t, eval(f, "`image/encoded` == 'cat'", "bool"), i % 4 == 0);
    CHECK_ALL(uint8_t, eval(f, "`image/encoded` != s", "bool"), i % 4 >= 2);
    CHECK_ALL(uint8_t, eval(f, "i < 300", "bool"), 1);
    CHECK_ALL(uint8_t, eval(f, "'at' in `image/encoded`", "bool"), i % 4 == 0 || i % 4 == 3);
    CHECK_ALL(uint8_t, eval(f, "'dog' not in `image/encoded` and not s == 'dog'", "bool"), i % 2 == 0);
    CHECK_ALL(uint8_t, eval(f, "startswith(`image/encoded`, s)", "bool"), i % 4 < 2);
    CHECK_ALL(uint8_t, eval(f, "isin(lower(`image/encoded`), ['DOG', 'cat'])", "bool"), i % 4 == 0);
    CHECK_ALL(uint8_t, eval(f, "isin(x, [1, 2.0, 4])", "bool"), i == 11 || i == 12 || i == 14);
    CHECK_ALL(uint64_t, eval(f, "hash(s)", "uint64"), i % 2 ? cw_hash64("dog", 3) : cw_hash64("cat", 3));
    CHECK_ALL(uint64_t, eval(f, "hash(y)", "uint64"), cw_hash64(&(int64_t){i % 5}, 8));
    CHECK_ALL(int64_t, eval(f, "length(`image/encoded`[1:])", "int64"), i % 4 == 2 ? 0 : i % 4 == 3 ? 7 : 2);
    CHECK_ALL(int64_t, eval(f, "length(where(b, s, '12345'))", "int64"), i % 3 == 0 ? 3 : 5);
    CHECK_ALL(int64_t, eval(f, "x", "int64"), i - 10);
    eval(f, NULL, NULL);
}

static void arrays(void **state)
{
    struct fixture *f = *state;
    const struct cw_column *c = eval(f, "a * y + 1", "int64[3]"); /* an array with a scalar of its row */
    for (int i = 0; i < 3 * N; i++)
        assert_int_equal(((int64_t *)c->data)[i], (int64_t)(i / 3) * (i % 3 + 1) * (i / 3 % 5) + 1);
    CHECK_ALL(int32_t, eval(f, "max(a) - min(a)", "int32"), i * 2);
    CHECK_ALL(int64_t, eval(f, "length(a) + length(big)", "int64"), 2503);
    CHECK_ALL(int32_t, eval(f, "a[1] + a[-1]", "int32"), i * 5);
    CHECK_ALL(int32_t, eval(f, "a[y % 3]", "int32"), i *(i % 5 % 3 + 1));
    CHECK_ALL(int64_t, eval(f, "sum(a[:2]) * 2", "int64"), i * 6);
    CHECK_ALL(double, eval(f, "mean(a[::-1])", "float64"), i * 2.0);
    CHECK_ALL(int64_t, eval(f, "sum(tokens)", "int64"), 100 * i * (i % 4) + (i % 4) * (i % 4 - 1) / 2);
    c = eval(f, "tokens[1:]", "int32[?]");
    for (int i = 0; i < N; i++)
        assert_int_equal(c->rows[i].dims[0], i % 4 ? i % 4 - 1 : 0);
    c = eval(f, "lower(s)[:2]", "bytes");
    for (int i = 0; i < N; i++)
        assert_true(c->rows[i].size == 2 && memcmp(c->rows[i].data, i % 2 ? "do" : "ca", 2) == 0);
    c = eval(f, "where(tokens >= 0, tokens + 1, 0)", "int32[?]");
    for (int i = 0; i < N; i++) {
        assert_int_equal(c->rows[i].dims[0], i % 4);
        for (int k = 0; k < i % 4; k++)
            assert_int_equal(((int32_t *)c->rows[i].data)[k], 100 * i + k + 1);
    }
    c = eval(f, "a + length(big) + length(big * 2 + f)", "int64[3]");
    for (int i = 0; i < 3 * N; i++)
        assert_int_equal(((int64_t *)c->data)[i], (i / 3) * (i % 3 + 1) + 5000);
    f->block.n = 20;
    c = eval(f, "big * f + 1", "float32[2500]"); /* larger than a piece */
    for (int i = 0; i < 20 * 2500; i++)
        assert_true(((float *)c->data)[i] == (float)(i % 2500 + i / 2500) * ((float)(i / 2500) * 0.25f) + 1);
    f->block.n = N;
    eval(f, NULL, NULL);
}

static size_t failures(struct fixture *f, const char *text, const char *why)
{
    size_t n = 0;
    bool found = false;
    memset(f->status, CW_ROW_OK, N);
    f->status[4] = CW_ROW_FAILED;
    f->status[5] = CW_ROW_DROPPED;
    f->columns[V].rows[5] = (struct cw_tensor){0};
    f->block.faults = NULL;
    struct cw_error err = {0};
    struct cw_expr *e = NULL;
    if (cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &e, &err) < 0)
        fail_msg("%s: %s", text, err.message);
    assert_int_equal(cw_expr_eval(e, f->ports, "test", &f->block, OUT, &err), 0);
    for (const struct cw_fault *x = f->block.faults; x; x = x->next) {
        assert_true(x->row != 4 && x->row != 5);
        assert_int_equal(f->status[x->row], CW_ROW_FAILED);
        found |= strstr(x->message, why) != NULL;
        n++;
    }
    assert_true(found);
    assert_int_equal(f->status[5], CW_ROW_DROPPED);
    cw_expr_free(e);
    memset(f->status, CW_ROW_OK, N);
    return n;
}

static void records_that_fail(void **state)
{
    struct fixture *f = *state;
    /* row 5 is not ok */
    assert_int_equal(failures(f, "x // y", "integer division by zero in x // y"), N / 5 - 1);
    assert_int_equal(failures(f, "a % y", "integer modulo by zero"), N / 5 - 1);
    assert_int_equal(failures(f, "y ** x", "negative integer power"), 8);
    assert_int_equal(failures(f, "x // 0", "division by zero"), N - 2);
    /* constants, but no literals */
    assert_int_equal(failures(f, "x + (int64(0) // (-uint8(0)))", "integer division by zero"), N - 2);
    assert_int_equal(failures(f, "int8(2) ** int8(-1)", "negative integer power"), N - 2);
    assert_int_equal(failures(f, "a + int64(1) % int64(0)", "integer modulo by zero"), N - 2);
    assert_int_equal(failures(f, "max(tokens)", "empty array"), N / 4 - 1);
    assert_int_equal(failures(f, "tokens[2]", "index out of range in tokens[2]"), N / 4 * 3 - 2);
    assert_int_equal(failures(f, "a[y]", "index out of range in a[y]"), N / 5 * 2 - 1);
    /* 0 and 2 tokens do not fit 3, 1 and 3 do */
    assert_int_equal(failures(f, "tokens + a", "shapes don't match: [2] and [3]"), N / 2 - 1);
}

static void conditions(void **state)
{
    struct fixture *f = *state;
    struct cw_error err = {0};
    struct cw_expr *e = NULL;
    uint8_t keep[N];
    int64_t lengths[N];
    assert_int_equal(cw_expr_compile("x % 4", CW_EXPR_CONDITION, lookup, NULL, &e, &err), 0);
    assert_int_equal(cw_expr_eval_into(e, f->ports, "test", &f->block, keep, &err), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(keep[i], (i - 10) % 4 != 0);
    cw_expr_free(e);
    assert_int_equal(cw_expr_compile("length(tokens) * i", CW_EXPR_INTEGER, lookup, NULL, &e, &err), 0);
    assert_int_equal(cw_expr_eval_into(e, f->ports, "test", &f->block, lengths, &err), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(lengths[i], i % 4 * (int8_t)i);
    cw_expr_free(e);
    assert_int_equal(cw_expr_compile("true", CW_EXPR_CONDITION, lookup, NULL, &e, &err), 0);
    assert_int_equal(cw_expr_eval_into(e, f->ports, "test", &f->block, keep, &err), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(keep[i], 1);
    cw_expr_free(e);
    assert_int_equal(cw_expr_compile("a > 1", CW_EXPR_CONDITION, lookup, NULL, &e, &err), CW_E_PIPELINE);
    assert_int_equal(cw_expr_compile("f", CW_EXPR_INTEGER, lookup, NULL, &e, &err), CW_E_PIPELINE);
    assert_int_equal(cw_expr_compile("s", CW_EXPR_CONDITION, lookup, NULL, &e, &err), CW_E_PIPELINE);
}

static void errors(void **state)
{
    (void)state;

    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"x +", "expected a value, but the expression ends (character 4: x +>>>)"},
        {"x % == 0", "expected a value, found \"==\" (character 5: x % >>>== 0)"},
        {"", "expected a value"},
        {"x y", "expected an operator or the end, found \"y\""},
        {"(x", "expected an operator or \")\""},
        {"token + 1", "did you mean \"tokens\"?"},
        {"sqr(x)", "did you mean \"sqrt\"?"},
        {"i + 300", "300 is out of range for int8: expected -128 to 127"},
        {"i ** -1", "negative integer power"},
        {"b - b", "not defined for bool"},
        {"w & x", "& is not defined for float64"},
        {"1 // 0", "division by zero"},
        {"s + 1", "\"s\" is bytes"},
        {"s < 'a'", "== and !="},
        {"s == x", "== of bytes: expected bytes or strings on both sides"},
        {"x in [1, 2]", "a list may be used only in isin"},
        {"x in y", "for numbers write isin(x, [...])"},
        {"x not y", "expected \"in\" after \"not\", found \"y\""},
        {"isin(x, y)", "expected a list of values, as in isin(x, [1, 2])"},
        {"a[3]", "index out of range: dimension 0 has size 3 (character 3: a[>>>3])"},
        {"a[0, 1]", "too many indices: expected at most 1"},
        {"a[f]", "expected an index that is a single integer, or a slice"},
        {"a[]", "expected an index or a slice between the brackets"},
        {"a[1:2", "expected \",\" or \"]\", but the expression ends"},
        {"a[::0]", "a slice's step is 0"},
        {"a[:y]", "a slice's bound is not an integer literal"},
        {"x[0]", "too many indices: expected at most 0"},
        {"s[0]", "expected a slice, as in s[0:1]"},
        {"s[::2]", "a slice of bytes with a step"},
        {"sum(a, axis=1)", "there is no axis 1: the array has 1 dimension"},
        {"sum(a, axis=y)", "axis is not an integer literal"},
        {"abs(a, axis=0)", "axis= is for min, max, sum and mean"},
        {"max(a, x, axis=0)", "of a single array"},
        {"sum(s)", "\"s\" is bytes: expected numbers or bool"},
        {"lower(x)", "lower of numbers: expected bytes"},
        {"lower(3)", "lower of numbers: expected bytes"},
        {"startswith(s, 3)", "startswith of numbers: expected bytes or a string"},
        {"hash(f)", "hash of numbers: expected bytes, integers or bool"},
        {"where(a > 1, s, s)", "expected a condition that is a scalar"},
        {"len(x)", "there is no function \"len\""},
        {"a + big", "shapes don't match: [3] and [2500]"},
        {"length(x)", "length of a scalar"},
        {"where(x, 1)", "where has 2 arguments: expected 3"},
        {"x = 1", "equality is written =="},
        {"x if b else y", "use where("},
        {"012", "don't start with 0"},
        {"1__0", "expected an operator after the number"},
        {"x + not b", "needs parentheses"},
        {"'abc", "not closed"},
        {"99999999999999999999999999999999999999", "too large"},
        {"2 ** 200", "too large"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(wrong); i++) {
        struct cw_error err = {0};
        struct cw_expr *e = NULL;
        assert_int_equal(cw_expr_compile(wrong[i].text, CW_EXPR_VALUE, lookup, NULL, &e, &err),
                         CW_E_PIPELINE);
        if (!strstr(err.message, wrong[i].message))
            fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].text, err.message, wrong[i].message);
    }
}

static void limits(void **state)
{
    (void)state;
    static char text[CW_EXPR_MAX_TEXT + 10];
    struct cw_error err = {0};
    struct cw_expr *e = NULL;
    memset(text, '(', 199);
    strcpy(text + 199, "1");
    memset(text + 200, ')', 199);
    assert_int_equal(cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &e, &err), 0);
    cw_expr_free(e);
    memset(text, '-', 5000);
    strcpy(text + 5000, "x");
    assert_int_equal(cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &e, &err), CW_E_PIPELINE);
    for (int i = 0; i < 2000; i++)
        memcpy(text + 2 * i, "x+", 3);
    strcat(text, "x");
    assert_int_equal(cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &e, &err), CW_E_PIPELINE);
    memset(text, ' ', sizeof(text) - 1);
    assert_int_equal(cw_expr_compile(text, CW_EXPR_VALUE, lookup, NULL, &e, &err), CW_E_PIPELINE);
}

static void casts(void **state)
{
    (void)state;
    static const double from[] = {0.5,   1.5,   2.5, -0.5, -1.5, 127.5, 1e30, -1e30, __builtin_nan(""),
                                  254.5, -128.5};
    static const int8_t signed8[] = {0, 2, 2, 0, -2, 127, 127, -128, 0, 127, -128};
    static const uint8_t unsigned8[] = {0, 2, 2, 0, 0, 128, 255, 0, 0, 254, 0};
    int8_t s[CW_COUNT_OF(from)];
    uint8_t u[CW_COUNT_OF(from)];
    cw_convert(CW_FLOAT64, CW_INT8, s, from, CW_COUNT_OF(from));
    cw_convert(CW_FLOAT64, CW_UINT8, u, from, CW_COUNT_OF(from));
    assert_memory_equal(s, signed8, sizeof(s));
    assert_memory_equal(u, unsigned8, sizeof(u));
    int64_t wide[2];
    uint64_t big[2];
    cw_convert(CW_FLOAT64, CW_INT64, wide, (double[]){0x1p63, -0x1.8p63}, 2);
    cw_convert(CW_FLOAT64, CW_UINT64, big, (double[]){0x1p64, 0x1.8p63}, 2);
    assert_true(wide[0] == INT64_MAX && wide[1] == INT64_MIN && big[0] == UINT64_MAX &&
                big[1] == UINT64_C(3) << 62);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scalars, setup, teardown),
        cmocka_unit_test_setup_teardown(arrays, setup, teardown),
        cmocka_unit_test_setup_teardown(records_that_fail, setup, teardown),
        cmocka_unit_test_setup_teardown(conditions, setup, teardown),
        cmocka_unit_test(errors),
        cmocka_unit_test(limits),
        cmocka_unit_test(casts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
