/* The training host: by how much local workers slow down the client's step. Pure functions, called by plan.c
 * and auto_belief.c. */
#pragma once
#include "policy/curve.h"
#include "policy/policy.h"

#define CW_HOST_SLOWS 3

/* The step takes step_s (1 + slow x), where x are the CPUs that local workers use beyond those that are free.
 * slow is known once it was measured with two values of x. Until then there are several guesses. */
struct cw_host {
    double step_s; /* without local workers */
    double slow[CW_HOST_SLOWS], weight[CW_HOST_SLOWS];
    size_t n;                      /* guesses; 0: no local workers, the step is always step_s */
    double worker_cpus, free_cpus; /* of a local worker; of the host, that others do not use */
};

/* Whether the job may have local workers. */
bool cw_host_any(const struct cw_facts *f);
/* Returns the CPUs of the training host that others do not use; 0: not known. */
double cw_host_free_cpus(const struct cw_facts *f);
/* Returns the CPUs that local workers use now beyond those that are free. */
double cw_host_over(const struct cw_facts *f);
/* Returns the number of local workers among these. */
int cw_host_local(const struct cw_facts *f, const int *workers);
/* Fits a host through the steps of points. step_s: the step, if no point has one. */
void cw_host_fit(const struct cw_facts *f, const struct cw_point *points, size_t n, double step_s,
                 struct cw_host *ret);
/* Returns the client's step with this number of local workers, if the input takes supply_s per batch. */
double cw_host_step_s(const struct cw_host *h, double local, double supply_s);
