/* Workers of one pool for several jobs. */
#pragma once

struct cw_claim {
    int want;      /* workers that its policy asks for */
    double weight; /* within these: what is beyond is a slip of the pen */
#define CW_WEIGHT_LEAST 1e-6
#define CW_WEIGHT_MOST 1e6
    int priority; /* higher ones first: a lower one gets what they leave, beyond a worker each */
    int quota;    /* never more than that; 0: none */
    int share;    /* out */
};

/*
 * Weighted max-min fairness among equals in priority: nobody gets more than wanted, and what one leaves goes
 * to the others, by weight. Each job that wants workers gets one first, in order, as far as they go. Whole
 * workers: what is left of fractions goes to those who are furthest below their part, the earlier one of
 * equals.
 */
void cw_share(struct cw_claim *claims, int n, int workers);
