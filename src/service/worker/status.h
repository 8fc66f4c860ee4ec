/* Collects the status of a worker in w->status. Its readers are pages.c, heartbeat.c and other threads
 * (through worker.h). Only the thread of the worker's loop calls cw_status_update. */
#pragma once
#include <stdint.h>

struct cw_worker;

/* Updates w->status, and wakes the threads that wait for the status to change. */
void cw_status_update(struct cw_worker *w);
/* Returns the CPU time of this process and its host processes so far, user and system, in ns. */
uint64_t cw_status_cpu_ns(void);
