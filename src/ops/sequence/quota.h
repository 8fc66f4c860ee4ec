/* The order in which inputs with weights take turns (mix). Each prefix of the order has of each input what
 * its share of the weights asks for, to within less than one element. Any place of the order can be computed
 * without the places before it.
 *
 * R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980), gives the order: with n > 1
 * inputs, the number of elements of an input differs by at most 1 - 1/(2n - 2) from its share of the prefix.
 * docs/semantics.md, section 3, defines the order. */
#pragma once
#include "base/error.h"

/* A share below this is refused: the time to find a place grows with the largest of 1 / share. */
#define CW_QUOTA_LEAST_SHARE 1e-6

/* The weights of an order. Immutable. */
struct cw_quota {
    unsigned n;      /* inputs */
    uint64_t total;  /* of all weights: below 2^61 */
    uint64_t open;   /* an input may be next once it is behind its share by open / total elements ... */
    uint64_t due;    /* ... and must be chosen before it is behind by more than due / total elements */
    uint64_t memory; /* a place follows from at most so many places before it */
    const uint64_t *weights; /* n, as integers */
};

/* What is known of one input at a place of the order. Its next element must be among the first `due` elements
 * of the order, but not among the first open - 1. Each of the two is a quotient that is rounded up; the rest
 * makes it exact when it is moved by total / weight. */
struct cw_quota_input {
    uint64_t count; /* elements of the input so far */
    uint64_t open, due;
    uint64_t open_rest, due_rest;
    uint64_t step, step_rest; /* total / weight, and the remainder */
    uint64_t weight;
};

/* A place of the order: `at` elements come before it. */
struct cw_quota_place {
    const struct cw_quota *quota;
    uint64_t at;
    struct cw_quota_input inputs[];
};

/* Makes an order of n inputs, n > 0, whose weights are above 0. `scaled` has room for n integers, and is
 * borrowed. Returns the input with the smallest share. */
unsigned cw_quota_init(struct cw_quota *q, const double *weights, unsigned n, uint64_t *scaled);
/* Returns place 0, which the caller frees with free; NULL: out of memory. */
struct cw_quota_place *cw_quota_place_new(const struct cw_quota *q);
/* Goes to the place before which `at` elements come, at < 2^62. Takes the time of q->memory steps, or of the
 * steps from the present place if these are fewer. */
void cw_quota_seek(struct cw_quota_place *p, uint64_t at);
/* Returns after how many elements of the order input i has had n elements, n > 0; at most 2^62. Moves p. */
uint64_t cw_quota_find(struct cw_quota_place *p, unsigned i, uint64_t n);

/* Returns the input whose element comes next: of the inputs that may be next the one that is due first, of
 * several the first. */
static inline unsigned cw_quota_next(const struct cw_quota_place *p)
{
    uint64_t soonest = UINT64_MAX;
    unsigned ret = 0, n = p->quota->n;
    for (unsigned i = 0; i < n; i++) {
        uint64_t due = p->inputs[i].open <= p->at + 1 ? p->inputs[i].due : UINT64_MAX;
        ret = due < soonest ? i : ret;
        soonest = due < soonest ? due : soonest;
    }
    return ret;
}

/* Goes past an element of input i. */
static inline void cw_quota_take(struct cw_quota_place *p, unsigned i)
{
    struct cw_quota_input *in = &p->inputs[i];
    uint64_t open = in->open_rest + in->step_rest, due = in->due_rest + in->step_rest, w = in->weight;
    in->open += in->step + (open >= w);
    in->open_rest = open >= w ? open - w : open;
    in->due += in->step + (due >= w);
    in->due_rest = due >= w ? due - w : due;
    in->count++;
    p->at++;
}
