/* Binds an operator of a plug-in: the functions that its `bind` may call. The first error is kept and makes
 * all later calls fail, so that `bind` need not check their results. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "ops/plugin/plugin_impl.h"
#include "pipeline/pipeline.h"

struct binding {
    struct cachew_bind face; /* first: the plug-in gets a pointer to it */
    struct cw_bind *b;
    struct cw_op *op;
    struct cw_plugin_bound *bound;
    int status;
    struct cw_error *err;
};

static struct binding *plugin_bind_of(struct cachew_bind *b)
{
    return (struct binding *)(void *)b;
}

/* Reports a mistake of the plug-in, unless there was an error before. Returns the first error. */
static int plugin_bind_misuse(struct binding *x, const char *fmt, ...) _printf_(2, 3);

static int plugin_bind_misuse(struct binding *x, const char *fmt, ...)
{
    if (x->status < 0)
        return x->status;
    char text[256];
    CW_FORMAT(text, fmt);
    cw_plugin_clean(text);
    return x->status = cw_error_set(x->err, CW_E_PIPELINE, "%s (plug-in %.100s): %s", x->op->desc->name,
                                    x->op->desc->plugin, text);
}

/* ---- attributes ---- */

/* Returns value i of an attribute, which must have the kind `kind` or `or_kind`. NULL: it does not, and the
 * error is recorded. */
static const json_t *plugin_bind_value_of(struct binding *x, const char *name, enum cw_attr_kind kind,
                                          enum cw_attr_kind or_kind, size_t i)
{
    const struct cw_attr_def *a = x->op->desc->attrs;
    while (a->name && (!name || strcmp(a->name, name) != 0))
        a++;
    if (!a->name || (a->kind != kind && a->kind != or_kind)) {
        plugin_bind_misuse(x, "bind asks for an attribute \"%.60s\" of kind %s: the table has %s%s",
                           name ? name : "NULL", cw_attr_kind_name(kind),
                           a->name ? "one of kind " : "none of that name",
                           a->name ? cw_attr_kind_name(a->kind) : "");
        return NULL;
    }
    const json_t *v = cw_attr_json(x->op, name);
    if (i >= cw_attr_len(x->op, name)) {
        plugin_bind_misuse(x, "bind asks for value %zu of the attribute \"%s\", which has %zu values", i,
                           name, cw_attr_len(x->op, name));
        return NULL;
    }
    return json_is_array(v) ? json_array_get(v, i) : v;
}

static int64_t bind_integer(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i)
{
    enum cw_attr_kind own;
    enum cw_dtype dtype = CW_BOOL;
    if (!cw_plugin_attr_kind(kind, &own))
        return plugin_bind_misuse(plugin_bind_of(b),
                                  "bind asks for an attribute of kind %d, which does "
                                  "not exist",
                                  (int)kind),
               0;
    const json_t *v = plugin_bind_value_of(plugin_bind_of(b), name, own, own, i);
    if (v && own == CW_ATTR_DTYPE)
        (void)cw_dtype_parse(json_string_value(v), &dtype);
    return !v                     ? 0
           : own == CW_ATTR_BOOL  ? json_is_true(v)
           : own == CW_ATTR_DTYPE ? (int64_t)dtype
                                  : json_integer_value(v);
}

static double bind_number(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i)
{
    enum cw_attr_kind own = kind == CACHEW_ATTR_FLOATS ? CW_ATTR_FLOATS : CW_ATTR_FLOAT;
    const json_t *v = plugin_bind_value_of(plugin_bind_of(b), name, own, own, i);
    return v ? json_number_value(v) : 0;
}

static const char *bind_string(struct cachew_bind *b, const char *name, enum cachew_attr_kind kind, size_t i)
{
    bool list = kind == CACHEW_ATTR_STRINGS;
    const json_t *v = plugin_bind_value_of(plugin_bind_of(b), name, list ? CW_ATTR_STRINGS : CW_ATTR_STRING,
                                           list ? CW_ATTR_STRINGS : CW_ATTR_COMPONENT, i);
    return v ? json_string_value(v) : "";
}

static size_t bind_length(struct cachew_bind *b, const char *name)
{
    const struct binding *x = plugin_bind_of(b);
    for (const struct cw_attr_def *a = x->op->desc->attrs; name && a->name; a++)
        if (strcmp(a->name, name) == 0)
            return cw_attr_len(x->op, name);
    plugin_bind_misuse(plugin_bind_of(b),
                       "bind asks for the length of an attribute \"%.60s\", which the table does not have",
                       name ? name : "NULL");
    return 0;
}

/* ---- components ---- */

static void plugin_bind_show_type(const struct cw_type *type, struct cachew_type *ret)
{
    *ret = (struct cachew_type){.dtype = (enum cachew_dtype)type->dtype, .ndim = type->ndim};
    memcpy(ret->dims, type->dims, sizeof(ret->dims));
}

static int bind_type(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    const struct binding *x = plugin_bind_of(b);
    struct cw_type type;
    for (size_t i = 0; component && i < cw_bind_count(x->b); i++)
        if (strcmp(cw_bind_name(x->b, i, &type), component) == 0) {
            if (ret)
                plugin_bind_show_type(&type, ret);
            return 1;
        }
    return 0;
}

static int bind_read(struct cachew_bind *b, const char *component, struct cachew_type *ret)
{
    struct binding *x = plugin_bind_of(b);
    struct cw_type type = {0};
    if (ret)
        plugin_bind_show_type(&type, ret);
    if (x->status < 0)
        return x->status;
    if (!component)
        return plugin_bind_misuse(x, "bind reads the component NULL: expected a name");
    if (x->op->n_out)
        return plugin_bind_misuse(
            x, "bind reads \"%.60s\" after it has written: expected all reads before the first write",
            component);
    if (x->bound->n_in == CW_OP_MAX_PORTS)
        return plugin_bind_misuse(x, "bind reads more than %d components", CW_OP_MAX_PORTS);
    int port = cw_bind_read(x->b, component, &type, x->err);
    if (port < 0)
        return x->status = port;
    if (ret)
        plugin_bind_show_type(&type, ret);
    x->bound->in[x->bound->n_in] = (unsigned)port;
    return (int)x->bound->n_in++;
}

static int bind_write(struct cachew_bind *b, const char *component, const struct cachew_type *type)
{
    struct binding *x = plugin_bind_of(b);
    if (x->status < 0)
        return x->status;
    if (!component || !component[0] || strlen(component) > 255)
        return plugin_bind_misuse(x, "bind writes the component \"%.60s\": expected a name of 1 to 255 bytes",
                                  component ? component : "NULL");
    if (!cw_text_utf8(component, strlen(component)))
        return plugin_bind_misuse(x, "bind writes the component \"%.60s\": expected a name in UTF-8",
                                  component);
    if (x->op->desc->kind == CW_OP_FILTER)
        return plugin_bind_misuse(x, "bind writes \"%.60s\": a filter has no outputs", component);
    if (!type || (unsigned)type->dtype > CACHEW_BYTES || type->ndim < CACHEW_VARIES ||
        type->ndim > CACHEW_MAX_NDIM || (type->dtype == CACHEW_BYTES && type->ndim != 0))
        return plugin_bind_misuse(
            x,
            "bind writes \"%.60s\" with dtype %d and %d dimensions: expected a dtype, and at most "
            "%d dimensions, none for bytes",
            component, type ? (int)type->dtype : -1, type ? type->ndim : -1, CACHEW_MAX_NDIM);
    struct cw_type own = {.dtype = (enum cw_dtype)type->dtype, .ndim = type->ndim};
    for (int i = 0; i < own.ndim; i++) {
        own.dims[i] = type->dims[i];
        if (own.dims[i] < CACHEW_VARIES)
            return plugin_bind_misuse(
                x, "bind writes \"%.60s\" with dimension %d of %lld: expected at least 0, or CACHEW_VARIES",
                component, i, (long long)own.dims[i]);
    }
    if (cw_type_fixed(&own) && cw_type_bytes(&own) > (size_t)1 << 45)
        return plugin_bind_misuse(x, "bind writes \"%.60s\" with a type that is too large for any memory",
                                  component);
    int port = cw_bind_write(x->b, component, &own, x->err);
    return port < 0 ? (x->status = port) : port;
}

static int bind_fail(struct cachew_bind *b, const char *attribute, const char *text)
{
    struct binding *x = plugin_bind_of(b);
    char clean[256];
    if (x->status < 0)
        return x->status;
    snprintf(clean, sizeof(clean), "%s", text ? text : "");
    cw_plugin_clean(clean);
    if (attribute)
        return x->status = cw_attr_error(x->op, attribute, x->err, "%s", clean);
    return x->status = cw_error_set(x->err, CW_E_PIPELINE, "%s: %s", x->op->desc->name, clean);
}

/* ---- binding an operator ---- */

static const struct cachew_bind_calls calls = {
    .integer = bind_integer,
    .number = bind_number,
    .string = bind_string,
    .length = bind_length,
    .type = bind_type,
    .read = bind_read,
    .write = bind_write,
    .fail_bind = bind_fail,
};

void cw_plugin_free_state(void *state)
{
    struct cw_plugin_bound *bound = state;
    if (bound->state && bound->from->free_state)
        bound->from->free_state(bound->state);
    free(bound);
}

int cw_plugin_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_plugin_bound *bound = calloc(1, sizeof(*bound));
    if (!bound)
        return cw_error_nomem(err, sizeof(*bound), op->desc->name);
    bound->from = ((const struct cw_plugin_op *)(const void *)op->desc)->from;
    op->state = bound;
    struct binding x = {.face.calls = &calls, .b = b, .op = op, .bound = bound, .err = err};
    int r = bound->from->bind(&x.face, &bound->state);
    if (r >= 0 || x.status < 0)
        return x.status;
    if (r == CACHEW_E_MEMORY)
        return cw_error_nomem(err, 0, op->desc->name);
    return plugin_bind_misuse(&x, "bind failed with %d and gave no reason", r);
}
