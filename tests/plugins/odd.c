/* A plug-in for tests: odd_bind and odd_run do what `how` says, mostly against the rules; the others make use
 * of everything that is allowed. */
#include <cachew/plugin.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const binds[] = {"unknown attribute",
                                    "another kind",
                                    "past the end",
                                    "no component",
                                    "read late",
                                    "no reason",
                                    "no memory",
                                    "negative size",
                                    "no dtype",
                                    "much rank",
                                    "bytes of rank 1",
                                    "no name",
                                    "huge",
                                    "own words",
                                    "own state",
                                    "many",
                                    NULL};

static int is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static int odd_bind(struct cachew_bind *b, void **state)
{
    const char *how = cachew_attr_string(b, "how");
    struct cachew_type type = {.dtype = CACHEW_INT64};
    if (is(how, "unknown attribute"))
        /* the error counts though it is not passed on */
        return is(cachew_attr_string(b, "nothing"), "") ? 0 : -1;
    if (is(how, "another kind"))
        return (int)cachew_attr_float(b, "how");
    if (is(how, "past the end"))
        return (int)cachew_attr_int_at(b, "list", 2);
    if (is(how, "no component")) {
        cachew_bind_read(b, "valeu", &type);
        return type.dtype == CACHEW_BOOL && type.ndim == 0
                   ? cachew_bind_fail(b, NULL, "the first error counts")
                   : CACHEW_OK;
    }
    if (is(how, "no reason"))
        return -77;
    if (is(how, "no memory"))
        return CACHEW_E_MEMORY;
    if (is(how, "negative size"))
        type = (struct cachew_type){.dtype = CACHEW_INT64, .ndim = 2, .dims = {3, -2}};
    if (is(how, "no dtype"))
        type.dtype = (enum cachew_dtype)14;
    if (is(how, "much rank"))
        type.ndim = 7;
    if (is(how, "bytes of rank 1"))
        type = (struct cachew_type){.dtype = CACHEW_BYTES, .ndim = 1};
    if (is(how, "huge"))
        type = (struct cachew_type){.dtype = CACHEW_INT64, .ndim = 2, .dims = {INT64_MAX, INT64_MAX}};
    if (is(how, "own words"))
        return cachew_bind_fail(b, NULL, "not on a %s\n\xff", "Monday");
    if (is(how, "own state")) {
        *state = malloc(1);
        return cachew_bind_fail(b, "how", "another one");
    }
    if (is(how, "many"))
        for (int i = 0; i < 65; i++)
            cachew_bind_read(b, "value", NULL);
    cachew_bind_write(b, is(how, "no name") ? "" : "out", &type);
    return cachew_bind_read(b, "value", &type);
}

static int nothing_run(const void *state, struct cachew_row *row)
{
    (void)state;
    (void)row;
    return CACHEW_OK;
}

static const char *const runs[] = {
    "good",         "fail",     "other shape", "other rank",  "negative", "no shape",
    "not declared", "as bytes", "as an array", "not written", "draw",     "drop",
    "result",       "too much", "no memory",   "hang",        NULL};

struct odd {
    const char *how;
    int64_t every;
};

/* Writes "out", int64[2] of (value, -value), and "text", as many x as value mod 10; in each `every`th element
 * it does what `how` says. */
static int odd_run_bind(struct cachew_bind *b, void **state)
{
    struct odd *s = malloc(sizeof(*s));
    if (!s)
        return CACHEW_E_MEMORY;
    *state = s;
    s->how = cachew_attr_string(b, "how");
    s->every = cachew_attr_int(b, "every");
    cachew_bind_read(b, "value", NULL);
    cachew_bind_write(b, "out", &(struct cachew_type){.dtype = CACHEW_INT64, .ndim = 1, .dims = {2}});
    return cachew_bind_write(b, "text", &(struct cachew_type){.dtype = CACHEW_BYTES});
}

static int good(struct cachew_row *row, int64_t value)
{
    int64_t *out = cachew_row_output(row, 0, NULL, 0);
    char *text = cachew_row_bytes(row, 1, (size_t)(value % 10));
    if (!out || !text)
        return CACHEW_E_MEMORY;
    out[0] = value;
    out[1] = -value;
    memset(text, 'x', (size_t)(value % 10));
    return CACHEW_OK;
}

static int odd_run(const void *state, struct cachew_row *row)
{
    const struct odd *s = state;
    int64_t value = *(const int64_t *)row->in[0].data, dims[] = {3, -1};
    uint32_t words[4];
    int r = good(row, value);
    if (r < 0 || value % s->every != s->every - 1 || is(s->how, "good"))
        return r;
    if (is(s->how, "fail"))
        return cachew_row_fail(row, "value %lld is\nbad \xff", (long long)value);
    if (is(s->how, "hang")) /* whatever is asked of it */
        for (;;)
            pause();
    if (is(s->how, "other shape"))
        return cachew_row_output(row, 0, dims, 1) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "other rank"))
        return cachew_row_output(row, 0, dims, 9) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "negative"))
        return cachew_row_output(row, 0, dims + 1, 1) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "no shape"))
        /* allowed: the type has one */
        return cachew_row_output(row, 0, NULL, 2) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "not declared"))
        return cachew_row_output(row, 2, dims, 1) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "as bytes"))
        return cachew_row_bytes(row, 0, 16) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "as an array"))
        return cachew_row_output(row, 1, dims, 1) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "draw"))
        cachew_row_draw(row, 0, words);
    if (is(s->how, "drop"))
        return CACHEW_DROP;
    if (is(s->how, "result"))
        return 77;
    if (is(s->how, "too much"))
        return cachew_row_scratch(row, SIZE_MAX / 2) ? CACHEW_OK : CACHEW_E_MEMORY;
    if (is(s->how, "no memory"))
        return CACHEW_E_MEMORY;
    return CACHEW_OK;
}

/* An output for each kind of attribute, of what bind was given. */
struct kinds {
    int64_t numbers[3];
    double floats[2];
    char text[64];
};

static int kinds_bind(struct cachew_bind *b, void **state)
{
    struct kinds *s = calloc(1, sizeof(*s));
    struct cachew_type type;
    if (!s)
        return CACHEW_E_MEMORY;
    *state = s;
    s->numbers[0] = cachew_attr_int(b, "int");
    s->numbers[1] = cachew_attr_bool(b, "bool") ? 100 : -100;
    s->floats[0] = cachew_attr_float(b, "float");
    for (size_t i = 0; i < cachew_attr_length(b, "ints"); i++)
        s->numbers[2] = s->numbers[2] * 10 + cachew_attr_int_at(b, "ints", i);
    for (size_t i = 0; i < cachew_attr_length(b, "floats"); i++)
        s->floats[1] += cachew_attr_float_at(b, "floats", i);
    snprintf(s->text, sizeof(s->text), "%s %s", cachew_attr_string(b, "string"),
             cachew_attr_string(b, "component"));
    for (size_t i = 0; i < cachew_attr_length(b, "strings"); i++)
        snprintf(s->text + strlen(s->text), sizeof(s->text) - strlen(s->text), " %s",
                 cachew_attr_string_at(b, "strings", i));
    if (cachew_bind_type(b, "nothing", &type) || !cachew_bind_type(b, "value", &type) ||
        type.dtype != CACHEW_INT64)
        return cachew_bind_fail(b, NULL, "cachew_bind_type is wrong");
    cachew_bind_write(b, "numbers", &(struct cachew_type){.dtype = CACHEW_INT64, .ndim = 1, .dims = {3}});
    cachew_bind_write(b, "floats", &(struct cachew_type){.dtype = CACHEW_FLOAT64, .ndim = 1, .dims = {2}});
    cachew_bind_write(b, "text", &(struct cachew_type){.dtype = CACHEW_BYTES});
    return cachew_bind_write(b, "typed", &(struct cachew_type){.dtype = cachew_attr_dtype(b, "dtype")});
}

static int kinds_run(const void *state, struct cachew_row *row)
{
    const struct kinds *s = state;
    void *numbers = cachew_row_output(row, 0, NULL, 0), *floats = cachew_row_output(row, 1, NULL, 0);
    void *text = cachew_row_bytes(row, 2, strlen(s->text)), *typed = cachew_row_output(row, 3, NULL, 0);
    if (!numbers || !floats || !text || !typed)
        return CACHEW_E_MEMORY;
    memcpy(numbers, s->numbers, sizeof(s->numbers));
    memcpy(floats, s->floats, sizeof(s->floats));
    memcpy(text, s->text, strlen(s->text));
    *(uint16_t *)typed = 7;
    return CACHEW_OK;
}

/* Keeps elements whose number is a multiple; needs scratch for nothing but the test. */
static int every_bind(struct cachew_bind *b, void **state)
{
    int64_t *n = malloc(sizeof(*n));
    if (!n)
        return CACHEW_E_MEMORY;
    *state = n;
    *n = cachew_attr_int(b, "n");
    return cachew_bind_read(b, "value", NULL);
}

static int every_run(const void *state, struct cachew_row *row)
{
    int64_t value = *(const int64_t *)row->in[0].data, size = value % 5 * 1000 + 1;
    char *scratch = cachew_row_scratch(row, (size_t)size);
    if (!scratch)
        return CACHEW_E_MEMORY;
    memset(scratch, 1, (size_t)size);
    return value % *(const int64_t *)state == 0 ? CACHEW_OK : CACHEW_DROP;
}

static int filter_writes_bind(struct cachew_bind *b, void **state)
{
    (void)state;
    return cachew_bind_write(b, "out", &(struct cachew_type){.dtype = CACHEW_INT64});
}

/* "list": 0, 1, ... value mod 3 - 1, and whether anybody wants "unused". */
static int varies_bind(struct cachew_bind *b, void **state)
{
    (void)state;
    cachew_bind_read(b, "value", NULL);
    cachew_bind_write(b, "list",
                      &(struct cachew_type){.dtype = CACHEW_INT32, .ndim = 1, .dims = {CACHEW_VARIES}});
    cachew_bind_write(b, "any", &(struct cachew_type){.dtype = CACHEW_INT32, .ndim = CACHEW_VARIES});
    cachew_bind_write(b, "unused", &(struct cachew_type){.dtype = CACHEW_INT32});
    return cachew_bind_write(b, "wanted", &(struct cachew_type){.dtype = CACHEW_INT32});
}

static int varies_run(const void *state, struct cachew_row *row)
{
    int64_t n = *(const int64_t *)row->in[0].data % 3, ones[] = {1, 1, 1};
    int32_t *list = cachew_row_output(row, 0, &n, 1), *any = cachew_row_output(row, 1, ones, (int)n),
            *unused = cachew_row_output(row, 2, NULL, 0), *wanted = cachew_row_output(row, 3, NULL, 0);
    (void)state;
    if (!list || !any || !unused || !wanted)
        return CACHEW_E_MEMORY;
    for (int64_t i = 0; i < n; i++)
        list[i] = (int32_t)i;
    *any = (int32_t)n;
    *unused = 1; /* wanted or not, there is memory */
    *wanted = cachew_row_wanted(row, 2) * 2 + cachew_row_wanted(row, 3);
    return CACHEW_OK;
}

static const struct cachew_attr bind_attrs[] = {
    {.name = "how", .kind = CACHEW_ATTR_STRING, .choices = binds, .doc = "what to do"},
    {.name = "list", .kind = CACHEW_ATTR_INTS, .def = "[1, 2]", .doc = "a list"},
    {0},
};
static const struct cachew_attr run_attrs[] = {
    {.name = "how", .kind = CACHEW_ATTR_STRING, .choices = runs, .def = "\"good\"", .doc = "what to do"},
    {.name = "every",
     .kind = CACHEW_ATTR_INT,
     .def = "10",
     .min = 1,
     .max = CACHEW_NO_MAX,
     .doc = "in each of so many elements, the last"},
    {0},
};
static const struct cachew_attr every_attrs[] = {
    {.name = "n", .kind = CACHEW_ATTR_INT, .min = 1, .max = CACHEW_NO_MAX, .doc = "of what"}, {0}};
static const struct cachew_attr kinds_attrs[] = {
    {.name = "int", .kind = CACHEW_ATTR_INT, .doc = "one"},
    {.name = "float", .kind = CACHEW_ATTR_FLOAT, .min = -1, .max = 1, .doc = "one"},
    {.name = "bool", .kind = CACHEW_ATTR_BOOL, .def = "false", .doc = "one"},
    {.name = "string", .kind = CACHEW_ATTR_STRING, .doc = "one"},
    {.name = "dtype", .kind = CACHEW_ATTR_DTYPE, .def = "\"uint16\"", .doc = "of two bytes"},
    {.name = "component", .kind = CACHEW_ATTR_COMPONENT, .doc = "one"},
    {.name = "ints", .kind = CACHEW_ATTR_INTS, .len_min = 1, .len_max = 3, .scalar_too = 1, .doc = "some"},
    {.name = "floats", .kind = CACHEW_ATTR_FLOATS, .def = "[]", .doc = "some"},
    {.name = "strings", .kind = CACHEW_ATTR_STRINGS, .def = "[\"a\"]", .doc = "some"},
    {0},
};

#define OPERATOR(n, k, a, b, r, f) \
    {.name = n, .summary = "for tests", .kind = k, .attrs = a, .bind = b, .run = r, .free_state = f}
static const struct cachew_operator odd_bind_op = OPERATOR("odd_bind", CACHEW_MAP, bind_attrs, odd_bind,
                                                           nothing_run, free);
static const struct cachew_operator odd_run_op = OPERATOR("odd_run", CACHEW_MAP, run_attrs, odd_run_bind,
                                                          odd_run, free);
static const struct cachew_operator kinds_op = OPERATOR("kinds", CACHEW_MAP, kinds_attrs, kinds_bind,
                                                        kinds_run, free);
static const struct cachew_operator every_op = OPERATOR("every", CACHEW_FILTER, every_attrs, every_bind,
                                                        every_run, free);
static const struct cachew_operator filter_writes_op = OPERATOR("filter_writes", CACHEW_FILTER, NULL,
                                                                filter_writes_bind, nothing_run, NULL);
static const struct cachew_operator varies_op = OPERATOR("varies", CACHEW_MAP, NULL, varies_bind, varies_run,
                                                         NULL);
static const struct cachew_operator *const operators[] = {
    &odd_bind_op, &odd_run_op, &kinds_op, &every_op, &filter_writes_op, &varies_op, NULL};

#ifndef ABI
#define ABI CACHEW_PLUGIN_ABI
#endif
#ifndef VERSION
#define VERSION "1"
#endif
CACHEW_API const struct cachew_plugin cachew_plugin = {
    .abi = ABI, .version = VERSION, .operators = operators};
