/*
 * The status of a worker, collected from its parts, for other threads (worker.h), pages.c and heartbeat.c.
 * The loop's thread only.
 */
#pragma once
#include <stdint.h>

struct cw_worker;

/* Collects the status and wakes what waits for a change. */
void cw_status_update(struct cw_worker *w);
/* Returns the CPU time of this process so far, user and system. */
uint64_t cw_status_cpu_ns(void);
