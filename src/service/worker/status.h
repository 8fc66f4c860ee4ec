/* Collects the status of a worker from its parts: for other threads (worker.h), pages.c and heartbeat.c. The
 * loop's thread only. */
#pragma once
#include <stdint.h>

struct cw_worker;

/* Updates w->status, and wakes threads that wait for a change of it. */
void cw_status_update(struct cw_worker *w);
/* Returns the CPU time of this process so far, user and system, in ns. */
uint64_t cw_status_cpu_ns(void);
