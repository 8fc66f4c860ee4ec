/* Remedies: what would make a pipeline faster, and by how much. Predictions from costs alone (costs.h);
 * nothing here measures or runs anything. explain_run.c calls it. */
#pragma once
#include "explain/probe.h"
#include "explain/rewrite.h"

struct cw_remedy {
    const char *kind; /* "threads", "cores", "cache", "order", "memory", "storage", "consumer" */
    char what[240];   /* what is to be done, for people */
    /* {"option": name, "value": v}, {"insert": operator, "at": n} or {"move": n, "to": n}; NULL: no pipeline
     * or option can express it */
    json_t *change;
    bool here;        /* it can be tried on this machine */
    double rate;      /* predicted */
    double low, high; /* the rate lies between these, as far as is known */
    double bytes;     /* of a cache that holds an epoch; 0: unknown, or no cache */
};

struct cw_remedy_options {
    const struct cw_cache_speed *speed; /* NULL: unknown, so that no cache is proposed */
    double elements;                    /* of the sequence; INFINITY: endless */
    double page_cache;                  /* bytes that may stay in memory in addition to the budget */
    size_t memory_total;                /* of the machine */
};

/* Finds the remedies that gain at least 3 %, the best first. cw_remedies_free frees *ret. */
int cw_remedies_find(const struct cw_costs *c, const struct cw_place *places, size_t n_places,
                     const struct cw_move *moves, size_t n_moves, const struct cw_remedy_options *o,
                     struct cw_remedy **ret, size_t *ret_n, struct cw_error *err) _must_check_;
void cw_remedies_free(struct cw_remedy *r, size_t n);
json_t *cw_remedies_json(const struct cw_costs *c, const struct cw_remedy *r, size_t n);
