/* The state while a pipeline is compiled: compile.c goes through the chain, and compile_path.c builds the
 * program of each path, from a source to the batch. */
#pragma once
#include "pipeline/bind.h"
#include "pipeline/program.h"

/* A program under construction, and the components that its elements have at this place of the chain. */
struct cw_compile_path {
    struct cw_program program;
    struct cw_bind bind;
    size_t capacity;
    /* limit k comes before ops[limit_at[k]], if limit_here[k] */
    unsigned *limit_at;
    bool *limit_here;
    uint64_t *limit_passes;
    /* the operators before this index run together with the source: it gives the elements of windows, which
     * the last of them joins; 0: only the source */
    unsigned n_source;
    unsigned last_filter; /* the operators before this index decide whether an element is dropped */
};

struct cw_compile {
    struct cw_compiled *c;
    struct cw_compile_path *paths;
    unsigned n_paths;
    size_t capacity;
    unsigned next_value;        /* the first value number of the next path */
    bool pads;                  /* the batcher pads a component */
    struct cw_padding *padding; /* by value number of the first path; NULL: there is no batcher so far */
    unsigned last_takes;        /* limits from this number on are takes after which only maps came so far */
    struct cw_error *err;
};

/* Adds a path whose program begins with this source. */
int cw_path_add(struct cw_compile *x, const struct cw_node *node) _must_check_;
/* Binds a node to the path's components. next: the node after it in the chain, or NULL. The caller owns
 * *ret. */
int cw_path_bind_op(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                    const struct cw_node *next, struct cw_op **ret) _must_check_;
/* Binds a node as cw_path_bind_op does, and adds the operator to the program, which owns it; ret may be NULL.
 * Operators without run only change names or components, or are index operators. */
int cw_path_bind(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node,
                 const struct cw_node *next, struct cw_op **ret) _must_check_;
/* Checks that all inputs of a concat (the paths from `first` on) have the same components, and gives these
 * the types that hold the elements of each input. */
int cw_paths_merge(struct cw_compile *x, const struct cw_node *node, unsigned first) _must_check_;
/* Joins the inputs of a zip: the paths from `first` on become one path with the components of all. */
int cw_paths_zip(struct cw_compile *x, const struct cw_node *node, unsigned first) _must_check_;
/* Adds a window: it becomes the source of a path, and the operator that joins the elements of a window. */
int cw_path_gather(struct cw_compile *x, struct cw_compile_path *p, const struct cw_node *node) _must_check_;
/* Cuts a finished path into stages. The caller moves its program into the compiled pipeline. */
int cw_path_finish(struct cw_compile *x, struct cw_compile_path *p) _must_check_;
void cw_path_deinit(struct cw_compile_path *p);
/* Copies the components that are bound, with their names. The caller frees *ret_n names and *ret, also after
 * an error. */
int cw_copy_outputs(const struct cw_bind *b, struct cw_component **ret, unsigned *ret_n,
                    struct cw_error *err) _must_check_;
