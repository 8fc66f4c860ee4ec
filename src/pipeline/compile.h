/* While a pipeline is compiled: compile.c goes through the chain, compile_path.c builds the program of each
 * path from a source to the batch. */
#pragma once
#include "pipeline/bind.h"
#include "pipeline/program.h"

/* While compiling: a program under construction with the components that its elements have now. */
struct cw_compile_path {
    struct cw_program program;
    struct cw_bind bind;
    size_t capacity;
    /* Where limits stand: limit k stands before ops[limit_at[k]]. */
    unsigned *limit_at;
    bool *limit_here;
    uint64_t *limit_passes;
    unsigned last_filter; /* ops up to here (exclusive) decide whether the element lives */
};

struct cw_compile {
    struct cw_compiled *c;
    struct cw_compile_path *paths;
    unsigned n_paths;
    size_t capacity;
    unsigned next_value; /* the first value number of the next path */
    unsigned last_takes; /* limits from this number on are takes that nothing but maps follow so far */
    struct cw_error *err;
};

/* A program that begins with this source. */
int cw_path_add(struct cw_compile *x, const struct cw_node *node) _must_check_;
/* Binds a node to what the path has; `next` stands behind it, or is NULL. The operator is the caller's. */
int cw_path_bind_op(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                    const struct cw_node *next, struct cw_op **ret) _must_check_;
/* The same, and adds it to the program, whose it is; ret may be NULL. Operators without run are only bound:
 * they rename or drop, or are indexes. */
int cw_path_bind(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                 const struct cw_node *next, struct cw_op **ret) _must_check_;
/* After concat all inputs (the paths from `first` on) have the same components, with types that hold the
 * elements of each. */
int cw_paths_merge(struct cw_compile *x, const struct cw_node *node, unsigned first) _must_check_;
/* The inputs stand side by side: the paths from `first` on become one, with the components of all. */
int cw_paths_zip(struct cw_compile *x, const struct cw_node *node, unsigned first) _must_check_;
/* Cuts a finished path into stages; the caller moves its program into the compiled pipeline. */
int cw_path_finish(struct cw_compile *x, struct cw_compile_path *p) _must_check_;
void cw_path_deinit(struct cw_compile_path *p);
/* Components as they are bound, with names of their own; *ret_n of them are to be freed also after an error.
 */
int cw_copy_outputs(const struct cw_bind *b, struct cw_component **ret, unsigned *ret_n,
                    struct cw_error *err) _must_check_;
