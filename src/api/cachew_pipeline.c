/* Pipelines of the C interface: JSON that is checked after each added operator; and their schemas. */
#include "api/cachew_impl.h"

#include <libgen.h>
#include <string.h>

#include "base/notice.h"
#include "ops/plugin/plugin.h"
#include "ops/table.h"
#include "storage/file.h"

#define NO_DTYPE 255 /* the dtype of a component that does not exist */

struct cachew_schema {
    struct cw_local local; /* the pipeline, compiled */
    const struct cw_component *components;
    unsigned n;
};

static struct cachew_pipeline *pipeline_new(const char *base_dir, json_t *root)
{
    struct cachew_pipeline *p = calloc(1, sizeof(*p));
    if (p) {
        p->root = json_incref(root);
        p->base_dir = strdup(base_dir ? base_dir : ".");
    }
    if (!p || !p->base_dir || !p->root) {
        cachew_pipeline_free(p);
        return NULL;
    }
    return p;
}

struct cachew_pipeline *cachew_pipeline_new(const char *base_dir)
{
    json_auto_t *root = json_pack("{s:i, s:[]}", "cachew", 1, "pipeline");
    return root ? pipeline_new(base_dir, root) : NULL;
}

void cachew_pipeline_free(struct cachew_pipeline *p)
{
    if (!p)
        return;
    json_decref(p->root);
    free(p->base_dir);
    free(p);
}

int cw_api_compile(const struct cachew_pipeline *p, struct cw_local *l, struct cw_error *err)
{
    cw_notice_set(
        cw_notice_stderr); /* set here, because every use of the library compiles a pipeline first */
    return cw_local_compile(l, p->root, p->base_dir, err);
}

static int pipeline_parse(const char *text, size_t size, const char *base_dir, struct cachew_pipeline **ret,
                          struct cw_error *err)
{
    json_error_t je;
    struct cw_local l = {0};
    json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return cw_error_set(err, CW_E_PIPELINE, "the pipeline is not valid JSON: line %d, column %d: %s",
                            je.line, je.column, je.text);
    struct cachew_pipeline *p = pipeline_new(base_dir, root);
    if (!p)
        return cw_error_nomem(err, sizeof(*p), "a pipeline");
    int r = cw_api_compile(p, &l, err);
    cw_local_deinit(&l);
    if (r < 0) {
        cachew_pipeline_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

int cachew_pipeline_load(const char *file, struct cachew_pipeline **ret, struct cachew_error **err)
{
    struct cw_error e = {0};
    size_t size;
    _cleanup_free_ char *text = NULL, *copy = strdup(file);
    int r = copy ? cw_read_file(file, CW_MAX_PIPELINE_BYTES, &text, &size, &e)
                 : cw_error_nomem(&e, 0, "a path");
    if (r >= 0)
        r = pipeline_parse(text, size, dirname(copy), ret, &e);
    if (r >= 0)
        return 0;
    cw_error_file(&e, file);
    return cw_api_fail(r, &e, err);
}

int cachew_pipeline_parse(const char *json, const char *base_dir, struct cachew_pipeline **ret,
                          struct cachew_error **err)
{
    struct cw_error e = {0};
    int r = pipeline_parse(json, strlen(json), base_dir, ret, &e);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

/* Makes the JSON object of an operator, *ret, new. inputs: may be NULL; taken over, also on failure. */
static int node_make(const char *op, const char *attributes, json_t *inputs, json_t **ret,
                     struct cw_error *err)
{
    json_error_t je;
    json_t *node = attributes ? json_loads(attributes, JSON_REJECT_DUPLICATES, &je) : json_object();
    int r = 0;
    if (!json_is_object(node)) {
        cw_error_op(err, op);
        r = !attributes ? cw_error_nomem(err, 0, "attributes")
            : node ? cw_error_set(err, CW_E_PIPELINE, "%s: attributes are \"%.100s\": expected a JSON object",
                                  op, attributes)
                   : cw_error_set(err, CW_E_PIPELINE,
                                  "%s: attributes are not valid JSON: line %d, column %d: %s", op, je.line,
                                  je.column, je.text);
    } else if (json_object_get(node, "op") || json_object_get(node, "inputs")) {
        cw_error_op(err, op);
        r = cw_error_set(
            err, CW_E_PIPELINE,
            "%s: attributes contain \"op\" or \"inputs\": expected attributes of the operator only", op);
    } else if (json_object_set_new(node, "op", json_string(op)) < 0) {
        r = cw_error_set(err, CW_E_PIPELINE, "the name of an operator is not valid UTF-8");
    } else if (inputs && json_object_set(node, "inputs", inputs) < 0) {
        r = cw_error_nomem(err, 0, "inputs");
    }
    json_decref(inputs);
    if (r < 0) {
        json_decref(node);
        return r;
    }
    *ret = node;
    return 0;
}

static int pipeline_add(struct cachew_pipeline *p, const char *op, const char *attributes, json_t *inputs,
                        struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_pipeline *parsed = NULL;
    json_t *node, *chain = json_object_get(p->root, "pipeline");
    int r = node_make(op, attributes, inputs, &node, &e);
    if (r >= 0 && json_array_append_new(chain, node) < 0)
        r = cw_error_nomem(&e, 0, "an operator");
    /* checks names, attributes and positions of operators, but not types */
    if (r >= 0 && (r = cw_pipeline_from_json(cw_ops(), p->root, p->base_dir, &parsed, &e)) < 0)
        json_array_remove(chain, json_array_size(chain) - 1);
    cw_pipeline_unref(parsed);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

int cachew_pipeline_add(struct cachew_pipeline *p, const char *op, const char *attributes,
                        struct cachew_error **err)
{
    return pipeline_add(p, op, attributes, NULL, err);
}

int cachew_pipeline_add_inputs(struct cachew_pipeline *p, const char *op, const char *attributes,
                               const struct cachew_pipeline *const *inputs, size_t n,
                               struct cachew_error **err)
{
    json_t *list = json_array();
    int r = list ? 0 : -1;
    for (size_t i = 0; i < n && r == 0; i++)
        r = json_array_append_new(list, json_deep_copy(json_object_get(inputs[i]->root, "pipeline")));
    if (r < 0) {
        struct cw_error e = {0};
        json_decref(list);
        return cw_api_fail(cw_error_nomem(&e, 0, "inputs"), &e, err);
    }
    return pipeline_add(p, op, attributes, list, err);
}

int cachew_pipeline_set_on_error(struct cachew_pipeline *p, const char *on_error, struct cachew_error **err)
{
    static const char *const choices[] = {"raise", "skip", "replace"};
    struct cw_error e = {0};
    int r = 1;
    for (size_t i = 0; i < CW_COUNT_OF(choices); i++)
        if (strcmp(on_error, choices[i]) == 0)
            r = json_object_set_new(p->root, "on_error", json_string(on_error)) < 0
                    ? cw_error_nomem(&e, 0, "on_error")
                    : 0;
    if (r == 1)
        r = cw_error_value(&e, CW_E_PIPELINE, "on_error", on_error, "one of raise, skip, replace",
                           "on_error is \"%.60s\": expected one of raise, skip, replace", on_error);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

int cachew_pipeline_check(const struct cachew_pipeline *p, struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cw_local l = {0};
    int r = cw_api_compile(p, &l, &e);
    cw_local_deinit(&l);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

char *cachew_pipeline_json(const struct cachew_pipeline *p)
{
    return json_dumps(p->root, JSON_INDENT(1));
}

char *cachew_operators_json(void)
{
    json_auto_t *table = cw_op_table_json(cw_ops());
    return table ? json_dumps(table, JSON_COMPACT) : NULL;
}

int cachew_load_plugin(const char *path, struct cachew_error **err)
{
    struct cw_error e = {0};
    int r = cw_plugin_load(path, &e);
    return r < 0 ? cw_api_fail(r, &e, err) : 0;
}

/* ---- schema ---- */

int cachew_pipeline_schema(const struct cachew_pipeline *p, struct cachew_schema **ret,
                           struct cachew_error **err)
{
    struct cw_error e = {0};
    struct cachew_schema *s = calloc(1, sizeof(*s));
    int r = s ? cw_api_compile(p, &s->local, &e) : cw_error_nomem(&e, sizeof(*s), "a schema");
    if (r < 0) {
        cachew_schema_free(s);
        return cw_api_fail(r, &e, err);
    }
    s->components = cw_delivered(s->local.compiled, &s->n);
    *ret = s;
    return 0;
}

void cachew_schema_free(struct cachew_schema *s)
{
    if (!s)
        return;
    cw_local_deinit(&s->local);
    free(s);
}

size_t cachew_schema_count(const struct cachew_schema *s)
{
    return s->n;
}

const char *cachew_schema_name(const struct cachew_schema *s, size_t i)
{
    return i < s->n ? s->components[i].name : NULL;
}

enum cachew_dtype cachew_schema_dtype(const struct cachew_schema *s, size_t i)
{
    return (enum cachew_dtype)(i < s->n ? (int)s->components[i].type.dtype : NO_DTYPE);
}

int cachew_schema_ndim(const struct cachew_schema *s, size_t i)
{
    return i < s->n ? s->components[i].type.ndim : CACHEW_VARIES;
}

int64_t cachew_schema_dim(const struct cachew_schema *s, size_t i, int k)
{
    if (i >= s->n)
        return CACHEW_VARIES;
    const struct cw_type *t = &s->components[i].type;
    return k >= 0 && k < t->ndim ? t->dims[k] : CACHEW_VARIES;
}

uint64_t cachew_schema_batch_size(const struct cachew_schema *s)
{
    const struct cw_compiled *c = s->local.compiled;
    return c->batcher ? c->batch_size : 0;
}
