/* Shared by the files of this folder: the descriptors and states of a plug-in's operators. */
#pragma once
#include <cachew/plugin.h>

#include "ops/plugin/plugin.h"
#include "pipeline/op.h"

#define CW_PLUGIN_MAX_NAME \
    48 /* bytes in a name of an operator or attribute, and in a version: fits the fields of struct cw_error \
        */

/* An operator of a plug-in as the rest of the library sees it. Lives as long as the process. */
struct cw_plugin_op {
    struct cw_op_desc desc; /* first: found from cw_op.desc */
    const struct cachew_operator *from;
};

/* cw_op.state of a plug-in's operator. Immutable after bind. */
struct cw_plugin_bound {
    const struct cachew_operator *from;
    void *state; /* made by the plug-in's bind; freed by its free_state */
    unsigned n_in;
    unsigned in[CW_OP_MAX_PORTS]; /* the port of each input that the plug-in declared; two inputs may have the
                                     same port */
};

/* The operators of a plug-in, after plugin_check.c has checked them. */
struct cw_plugin_ops {
    size_t n;
    struct cw_plugin_op *ops;
};

/* Checks a plug-in's descriptors and makes *ret of them, which the caller frees with cw_plugin_ops_deinit.
 * The operators keep a pointer to identity. path: for errors. CW_E_OPTION, CW_E_MEMORY. */
int cw_plugin_check(const struct cachew_plugin *plugin, const char *path, const char *identity,
                    struct cw_plugin_ops *ret, struct cw_error *err) _must_check_;
void cw_plugin_ops_deinit(struct cw_plugin_ops *o);
/* Sets *ret to the library's kind for a plug-in's attribute kind; false: there is no such kind. */
bool cw_plugin_attr_kind(enum cachew_attr_kind kind, enum cw_attr_kind *ret);

/* Makes text from a plug-in fit for an error message, in place: control characters become spaces; if the text
 * is not UTF-8, bytes from 0x80 on become '?'. */
void cw_plugin_clean(char *text);

/* cw_op_desc.bind, .run and .free_state of a plug-in's operators (plugin_bind.c, plugin_run.c) */
int cw_plugin_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err);
int cw_plugin_run(const struct cw_op *op, struct cw_block *block, struct cw_error *err);
void cw_plugin_free_state(void *state);
