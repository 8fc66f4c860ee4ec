/* The CPUs and memory that this process may use, by affinity and cgroups (v1 and v2), and what it has
 * used. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the first line of a small file, such as those of /proc and cgroups. -1: the file can't be read. */
int cw_read_line(const char *path, char *buf, size_t size);
/* Returns the number of CPUs that this process may use, as a whole number, at least 1. */
unsigned cw_cpu_budget(void);

/* Returns how many of the CPUs that this process may use are idle at the moment, rounded. Measures for 0.2 s;
 * 0: none, or not known. */
unsigned cw_idle_cpus(void);

/* The part of the host that this process takes by default. Where a launcher (torchrun, an MPI, srun) started
 * several ranks of a training run on this host, each rank takes an equal part. */
struct cw_rank_share {
    unsigned cpus;        /* at least 1 */
    uint64_t memory;      /* bytes */
    unsigned ranks;       /* number of ranks on this host; 1: there is no launcher */
    const char *variable; /* the environment variable that tells it; NULL: none does */
};
struct cw_rank_share cw_rank_share(void);
/* Returns the memory of the cgroup or the machine, in bytes. */
uint64_t cw_memory_total(void);
/* Returns the bytes that this process may still take, by the cgroup and by the machine; the page cache counts
 * as free. */
uint64_t cw_memory_available(void);
/* Returns the largest resident size of this process so far (VmHWM, because exec inherits ru_maxrss), in
 * bytes; 0: not known. */
uint64_t cw_peak_rss(void);
/* Returns the CPU seconds of all threads of this process, or of the children that it waited for. */
double cw_cpu_s(bool of_children);
/* Returns the ns for which the threads of this process were ready to run and had no CPU, summed over its
 * present threads; 0 where the system does not tell. */
uint64_t cw_run_delay_ns(void);
/* As cw_run_delay_ns, for the calling thread. */
uint64_t cw_thread_delay_ns(void);
/* Returns the seconds since this process started, from its start time in /proc/self/stat. */
double cw_process_age(void);
