/* map_batches: a Python function computes whole batches, in host processes. */
#include <stdio.h>
#include <string.h>

#include "ops/python/function.h"

static int map_batches_failed(const struct cw_function *f, const char *what, struct cw_error *err)
{
    cw_error_op(err, "map_batches");
    return cw_error_set(err, CW_E_RECORD, "map_batches: %s: %s", f->name, what);
}

struct call {
    struct cw_function_call base;
    const struct cw_op *op;
    const struct cw_batch *in;
    const uint64_t *key;
    struct cw_batch_result *ret;
};

static void map_batches_write_request(const struct cw_function_call *base, uint8_t *to)
{
    const struct call *c = (const struct call *)base;
    const struct cw_function *f = c->op->state;
    (void)cw_exchange_whole_write(c->in, c->key,
                                  f->deterministic && c->key[1] % CW_FUNCTION_CHECK_ONE_IN == 0, to);
}

/* Checks the host's answer and sets ret->columns, by port; they point into the host's memory. */
static int map_batches_take_answer(struct cw_function_call *base, const uint8_t *data, size_t size,
                                   struct cw_error *err)
{
    const struct call *c = (const struct call *)base;
    const struct cw_op *op = c->op;
    const struct cw_batch *in = c->in;
    struct cw_batch_result *ret = c->ret;
    const struct cw_function *f = op->state;
    struct cw_exchange_answer a;
    const char *why;
    if (!cw_exchange_read(data, size, in->n, op->n_out, false, &a, &why))
        return cw_error_set(
            err, CW_E_BUG,
            "map_batches: %s: the host process sent a malformed answer: %s; the cause is a defect of Cachew "
            "(please report it), or a function that overwrites memory that is not its own",
            f->name, why);
    json_t *errors;
    int r = cw_function_errors(op, &a, &errors, err);
    if (r < 0)
        return r;
    const char *text = json_string_value(json_array_get(json_array_get(errors, 0), 1));
    if (text && in->n && a.status[0] == CW_EXCHANGE_DIFFERS)
        snprintf(ret->note, sizeof(ret->note), "%s: %s", f->name, text);
    if (text && !*ret->note) {
        cw_error_detail(err, json_string_value(json_array_get(json_array_get(errors, 0), 2)));
        r = map_batches_failed(f, text, err);
    }
    json_decref(errors);
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        if (!cw_exchange_column_whole(&a, k, &op->out[k].type, &ret->columns[k], &ret->offsets[k]))
            r = cw_error_set(err, CW_E_BUG,
                             "map_batches: %s: the host process sent a malformed answer: the type or the "
                             "position of a component is wrong; the cause is a defect of Cachew (please "
                             "report it), or a function that overwrites memory that is not its own",
                             f->name);
    return r;
}

static int map_batches_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2],
                             int (*cancelled)(void *), void *cancel_arg, struct cw_batch_result *ret,
                             struct cw_error *err)
{
    const struct cw_function *f = op->state;
    struct call c = {
        .base = {.host = f->host, .write = map_batches_write_request, .take = map_batches_take_answer},
        .op = op,
        .in = in,
        .key = key,
        .ret = ret};
    struct cw_host_tries tries = {0};
    struct cw_host *h = NULL;
    char why[500];
    c.base.host.cancelled = cancelled;
    c.base.host.cancel_arg = cancel_arg;
    c.base.size = cw_exchange_whole_write(in, key, false, NULL);
    *ret = (struct cw_batch_result){0};
    int r = cw_function_insist(&c.base, &h, &tries, why, err);
    if (r == 0)
        ret->owner = h; /* the columns lie in the host's memory */
    else
        cw_host_release(h);
    return r == 1 ? map_batches_failed(f, why, err) : r;
}

static void map_batches_release(struct cw_batch_result *result)
{
    cw_host_release(CW_STEAL(result->owner));
}

static const struct cw_attr_def attrs[] = {CW_FUNCTION_ATTRS, CW_FUNCTION_OUTPUTS, {0}};

const struct cw_op_desc cw_op_map_batches = {
    .name = "map_batches",
    .summary = "replaces each batch by the result of a Python function",
    .doc = "`map_batches` must come after `batch` or `bucket_by_length`; only `map_batches`, `take`, `skip` "
           "and `repeat` may follow. The function gets a dict of arrays whose first dimension is the number "
           "of rows in the batch; bytes are an object with offsets and data. The function returns a dict of "
           "arrays, or of lists of bytes, with the same number of rows. Shapes in `outputs` are those of one "
           "element. If the function raises an exception, the run ends whatever `on_error` says, because the "
           "failure does not belong to one record.",
    .kind = CW_OP_BATCH_MAP,
    .effects.count = CW_COUNT_SAME,
    .function = true,
    .attrs = attrs,
    .bind = cw_function_bind,
    .batch = map_batches_batch,
    .batch_release = map_batches_release,
    .free_state = cw_function_free,
};
