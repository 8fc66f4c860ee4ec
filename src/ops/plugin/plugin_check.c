/* Checks the descriptors of a plug-in, once, when it is loaded: everything in them that the library relies
 * on. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "ops/plugin/plugin_impl.h"
#include "pipeline/pipeline.h"

#define MAX_OPERATORS 256
#define MAX_ATTRS 64
#define MAX_LINE 500
#define MAX_DOC 10000

#define EXPECT_NAME "1 to 48 of a-z, 0-9 and _, a letter first"
#define EXPECT_LINE "a line of UTF-8 text, at most 500 bytes"

/* The part of a descriptor that is being checked, for errors. */
struct check {
    const char *path, *op, *attr;
    struct cw_error *err;
};

void cw_plugin_clean(char *text)
{
    bool utf8 = cw_text_utf8(text, strlen(text));
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
        else if ((unsigned char)*c >= 0x80 && !utf8)
            *c = '?';
    }
}

/* "plug-in PATH: operator OP: attribute ATTR: FIELD is VALUE: expected EXPECTED" */
static int plugin_check_wrong(const struct check *c, const char *field, const char *value,
                              const char *expected)
{
    char shown[80];
    snprintf(shown, sizeof(shown), "%.79s", value ? value : "NULL");
    cw_plugin_clean(shown);
    cw_error_file(c->err, c->path);
    cw_error_op(c->err, c->op);
    return cw_error_value(c->err, CW_E_OPTION, c->attr ? c->attr : field, shown, expected,
                          "plug-in %.200s: %s%s%s%s%s%s%s is %s: expected %s", c->path,
                          c->op ? "operator " : "", c->op ? c->op : "", c->op ? ": " : "",
                          c->attr ? "attribute " : "", c->attr ? c->attr : "", c->attr ? ": " : "", field,
                          shown, expected);
}

static int plugin_check_wrong_number(const struct check *c, const char *field, double value,
                                     const char *expected)
{
    char text[40];
    snprintf(text, sizeof(text), "%.17g", value);
    return plugin_check_wrong(c, field, text, expected);
}

static bool plugin_check_is_name(const char *s)
{
    size_t n = s ? strlen(s) : 0;
    return n > 0 && n <= CW_PLUGIN_MAX_NAME && s[0] >= 'a' && s[0] <= 'z' &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static bool plugin_check_is_text(const char *s, size_t most, bool line)
{
    return s && *s && strlen(s) <= most && (!line || !s[strcspn(s, "\n\r\t")]) && cw_text_utf8(s, strlen(s));
}

bool cw_plugin_attr_kind(enum cachew_attr_kind kind, enum cw_attr_kind *ret)
{
    static const enum cw_attr_kind kinds[] = {
        [CACHEW_ATTR_INT] = CW_ATTR_INT,         [CACHEW_ATTR_FLOAT] = CW_ATTR_FLOAT,
        [CACHEW_ATTR_BOOL] = CW_ATTR_BOOL,       [CACHEW_ATTR_STRING] = CW_ATTR_STRING,
        [CACHEW_ATTR_DTYPE] = CW_ATTR_DTYPE,     [CACHEW_ATTR_COMPONENT] = CW_ATTR_COMPONENT,
        [CACHEW_ATTR_INTS] = CW_ATTR_INTS,       [CACHEW_ATTR_FLOATS] = CW_ATTR_FLOATS,
        [CACHEW_ATTR_STRINGS] = CW_ATTR_STRINGS,
    };

    if ((int)kind < CACHEW_ATTR_INT || kind > CACHEW_ATTR_STRINGS)
        return false;
    *ret = kinds[kind];
    return true;
}

static int check_bounds(const struct check *c, const struct cachew_attr *a)
{
    bool list = a->kind == CACHEW_ATTR_INTS || a->kind == CACHEW_ATTR_FLOATS ||
                a->kind == CACHEW_ATTR_STRINGS;
    bool number = a->kind == CACHEW_ATTR_INT || a->kind == CACHEW_ATTR_INTS || a->kind == CACHEW_ATTR_FLOAT ||
                  a->kind == CACHEW_ATTR_FLOATS;
    bool text = a->kind == CACHEW_ATTR_STRING || a->kind == CACHEW_ATTR_STRINGS ||
                a->kind == CACHEW_ATTR_DTYPE;
    if (!isfinite(a->min) || (!number && a->min != 0))
        return plugin_check_wrong_number(
            c, "min", a->min, number ? "a finite number" : "0, because the attribute is not a number");
    if (!isfinite(a->max) || a->max < a->min || (!number && a->max != 0))
        return plugin_check_wrong_number(c, "max", a->max,
                                         number ? "a finite number, at least min"
                                                : "0, because the attribute is not a number");
    if (a->len_min < 0 || (!list && a->len_min != 0))
        return plugin_check_wrong_number(c, "len_min", a->len_min,
                                         list ? "at least 0" : "0, because the attribute is not a list");
    if (a->len_max < 0 || (a->len_max && a->len_max < a->len_min) || (!list && a->len_max != 0))
        return plugin_check_wrong_number(c, "len_max", a->len_max,
                                         list ? "0, or at least len_min"
                                              : "0, because the attribute is not a list");
    if (a->scalar_too && !list)
        return plugin_check_wrong_number(c, "scalar_too", a->scalar_too,
                                         "0, because the attribute is not a list");
    if (a->choices && !text)
        return plugin_check_wrong(c, "choices", "not NULL",
                                  "NULL, because the attribute is neither a string nor a dtype");
    for (size_t i = 0; a->choices && a->choices[i]; i++)
        if (!plugin_check_is_text(a->choices[i], MAX_LINE, true))
            return plugin_check_wrong(c, "a choice", a->choices[i], EXPECT_LINE);
    return 0;
}

static int check_default(const struct check *c, const struct cw_op_desc *desc, const struct cw_attr_def *a)
{
    struct cw_error why = {0};
    if (!a->def)
        return 0;
    json_error_t je;
    json_auto_t *value = json_loads(a->def, JSON_DECODE_ANY, &je);
    /* a parse error of jansson always has a text */
    if (!value && (!je.text[0] || json_error_code(&je) == json_error_out_of_memory))
        return cw_error_nomem(c->err, 0, "a plug-in");
    if (!value)
        return plugin_check_wrong(c, "def", a->def, "JSON (a string in it has quotation marks of its own)");
    int r = cw_attr_check(desc, a, value, &why);
    return r < 0 ? plugin_check_wrong(c, "def", a->def, why.expected[0] ? why.expected : why.message) : 0;
}

static int check_attr(const struct check *base, const struct cw_op_desc *desc, const struct cachew_attr *from,
                      struct cw_attr_def *to)
{
    struct check in = *base, *c = &in;
    if (!plugin_check_is_name(from->name) || strcmp(from->name, "op") == 0 ||
        strcmp(from->name, "inputs") == 0)
        return plugin_check_wrong(c, "the name of an attribute", from->name,
                                  EXPECT_NAME "; not op, not inputs");
    c->attr = from->name;
    *to = (struct cw_attr_def){.name = from->name,
                               .def = from->def,
                               .min = from->min,
                               .max = from->max,
                               .len_min = from->len_min,
                               .len_max = from->len_max,
                               .choices = from->choices,
                               .scalar_too = from->scalar_too != 0,
                               .doc = from->doc};
    if (!cw_plugin_attr_kind(from->kind, &to->kind))
        return plugin_check_wrong_number(c, "kind", from->kind, "one of CACHEW_ATTR_*");
    if (!plugin_check_is_text(from->doc, MAX_LINE, true))
        return plugin_check_wrong(c, "doc", from->doc, EXPECT_LINE);
    for (const struct cw_attr_def *other = desc->attrs; other < to; other++)
        if (strcmp(other->name, to->name) == 0)
            return plugin_check_wrong(c, "its name", to->name,
                                      "a name that no other attribute of the operator has");
    int r = check_bounds(c, from);
    return r < 0 ? r : check_default(c, desc, to);
}

static int check_op(struct check *c, const struct cachew_operator *from, const char *identity,
                    struct cw_plugin_op *to)
{
    struct cw_op_desc *d = &to->desc;
    c->op = NULL;
    if (!plugin_check_is_name(from->name))
        return plugin_check_wrong(c, "the name of an operator", from->name, EXPECT_NAME);
    c->op = from->name;
    if (!plugin_check_is_text(from->summary, MAX_LINE, true))
        return plugin_check_wrong(c, "summary", from->summary, EXPECT_LINE);
    if (from->doc && !plugin_check_is_text(from->doc, MAX_DOC, false))
        return plugin_check_wrong(c, "doc", from->doc, "NULL, or UTF-8 text of at most 10000 bytes");
    if (from->kind != CACHEW_MAP && from->kind != CACHEW_FILTER)
        return plugin_check_wrong_number(c, "kind", from->kind, "CACHEW_MAP or CACHEW_FILTER");
    if (!from->bind || !from->run)
        return plugin_check_wrong(c, from->bind ? "run" : "bind", NULL, "a function");
    size_t n = 0;
    while (from->attrs && from->attrs[n].name && n <= MAX_ATTRS)
        n++;
    if (n > MAX_ATTRS)
        return plugin_check_wrong(c, "attrs", "too long",
                                  "at most 64 attributes, then one whose name is NULL");
    struct cw_attr_def *attrs = calloc(n + 1, sizeof(*attrs));
    if (!attrs)
        return cw_error_nomem(c->err, (n + 1) * sizeof(*attrs), "a plug-in");
    to->from = from;
    *d = (struct cw_op_desc){.name = from->name,
                             .summary = from->summary,
                             .doc = from->doc,
                             .kind = from->kind == CACHEW_MAP ? CW_OP_MAP : CW_OP_FILTER,
                             .effects = {.count = from->kind == CACHEW_MAP ? CW_COUNT_SAME : CW_COUNT_FEWER,
                                         .random = from->random != 0},
                             .attrs = attrs,
                             .bind = cw_plugin_bind,
                             .run = cw_plugin_run,
                             .free_state = cw_plugin_free_state,
                             .plugin = identity};
    int r = 0;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = check_attr(c, d, &from->attrs[i], &attrs[i]);
    return r;
}

int cw_plugin_check(const struct cachew_plugin *plugin, const char *path, const char *identity,
                    struct cw_plugin_ops *ret, struct cw_error *err)
{
    struct check c = {.path = path, .err = err};
    struct cw_plugin_ops o = {0};
    while (plugin->operators && plugin->operators[o.n] && o.n <= MAX_OPERATORS)
        o.n++;
    if (o.n == 0 || o.n > MAX_OPERATORS)
        return plugin_check_wrong_number(&c, "the number of operators", (double)o.n, "1 to 256, then NULL");
    o.ops = calloc(o.n, sizeof(*o.ops));
    if (!o.ops)
        return cw_error_nomem(err, o.n * sizeof(*o.ops), "a plug-in");
    for (size_t i = 0; i < o.n; i++) {
        int r = check_op(&c, plugin->operators[i], identity, &o.ops[i]);
        if (r < 0) {
            cw_plugin_ops_deinit(&o);
            return r;
        }
    }
    *ret = o;
    return 0;
}

void cw_plugin_ops_deinit(struct cw_plugin_ops *o)
{
    for (size_t i = 0; o->ops && i < o->n; i++)
        free((void *)o->ops[i].desc.attrs);
    free(o->ops);
    *o = (struct cw_plugin_ops){0};
}
