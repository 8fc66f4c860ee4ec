/* Checks an operator's attributes in JSON against the table of its descriptor, and gives their values to the
 * operator's functions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "objects/object.h"
#include "pipeline/pipeline.h"

static const char *const kind_names[] = {
    [CW_ATTR_INT] = "int",
    [CW_ATTR_FLOAT] = "float",
    [CW_ATTR_BOOL] = "bool",
    [CW_ATTR_STRING] = "string",
    [CW_ATTR_DTYPE] = "dtype",
    [CW_ATTR_EXPR] = "expr",
    [CW_ATTR_COMPONENT] = "component",
    [CW_ATTR_INTS] = "ints",
    [CW_ATTR_FLOATS] = "floats",
    [CW_ATTR_STRINGS] = "strings",
    [CW_ATTR_OBJECT] = "object",
    [CW_ATTR_CHAINS] = "chains",
    [CW_ATTR_OPERATORS] = "operators",
    [CW_ATTR_FUNCTION] = "function",
};

const char *cw_attr_kind_name(enum cw_attr_kind kind)
{
    return kind_names[kind];
}

static bool attr_is_list(enum cw_attr_kind kind)
{
    return kind == CW_ATTR_INTS || kind == CW_ATTR_FLOATS || kind == CW_ATTR_STRINGS;
}

static bool attr_is_number(enum cw_attr_kind kind)
{
    return kind == CW_ATTR_INT || kind == CW_ATTR_INTS || kind == CW_ATTR_FLOAT || kind == CW_ATTR_FLOATS;
}

const char *cw_attr_allowed(const struct cw_attr_def *a, char buf[256])
{
    static const char *const nouns[] = {
        [CW_ATTR_INT] = "an integer",
        [CW_ATTR_FLOAT] = "a number",
        [CW_ATTR_BOOL] = "true or false",
        [CW_ATTR_STRING] = "a string",
        [CW_ATTR_DTYPE] = "a dtype",
        [CW_ATTR_EXPR] = "an expression (a string)",
        [CW_ATTR_COMPONENT] = "the name of a component",
        [CW_ATTR_INTS] = "a list of integers",
        [CW_ATTR_FLOATS] = "a list of numbers",
        [CW_ATTR_STRINGS] = "a list of strings",
        [CW_ATTR_OBJECT] = "an object",
        [CW_ATTR_CHAINS] = "a list of chains",
        [CW_ATTR_OPERATORS] = "a list of operators, or of lists of operators",
        [CW_ATTR_FUNCTION] = ("a function: an object of name, identity and payload (strings), and possibly "
                              "modules, path, rng and async"),
    };
    size_t at = (size_t)snprintf(buf, 256, "%s", nouns[a->kind]);
    if (a->scalar_too && a->kind == CW_ATTR_OBJECT)
        at += (size_t)snprintf(buf + at, 256 - at, " or a number");
    else if (a->scalar_too)
        at += (size_t)snprintf(buf + at, 256 - at, " or a single one");
    if (a->len_min && a->len_min == a->len_max)
        at += (size_t)snprintf(buf + at, 256 - at, " of length %d", a->len_min);
    else if (a->len_max)
        at += (size_t)snprintf(buf + at, 256 - at, " of length %d to %d", a->len_min, a->len_max);
    else if (a->len_min)
        at += (size_t)snprintf(buf + at, 256 - at, " of length at least %d", a->len_min);
    if (a->min != 0 || a->max != 0) {
        if (a->max >= 0x1p62)
            at += (size_t)snprintf(buf + at, 256 - at, ", at least %.15g", a->min);
        else
            at += (size_t)snprintf(buf + at, 256 - at, ", from %.15g to %.15g", a->min, a->max);
    }
    for (int i = 0; a->choices && a->choices[i] && at < 240; i++)
        at += (size_t)snprintf(buf + at, 256 - at, "%s\"%s\"",
                               a->kind == CW_ATTR_OBJECT ? " or "
                               : i                       ? ", "
                                                         : ": one of ",
                               strcmp(a->choices[i], "\t") == 0 ? "\\t" : a->choices[i]);
    if (a->kind == CW_ATTR_DTYPE && !a->choices)
        snprintf(buf + at, 256 - at,
                 " (bool, uint8 .. uint64, int8 .. int64, float16, bfloat16, float32, float64)");
    return buf;
}

/* Sets the error "OP: ATTRIBUTE is VALUE: expected EXPECTED". value NULL: the attribute is missing. */
static int attr_error(const char *op, const char *attribute, const json_t *value, const char *expected,
                      struct cw_error *err)
{
    _cleanup_free_ char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS)
                                      : NULL;
    char shown[100];
    snprintf(shown, sizeof(shown), "%s", text ? text : "missing");
    if (text && strlen(text) >= sizeof(shown))
        memcpy(shown + sizeof(shown) - 4, "...", 4);
    cw_error_op(err, op);
    return cw_error_value(err, CW_E_PIPELINE, attribute, shown, expected, "%s: %s is %s: expected %s", op,
                          attribute, shown, expected);
}

int cw_attr_error(const struct cw_op *op, const char *attribute, struct cw_error *err,
                  const char *expected_fmt, ...)
{
    char expected[256];
    CW_FORMAT(expected, expected_fmt);
    return attr_error(op->desc->name, attribute, json_object_get(op->attrs, attribute), expected, err);
}

/* Returns whether v is a function as the Python package writes it. */
static bool attr_function_ok(const json_t *v)
{
    const char *key, *const strings[] = {"name", "identity", "payload"};
    json_t *field;
    bool ok = json_is_object(v);
    for (size_t i = 0; ok && i < CW_COUNT_OF(strings); i++)
        ok = json_string_length(json_object_get(v, strings[i])) > 0;
    json_object_foreach((json_t *)v, key, field) ok &= strcmp(key, "path") == 0 ? json_is_array(field)
                                                       : strcmp(key, "rng") == 0 || strcmp(key, "async") == 0
                                                           ? json_is_boolean(field)
                                                           : json_is_string(field);
    return ok;
}

/* Returns what to write instead of a path that can't be read: an address where none can be read, or a path of
 * Windows. addresses: those of servers are read. NULL: the path may be good. */
static const char *attr_path_instead(const char *path, bool addresses)
{
    static const struct {
        const char *scheme, *instead;
    } remote[] = {
        {"file", "leave out file://"},
    };

    size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789+-.");
    bool letter = (path[0] >= 'a' && path[0] <= 'z') || (path[0] >= 'A' && path[0] <= 'Z');
    if (letter && path[1] == ':' && (path[2] == '\\' || path[2] == '/') && path[3] != '/')
        return "the path of a file on this system, with / between its parts; in WSL, drive C: of Windows is "
               "/mnt/c";
    if (n == 0 || strncmp(path + n, "://", 3) != 0 || (addresses && cw_object_is_address(path)))
        return NULL;
    for (size_t i = 0; i < CW_COUNT_OF(remote); i++)
        if (strlen(remote[i].scheme) == n && strncmp(path, remote[i].scheme, n) == 0)
            return remote[i].instead;
    return "copy the files to this machine first";
}

static int attr_check_paths(const struct cw_op_desc *desc, const struct cw_attr_def *a, const json_t *v,
                            struct cw_error *err)
{
    for (size_t i = 0; i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const json_t *path = json_is_array(v) ? json_array_get(v, i) : v;
        bool addresses = a->kind == CW_ATTR_STRINGS; /* a list of files, not a directory */
        const char *instead = attr_path_instead(json_string_value(path), addresses);
        char expected[256];
        if (!instead)
            continue;
        snprintf(expected, sizeof(expected), "%s%s",
                 !strstr(json_string_value(path), "://") ? ""
                 : addresses
                     ? "the path of a local file, or an address that begins with s3://, gs://, hf://, "
                       "http:// or https://: "
                     : "the path of a local file: ",
                 instead);
        return attr_error(desc->name, a->name, path, expected, err);
    }
    return 0;
}

static bool attr_value_ok(const struct cw_attr_def *a, enum cw_attr_kind kind, const json_t *v)
{
    enum cw_dtype dtype;
    switch (kind) {
    case CW_ATTR_INT:
    case CW_ATTR_INTS:
    case CW_ATTR_FLOAT:
    case CW_ATTR_FLOATS:
        if (!(kind == CW_ATTR_INT || kind == CW_ATTR_INTS ? json_is_integer(v) : json_is_number(v)))
            return false;
        break;
    case CW_ATTR_BOOL:
        return json_is_boolean(v);
    case CW_ATTR_DTYPE:
        if (!json_is_string(v) || cw_dtype_parse(json_string_value(v), &dtype) < 0 || dtype == CW_BYTES)
            return false;
        break;
    case CW_ATTR_EXPR:
        return json_is_string(v);
    case CW_ATTR_COMPONENT:
        return json_is_string(v) && json_string_length(v) > 0 && json_string_length(v) < 256;
    case CW_ATTR_STRING:
    case CW_ATTR_STRINGS:
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
            return false;
        break;
    case CW_ATTR_OBJECT:
        if (json_is_object(v) || (a->scalar_too && json_is_number(v)))
            return true;
        if (!a->choices || !json_is_string(v))
            return false;
        break;
    case CW_ATTR_CHAINS:
    case CW_ATTR_OPERATORS:
        return json_is_array(v);
    case CW_ATTR_FUNCTION:
        return attr_function_ok(v);
    }
    if (attr_is_number(kind) && (a->min != 0 || a->max != 0) &&
        (json_number_value(v) < a->min || json_number_value(v) > a->max))
        return false;
    if (a->choices) {
        for (int i = 0; a->choices[i]; i++)
            if (strcmp(a->choices[i], json_string_value(v)) == 0)
                return true;
        return false;
    }
    return true;
}

int cw_attr_check(const struct cw_op_desc *desc, const struct cw_attr_def *a, const json_t *v,
                  struct cw_error *err)
{
    char allowed[256], expected[200];
    const char *const *choices = a->choices;
    if (!attr_is_list(a->kind) || (a->scalar_too && !json_is_array(v))) {
        if (attr_value_ok(a, a->kind, v))
            return a->path ? attr_check_paths(desc, a, v, err) : 0;
    } else if (json_is_array(v)) {
        size_t n = json_array_size(v), i = 0;
        bool ok = (!a->len_min && !a->len_max) ||
                  (n >= (size_t)a->len_min && (!a->len_max || n <= (size_t)a->len_max));
        for (; ok && i < n; i++)
            ok = attr_value_ok(a, a->kind, json_array_get(v, i));
        if (ok)
            return a->path ? attr_check_paths(desc, a, v, err) : 0;
    }
    snprintf(expected, sizeof(expected), "%.199s", cw_attr_allowed(a, allowed));
    if (desc->hint && !(choices && json_is_string(v))) {
        snprintf(allowed, sizeof(allowed), "%.120s; %.130s", expected, desc->hint);
        return attr_error(desc->name, a->name, v, allowed, err);
    }
    if (choices && json_is_string(v)) {
        size_t n = 0;
        while (choices[n])
            n++;
        const char *near = cw_nearest(json_string_value(v), choices, n);
        if (near)
            snprintf(allowed, sizeof(allowed), "%.180s; did you mean \"%.40s\"?", expected, near);
        return attr_error(desc->name, a->name, v, allowed, err);
    }
    return attr_error(desc->name, a->name, v, expected, err);
}

/* An attribute of every operator. It has no default, so an operator has it among its attributes only if it is
 * written. */
static const struct cw_attr_def keep_position = {
    .name = CW_KEEP_POSITION, .kind = CW_ATTR_BOOL, .doc = "no other operator moves across it"};

static const struct cw_attr_def *attr_find(const struct cw_op_desc *desc, const char *name)
{
    for (const struct cw_attr_def *a = desc->attrs; a && a->name; a++)
        if (strcmp(a->name, name) == 0)
            return a;
    return strcmp(name, keep_position.name) == 0 ? &keep_position : NULL;
}

static int attr_unknown(const struct cw_op_desc *desc, const char *key, const json_t *value,
                        struct cw_error *err)
{
    const char *names[64];
    size_t n = 0;
    _cleanup_(cw_text_deinit) struct cw_text list = {0};
    for (const struct cw_attr_def *a = desc->attrs; a && a->name && n < 64; a++) {
        cw_text_add(&list, "%s%s", n ? ", " : "", a->name);
        names[n++] = a->name;
    }
    const char *near = cw_nearest(key, names, n);
    _cleanup_free_ char *shown = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    cw_error_op(err, desc->name);
    return cw_error_value(
        err, CW_E_PIPELINE, key, shown ? shown : "", list.data ? list.data : "no attributes",
        "%s: there is no attribute \"%.60s\"%s%s%s; it has: %s%s%s", desc->name, key,
        near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", list.data ? list.data : "none",
        desc->hint ? "; " : "", desc->hint ? desc->hint : "");
}

int cw_attrs_check(const struct cw_op_desc *desc, const json_t *object, json_t **ret, struct cw_error *err)
{
    const char *key;
    json_t *value;
    json_auto_t *attrs = json_object();
    if (!attrs)
        return cw_error_nomem(err, 0, "attributes");
    json_object_foreach((json_t *)object, key, value)
    {
        if (strcmp(key, "op") == 0)
            continue;
        const struct cw_attr_def *a = attr_find(desc, key);
        int r = a ? cw_attr_check(desc, a, value, err) : attr_unknown(desc, key, value, err);
        if (r < 0)
            return r;
        if (a->kind != CW_ATTR_CHAINS && json_object_set_new(attrs, key, json_deep_copy(value)) < 0)
            return cw_error_nomem(err, 0, "attributes");
    }
    for (const struct cw_attr_def *a = desc->attrs; a && a->name; a++) {
        if (json_object_get(object, a->name))
            continue;
        if (!a->def) {
            char allowed[256];
            return attr_error(desc->name, a->name, NULL, cw_attr_allowed(a, allowed), err);
        }
        if (json_object_set_new(attrs, a->name, json_loads(a->def, JSON_DECODE_ANY, NULL)) < 0)
            return cw_error_nomem(err, 0, "attributes");
    }
    *ret = CW_STEAL(attrs);
    return 0;
}

json_t *cw_attrs_identity(const struct cw_op_desc *desc, const json_t *attrs)
{
    json_t *identity = json_copy((json_t *)attrs);
    json_object_del(identity, keep_position.name);
    for (const struct cw_attr_def *a = desc->attrs; identity && a && a->name; a++) {
        if (a->effort || a->content) /* beside a path whose content counts is the hash of the content */
            json_object_del(identity, a->name);
        if (a->kind != CW_ATTR_FUNCTION)
            continue;
        json_t *function = json_copy(json_object_get(attrs, a->name));
        /* pickles of the same function differ from process to process */
        json_object_del(function, "payload");
        json_object_del(function, "modules");
        json_object_del(function, "path");
        json_object_set_new(identity, a->name, function);
    }
    return identity;
}

const json_t *cw_attr_json(const struct cw_op *op, const char *name)
{
    return json_object_get(op->attrs, name);
}

int64_t cw_attr_int(const struct cw_op *op, const char *name)
{
    return json_integer_value(cw_attr_json(op, name));
}

double cw_attr_float(const struct cw_op *op, const char *name)
{
    return json_number_value(cw_attr_json(op, name));
}

bool cw_attr_bool(const struct cw_op *op, const char *name)
{
    return json_is_true(cw_attr_json(op, name));
}

const char *cw_attr_string(const struct cw_op *op, const char *name)
{
    return json_string_value(cw_attr_json(op, name));
}

enum cw_dtype cw_attr_dtype(const struct cw_op *op, const char *name)
{
    enum cw_dtype dtype = CW_UINT8;
    (void)cw_dtype_parse(cw_attr_string(op, name), &dtype);
    return dtype;
}

static const json_t *attr_list_at(const struct cw_op *op, const char *name, size_t i)
{
    const json_t *v = cw_attr_json(op, name);
    return json_is_array(v) ? json_array_get(v, i) : v;
}

size_t cw_attr_len(const struct cw_op *op, const char *name)
{
    const json_t *v = cw_attr_json(op, name);
    return json_is_array(v) ? json_array_size(v) : v ? 1 : 0;
}

double cw_attr_float_at(const struct cw_op *op, const char *name, size_t i)
{
    return json_number_value(attr_list_at(op, name, i));
}

int64_t cw_attr_int_at(const struct cw_op *op, const char *name, size_t i)
{
    return json_integer_value(attr_list_at(op, name, i));
}

const char *cw_attr_string_at(const struct cw_op *op, const char *name, size_t i)
{
    return json_string_value(attr_list_at(op, name, i));
}

bool cw_op_draws(const struct cw_op *op)
{
    return (op->desc->effects.random && (!op->desc->draws || op->desc->draws(op->attrs))) ||
           (op->desc->function && json_is_true(json_object_get(cw_attr_json(op, "function"), "rng")));
}

const char *cw_op_kind_name(enum cw_op_kind kind)
{
    static const char *const names[] = {[CW_OP_SOURCE] = "source",      [CW_OP_MAP] = "map",
                                        [CW_OP_FILTER] = "filter",      [CW_OP_FLAT_MAP] = "flat_map",
                                        [CW_OP_INDEX] = "index",        [CW_OP_BATCHER] = "batcher",
                                        [CW_OP_BATCH_MAP] = "batch_map"};
    return names[kind];
}

json_t *cw_op_table_json(const struct cw_op_table *table)
{
    json_t *ops = json_array();
    for (size_t i = 0; i < table->n; i++) {
        const struct cw_op_desc *d = table->ops[i];
        json_t *attributes = json_array();
        for (const struct cw_attr_def *a = d->attrs; a && a->name; a++) {
            char allowed[256];
            json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "name", a->name, "kind", kind_names[a->kind], "doc",
                                  a->doc ? a->doc : "", "allowed", cw_attr_allowed(a, allowed));
            if (a->def)
                json_object_set_new(o, "default", json_loads(a->def, JSON_DECODE_ANY, NULL));
            if (a->min != 0 || a->max != 0) {
                json_object_set_new(o, "min", json_real(a->min));
                json_object_set_new(o, "max", json_real(a->max));
            }
            if (a->len_min)
                json_object_set_new(o, "len_min", json_integer(a->len_min));
            if (a->len_max)
                json_object_set_new(o, "len_max", json_integer(a->len_max));
            if (a->scalar_too)
                json_object_set_new(o, "scalar", json_true());
            if (a->path)
                json_object_set_new(o, "path", json_true());
            if (a->choices) {
                json_t *choices = json_array();
                for (int k = 0; a->choices[k]; k++)
                    json_array_append_new(choices, json_string(a->choices[k]));
                json_object_set_new(o, "choices", choices);
            }
            json_array_append_new(attributes, o);
        }
        json_t *op = json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "name", d->name, "kind",
                               cw_op_kind_name(d->kind), "summary", d->summary, "doc", d->doc ? d->doc : "",
                               "random", d->effects.random, "attributes", attributes);
        if (d->hint)
            json_object_set_new(op, "hint", json_string(d->hint));
        if (d->plugin)
            json_object_set_new(op, "plugin", json_string(d->plugin));
        if (d->for_tests)
            json_object_set_new(op, "for_tests", json_true());
        json_array_append_new(ops, op);
    }
    return json_pack("{s:o}", "ops", ops);
}
