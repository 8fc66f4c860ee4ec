/*
 * A provisioner starts and ends workers: as local processes (local.c), or by a cluster's scheduler. Each kind
 * of provisioner is a table of three functions on units. A unit is one worker, identified by the name in its
 * Hello. No function waits: `ended` is called later, when a unit is gone. The fleet (fleet.h) owns the
 * provisioner, and decides how many units there are.
 *
 * A provisioner for Kubernetes would create and delete a pod per unit; one for Slurm would start and cancel a
 * job per unit. They would call `ended` from a watch, or from regular queries.
 */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct cw_provisioner;

struct cw_provisioner_ops {
    /* Begins to start a unit. *ret is its handle, owned by the provisioner and valid until `ended`. `name` is
     * copied. */
    int (*start)(struct cw_provisioner *p, const char *name, void *unit_of_fleet, void **ret,
                 struct cw_error *err);
    /* Ends a unit; now: kills it instead of letting it finish its work. `ended` is called later. */
    void (*end)(struct cw_provisioner *p, void *unit, bool now);
    /* Frees the provisioner. All units must have ended. */
    void (*free)(struct cw_provisioner *p);
};

struct cw_provisioner {
    const struct cw_provisioner_ops *ops;
    /* Set by the fleet, called by the provisioner when a unit is gone. unit_of_fleet: as passed to start;
     * why: the reason as text. Called from the loop, never from within start or end. */
    void (*ended)(void *unit_of_fleet, const char *why);
};

/* ---- local processes ---- */

struct cw_loop;

struct cw_local_options {
    struct cw_loop *loop;
    /* command line of a worker: "cachew", "worker", ...; --name and --pool are added. The array is copied,
     * its texts are not */
    const char *const *argv;
    size_t n;
    const char *pool;
    double cpu_share; /* CPUs that each worker may use, limited by its own control group; 0: not limited */
};

/* Makes a provisioner whose units are child processes that run this program. When this process ends, for
 * whatever reason, they get a signal to end. CW_E_OPTION: CPU time can't be limited here. */
int cw_local_new(const struct cw_local_options *o, struct cw_provisioner **ret,
                 struct cw_error *err) _must_check_;
