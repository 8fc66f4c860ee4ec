/* fail: makes chosen elements fail, or ends the process, for tests. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ops/expr/expr.h"
#include "ops/fault/fault_wait.h"
#include "pipeline/op.h"

enum kind { KIND_ERROR, KIND_CRASH, KIND_HANG };

static const char *const kinds[] = {
    [KIND_ERROR] = "error", [KIND_CRASH] = "crash", [KIND_HANG] = "hang", NULL};

struct fail {
    struct cw_expr *where;
    enum kind kind;
};

static void fail_free(void *state)
{
    struct fail *s = state;
    if (s)
        cw_expr_free(s->where);
    free(s);
}

static int fail_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct fail *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "an operator");
    op->state = s;
    while (kinds[s->kind + 1] && strcmp(kinds[s->kind], cw_attr_string(op, "kind")) != 0)
        s->kind++;
    return cw_expr_bind(b, op, "where", cw_attr_string(op, "where"), CW_EXPR_CONDITION, &s->where, err);
}

static int fail_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const struct fail *s = op->state;
    uint8_t *hit = cw_block_alloc(block, block->n, err);
    if (!hit)
        return err && err->status < 0 ? err->status : CW_E_MEMORY;
    int r = cw_expr_eval_into(s->where, op->in, op->desc->name, block, hit, err);
    CW_ROWS_OK(i, block, r == 0)
    {
        if (!hit[i])
            continue;
        if (s->kind == KIND_ERROR)
            cw_block_fail(block, i, op->desc->name, "failed as asked for: %.200s",
                          cw_attr_string(op, "where"));
        else if (s->kind == KIND_CRASH)
            kill(getpid(), SIGKILL);
        else
            r = cw_fault_wait(block, UINT64_MAX, err);
    }
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "where",
     .kind = CW_ATTR_EXPR,
     .def = "\"true\"",
     .doc = "condition: a scalar expression; elements for which it holds fail"},
    {.name = "kind",
     .kind = CW_ATTR_STRING,
     .def = "\"error\"",
     .choices = kinds,
     .doc = "error: the record fails; crash: the process is killed (SIGKILL); hang: waits until the run is "
            "cancelled"},
    {0},
};

static bool fail_ends_process(const json_t *given)
{
    const char *kind = json_string_value(json_object_get(given, "kind"));
    return kind && strcmp(kind, kinds[KIND_CRASH]) == 0;
}

const struct cw_op_desc cw_op_fail = {
    .name = "fail",
    .summary = "fails, crashes or hangs, for tests",
    .doc = "Workers of a service run it with crash only where they were started with --allow-python.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .ends_process = fail_ends_process,
    .bind = fail_bind,
    .run = fail_run,
    .free_state = fail_free,
};
