/* fail: makes chosen elements fail, or ends the process, for tests. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ops/expr/expr.h"
#include "ops/fault/fault_wait.h"
#include "pipeline/op.h"

static const char *const kinds[] = {"error", "crash", "hang", NULL};

static int fail_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err)
{
    const char *kind = cw_attr_string(op, "kind");
    const uint8_t *hit;
    int r = cw_expr_where(op, block, &hit, err);
    CW_ROWS_OK(i, block, r == 0)
    {
        if (!hit[i])
            continue;
        if (strcmp(kind, "error") == 0)
            cw_block_fail(block, i, op->desc->name, "failed because its condition is true: %.200s",
                          cw_attr_string(op, "where"));
        else if (strcmp(kind, "crash") == 0)
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
     .doc = "the condition, a scalar expression: elements for which it is true fail"},
    {.name = "kind",
     .kind = CW_ATTR_STRING,
     .def = "\"error\"",
     .choices = kinds,
     .doc = "error: the record fails; crash: the process is killed (SIGKILL); hang: the element waits "
            "until the run is cancelled"},
    {0},
};

static bool fail_ends_process(const json_t *given)
{
    const char *kind = json_string_value(json_object_get(given, "kind"));
    return kind && strcmp(kind, "crash") == 0;
}

const struct cw_op_desc cw_op_fail = {
    .name = "fail",
    .for_tests = true,
    .summary = "fails, crashes or hangs (for tests)",
    .doc = "Workers of a service run `fail` with kind \"crash\" only if they were started with "
           "--allow-python.",
    .kind = CW_OP_MAP,
    .effects.pinned = true,
    .attrs = attrs,
    .ends_process = fail_ends_process,
    .bind = cw_expr_bind_where,
    .run = fail_run,
    .free_state = cw_expr_free,
};
