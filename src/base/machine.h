/* CPUs and memory that this process may use, by affinity and cgroups (v1 and v2), and what it has used. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the first line of a small file, as those of /proc and cgroups are. -1: it can't be read. */
int cw_read_line(const char *path, char *buf, size_t size);
/* Whole CPUs, at least 1. */
unsigned cw_cpu_budget(void);
/* Bytes that the cgroup or the machine has. */
uint64_t cw_memory_total(void);
/* Bytes that are free in the cgroup and the machine, those of the page cache included. */
uint64_t cw_memory_available(void);
/* VmHWM of this process in bytes (not ru_maxrss, which exec inherits); 0 when unknown. */
uint64_t cw_peak_rss(void);
/* Returns the CPU seconds of this process, all threads, or of the children that it waited for. */
double cw_cpu_s(bool of_children);
/* Time for which the threads of this process were ready to run and had no CPU, summed over its present
 * threads; 0 where the system does not say. */
uint64_t cw_run_delay_ns(void);
/* The same of the calling thread. */
uint64_t cw_thread_delay_ns(void);
/* Seconds since this process started, from its start time in /proc/self/stat. */
double cw_process_age(void);
