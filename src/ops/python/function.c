/* Calls Python functions in host processes: writes requests, reads answers, repeats calls, and reports errors
 * by row. Called by compute threads. */
#include "ops/python/function.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "pipeline/pipeline.h"

/* Elements of an async function that are computed at the same time, at most, if the number is found. */
#define TOGETHER_MOST 256u
/* If the number is given, the elements of a call, as a multiple of it. */
#define CALL_AS_MANY 4u

/* ---- binding ---- */

/* The kind of call in the spec that a host gets, by the kind of operator. */
static const char *const kind_names[] = {[CW_OP_MAP] = "map",
                                         [CW_OP_FILTER] = "filter",
                                         [CW_OP_FLAT_MAP] = "flat_map",
                                         [CW_OP_BATCH_MAP] = "map_batches",
                                         [CW_OP_SOURCE] = "iterate"};

void cw_function_free(void *state)
{
    struct cw_function *f = state;
    if (!f)
        return;
    free((void *)f->host.spec);
    free(f->in);
    free(f);
}

static json_t *function_shape_json(const struct cw_type *type)
{
    if (type->ndim < 0)
        return json_null();
    json_t *shape = json_array();
    for (int i = 0; i < type->ndim; i++)
        json_array_append_new(shape, type->dims[i] == CW_VARIES ? json_null() : json_integer(type->dims[i]));
    return shape;
}

/* def: what None stands for in a result; NULL: nothing */
static json_t *function_component_json(const char *name, const struct cw_type *type, json_t *def)
{
    return json_pack("{s:s, s:s, s:o, s:O*}", "name", name, "dtype", cw_dtype_name(type->dtype), "shape",
                     function_shape_json(type), "default", def);
}

static int function_parse_shape(const json_t *v, struct cw_type *type)
{
    size_t n = json_array_size(v);
    if (json_is_null(v)) {
        type->ndim = -1;
        return 0;
    }
    if (!json_is_array(v) || n > CW_MAX_NDIM)
        return -1;
    type->ndim = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_null(d) &&
            (!json_is_integer(d) || json_integer_value(d) < 0 || json_integer_value(d) > (json_int_t)1 << 40))
            return -1;
        type->dims[i] = json_is_null(d) ? CW_VARIES : json_integer_value(d);
    }
    return 0;
}

/* Whether the default can be a value of the dtype. JSON has no NaN: it is a text. */
static bool function_default_fits(const json_t *def, enum cw_dtype dtype)
{
    if (dtype == CW_BYTES)
        return json_is_string(def);
    if (dtype == CW_BOOL)
        return json_is_boolean(def);
    return json_is_number(def) ||
           (cw_dtype_is_float(dtype) && json_is_string(def) && !strcmp(json_string_value(def), "nan"));
}

/* Reads the attribute `outputs` and declares the outputs, in the order of op->out. */
static int function_bind_outputs(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    static const char expected[] = "an object of 1 to 64 components {\"dtype\": ..., \"shape\": [...]}";
    const json_t *outputs = cw_attr_json(op, "outputs"), *value;
    const char *name, *field;
    json_t *fact;
    if (json_object_size(outputs) == 0 || json_object_size(outputs) > CW_OP_MAX_PORTS)
        return cw_attr_error(op, "outputs", err, "%s", expected);
    json_object_foreach((json_t *)outputs, name, value)
    {
        struct cw_type type = {0};
        const json_t *shape = json_object_get(value, "shape");
        if (!*name || strlen(name) >= 256 || !json_is_object(value) ||
            !json_is_string(json_object_get(value, "dtype")))
            return cw_attr_error(op, "outputs", err, "for \"%.60s\" {\"dtype\": ..., \"shape\": [...]}",
                                 name);
        if (cw_dtype_parse(json_string_value(json_object_get(value, "dtype")), &type.dtype) < 0)
            return cw_attr_error(op, "outputs", err,
                                 "for \"%.60s\" a dtype (bytes, bool, uint8 .. uint64, int8 .. int64, "
                                 "float16, bfloat16, float32, float64)",
                                 name);
        json_object_foreach((json_t *)value, field, fact)
        {
            if (strcmp(field, "dtype") != 0 && strcmp(field, "shape") != 0 && strcmp(field, "default") != 0)
                return cw_attr_error(op, "outputs", err, "for \"%.60s\" dtype, shape and default only", name);
        }
        if (shape && function_parse_shape(shape, &type) < 0)
            return cw_attr_error(op, "outputs", err,
                                 "for \"%.60s\" a shape of at most %d dimensions, null for one that varies",
                                 name, CW_MAX_NDIM);
        if (type.dtype == CW_BYTES && type.ndim != 0)
            return cw_attr_error(op, "outputs", err, "for \"%.60s\" no shape, because it is bytes", name);
        fact = json_object_get(value, "default");
        if (fact && !function_default_fits(fact, type.dtype))
            return cw_attr_error(op, "outputs", err, "for \"%.60s\" a default of dtype %s", name,
                                 cw_dtype_name(type.dtype));
        int r = cw_bind_write(b, name, &type, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Makes the spec of the function, JSON that hosts get. The outputs have been bound. */
static int function_make_spec(const struct cw_op *op, struct cw_function *f, const json_t *inputs,
                              struct cw_error *err)
{
    const json_t *function = cw_attr_json(op, "function"), *outputs = cw_attr_json(op, "outputs"), *value;
    json_t *list = json_array(), *path = json_object_get(function, "path"),
           *modules = json_object_get(function, "modules");
    const char *name;
    unsigned n_out = 0;
    json_object_foreach((json_t *)outputs, name, value)
    {
        json_array_append_new(
            list, function_component_json(name, &op->out[n_out++].type, json_object_get(value, "default")));
    }
    json_auto_t *spec = json_pack(
        "{s:s, s:s, s:O, s:O, s:O, s:b, s:b, s:b, s:i, s:O, s:o}", "kind", kind_names[op->desc->kind], "name",
        f->name, "payload", json_object_get(function, "payload"), "modules", modules ? modules : json_null(),
        "path", path ? path : json_null(), "rng", f->rng, "details", f->details, "async", f->async,
        "concurrency", (int)(op->together ? cw_attr_int(op, "concurrency") : 0), "inputs", inputs, "outputs",
        list);
    f->host.spec = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    if (!f->host.spec)
        return cw_error_nomem(err, 0, "a function");
    f->host.id = cw_hash64(f->host.spec, strlen(f->host.spec));
    const char *identity = json_string_value(json_object_get(function, "identity"));
    f->host.identity = cw_hash64(identity, strlen(identity));
    return 0;
}

int cw_function_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const json_t *function = cw_attr_json(op, "function");
    struct cw_function *f = op->state = calloc(1, sizeof(*f)); /* the caller frees it, also after an error */
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "a function");
    f->name = json_string_value(json_object_get(function, "name"));
    f->rng = json_is_true(json_object_get(function, "rng"));
    f->async = json_is_true(json_object_get(function, "async"));
    f->details = cw_bind_pipeline(b)->on_error != CW_ON_ERROR_SKIP;
    if (f->async && op->desc->kind != CW_OP_BATCH_MAP && op->desc->kind != CW_OP_SOURCE) {
        unsigned given = (unsigned)cw_attr_int(op, "concurrency");
        /* with a number given, calls are longer, so that the number is reached most of the time */
        op->together = given ? CALL_AS_MANY * given : TOGETHER_MOST;
    }
    f->deterministic = cw_attr_bool(op, "deterministic");
    f->host = (struct cw_host_function){.noun = "function",
                                        .name = f->name,
                                        .together = op->together > 0,
                                        .timeout_ns = (uint64_t)(cw_attr_float(op, "timeout_s") * 1e9),
                                        .memory = (uint64_t)cw_attr_int(op, "host_memory"),
                                        .pipeline = cw_bind_pipeline(b)->functions,
                                        .n_pipeline = cw_bind_pipeline(b)->n_functions};
    f->in = calloc(cw_bind_count(b) + 1, sizeof(*f->in));
    json_auto_t *inputs = json_array();
    int r = f->in && inputs ? 0 : cw_error_nomem(err, 0, "a function");
    for (size_t i = 0; r >= 0 && i < cw_bind_count(b); i++) {
        const char *name = cw_bind_name(b, i, NULL);
        struct cw_type type;
        int port = cw_bind_read(b, name, &type, err);
        if (port < 0) {
            r = port;
            break;
        }
        json_array_append_new(inputs, function_component_json(name, &type, NULL));
        /* a port number; replaced below by the port's type and value number, once all ports exist */
        f->in[f->n_in++].value = (unsigned)port;
    }
    for (unsigned i = 0; i < f->n_in; i++) {
        const struct cw_port *port = &op->in[f->in[i].value];
        f->in[i] = (struct cw_exchange_column){.type = &port->type, .value = port->value};
    }
    bool filter = op->desc->kind == CW_OP_FILTER;
    while (r >= 0 && !filter && cw_bind_count(b) > 0)
        r = cw_bind_remove(b, cw_bind_name(b, 0, NULL), err);
    if (r >= 0 && !filter)
        r = function_bind_outputs(b, op, err);
    return r < 0 ? r : function_make_spec(op, f, inputs, err);
}

/* ---- running ---- */

int cw_function_call(struct cw_function_call *c, struct cw_host **host, struct cw_host_death *death,
                     struct cw_error *err)
{
    const uint8_t *answer;
    uint8_t *to;
    size_t size;
    if (*host && !cw_host_alive(*host)) /* it used too much memory and was ended after its last answer */
        cw_host_release(CW_STEAL(*host));
    int r = *host ? 0 : cw_host_acquire(&c->host, host, err);
    if (r < 0)
        return r;
    r = cw_host_input(*host, c->size, &to, err);
    if (r >= 0) {
        c->write(c, to);
        r = cw_host_call(*host, &c->host, c->size, &answer, &size, death, err);
    }
    if (r == 0)
        r = c->take(c, answer, size, err);
    if (r != 0 && !cw_host_alive(*host))
        cw_host_release(CW_STEAL(*host));
    return r;
}

int cw_function_insist(struct cw_function_call *c, struct cw_host **host, struct cw_host_tries *tries,
                       char ret_why[500], struct cw_error *err)
{
    struct cw_host_death death;
    int r;
    while ((r = cw_function_call(c, host, &death, err)) == 1)
        if (cw_host_give_up(tries, &death)) {
            if (death.killed) /* killed from outside: not the fault of the function */
                return cw_error_set(
                    err, CW_E_MEMORY,
                    "%s: its host process %s (%u attempts): the kernel kills processes when memory is short",
                    c->host.name, death.reason, cw_host_tried(tries));
            snprintf(ret_why, 500, "its host process %s (%u attempts)", death.reason, cw_host_tried(tries));
            return 1;
        }
    return r;
}

struct run {
    struct cw_function_call call;
    const struct cw_op *op;
    const struct cw_function *f;
    struct cw_block *block;
    cw_function_row take_row;
    void *arg;
    struct cw_host *process; /* the host of this run; NULL: none yet, or the last one died */
    uint64_t *keys;          /* two per row: the key and the element id; room for all rows */
    uint8_t *check;
    struct cw_exchange_request request;
};

int cw_function_errors(const struct cw_op *op, const struct cw_exchange_answer *a, json_t **ret,
                       struct cw_error *err)
{
    *ret = a->errors_size ? json_loadb(a->errors, a->errors_size, 0, NULL) : NULL;
    if (!a->errors_size || json_is_array(*ret))
        return 0;
    json_decref(*ret);
    *ret = NULL;
    return cw_error_set(
        err, CW_E_BUG,
        "%s: %s: the host process sent a malformed answer: its list of errors is not JSON; the cause is a "
        "defect of Cachew (please report it), or a function that overwrites memory that is not its own",
        op->desc->name, ((const struct cw_function *)op->state)->name);
}

int cw_function_value(const struct cw_op *op, const struct cw_exchange_answer *a, unsigned k, size_t row,
                      struct cw_tensor *ret, struct cw_error *err)
{
    if (cw_exchange_row(a, k, &op->out[k].type, row, ret))
        return 0;
    return cw_error_set(err, CW_E_BUG,
                        "%s: %s: the host process sent a malformed answer: the type or the position of a "
                        "component is wrong; the cause is a defect of Cachew (please report it), or a "
                        "function that overwrites memory that is not its own",
                        op->desc->name, ((const struct cw_function *)op->state)->name);
}

/* Fails the rows for which the answer has an error message, and notes the rows whose second computation gave
 * another result. */
static int function_take_errors(struct run *x, const struct cw_exchange_answer *a, const uint32_t *rows,
                                size_t n, struct cw_error *err)
{
    json_t *list = NULL, *entry;
    size_t i;
    int r = cw_function_errors(x->op, a, &list, err);
    json_array_foreach(list, i, entry)
    {
        json_int_t row = json_integer_value(json_array_get(entry, 0));
        const char *text = json_string_value(json_array_get(entry, 1));
        if (row < 0 || (size_t)row >= n || !text)
            continue;
        if (a->status[row] == CW_EXCHANGE_DIFFERS)
            cw_block_note(x->block, rows[row], x->op->desc->name, "%s: %s", x->f->name, text);
        else if (x->block->status[rows[row]] == CW_ROW_OK)
            cw_block_fail(x->block, rows[row], x->op->desc->name, "%s: %s", x->f->name, text);
        else
            continue;
        cw_block_detail(x->block, json_string_value(json_array_get(entry, 2)));
    }
    json_decref(list);
    return r;
}

static int function_take_answer(struct cw_function_call *c, const uint8_t *data, size_t size,
                                struct cw_error *err)
{
    struct run *x = (struct run *)c;
    const uint32_t *rows = x->request.rows;
    size_t n = x->request.n;
    struct cw_exchange_answer a;
    const char *why;
    unsigned n_out = x->op->desc->kind == CW_OP_FILTER ? 0 : x->op->n_out;
    size_t first = 0;
    if (!cw_exchange_read(data, size, n, n_out, x->op->desc->kind == CW_OP_FLAT_MAP, &a, &why))
        return cw_error_set(
            err, CW_E_BUG,
            "%s: %s: the host process sent a malformed answer: %s; the cause is a defect of Cachew (please "
            "report it), or a function that overwrites memory that is not its own",
            x->op->desc->name, x->f->name, why);
    int r = function_take_errors(x, &a, rows, n, err);
    for (size_t i = 0; i < n && r >= 0; i++) {
        uint8_t status = a.status[i];
        uint32_t elements = a.counts ? a.counts[i] : 1;
        if (status > CW_EXCHANGE_DIFFERS)
            return cw_error_set(err, CW_E_BUG,
                                "%s: %s: the host process sent a malformed answer: an element has the "
                                "unknown status %u; the cause is a defect of Cachew (please report it), or a "
                                "function that overwrites memory that is not its own",
                                x->op->desc->name, x->f->name, status);
        if (x->block->status[rows[i]] == CW_ROW_OK && status == CW_EXCHANGE_FAILED)
            cw_block_fail(x->block, rows[i], x->op->desc->name, "%s failed", x->f->name);
        if (elements > a.n || first > a.n - elements)
            return cw_error_set(err, CW_E_BUG,
                                "%s: %s: the host process sent a malformed answer: it announces more "
                                "elements than it contains; the cause is a defect of Cachew (please report "
                                "it), or a function that overwrites memory that is not its own",
                                x->op->desc->name, x->f->name);
        if (x->block->status[rows[i]] == CW_ROW_OK) {
            r = x->take_row(x->arg, x->op, x->block, &a, rows[i], a.counts ? first : i, elements,
                            status != CW_EXCHANGE_DROPPED, err);
        }
        first += elements;
    }
    return r;
}

static void function_write_request(const struct cw_function_call *c, uint8_t *to)
{
    (void)cw_exchange_write(&((const struct run *)c)->request, to);
}

/* Fills in the next request, for these rows. */
static void function_set_request(struct run *x, const uint32_t *rows, size_t n)
{
    const struct cw_block *b = x->block;
    for (size_t i = 0; i < n; i++) {
        x->keys[2 * i] = b->keys[x->op->index];
        x->keys[2 * i + 1] = b->eids[rows[i]];
        x->check[i] = x->f->deterministic && b->eids[rows[i]] % CW_FUNCTION_CHECK_ONE_IN == 0;
    }
    x->request = (struct cw_exchange_request){.block = b,
                                              .columns = x->f->in,
                                              .n_columns = x->f->n_in,
                                              .rows = rows,
                                              .n = n,
                                              .keys = x->f->rng ? x->keys : NULL,
                                              .check = x->check};
    x->call.size = cw_exchange_write(&x->request, NULL);
}

/* Computes a row at which a host died, alone, with further attempts, each in a fresh host. Fails the row if
 * hosts die too often. */
static int function_run_alone(struct run *x, uint32_t row, const struct cw_host_death *death,
                              struct cw_error *err)
{
    struct cw_host_tries tries = {0};
    char why[500];
    (void)cw_host_give_up(&tries, death); /* counts the first death, which is never enough to give up */
    function_set_request(x, &row, 1);
    int r = cw_function_insist(&x->call, &x->process, &tries, why, err);
    if (r == 1)
        cw_block_fail(x->block, row, x->op->desc->name, "%s: %s", x->f->name, why);
    return r < 0 ? r : 0;
}

static int function_run_rows(struct run *x, const uint32_t *rows, size_t n, struct cw_error *err);

/* Computes the first half of the rows, and passes over them. */
static int function_run_half(struct run *x, const uint32_t **rows, size_t *n, struct cw_error *err)
{
    size_t half = *n / 2;
    int r = function_run_rows(x, *rows, half, err);
    *rows += half;
    *n -= half;
    return r;
}

static int function_run_rows(struct run *x, const uint32_t *rows, size_t n, struct cw_error *err)
{
    while (n > 0) {
        struct cw_host_death death;
        function_set_request(x, rows, n);
        int r = cw_function_call(&x->call, &x->process, &death, err);
        if (r <= 0)
            return r;
        bool together = x->op->together && n > 1;
        if (together && !death.hung) { /* any of the rows may be the reason */
            r = function_run_half(x, &rows, &n, err);
            if (r < 0)
                return r;
            continue;
        }
        /* The answer is written at the end of a call, so the rows before the one at which the host died are
         * computed again. */
        size_t at = death.progress < n ? death.progress : 0;
        r = function_run_rows(x, rows, at, err);
        if (r >= 0)
            r = function_run_alone(x, rows[at], &death, err);
        bool innocent = x->block->status[rows[at]] != CW_ROW_FAILED;
        rows += at + 1;
        n -= at + 1;
        /* another row keeps the event loop: calls of fewer rows find it */
        if (r >= 0 && together && innocent)
            r = function_run_half(x, &rows, &n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int cw_function_run(const struct cw_op *op, struct cw_block *block, cw_function_row take_row, void *arg,
                    struct cw_error *err)
{
    struct run x = {.op = op, .f = op->state, .block = block, .take_row = take_row, .arg = arg};
    x.call = (struct cw_function_call){
        .host = x.f->host, .write = function_write_request, .take = function_take_answer};
    uint32_t *rows = cw_block_alloc(block, block->n * sizeof(*rows), err);
    size_t n = 0;
    if (!rows)
        return err ? err->status : CW_E_MEMORY;
    CW_ROWS_OK(i, block, true)
    rows[n++] = (uint32_t)i;
    x.keys = cw_block_alloc(block, (2 * n + 1) * sizeof(*x.keys), err);
    x.check = cw_block_alloc(block, n + 1, err);
    if (!x.keys || !x.check)
        return err ? err->status : CW_E_MEMORY;
    x.call.host.cancelled = block->cancelled;
    x.call.host.cancel_arg = block->cancel_arg;
    int r = function_run_rows(&x, rows, n, err);
    cw_host_release(x.process);
    return r;
}

static int function_map_row(void *arg CW_UNUSED, const struct cw_op *op, struct cw_block *b,
                            const struct cw_exchange_answer *a, size_t row, size_t first,
                            uint32_t elements CW_UNUSED, bool kept CW_UNUSED, struct cw_error *err)
{
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct cw_port *port = &op->out[k];
        struct cw_tensor t;
        if (!port->live)
            continue;
        int r = cw_function_value(op, a, k, first, &t, err);
        if (r < 0)
            return r;
        struct cw_column *c = &b->columns[port->value];
        if (!c->dense) {
            struct cw_tensor *to = &c->rows[row];
            *to = t;
            to->data = cw_block_alloc(b, t.size, err);
            if (!to->data)
                return err ? err->status : CW_E_MEMORY;
        }
        if (t.size)
            memcpy(c->dense ? c->data + row * c->stride : c->rows[row].data, t.data, t.size);
    }
    return 0;
}

int cw_function_map_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    for (unsigned k = 0; k < op->n_out; k++) {
        const struct cw_port *port = &op->out[k];
        int r = !port->live ? 0 : cw_block_column(b, port->value, &port->type, err);
        if (r < 0)
            return r;
    }
    return cw_function_run(op, b, function_map_row, NULL, err);
}
