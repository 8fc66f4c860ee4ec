/* Changes of a pipeline that change none of its results: where elements could be kept, and operators that
 * could stand in another order. */
#pragma once
#include "explain/costs.h"

struct cw_place {    /* where a cache point is, or could be */
    size_t at;       /* in the pipeline's list of operators: in front of the one that is there */
    int cache_point; /* number of the one that is there; -1: none */
    unsigned last;   /* position of the operator before it */
    double bytes;    /* of an element there: what is needed behind it */
};

/* Those that can be used, and where what an element takes is known. *ret is new. */
int cw_places_find(const struct cw_local *l, const struct cw_profile *p, struct cw_place **ret, size_t *ret_n,
                   struct cw_error *err) _must_check_;

struct cw_move { /* the operator at place `from` of the list would do as well at place `to`, before it */
    size_t from, to;
    unsigned first, last; /* positions of the operators that it passes: */
    double factor;        /* they would have that part of their work */
};

/* A filter in front of what it does not need; a crop in front of what treats each value by itself. *ret is
 * new. */
int cw_moves_find(const struct cw_local *l, const struct cw_costs *c, const struct cw_profile *p,
                  struct cw_move **ret, size_t *ret_n, struct cw_error *err) _must_check_;

/* The pipeline with {"insert": operator, "at": n} or {"move": n, "to": n} done to it. New reference; NULL:
 * out of memory. */
json_t *cw_change_apply(const json_t *root, const json_t *change);
