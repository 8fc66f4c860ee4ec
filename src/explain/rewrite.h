/* Finds changes of a pipeline that do not change its results: places for a cache, and operators that may run
 * earlier. explain_run.c finds changes, explain_check.c applies them.
 *
 * An index counts the pipeline's list of operators from 0. A position is an operator's number, which also
 * counts the operators of inputs. */
#pragma once
#include "explain/costs.h"

struct cw_place {    /* a place where a cache point exists, or could be inserted */
    size_t at;       /* index that the cache point has, or would have, in the list of operators */
    int cache_point; /* number of the cache point that exists at this place; -1: none */
    unsigned last;   /* position of the operator before the place */
    double bytes;    /* mean bytes of an element at the place: only components that later operators need */
};

/* Finds the usable places at which the size of an element is known. The caller frees *ret. */
int cw_places_find(const struct cw_local *l, const struct cw_profile *p, struct cw_place **ret, size_t *ret_n,
                   struct cw_error *err) _must_check_;

struct cw_move { /* the operator at index `from` may be moved to index `to`, which is smaller */
    size_t from, to;
    unsigned first, last; /* positions of the first and the last operator that would then follow it */
    double factor;        /* the part of their present work that these operators would have */
};

/* Finds filters that may be moved before operators whose results they do not need, and crops that may be
 * moved before operators that compute each pixel separately. The caller frees *ret. */
int cw_moves_find(const struct cw_local *l, const struct cw_costs *c, const struct cw_profile *p,
                  struct cw_move **ret, size_t *ret_n, struct cw_error *err) _must_check_;

/* Returns a copy of the pipeline `root` with a change: {"insert": operator, "at": index} or {"move": index,
 * "to": index}. New reference; NULL: out of memory. `change` stays the caller's. */
json_t *cw_change_apply(const json_t *root, const json_t *change);
