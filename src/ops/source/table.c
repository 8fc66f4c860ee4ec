/* The columns of a table: made while an operator is bound, immutable afterwards. */
#include "ops/source/table.h"

#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "formats/number.h"
#include "pipeline/pipeline.h"

/* Names that a message lists at most. */
#define NAMES_LISTED 128

int cw_table_files(struct cw_bind *b, const struct cw_op *op, struct cw_source_files *ret,
                   struct cw_error *err)
{
    const struct cw_pipeline *p = cw_bind_pipeline(b);
    const struct cw_source_env env = {
        .base_dir = p->base_dir, .data_roots = p->data_roots, .n_data_roots = p->n_data_roots, .threads = 1};
    return cw_source_files(op, "files", &env, ret, err);
}

/* Reports that attribute `attr` names a column that does not exist. */
static int table_unknown(const struct cw_op *op, const char *attr, const char *name, char *const *names,
                         size_t n, struct cw_error *err)
{
    const char *known[NAMES_LISTED];
    struct cw_text list = {0};
    size_t listed = CW_MIN(n, (size_t)NAMES_LISTED);
    for (size_t i = 0; i < listed; i++) {
        known[i] = names[i];
        cw_text_add(&list, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = cw_nearest(name, known, listed), *all = list.data ? list.data : "none";
    cw_error_op(err, op->desc->name);
    cw_error_value(err, CW_E_PIPELINE, attr, name, all,
                   "%s: %s has \"%.80s\": there is no such column%s%s%s; there are: %s", op->desc->name, attr,
                   name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", all);
    cw_text_deinit(&list);
    return CW_E_PIPELINE;
}

int cw_table_choose(const struct cw_op *op, const char *path, char *const *names, size_t n, bool *chosen,
                    struct cw_error *err)
{
    size_t named = cw_attr_len(op, "columns"), left = 0;
    for (size_t i = 0; i < n; i++)
        chosen[i] = named == 0;
    for (size_t k = 0; k < named; k++) {
        const char *name = cw_attr_string_at(op, "columns", k);
        size_t i = 0;
        while (i < n && strcmp(names[i], name) != 0)
            i++;
        if (i == n)
            return table_unknown(op, "columns", name, names, n, err);
        chosen[i] = true;
    }
    for (size_t i = 0; i < n; i++) {
        left += chosen[i];
        for (size_t k = 0; chosen[i] && k < i; k++)
            if (strcmp(names[i], names[k]) == 0)
                return cw_error_at_file(
                    err, CW_E_PIPELINE, path, 0,
                    "%s: %s has two columns of the name \"%.80s\": expected different names", op->desc->name,
                    path, names[i]);
    }
    if (left > CW_OP_MAX_PORTS)
        return cw_error_at_file(err, CW_E_PIPELINE, path, 0,
                                "%s: %s has %zu columns: expected at most %d; name those that you need: "
                                "columns: [\"%.80s\", ...]",
                                op->desc->name, path, left, CW_OP_MAX_PORTS, names[0]);
    return 0;
}

struct cw_table *cw_table_new(struct cw_op *op, struct cw_error *err)
{
    op->state = calloc(1, sizeof(struct cw_table));
    if (!op->state)
        (void)cw_error_nomem(err, sizeof(struct cw_table), op->desc->name);
    return op->state;
}

int cw_table_add(struct cw_bind *b, struct cw_op *op, const char *name, const struct cw_type *type,
                 struct cw_error *err)
{
    struct cw_table *t = op->state;
    int port = cw_bind_write(b, name, type, err);
    if (port < 0)
        return port;
    t->columns[t->n] = (struct cw_table_column){.name = strdup(name), .type = *type, .port = (unsigned)port};
    return t->columns[t->n++].name ? 0 : cw_error_nomem(err, strlen(name), "a column");
}

int cw_table_find(const struct cw_table *t, const char *name)
{
    for (unsigned i = 0; i < t->n; i++)
        if (strcmp(t->columns[i].name, name) == 0)
            return (int)i;
    return -1;
}

int cw_table_check_keys(const struct cw_op *op, const char *attr, struct cw_error *err)
{
    const struct cw_table *t = op->state;
    char *names[CW_OP_MAX_PORTS];
    const char *key;
    json_t *value;
    for (unsigned i = 0; i < t->n; i++)
        names[i] = t->columns[i].name;
    json_object_foreach((json_t *)(uintptr_t)cw_attr_json(op, attr), key, value)
    {
        if (cw_table_find(t, key) < 0)
            return table_unknown(op, attr, key, names, t->n, err);
    }
    return 0;
}

/* Converts a JSON number, bool or "NaN" to a value of the dtype. */
static bool table_put_number(const json_t *v, enum cw_dtype dtype, void *out)
{
    if (dtype == CW_BOOL) {
        *(uint8_t *)out = json_is_true(v);
        return json_is_boolean(v);
    }
    if (json_is_string(v))
        return cw_dtype_is_float(dtype) && strcmp(json_string_value(v), "NaN") == 0 &&
               cw_number_parse("NaN", 3, dtype, out) == CW_NUMBER_OK;
    if (json_is_integer(v))
        return cw_number_from_int(json_integer_value(v), dtype, out) == CW_NUMBER_OK;
    return json_is_real(v) && cw_number_from_double(json_real_value(v), dtype, out) == CW_NUMBER_OK;
}

static int table_read_null(const struct cw_op *op, struct cw_table_column *c, const json_t *v,
                           struct cw_error *err)
{
    char type[160];
    bool good = true;
    c->has_default = true;
    if (c->type.dtype == CW_BYTES) {
        good = json_is_string(v);
        c->text = json_string_value(v);
        c->text_size = json_string_length(v);
    } else {
        size_t item = cw_dtype_size(c->type.dtype);
        c->default_is_list = json_is_array(v);
        c->n_default = c->default_is_list ? json_array_size(v) : 1;
        if (!(c->def = calloc(c->n_default + 1, item)))
            return cw_error_nomem(err, c->n_default * item, "a default");
        good = !c->default_is_list ||
               (cw_type_fixed(&c->type) ? c->n_default == cw_type_bytes(&c->type) / item && c->type.ndim > 0
                                        : c->type.ndim == 1);
        for (size_t i = 0; good && i < c->n_default; i++)
            good = table_put_number(c->default_is_list ? json_array_get(v, i) : v, c->type.dtype,
                                    (uint8_t *)c->def + i * item);
    }
    return good ? 0
                : cw_attr_error(op, "nulls", err, "a value of %s for column \"%.80s\"",
                                cw_type_print(&c->type, type), c->name);
}

int cw_table_read_nulls(const struct cw_op *op, struct cw_error *err)
{
    struct cw_table *t = op->state;
    const char *key;
    json_t *value;
    int r = cw_table_check_keys(op, "nulls", err);
    json_object_foreach((json_t *)(uintptr_t)cw_attr_json(op, "nulls"), key, value)
    {
        if (r == 0)
            r = table_read_null(op, &t->columns[cw_table_find(t, key)], value, err);
    }
    return r;
}

uint64_t cw_table_context(const struct cw_table *t)
{
    XXH3_state_t x;
    XXH3_64bits_reset(&x);
    for (unsigned i = 0; i < t->n; i++) {
        const struct cw_table_column *c = &t->columns[i];
        struct cw_key k = {0};
        cw_key_u64(&k, c->type.dtype);
        for (int d = 0; d < c->type.ndim; d++)
            cw_key_u64(&k, (uint64_t)c->type.dims[d]);
        XXH3_64bits_update(&x, c->name, strlen(c->name) + 1);
        XXH3_64bits_update(&x, k.bytes, k.size);
    }
    return XXH3_64bits_digest(&x);
}

void cw_table_free(void *state)
{
    struct cw_table *t = state;
    for (unsigned i = 0; t && i < t->n; i++) {
        free(t->columns[i].name);
        free(t->columns[i].def);
    }
    free(t);
}
