/* Remedies: changes that would make a pipeline faster, with the predicted rate. Predictions are computed from
 * costs (costs.h); no function here measures or runs anything. Called by explain_run.c. Rates are elements
 * per second. */
#pragma once
#include "explain/probe.h"
#include "explain/rewrite.h"

struct cw_remedy {
    const char *kind; /* "threads", "cores", "cache", "order", "memory", "storage", "consumer" */
    char what[240];   /* the change in words, for users */
    /* {"option": name, "value": v}, {"insert": operator, "at": index} or {"move": index, "to": index}. Owned.
     * NULL: the change is neither of an option nor of the pipeline */
    json_t *change;
    bool here;        /* the remedy can be tried on this machine */
    double rate;      /* predicted */
    double low, high; /* the rate under the least and the most favourable assumptions */
    double bytes;     /* size of a cache that holds an epoch; 0: unknown, or no cache */
};

struct cw_remedy_options {
    const struct cw_cache_speed *speed; /* NULL: unknown, so that no cache is proposed */
    double elements;     /* records of the sequence that a cache would hold; INFINITY: endless */
    double page_cache;   /* bytes of memory for the page cache, beside the memory budget */
    size_t memory_total; /* bytes of memory of the machine */
};

/* Finds the remedies that gain at least 3 %, the best first. The caller frees *ret with cw_remedies_free. */
int cw_remedies_find(const struct cw_costs *c, const struct cw_place *places, size_t n_places,
                     const struct cw_move *moves, size_t n_moves, const struct cw_remedy_options *o,
                     struct cw_remedy **ret, size_t *ret_n, struct cw_error *err) _must_check_;
void cw_remedies_free(struct cw_remedy *r, size_t n);
/* Returns a list of the remedies with their gain over the measured rate. New reference; NULL: out of memory.
 */
json_t *cw_remedies_json(const struct cw_costs *c, const struct cw_remedy *r, size_t n);
