/*
 * A control group (cgroup) of Linux, version 1 or 2, that limits the CPU time of the processes in it. It is
 * made below this process's own group, if this process may do that. local.c makes one group per worker.
 */
#pragma once
#include "base/error.h"

struct cw_cgroup;
/* Makes a group. cpus: CPU seconds per second. CW_E_OPTION: no group can be made; the message says why. */
int cw_cgroup_new(const char *name, double cpus, struct cw_cgroup **ret, struct cw_error *err) _must_check_;
/* Returns a descriptor, which stays the group's. A process that writes "0" to it enters the group. */
int cw_cgroup_entry(const struct cw_cgroup *c);
/* Removes the group; the worker in it must have ended. If other processes are left in it, the group stays
 * until cw_cgroup_sweep. Returns NULL. */
struct cw_cgroup *cw_cgroup_free(struct cw_cgroup *c);
/* Removes groups that are named PREFIX-PID-ANYTHING and have no processes, where PID has ended or is this
 * process. */
void cw_cgroup_sweep(const char *prefix);
/* Changes the type of a group of version 2, if needed, so that processes can enter it. Returns 0, or -1 with
 * errno. Public for tests. */
int cw_cgroup_admit(const char *path);
