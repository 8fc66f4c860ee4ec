/* What the files of plug-ins share. */
#pragma once
#include <cachew/plugin.h>

#include "ops/plugin/plugin.h"
#include "pipeline/op.h"

#define CW_PLUGIN_MAX_NAME \
    48 /* of operators, attributes and versions: fits the fields of struct cw_error \
        */

/* An operator of a plug-in as the rest of the library sees it. Lives as long as the process. */
struct cw_plugin_op {
    struct cw_op_desc desc; /* first: found from cw_op.desc */
    const struct cachew_operator *from;
};

/* cw_op.state: what its bind left. Immutable afterwards. */
struct cw_plugin_bound {
    const struct cachew_operator *from;
    void *state; /* the plug-in's */
    unsigned n_in;
    unsigned in[CW_OP_MAX_PORTS]; /* input of the plug-in -> port: two inputs may be one value */
};

/* plugin_check.c: the operators of a plug-in, checked. identity is kept. The caller frees the list with
 * cw_plugin_ops_free. */
struct cw_plugin_ops {
    size_t n;
    struct cw_plugin_op *ops;
};

int cw_plugin_check(const struct cachew_plugin *plugin, const char *path, const char *identity,
                    struct cw_plugin_ops *ret, struct cw_error *err) _must_check_;
void cw_plugin_ops_deinit(struct cw_plugin_ops *o);
/* The library's kind; false: there is none of that number. */
bool cw_plugin_attr_kind(enum cachew_attr_kind kind, enum cw_attr_kind *ret);

/* Text from a plug-in for an error: what JSON or a terminal can't show becomes '?' or a space. */
void cw_plugin_clean(char *text);

/* plugin_bind.c, plugin_run.c */
int cw_plugin_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err);
int cw_plugin_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err);
void cw_plugin_free_state(void *state);
