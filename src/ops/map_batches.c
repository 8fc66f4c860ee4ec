/* map_batches: a Python function of whole batches. */
#include <stdio.h>
#include <string.h>

#include "ops/function.h"

static int map_batches_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err) { return cw_function_bind(b, op, CW_FUNCTION_MAP_BATCHES, err); }

static int failed(const struct cw_function *f, const char *what, struct cw_error *err)
{
    cw_error_op(err, "map_batches");
    return cw_error_set(err, CW_E_RECORD, "map_batches: %s: %s", f->name, what);
}

/* What the host wrote, checked, as columns by port. */
static int take_answer(const struct cw_op *op, const struct cw_batch *in, const uint8_t *data, size_t size, struct cw_batch_result *ret, struct cw_error *err)
{
    const struct cw_function *f = op->state;
    struct cw_exchange_answer a;
    const char *why;
    if (!cw_exchange_read(data, size, in->n, op->n_out, false, &a, &why))
        return cw_error_set(err, CW_E_BUG, "map_batches: %s: the host process sent a malformed answer: %s", f->name, why);
    json_t *errors;
    int r = cw_function_errors(f, &a, &errors, err);
    if (r < 0)
        return r;
    const char *text = json_string_value(json_array_get(json_array_get(errors, 0), 1));
    if (text && in->n && a.status[0] == CW_EXCHANGE_DIFFERS)
        snprintf(ret->note, sizeof(ret->note), "%s: %s", f->name, text);
    r = text && !*ret->note ? failed(f, text, err) : 0;
    json_decref(errors);
    for (unsigned k = 0; k < op->n_out && r >= 0; k++)
        if (!cw_exchange_column_whole(&a, k, &op->out[k].type, &ret->columns[k], &ret->offsets[k]))
            r = cw_error_set(err, CW_E_BUG, "map_batches: %s: the host process sent a malformed answer: a component's type or place", f->name);
    return r;
}

static int map_batches_batch(const struct cw_op *op, const struct cw_batch *in, const uint64_t key[2], int (*cancelled)(void *), void *cancel_arg,
                             struct cw_batch_result *ret, struct cw_error *err)
{
    const struct cw_function *f = op->state;
    struct cw_host_function host = f->host;
    struct cw_exchange_whole columns[CW_OP_MAX_PORTS];
    host.cancelled = cancelled;
    host.cancel_arg = cancel_arg;
    for (unsigned k = 0; k < in->n_components; k++) {
        const struct cw_batch_component *c = &in->components[k];
        columns[k] = (struct cw_exchange_whole){.dtype = c->dtype, .data = c->data, .size = c->size, .ndim = c->ndim, .dims = c->dims, .lengths = c->lengths};
    }
    *ret = (struct cw_batch_result){0};
    struct cw_host_tries tries = {0};
    for (;;) {
        struct cw_host_death death;
        const uint8_t *answer;
        uint8_t *to;
        struct cw_host *h = NULL;
        size_t size = cw_exchange_whole_size(columns, in->n_components, in->n);
        int r = cw_host_acquire(&host, &h, err);
        if (r >= 0)
            r = cw_host_input(h, size, &to, err);
        if (r >= 0) {
            cw_exchange_whole_write(columns, in->n_components, in->n, key, f->deterministic && key[1] % CW_FUNCTION_CHECK_ONE_IN == 0, to);
            r = cw_host_call(h, &host, size, &answer, &size, &death, err);
        }
        if (r == 0)
            r = take_answer(op, in, answer, size, ret, err);
        if (r == 0) {
            ret->owner = h; /* the answer lies in its memory */
            return 0;
        }
        cw_host_release(h);
        if (r < 0)
            return r;
        if (cw_host_give_up(&tries, &death)) {
            char what[500];
            snprintf(what, sizeof(what), "its host process %s (%u attempts)", death.reason, cw_host_tried(&tries));
            return failed(f, what, err);
        }
    }
}

static void map_batches_release(struct cw_batch_result *result) { cw_host_release(CW_STEAL(result->owner)); }

static const struct cw_attr_def attrs[] = {CW_FUNCTION_ATTRS, CW_FUNCTION_OUTPUTS, {0}};

const struct cw_op_desc cw_op_map_batches = {
    .name = "map_batches",
    .summary = "each batch becomes what a Python function makes of it",
    .doc = "Stands after `batch`; only others of its kind, `take` and `skip` may follow. The function gets a dict of arrays whose first dimension is the "
           "batch's, bytes as an object with offsets and data, and returns a dict of arrays (or lists of bytes) with as many rows; shapes in `outputs` are "
           "those of one element. What makes it raise ends the run, whatever on_error says: it is not one record's.",
    .kind = CW_OP_BATCH_MAP,
    .function = true,
    .attrs = attrs,
    .bind = map_batches_bind,
    .batch = map_batches_batch,
    .batch_release = map_batches_release,
    .free_state = cw_function_free,
};
