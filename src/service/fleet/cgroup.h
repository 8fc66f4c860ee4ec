/*
 * A control group of Linux that limits the CPU time of the processes in it: version 1 or 2, below this
 * process's own group, where it may make one. Called by local.c, one group per worker.
 */
#pragma once
#include "base/error.h"

struct cw_cgroup;
/* cpus: CPU seconds per second. CW_E_OPTION: no group can be made; the message says why. */
int cw_cgroup_new(const char *name, double cpus, struct cw_cgroup **ret, struct cw_error *err) _must_check_;
/* Returns a descriptor: a process that writes "0" to it is in the group. */
int cw_cgroup_entry(const struct cw_cgroup *c);
/* The processes that were put in it must have ended. Returns NULL. */
struct cw_cgroup *cw_cgroup_free(struct cw_cgroup *c);
/* Removes groups that are named PREFIX-PID-ANYTHING and have no processes, where PID has ended or is this
 * process. */
void cw_cgroup_sweep(const char *prefix);
/* Lets processes into a group of version 2. Returns 0, or -1 with errno. Public for tests. */
int cw_cgroup_admit(const char *path);
