/*
 * What makes workers exist: local processes here, a cluster's scheduler elsewhere. A kind of provisioner is a
 * table of three functions over units; a unit is one worker, known by a name that it says in its Hello.
 * Nothing waits: what becomes of a unit is told by `ended`. Who wants how many is the fleet's affair
 * (fleet.h).
 *
 * Kubernetes would make a pod per unit and delete it, Slurm a job per unit and cancel it; `ended` then comes
 * from a watch, or from asking now and then.
 */
#pragma once
#include <stdbool.h>

#include "base/error.h"

struct cw_provisioner;

struct cw_provisioner_ops {
    const char *name;
    /* Begins to make a unit. *ret is its handle, the provisioner's until `ended`. `name` is copied. */
    int (*start)(struct cw_provisioner *p, const char *name, void *unit_of_fleet, void **ret,
                 struct cw_error *err);
    /* Lets it finish what it has, or (now) not. `ended` follows. */
    void (*end)(struct cw_provisioner *p, void *unit, bool now);
    /* After all units have ended. */
    void (*free)(struct cw_provisioner *p);
};

struct cw_provisioner {
    const struct cw_provisioner_ops *ops;
    /* Set by the fleet: the unit that start was called with is no more. `why` for people. Called from the
     * loop, never within start or end. */
    void (*ended)(void *unit_of_fleet, const char *why);
};

/* ---- local processes ---- */

struct cw_loop;

struct cw_local_options {
    struct cw_loop *loop;
    /* of a worker: "cachew", "worker", ...; --name and --pool are added. Stays the caller's */
    const char *const *argv;
    size_t n;
    const char *pool;
    double cpu_share; /* CPUs that each may use, by a cgroup of its own; 0: not limited */
};

/* Processes of this program, children of this one: they are told to end when it ends, however that comes.
 * CW_E_OPTION: there is no way to limit their CPU here. */
int cw_local_new(const struct cw_local_options *o, struct cw_provisioner **ret,
                 struct cw_error *err) _must_check_;
