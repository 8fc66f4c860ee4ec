/* Decides whether a worker may run a pipeline. stream.c calls it before it compiles the pipeline. */
#include "service/worker/admit.h"

#include "session/shard_source.h"

static bool admit_runs_python(const struct cw_op_desc *desc)
{
    bool any = false;
    for (const struct cw_attr_def *a = desc->attrs; a && a->name; a++)
        any |= a->kind == CW_ATTR_FUNCTION;
    return any;
}

/* Returns whether the operator needs a worker that trusts the pipeline's author (--allow-python). */
static bool admit_needs_trust(const struct cw_node *node)
{
    return admit_runs_python(node->desc) ||
           (node->desc->ends_process && node->desc->ends_process(node->attrs));
}

static const struct cw_node *admit_find(const struct cw_chain *chain)
{
    const struct cw_node *found = NULL;
    for (size_t i = 0; i < chain->n && !found; i++) {
        const struct cw_node *node = &chain->nodes[i];
        if (admit_needs_trust(node))
            found = node;
        for (size_t k = 0; k < node->n_inputs && !found; k++)
            found = admit_find(&node->inputs[k]);
    }
    return found;
}

/* Checks the pipeline whose elements this one writes, if it does. */
static int admit_written(const struct cw_pipeline *p, bool allow_python, struct cw_error *err)
{
    struct cw_pipeline *written;
    int r = cw_shard_source_written(p, &written, err);
    if (r == 0 && written)
        r = cw_worker_admit(written, allow_python, err);
    cw_pipeline_unref(written);
    return r;
}

int cw_worker_admit(const struct cw_pipeline *p, bool allow_python, struct cw_error *err)
{
    const struct cw_node *node = allow_python ? NULL : admit_find(&p->chain);
    if (!node)
        return admit_written(p, allow_python, err);
    cw_error_op(err, node->desc->name);
    return cw_error_set(err, CW_E_PIPELINE,
                        "%s %s, which this worker of the service does not allow: it was started without "
                        "--allow-python (or by `cachew up --no-python`)",
                        node->desc->name,
                        admit_runs_python(node->desc) ? "runs a Python function" : "may end the process");
}

static const char *admit_content_file(const struct cw_chain *chain)
{
    const char *found = NULL;
    for (size_t i = 0; i < chain->n && !found; i++) {
        const struct cw_node *node = &chain->nodes[i];
        for (const struct cw_attr_def *a = node->desc->attrs; a && a->name && !found; a++)
            if (a->content)
                found = json_string_value(json_object_get(node->attrs, a->name));
        for (size_t k = 0; k < node->n_inputs && !found; k++)
            found = admit_content_file(&node->inputs[k]);
    }
    return found;
}

const char *cw_worker_content_file(const struct cw_pipeline *p)
{
    return admit_content_file(&p->chain);
}
