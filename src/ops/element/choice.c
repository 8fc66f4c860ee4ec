/* Binds lists of operators, and runs each list on the rows of a block that chose it. */
#include "ops/element/choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/table.h"
#include "pipeline/bind.h"

/* The values of a list are the components that arrive, in byte order of their names, and then those that its
 * operators make. */
struct choice_list {
    struct cw_op **ops;
    unsigned n_ops;
    unsigned n_values;
    struct cw_component *components; /* at the end of the list, in byte order of their names */
    unsigned n_components;
    unsigned out[CW_OP_MAX_PORTS]; /* by output of the operator: the value that gives it */
    double upto;                   /* the list is chosen by draws below this number, and not below that of the
                                      list before it */
};

struct choice {
    unsigned n, n_ops;            /* lists; operators of all lists */
    unsigned in[CW_OP_MAX_PORTS]; /* by input of the operator: the value of a list */
    struct choice_list lists[];
};

static void choice_list_free(struct choice_list *l)
{
    for (unsigned i = 0; i < l->n_ops; i++) {
        json_decref((json_t *)l->ops[i]->attrs);
        cw_op_free(l->ops[i]);
    }
    free(l->ops);
    for (unsigned i = 0; i < l->n_components; i++)
        free(l->components[i].name);
    free(l->components);
}

void cw_choice_free(void *state)
{
    struct choice *c = state;
    for (unsigned k = 0; c && k < c->n; k++)
        choice_list_free(&c->lists[k]);
    free(c);
}

/* ---- bind ---- */

static int choice_refuse(const struct cw_op *op, const char *attribute, const char *name, const char *why,
                         struct cw_error *err)
{
    cw_error_op(err, op->desc->name);
    return cw_error_value(err, CW_E_PIPELINE, attribute, name,
                          "operators that compute an element from itself, without files and functions",
                          "%s: %s: \"%.60s\" %s: expected operators that compute an element from itself, "
                          "without files and functions",
                          op->desc->name, attribute, name, why);
}

/* Returns why an operator can't be part of a list; NULL: it can. */
static const char *choice_unfit(const struct cw_op_desc *desc)
{
    if (desc->kind != CW_OP_MAP || desc->effects.count != CW_COUNT_SAME || desc->effects.state ||
        desc->cache_point)
        return "works on more than one element, or drops elements";
    if (desc->function || desc->ends_process)
        return "calls a function";
    for (const struct cw_attr_def *a = desc->attrs; a && a->name; a++)
        if (a->path)
            return "reads files";
    return NULL;
}

/* Binds one operator of a list to the list's components. */
static int choice_bind_op(struct choice *c, struct choice_list *l, struct cw_bind *sub,
                          const struct cw_op *outer, const char *attribute, const json_t *object,
                          struct cw_error *err)
{
    const char *name = json_string_value(json_object_get(object, "op"));
    const struct cw_op_desc *desc = name ? cw_op_find(cw_ops(), name) : NULL;
    if (!desc)
        return choice_refuse(outer, attribute, name ? name : "?", "is no operator", err);
    const char *unfit = choice_unfit(desc);
    if (unfit)
        return choice_refuse(outer, attribute, name, unfit, err);
    json_t *attrs;
    int r = cw_attrs_check(desc, object, &attrs, err);
    if (r < 0)
        return r;
    struct cw_op *op = calloc(1, sizeof(*op));
    if (!op) {
        json_decref(attrs);
        return cw_error_nomem(err, sizeof(*op), "an operator");
    }
    *op = (struct cw_op){.desc = desc, .attrs = attrs, .index = c->n_ops++, .live = true};
    l->ops[l->n_ops++] = op;
    sub->op = op;
    r = cw_bind_outputs(sub, desc->outputs, err);
    if (r >= 0 && desc->bind)
        r = desc->bind(sub, op, err);
    if (r < 0)
        cw_error_op(err, desc->name);
    for (unsigned p = 0; p < op->n_out; p++)
        op->out[p].live = true;
    return r;
}

static int choice_bind_list(struct choice *c, struct choice_list *l, const struct cw_bind *b,
                            const struct cw_op *op, const char *attribute, const json_t *list,
                            struct cw_error *err)
{
    struct cw_bind sub = {.pipeline = cw_bind_pipeline(b)};
    size_t n = cw_bind_count(b), i;
    const json_t *object;
    int r = 0;
    l->ops = calloc(json_array_size(list) + 1, sizeof(struct cw_op *));
    if (!l->ops)
        return cw_error_nomem(err, 0, "operators");
    for (i = 0; i < n && r >= 0; i++) {
        struct cw_type type;
        const char *name = cw_bind_name(b, i, &type);
        r = cw_bind_put(&sub, name, (unsigned)i, &type, err);
    }
    sub.next_value = (unsigned)n;
    for (i = 0; i < json_array_size(list) && r >= 0; i++) {
        object = json_array_get(list, i);
        r = choice_bind_op(c, l, &sub, op, attribute, object, err);
    }
    l->n_values = sub.next_value;
    l->components = CW_STEAL(sub.components);
    l->n_components = sub.n;
    return r < 0 ? r : 0;
}

/* Checks that all lists end with the same components, and sets *ret to the type of component i. */
static int choice_merge(const struct choice *c, const struct cw_op *op, const char *attribute, unsigned i,
                        struct cw_type *ret, struct cw_error *err)
{
    const struct cw_component *first = &c->lists[0].components[i];
    char left[160], right[160];
    *ret = first->type;
    for (unsigned k = 1; k < c->n; k++) {
        const struct cw_component *other = &c->lists[k].components[i];
        if (cw_type_merge(ret, &other->type) < 0)
            return cw_attr_error(op, attribute, err, "one dtype of \"%s\", but it is %s or %s", first->name,
                                 cw_type_print(&first->type, left), cw_type_print(&other->type, right));
    }
    return 0;
}

static int choice_same_names(const struct choice *c, const struct cw_op *op, const char *attribute,
                             struct cw_error *err)
{
    const struct choice_list *a = &c->lists[0];
    for (unsigned k = 1; k < c->n; k++) {
        const struct choice_list *l = &c->lists[k];
        for (unsigned i = 0; i < CW_MAX(a->n_components, l->n_components); i++) {
            const char *x = i < a->n_components ? a->components[i].name : NULL,
                       *y = i < l->n_components ? l->components[i].name : NULL;
            if (!x || !y || strcmp(x, y) != 0)
                return cw_attr_error(op, attribute, err,
                                     "the same components after each list, but \"%s\" is not after all",
                                     !x                 ? y
                                     : !y               ? x
                                     : strcmp(x, y) < 0 ? x
                                                        : y);
        }
    }
    return 0;
}

/* Whether a value that arrives is read by an operator of a list, or becomes another component. */
static bool choice_reads(const struct choice *c, unsigned value, const char *name)
{
    for (unsigned k = 0; k < c->n; k++) {
        const struct choice_list *l = &c->lists[k];
        for (unsigned i = 0; i < l->n_ops; i++)
            for (unsigned p = 0; p < l->ops[i]->n_in; p++)
                if (l->ops[i]->in[p].value == value)
                    return true;
        for (unsigned i = 0; i < l->n_components; i++)
            if (l->components[i].value == value && strcmp(l->components[i].name, name) != 0)
                return true;
    }
    return false;
}

/* Whether component i of the lists' ends differs from the one that arrives in at least one list. */
static bool choice_changes(const struct choice *c, unsigned i, const struct cw_bind *b)
{
    const char *name = c->lists[0].components[i].name;
    for (unsigned k = 0; k < c->n; k++) {
        unsigned value = c->lists[k].components[i].value;
        if (value >= cw_bind_count(b) || strcmp(cw_bind_name(b, value, NULL), name) != 0)
            return true;
    }
    return false;
}

/* Declares what the lists read, and what they change. */
static int choice_bind_ports(struct choice *c, struct cw_bind *b, struct cw_op *op, const char *attribute,
                             struct cw_error *err)
{
    const struct choice_list *a = &c->lists[0];
    bool changed[CW_MAX_COMPONENTS], removed[CW_MAX_COMPONENTS];
    unsigned n = (unsigned)cw_bind_count(b);
    int r = choice_same_names(c, op, attribute, err);
    for (unsigned i = 0; i < a->n_components; i++)
        changed[i] = r >= 0 && choice_changes(c, i, b);
    for (unsigned v = 0; v < n && r >= 0; v++) {
        const char *name = cw_bind_name(b, v, NULL);
        bool becomes = false;
        removed[v] = true;
        for (unsigned i = 0; i < a->n_components; i++)
            if (strcmp(a->components[i].name, name) == 0) {
                removed[v] = false;
                for (unsigned k = 0; k < c->n; k++)
                    becomes |= changed[i] && c->lists[k].components[i].value == v;
            }
        if (!becomes && !choice_reads(c, v, name))
            continue;
        r = cw_bind_read(b, name, NULL, err);
        if (r >= 0)
            c->in[r] = v;
    }
    for (unsigned v = n; v-- > 0 && r >= 0;)
        r = removed[v] ? cw_bind_remove(b, cw_bind_name(b, v, NULL), err) : r;
    for (unsigned i = 0; i < a->n_components && r >= 0; i++) {
        struct cw_type type;
        if (!changed[i])
            continue;
        for (unsigned k = 0; k < c->n; k++)
            c->lists[k].out[op->n_out] = c->lists[k].components[i].value;
        r = choice_merge(c, op, attribute, i, &type, err);
        if (r >= 0)
            r = cw_bind_write(b, a->components[i].name, &type, err);
    }
    return CW_MIN(r, 0);
}

int cw_choice_bind(struct cw_bind *b, struct cw_op *op, const char *attribute, const json_t *const *lists,
                   const double *weights, size_t n, struct cw_error *err)
{
    double sum = 0, upto = 0;
    struct choice *c = op->state = calloc(1, sizeof(*c) + n * sizeof(c->lists[0]));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), op->desc->name);
    for (size_t k = 0; k < n; k++)
        sum += weights[k];
    for (size_t k = 0; k < n; k++) {
        c->n = (unsigned)k + 1;
        upto += weights[k];
        c->lists[k].upto = upto / sum;
        int r = choice_bind_list(c, &c->lists[k], b, op, attribute, lists[k], err);
        if (r < 0)
            return r;
    }
    return choice_bind_ports(c, b, op, attribute, err);
}

/* ---- run ---- */

/* Makes the block of the n rows that chose a list. */
static int choice_begin(const struct choice *c, const struct choice_list *l, const struct cw_op *op,
                        const struct cw_block *b, const uint32_t *rows, size_t n, struct cw_block *ret,
                        struct cw_error *err)
{
    struct cw_arena *arena = b->arena;
    uint64_t *eids = cw_arena_alloc(arena, n * sizeof(*eids), err),
             *source_rows = eids ? cw_arena_alloc(arena, n * sizeof(*source_rows), err) : NULL,
             *keys = source_rows ? cw_arena_alloc(arena, c->n_ops * sizeof(*keys), err) : NULL;
    *ret = (struct cw_block){.n = n,
                             .all_ok = true,
                             .n_values = l->n_values,
                             .eids = eids,
                             .rows = source_rows,
                             .keys = keys,
                             .arena = arena,
                             .cancelled = b->cancelled,
                             .cancel_arg = b->cancel_arg};
    ret->status = keys ? cw_arena_alloc(arena, n, err) : NULL;
    ret->columns = ret->status ? cw_arena_alloc(arena, l->n_values * sizeof(*ret->columns), err) : NULL;
    if (!ret->columns)
        return err->status;
    memset(ret->status, CW_ROW_OK, n);
    memset(ret->columns, 0, l->n_values * sizeof(*ret->columns));
    for (size_t i = 0; i < n; i++) {
        eids[i] = b->eids[rows[i]];
        source_rows[i] = b->rows[rows[i]];
    }
    for (unsigned j = 0; j < c->n_ops; j++) {
        uint32_t word[4];
        cw_philox(b->keys[op->index], (const uint32_t[4]){j, 0, 0, 1}, word);
        keys[j] = word[0] | (uint64_t)word[1] << 32;
    }
    for (unsigned p = 0; p < op->n_in; p++) {
        int r = cw_block_ragged(ret, c->in[p], err);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++)
            ret->columns[c->in[p]].rows[i] = cw_in(op, b, p, rows[i]);
    }
    return 0;
}

/* Takes the faults and the results of a list's rows. */
static int choice_end(const struct choice_list *l, const struct cw_op *op, struct cw_block *b,
                      const uint32_t *rows, struct cw_block *from, struct cw_error *err)
{
    for (size_t i = 0; i < from->n; i++)
        if (from->status[i] != CW_ROW_OK) {
            b->status[rows[i]] = from->status[i];
            b->all_ok = false;
        }
    struct cw_fault **last = &from->faults;
    for (; *last; last = &(*last)->next)
        (*last)->row = rows[(*last)->row];
    *last = b->faults;
    b->faults = from->faults;
    for (unsigned q = 0; q < op->n_out; q++)
        CW_ROWS_OK(i, from, op->out[q].live)
        {
            struct cw_tensor t = cw_block_row(from, l->out[q], i);
            struct cw_column *to = &b->columns[op->out[q].value];
            if (to->dense && t.size != to->stride)
                return cw_error_set(err, CW_E_BUG, "%s: %zu bytes of %zu", op->desc->name, t.size,
                                    to->stride);
            if (to->dense)
                memcpy(to->data + rows[i] * to->stride, t.data, t.size);
            else
                to->rows[rows[i]] = t;
        }
    return 0;
}

static int choice_run_list(const struct cw_op *op, const struct choice_list *l, struct cw_block *b,
                           const uint32_t *rows, size_t n, struct cw_error *err)
{
    struct cw_block part;
    int r = choice_begin(op->state, l, op, b, rows, n, &part, err);
    for (unsigned i = 0; i < l->n_ops && r >= 0; i++)
        if (l->ops[i]->desc->run)
            r = l->ops[i]->desc->run(l->ops[i], &part, err);
    return r < 0 ? r : choice_end(l, op, b, rows, &part, err);
}

int cw_choice_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    const struct choice *c = op->state;
    int r = 0;
    uint32_t *rows = cw_block_alloc(b, b->n * sizeof(*rows), err);
    uint32_t *chosen = rows ? cw_block_alloc(b, b->n * sizeof(*chosen), err) : NULL;
    if (!chosen)
        return err->status;
    for (unsigned q = 0; q < op->n_out && r >= 0; q++)
        if (op->out[q].live)
            r = cw_block_column(b, op->out[q].value, &op->out[q].type, err);
    CW_ROWS_OK(row, b, true)
    {
        uint32_t word[4];
        cw_block_draw(b, op->index, row, 0, word);
        chosen[row] = 0;
        while (chosen[row] + 1 < c->n && !(cw_uniform(word[0]) < c->lists[chosen[row]].upto))
            chosen[row]++;
    }
    for (unsigned k = 0; k < c->n && r >= 0; k++) {
        size_t n = 0;
        CW_ROWS_OK(row, b, true)
        if (chosen[row] == k)
            rows[n++] = (uint32_t)row;
        if (n)
            r = choice_run_list(op, &c->lists[k], b, rows, n, err);
    }
    return r;
}
