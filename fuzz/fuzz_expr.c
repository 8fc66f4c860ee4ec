/* Fuzzes expressions: compiles arbitrary text over a fixed schema, and evaluates what compiles over a small
 * block. The first byte chooses the use (enum cw_expr_use). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ops/expr/expr.h"
#include "pipeline/op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_ROWS 5

static const struct {
    const char *name;
    struct cw_type type;
} schema[] = {
    {"b", {.dtype = CW_BOOL}},
    {"i", {.dtype = CW_INT8}},
    {"u", {.dtype = CW_UINT8}},
    {"x", {.dtype = CW_INT64}},
    {"w", {.dtype = CW_UINT64}},
    {"h", {.dtype = CW_FLOAT16}},
    {"g", {.dtype = CW_BFLOAT16}},
    {"f", {.dtype = CW_FLOAT32}},
    {"d", {.dtype = CW_FLOAT64}},
    {"a", {.dtype = CW_INT32, .ndim = 1, .dims = {3}}},
    {"m", {.dtype = CW_FLOAT32, .ndim = 2, .dims = {2, 3}}},
    {"c", {.dtype = CW_UINT8, .ndim = 2, .dims = {2, 1}}},
    {"v", {.dtype = CW_INT16, .ndim = 1, .dims = {CW_VARIES}}},
    {"r", {.dtype = CW_FLOAT64, .ndim = -1}},
    {"s", {.dtype = CW_BYTES}},
    {"image/encoded", {.dtype = CW_BYTES}},
    {"big", {.dtype = CW_INT32, .ndim = 1, .dims = {1500}}},
};

#define N_COLUMNS (sizeof(schema) / sizeof(schema[0]))

static int lookup(void *arg, const char *name, struct cw_type *ret_type, struct cw_error *err)
{
    (void)arg;
    for (size_t i = 0; i < N_COLUMNS; i++)
        if (strcmp(schema[i].name, name) == 0) {
            *ret_type = schema[i].type;
            return (int)i;
        }
    return cw_error_set(err, CW_E_PIPELINE, "there is no component \"%.60s\"", name);
}

static void fill(struct cw_block *b, size_t k, uint8_t *pool)
{
    struct cw_column *c = &b->columns[k];
    const struct cw_type *t = &schema[k].type;
    if (cw_type_fixed(t)) {
        *c = (struct cw_column){.dense = true, .data = pool, .stride = cw_type_bytes(t), .type = t};
        for (size_t i = 0; i < N_ROWS * c->stride; i++)
            pool[i] = t->dtype == CW_BOOL ? i & 1 : (uint8_t)(i * 37 >> 3);
        return;
    }
    c->rows = calloc(N_ROWS, sizeof(*c->rows));
    for (size_t r = 0; r < N_ROWS; r++) {
        struct cw_tensor *row = &c->rows[r];
        if (b->status[r] != CW_ROW_OK)
            continue;
        row->data = pool + 64 * r;
        memset(row->data, (int)r, 64);
        if (t->dtype == CW_BYTES) {
            row->size = 2 * r;
            continue;
        }
        row->ndim = t->ndim < 0 ? (int)r % 3 : 1;
        row->size = cw_dtype_size(t->dtype);
        for (int i = 0; i < row->ndim; i++)
            row->size *= (size_t)(row->dims[i] = (int64_t)((r + 3) % 4));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t pools[N_COLUMNS][N_ROWS * 6000];
    if (size == 0)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    struct cw_error err = {0};
    struct cw_expr *e = NULL;
    if (cw_expr_compile(text, (enum cw_expr_use)(data[0] % 3), lookup, NULL, &e, &err) == 0) {
        struct cw_budget budget;
        struct cw_arena arena;
        cw_budget_init(&budget, (size_t)64 << 20);
        cw_arena_init(&arena, &budget);
        struct cw_column columns[N_COLUMNS + 1] = {0};
        struct cw_port ports[N_COLUMNS];
        uint8_t status[N_ROWS] = {[1] = CW_ROW_FAILED, [3] = CW_ROW_DROPPED};
        struct cw_block b = {.n = N_ROWS, .status = status, .columns = columns, .arena = &arena};
        for (size_t k = 0; k < N_COLUMNS; k++) {
            ports[k] = (struct cw_port){.value = (unsigned)k, .type = schema[k].type};
            fill(&b, k, pools[k]);
        }
        int r = cw_expr_eval(e, ports, "fuzz", &b, N_COLUMNS, &err);
        for (size_t i = 0; i < N_ROWS && r == 0; i++) {
            struct cw_tensor t = cw_block_row(&b, N_COLUMNS, i);
            if (status[i] == CW_ROW_OK && cw_expr_type(e)->dtype != CW_BYTES) {
                /* the result has the size of its type; a condition is 0 or 1 */
                size_t n = cw_dtype_size(cw_expr_type(e)->dtype);
                for (int k = 0; k < t.ndim; k++)
                    n *= (size_t)t.dims[k];
                if (n != t.size || (data[0] % 3 == 1 && *(uint8_t *)t.data > 1))
                    abort();
            }
        }
        for (size_t k = 0; k < N_COLUMNS; k++)
            free(columns[k].rows);
        cw_arena_deinit(&arena);
    } else if (err.status == 0 || !err.message[0]) {
        abort();
    }
    cw_expr_free(e);
    free(text);
    return 0;
}
