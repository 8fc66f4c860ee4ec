/* A cut point divides a pipeline: the workers of a service run the operators up to it, the client runs those
 * after it (docs/service.md). The result is the same wherever the pipeline is cut. remote/ makes cut points;
 * engine/tail.c runs the operators after one. */
#pragma once
#include "pipeline/program.h"

/* A component that workers send: how the client gets the value of the pipeline as written from it. */
struct cw_cut_input {
    unsigned value;      /* its number in program 0 of the pipeline as written */
    struct cw_type type; /* of the value */
    bool serialized;     /* it comes as bytes (operator serialize_tensor), because its shape varies */
};

/* Immutable. */
struct cw_cut_point {
    unsigned at;                 /* index, in the chain, of the last operator that workers run */
    json_t *root;                /* the workers' pipeline as JSON */
    struct cw_compiled *workers; /* the same, compiled */
    /* index in the operators of program 0, as written, of the first one that the client runs on elements;
     * their number: the client runs only operators on batches */
    unsigned first;
    struct cw_cut_input *inputs; /* by output of workers->programs[0]; NULL if the client runs no operators on
                                    elements */
};

/* Sets *ret to the index, in the chain, of the first operator after which the pipeline may be cut: all
 * operators that decide which elements there are, in which order and in which batch come before or at it. */
unsigned cw_cut_point_first(const struct cw_compiled *c);
/* Makes the cut point after operator `at` of the chain, which must not be less than cw_cut_point_first. root:
 * the pipeline as JSON. *ret is NULL if no operator after it computes anything: workers run all. */
int cw_cut_point_new(const struct cw_compiled *c, const json_t *root, unsigned at, struct cw_cut_point **ret,
                     struct cw_error *err) _must_check_;
/* As cw_cut_point_new, at the place that `text` names: "worker" (after the last operator), "client" (after
 * the first one possible), the index of an operator in the chain, or the name of one that occurs once. */
int cw_cut_point_named(const struct cw_compiled *c, const json_t *root, const char *text,
                       struct cw_cut_point **ret, struct cw_error *err) _must_check_;
struct cw_cut_point *cw_cut_point_free(struct cw_cut_point *p);
