/* Finds changes of a pipeline that change none of its results: places for a cache, and another order of
 * operators. explain_run.c finds them, explain_check.c applies them. */
#pragma once
#include "explain/costs.h"

struct cw_place {    /* where a cache point is, or could be */
    size_t at;       /* index in the pipeline's list of operators, before which it is, or would be inserted */
    int cache_point; /* number of an existing one; -1: none */
    unsigned last;   /* position of the operator before it */
    double bytes;    /* of an element there, as far as later operators need it */
};

/* Finds the places that can be used and where the size of an element is known. *ret is new. */
int cw_places_find(const struct cw_local *l, const struct cw_profile *p, struct cw_place **ret, size_t *ret_n,
                   struct cw_error *err) _must_check_;

struct cw_move { /* the operator at index `from` of the list may as well stand at index `to`, before it */
    size_t from, to;
    unsigned first, last; /* positions of the operators that it passes: */
    double factor;        /* the part of their work that they would have */
};

/* Finds filters that may stand before operators whose results they do not need, and crops that may stand
 * before operators that treat each pixel by itself. *ret is new. */
int cw_moves_find(const struct cw_local *l, const struct cw_costs *c, const struct cw_profile *p,
                  struct cw_move **ret, size_t *ret_n, struct cw_error *err) _must_check_;

/* Returns the pipeline after {"insert": operator, "at": n} or {"move": n, "to": n}. New reference; NULL: out
 * of memory. */
json_t *cw_change_apply(const json_t *root, const json_t *change);
