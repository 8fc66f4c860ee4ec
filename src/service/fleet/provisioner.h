/*
 * A provisioner makes workers: local processes here (local.c), a cluster's scheduler elsewhere. Each kind is
 * a table of three functions over units; a unit is one worker, known by the name in its Hello. Nothing waits:
 * `ended` is called when a unit is gone. How many there are is decided by the fleet (fleet.h), which owns the
 * provisioner.
 *
 * Kubernetes would make a pod per unit and delete it, Slurm a job per unit and cancel it; `ended` then comes
 * from a watch, or from queries now and then.
 */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct cw_provisioner;

struct cw_provisioner_ops {
    /* Begins to make a unit. *ret is its handle, which stays the provisioner's until `ended`. Copies `name`.
     */
    int (*start)(struct cw_provisioner *p, const char *name, void *unit_of_fleet, void **ret,
                 struct cw_error *err);
    /* Ends a unit; now: without letting it finish what it has. `ended` follows. */
    void (*end)(struct cw_provisioner *p, void *unit, bool now);
    /* After all units have ended. */
    void (*free)(struct cw_provisioner *p);
};

struct cw_provisioner {
    const struct cw_provisioner_ops *ops;
    /* Set by the fleet. The unit that start was called with is gone; `why` is for people. Called from the
     * loop, never within start or end. */
    void (*ended)(void *unit_of_fleet, const char *why);
};

/* ---- local processes ---- */

struct cw_loop;

struct cw_local_options {
    struct cw_loop *loop;
    /* of a worker: "cachew", "worker", ...; --name and --pool are added. Copied, but for the texts */
    const char *const *argv;
    size_t n;
    const char *pool;
    double cpu_share; /* CPUs that each may use, by a control group of its own; 0: not limited */
};

/* Units are processes of this program, children of this one; they get a signal to end when it ends, for
 * whatever reason. CW_E_OPTION: their CPU time can't be limited here. */
int cw_local_new(const struct cw_local_options *o, struct cw_provisioner **ret,
                 struct cw_error *err) _must_check_;
