/* The components that elements have where an operator is bound, by name. The path that is being compiled owns
 * them. */
#include "pipeline/bind.h"

#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/text.h"

void cw_bind_deinit(struct cw_bind *b)
{
    for (unsigned i = 0; i < b->n; i++)
        free(b->components[i].name);
    free(b->components);
    b->components = NULL;
    b->n = b->capacity = 0;
}

struct cw_component *cw_bind_find(const struct cw_bind *b, const char *name)
{
    for (unsigned i = 0; i < b->n; i++)
        if (strcmp(b->components[i].name, name) == 0)
            return &b->components[i];
    return NULL;
}

static bool bind_value_names(const json_t *value, const char *name)
{
    size_t i;
    json_t *item;
    if (json_is_string(value))
        return strcmp(json_string_value(value), name) == 0;
    json_array_foreach((json_t *)value, i, item) if (bind_value_names(item, name)) return true;
    return json_object_get(value, name) != NULL;
}

/* Returns the name of the attribute that contains a component's name. */
static const char *bind_attribute_naming(const struct cw_op *op, const char *name)
{
    for (const struct cw_attr_def *a = op->desc->attrs; a && a->name; a++)
        if ((a->kind == CW_ATTR_COMPONENT || a->kind == CW_ATTR_STRINGS || a->kind == CW_ATTR_OBJECT) &&
            bind_value_names(cw_attr_json(op, a->name), name))
            return a->name;
    return "component";
}

static int bind_unknown_component(const struct cw_bind *b, const char *name, struct cw_error *err)
{
    const char *names[128];
    size_t n = 0;
    struct cw_text list = {0};
    for (unsigned i = 0; i < b->n && n < CW_COUNT_OF(names); i++) {
        cw_text_add(&list, "%s%s", n ? ", " : "", b->components[i].name);
        names[n++] = b->components[i].name;
    }
    const char *near = cw_nearest(name, names, n), *op = b->op->desc->name;
    cw_error_op(err, op);
    cw_error_value(err, CW_E_PIPELINE, bind_attribute_naming(b->op, name), name,
                   list.data ? list.data : "none", "%s: there is no component \"%.80s\"%s%s%s; there are: %s",
                   op, name, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
                   list.data ? list.data : "none");
    cw_text_deinit(&list);
    return CW_E_PIPELINE;
}

int cw_bind_put(struct cw_bind *b, const char *name, unsigned value, const struct cw_type *type,
                struct cw_error *err)
{
    struct cw_component *c = cw_bind_find(b, name);
    if (c) {
        c->value = value;
        c->type = *type;
        return 0;
    }
    if (b->n == CW_MAX_COMPONENTS)
        return cw_error_set(err, CW_E_PIPELINE,
                            "component \"%.80s\" is one too many: expected at most %d components", name,
                            CW_MAX_COMPONENTS);
    if (CW_ARRAY_ROOM(b->components, b->capacity, b->n + (size_t)1, "components", err) < 0)
        return CW_E_MEMORY;
    char *copy = strdup(name);
    if (!copy)
        return cw_error_nomem(err, strlen(name), "a component");
    unsigned at = b->n++;
    while (at > 0 && strcmp(b->components[at - 1].name, name) > 0) {
        b->components[at] = b->components[at - 1];
        at--;
    }
    b->components[at] = (struct cw_component){.name = copy, .value = value, .type = *type};
    return 0;
}

static int bind_too_many_ports(const struct cw_bind *b, struct cw_error *err)
{
    cw_error_op(err, b->op->desc->name);
    return cw_error_set(err, CW_E_PIPELINE, "%s uses more than %d components", b->op->desc->name,
                        CW_OP_MAX_PORTS);
}

int cw_bind_read(struct cw_bind *b, const char *component, struct cw_type *ret_type, struct cw_error *err)
{
    const struct cw_component *c = cw_bind_find(b, component);
    if (!c)
        return bind_unknown_component(b, component, err);
    struct cw_op *op = b->op;
    if (ret_type)
        *ret_type = c->type;
    for (unsigned i = 0; i < op->n_in; i++)
        if (op->in[i].value == c->value)
            return (int)i;
    if (op->n_in == CW_OP_MAX_PORTS)
        return bind_too_many_ports(b, err);
    op->in[op->n_in] = (struct cw_port){
        .value = c->value, .name = cw_hash64(component, strlen(component)), .type = c->type, .live = true};
    return (int)op->n_in++;
}

int cw_bind_write(struct cw_bind *b, const char *component, const struct cw_type *type, struct cw_error *err)
{
    struct cw_op *op = b->op;
    if (op->n_out == CW_OP_MAX_PORTS)
        return bind_too_many_ports(b, err);
    unsigned value = b->next_value++;
    if (component) {
        int r = cw_bind_put(b, component, value, type, err);
        if (r < 0)
            return r;
    }
    op->out[op->n_out] = (struct cw_port){
        .value = value, .name = component ? cw_hash64(component, strlen(component)) : 0, .type = *type};
    return (int)op->n_out++;
}

int cw_bind_outputs(struct cw_bind *b, const struct cw_output_def *outputs, struct cw_error *err)
{
    int r = 0;
    for (; r >= 0 && outputs && outputs->name; outputs++) {
        struct cw_type type = cw_type_scalar(outputs->dtype);
        r = cw_bind_write(b, outputs->name, &type, err);
    }
    return CW_MIN(r, 0);
}

int cw_bind_remove(struct cw_bind *b, const char *component, struct cw_error *err)
{
    struct cw_component *c = cw_bind_find(b, component);
    if (!c)
        return bind_unknown_component(b, component, err);
    free(c->name);
    memmove(c, c + 1, (size_t)(b->components + b->n - (c + 1)) * sizeof(*c));
    b->n--;
    return 0;
}

int cw_bind_rename(struct cw_bind *b, const char *old_name, const char *new_name, struct cw_error *err)
{
    struct cw_component *c = cw_bind_find(b, old_name);
    if (!c)
        return bind_unknown_component(b, old_name, err);
    struct cw_component copy = *c;
    if (strcmp(old_name, new_name) == 0)
        return 0;
    int r = cw_bind_remove(b, old_name, err);
    if (r < 0)
        return r;
    return cw_bind_put(b, new_name, copy.value, &copy.type, err);
}

const struct cw_pipeline *cw_bind_pipeline(const struct cw_bind *b)
{
    return b->pipeline;
}

size_t cw_bind_count(const struct cw_bind *b)
{
    return b->n;
}

const char *cw_bind_name(const struct cw_bind *b, size_t i, struct cw_type *ret_type)
{
    if (ret_type)
        *ret_type = b->components[i].type;
    return b->components[i].name;
}

const struct cw_op *cw_bind_next(const struct cw_bind *b)
{
    return b->next;
}
