/* A control group of Linux that limits the CPU time of who is in it: version 1 or 2, below our own, where we
 * may make one. */
#pragma once
#include "base/error.h"

struct cw_cgroup;
/* cpus: CPU seconds per second. CW_E_OPTION: none can be made, and why. */
int cw_cgroup_new(const char *name, double cpus, struct cw_cgroup **ret, struct cw_error *err) _must_check_;
/* A descriptor: a process that writes "0" to it is in. */
int cw_cgroup_entry(const struct cw_cgroup *c);
/* Everybody in it must have ended. */
struct cw_cgroup *cw_cgroup_free(struct cw_cgroup *c);
/* Removes groups that were named PREFIX-PID-ANYTHING, of processes that are no more and of this one, where
 * nobody is in them. */
void cw_cgroup_sweep(const char *prefix);
/* For tests: lets processes into a group of version 2. 0, or -1 with errno. */
int cw_cgroup_admit(const char *path);
