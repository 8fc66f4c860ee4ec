/*
 * Evaluates expressions for the differential test against NumPy (tests/expr_numpy.py). One request per line
 * of stdin:
 *
 *   {"expr": TEXT, "use": "value"|"condition"|"integer", "n": ROWS, "ok": HEX (one byte per row, 0: not ok),
 *    "columns": {NAME: {"dtype", "dims" (-1 varies; null: unknown rank), "rows": HEX, "ragged": bool,
 * "shapes": [[...], ...]}}}
 *
 * rows holds the rows' values one after another (little-endian). For bytes components "lengths" gives each
 * row's. One answer per line:
 * {"dtype", "dims", "rows": [HEX or null], "shapes": [[...]], "failed": {ROW: MESSAGE}} or
 * {"error": MESSAGE}.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/expr/expr.h"
#include "pipeline/op.h"

#define MAX_COLUMNS 16

struct column {
    const char *name;
    struct cw_type type;
};

struct schema {
    struct column columns[MAX_COLUMNS];
    int n;
};

static int lookup(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err)
{
    struct schema *s = arg;
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->columns[i].name, name) == 0) {
            *ret_type = s->columns[i].type;
            return i;
        }
    return cw_error_set(err, CW_E_PIPELINE, "there is no component \"%s\"", name);
}

static size_t from_hex(const char *hex, uint8_t **ret)
{
    size_t n = strlen(hex) / 2;
    uint8_t *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned v = 0;
        sscanf(hex + 2 * i, "%2x", &v);
        p[i] = (uint8_t)v;
    }
    *ret = p;
    return n;
}

static json_t *to_hex(const uint8_t *p, size_t n)
{
    char *text = malloc(2 * n + 1);
    for (size_t i = 0; i < n; i++)
        sprintf(text + 2 * i, "%02x", p[i]);
    text[2 * n] = 0;
    json_t *j = json_string(text);
    free(text);
    return j;
}

static json_t *dims_json(const int64_t *dims, int ndim)
{
    if (ndim < 0)
        return json_null();
    json_t *j = json_array();
    for (int i = 0; i < ndim; i++)
        json_array_append_new(j, json_integer(dims[i]));
    return j;
}

static void read_dims(const json_t *j, struct cw_type *t)
{
    t->ndim = json_is_null(j) ? -1 : (int)json_array_size(j);
    for (int i = 0; i < t->ndim; i++)
        t->dims[i] = json_integer_value(json_array_get(j, (size_t)i));
}

static json_t *answer(json_t *request, struct cw_budget *budget)
{
    struct schema schema = {0};
    struct cw_port ports[MAX_COLUMNS] = {0};
    struct cw_column columns[MAX_COLUMNS + 1] = {0};
    struct cw_tensor *rows[MAX_COLUMNS] = {0};
    uint8_t *data[MAX_COLUMNS] = {0}, *ok = NULL;
    size_t n = (size_t)json_integer_value(json_object_get(request, "n"));
    const char *name, *use_name = json_string_value(json_object_get(request, "use"));
    json_t *column, *result = json_object();
    json_object_foreach(json_object_get(request, "columns"), name, column)
    {
        int k = schema.n++;
        struct column *c = &schema.columns[k];
        c->name = name;
        if (cw_dtype_parse(json_string_value(json_object_get(column, "dtype")), &c->type.dtype) < 0)
            abort();
        read_dims(json_object_get(column, "dims"), &c->type);
        ports[k] = (struct cw_port){.value = (unsigned)k, .type = c->type, .live = true};
        size_t size = from_hex(json_string_value(json_object_get(column, "rows")), &data[k]);
        if (!json_is_true(json_object_get(column, "ragged"))) {
            columns[k] = (struct cw_column){
                .dense = true, .data = data[k], .stride = n ? size / n : 0, .type = &c->type};
            continue;
        }
        rows[k] = calloc(n + 1, sizeof(*rows[k]));
        uint8_t *p = data[k];
        for (size_t i = 0; i < n; i++) {
            struct cw_tensor *t = &rows[k][i];
            json_t *shape = json_array_get(json_object_get(column, "shapes"), i);
            t->size = cw_dtype_size(c->type.dtype);
            if (c->type.dtype == CW_BYTES) {
                t->size = (size_t)json_integer_value(json_array_get(json_object_get(column, "lengths"), i));
            } else {
                t->ndim = (int)json_array_size(shape);
                for (int d = 0; d < t->ndim; d++)
                    t->size *= (size_t)(t->dims[d] = json_integer_value(json_array_get(shape, (size_t)d)));
            }
            t->data = p;
            p += t->size;
        }
        columns[k] = (struct cw_column){.rows = rows[k]};
    }
    uint8_t *status = calloc(n + 1, 1);
    if (json_object_get(request, "ok")) {
        from_hex(json_string_value(json_object_get(request, "ok")), &ok);
        for (size_t i = 0; i < n; i++) {
            status[i] = ok[i] ? CW_ROW_OK : CW_ROW_DROPPED;
            for (int k = 0; k < schema.n && !ok[i]; k++)
                if (rows[k])
                    rows[k][i] = (struct cw_tensor){0};
        }
    }
    enum cw_expr_use use = use_name && strcmp(use_name, "condition") == 0 ? CW_EXPR_CONDITION
                           : use_name && strcmp(use_name, "integer") == 0 ? CW_EXPR_INTEGER
                                                                          : CW_EXPR_VALUE;
    struct cw_arena arena;
    cw_arena_init(&arena, budget);
    struct cw_block block = {.n = n, .status = status, .all_ok = !ok, .columns = columns, .arena = &arena};
    struct cw_error err = {0};
    struct cw_expr *e = NULL;
    if (cw_expr_compile(json_string_value(json_object_get(request, "expr")), use, lookup, &schema, &e, &err) <
            0 ||
        cw_expr_eval(e, ports, "tool", &block, MAX_COLUMNS, &err) < 0) {
        json_object_set_new(result, "error", json_string(err.message));
        json_object_set_new(result, "kind", json_string(cw_status_name(err.status)));
    } else {
        const struct cw_type *t = cw_expr_type(e);
        json_t *out = json_array(), *shapes = json_array(), *failed = json_object();
        for (size_t i = 0; i < n; i++) {
            struct cw_tensor row = cw_block_row(&block, MAX_COLUMNS, i);
            json_array_append_new(out, status[i] == CW_ROW_OK ? to_hex(row.data, row.size) : json_null());
            json_array_append_new(shapes, dims_json(row.dims, row.ndim));
        }
        for (const struct cw_fault *f = block.faults; f; f = f->next) {
            char key[32];
            snprintf(key, sizeof(key), "%zu", f->row);
            json_object_set_new(failed, key, json_string(f->message));
        }
        json_object_set_new(result, "dtype", json_string(cw_dtype_name(t->dtype)));
        json_object_set_new(result, "dims", dims_json(t->dims, t->ndim));
        json_object_set_new(result, "rows", out);
        json_object_set_new(result, "shapes", shapes);
        json_object_set_new(result, "failed", failed);
    }
    cw_expr_free(e);
    cw_arena_deinit(&arena);
    for (int k = 0; k < schema.n; k++) {
        free(data[k]);
        free(rows[k]);
    }
    free(ok);
    free(status);
    return result;
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    struct cw_budget budget;
    cw_budget_init(&budget, (size_t)1 << 30);
    while (getline(&line, &capacity, stdin) > 0) {
        json_error_t why;
        json_t *request = json_loads(line, 0, &why);
        if (!request) {
            fprintf(stderr, "expr_tool: %s\n", why.text);
            free(line);
            return 2;
        }
        json_t *result = answer(request, &budget);
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(result);
        json_decref(request);
    }
    free(line);
    return 0;
}
