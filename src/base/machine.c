/* Reads CPU and memory limits and use from /proc and cgroups, and the number of ranks from the environment.
 */
#include "base/machine.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

int cw_read_line(const char *path, char *buf, size_t size)
{
    _cleanup_(cw_fclosep) FILE *f = fopen(path, "re");
    return f && fgets(buf, (int)size, f) ? 0 : -1;
}

/* Writes the path of this process's cgroup for a v1 controller, or of the v2 one (controller ""). -1: there
 * is none. */
static int cgroup_path(const char *controller, char *buf, size_t size)
{
    char line[4096];
    _cleanup_(cw_fclosep) FILE *f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof(line), f)) { /* a line is ID:NAME,NAME:PATH */
        char *rest = line;
        (void)strsep(&rest, ":");
        char *names = strsep(&rest, ":");
        for (char *name; rest && (name = strsep(&names, ","));)
            if (strcmp(name, controller) == 0) {
                snprintf(buf, size, "%.*s", (int)strcspn(rest, "\n"), rest);
                return 0;
            }
    }
    return -1;
}

/* Returns the smallest value of a cgroup file, from the process's own group up to the root, because the
 * limits of ancestors hold too. */
static uint64_t cgroup_least(const char *mount, const char *controller, const char *file,
                             uint64_t (*parse)(const char *dir, const char *file))
{
    char path[4096], dir[8300];
    uint64_t least = UINT64_MAX;
    if (cgroup_path(controller, path, sizeof(path)) < 0)
        return least;
    for (;;) {
        snprintf(dir, sizeof(dir), "%s%s", mount, path);
        uint64_t v = parse(dir, file);
        least = CW_MIN(least, v);
        char *slash = strrchr(path, '/');
        if (!slash || path[0] == '\0')
            break;
        *slash = '\0';
    }
    return least;
}

/* Reads the first line of a file of a cgroup. */
static int cgroup_read_line(const char *dir, const char *file, char line[128])
{
    char path[8500];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return cw_read_line(path, line, 128);
}

/* Returns the number in a file; UINT64_MAX: there is none. */
static uint64_t cgroup_number(const char *dir, const char *file)
{
    char line[128];
    uint64_t v;
    return cgroup_read_line(dir, file, line) == 0 && sscanf(line, "%" SCNu64, &v) == 1 ? v : UINT64_MAX;
}

/* Returns the limit in thousandths of a CPU. */
static uint64_t cgroup_cpu_max(const char *dir, const char *file)
{
    char line[128];
    uint64_t quota, period;
    if (cgroup_read_line(dir, file, line) < 0 || sscanf(line, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 ||
        !period)
        return UINT64_MAX;
    return quota * 1000 / period;
}

static uint64_t cgroup_cfs(const char *dir, const char *file)
{
    char line[128];
    int64_t quota;
    if (cgroup_read_line(dir, file, line) < 0 || sscanf(line, "%" SCNi64, &quota) != 1 || quota <= 0)
        return UINT64_MAX;
    uint64_t period = cgroup_number(dir, "cpu.cfs_period_us");
    return period && period != UINT64_MAX ? (uint64_t)quota * 1000 / period : UINT64_MAX;
}

/* Returns the number of CPUs that a process may use by its affinity (0: this process), within the cgroup
 * limits of this process. */
static unsigned cpus_of(pid_t pid)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = online > 0 ? (unsigned)online : 1;
    if (sched_getaffinity(pid, sizeof(set), &set) == 0)
        n = (unsigned)CPU_COUNT(&set);
    uint64_t thousandths = cgroup_least("/sys/fs/cgroup", "", "cpu.max", cgroup_cpu_max);
    thousandths = CW_MIN(thousandths,
                         cgroup_least("/sys/fs/cgroup/cpu", "cpu", "cpu.cfs_quota_us", cgroup_cfs));
    if (thousandths < (uint64_t)n * 1000)
        n = (unsigned)((thousandths + 999) / 1000);
    return CW_MAX(n, 1);
}

#define IDLE_NS 200000000 /* ns over which cw_idle_cpus measures */

unsigned cw_cpu_budget(void)
{
    return cpus_of(0);
}

/* Sets the ticks of all CPUs since boot, and those in which they were idle. */
static bool cpu_ticks(uint64_t *ret_all, uint64_t *ret_idle)
{
    char line[512], *at = line + strlen("cpu");
    if (cw_read_line("/proc/stat", line, sizeof(line)) < 0 || strncmp(line, "cpu ", 4) != 0)
        return false;
    *ret_all = *ret_idle = 0;
    for (unsigned i = 0; i < 8; i++) { /* user, nice, system, idle, iowait, irq, softirq, steal */
        uint64_t n = strtoull(at, &at, 10);
        *ret_all += n;
        *ret_idle += i == 3 || i == 4 ? n : 0;
    }
    return true;
}

unsigned cw_idle_cpus(void)
{
    uint64_t all[2], idle[2];
    if (!cpu_ticks(&all[0], &idle[0]))
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = IDLE_NS}, NULL);
    if (!cpu_ticks(&all[1], &idle[1]) || all[1] <= all[0])
        return 0;
    double part = (double)(idle[1] - idle[0]) / (double)(all[1] - all[0]);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    /* half a CPU more, because ticks are counted coarsely */
    return CW_MIN((unsigned)(part * (double)online + 0.5), cw_cpu_budget());
}

/* Returns the smallest value that `parse` gets from the files of the memory controller's limits. */
static uint64_t cgroup_least_memory(uint64_t (*parse)(const char *dir, const char *file))
{
    uint64_t least = cgroup_least("/sys/fs/cgroup", "", "memory.max", parse);
    return CW_MIN(least, cgroup_least("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", parse));
}

uint64_t cw_memory_total(void)
{
    uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return CW_MIN(total, cgroup_least_memory(cgroup_number));
}

/* ---- ranks on this host ---- */

/* Variables with the number of ranks on this host: torchrun, Open MPI, MPICH and Intel MPI, MVAPICH, Horovod.
 */
static const char *const share_variables[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                              "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE",
                                              "HOROVOD_LOCAL_SIZE"};
#define SHARE_SLURM "SLURM_STEP_TASKS_PER_NODE" /* of srun: numbers of nodes 0, 1, ..., such as "4(x2),3" */
#define SHARE_MOST_RANKS 4096                   /* more are taken as a mistake, and ignored */
#define SHARE_MOST_ANCESTORS 16

/* Returns the number in an environment variable from 1 to SHARE_MOST_RANKS; 0: there is none. */
static unsigned share_number(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    unsigned long n = text ? strtoul(text, &end, 10) : 0;
    return n <= SHARE_MOST_RANKS && text && *end == '\0' ? (unsigned)n : 0;
}

/* Returns the number of tasks of a step on this node by Slurm's list; 0: srun did not start this process. */
static unsigned share_slurm_tasks(void)
{
    const char *list = getenv(SHARE_SLURM), *id = getenv("SLURM_NODEID");
    unsigned long node = id ? strtoul(id, NULL, 10) : 0;
    while (list && *list) {
        char *end;
        unsigned long tasks = strtoul(list, &end, 10), nodes = 1;
        if (strncmp(end, "(x", 2) == 0)
            nodes = strtoul(end + 2, &end, 10);
        if (node < nodes)
            return tasks <= SHARE_MOST_RANKS ? (unsigned)tasks : 0;
        node -= nodes;
        list = strchr(end, ',');
        list = list ? list + 1 : NULL;
    }
    return 0;
}

/* Whether the environment with which a process was started has a variable; false also if that can't be read.
 */
static bool share_environ_has(long pid, const char *variable)
{
    char path[64];
    char *entry = NULL;
    size_t size = 0, length = strlen(variable);
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%ld/environ", pid);
    _cleanup_(cw_fclosep) FILE *f = fopen(path, "re");
    while (f && !found && getdelim(&entry, &size, '\0', f) > 0)
        found = strncmp(entry, variable, length) == 0 && entry[length] == '=';
    free(entry);
    return found;
}

/* Returns the CPUs that the ranks of this host share: those of the launcher, which is the first ancestor that
 * was started without the variable. The launcher may have bound this rank to fewer. */
static unsigned share_pool(const char *variable)
{
    long pid = getppid();
    for (int i = 0; pid > 1 && i < SHARE_MOST_ANCESTORS; i++) {
        if (!share_environ_has(pid, variable))
            return cpus_of((pid_t)pid);
        char path[64], line[2048];
        snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
        const char *p = cw_read_line(path, line, sizeof(line)) == 0 ? strrchr(line, ')') : NULL;
        if (!p || sscanf(p + 1, " %*c %ld", &pid) != 1)
            break;
    }
    return cpus_of(0);
}

struct cw_rank_share cw_rank_share(void)
{
    struct cw_rank_share s = {.ranks = 1};
    unsigned own = cw_cpu_budget(), pool = own;
    for (size_t i = 0; i < CW_COUNT_OF(share_variables) && !s.variable; i++) {
        unsigned n = share_number(share_variables[i]);
        if (n)
            s = (struct cw_rank_share){.ranks = n, .variable = share_variables[i]};
    }
    if (s.variable) {
        pool = s.ranks > 1 ? share_pool(s.variable) : own;
    } else if ((s.ranks = share_slurm_tasks()) != 0) {
        s.variable = SHARE_SLURM;
        unsigned on_node = share_number("SLURM_CPUS_ON_NODE");
        pool = on_node ? on_node : own;
    } else {
        s.ranks = 1;
    }
    s.cpus = CW_MAX(CW_MIN(own, pool / s.ranks), 1);
    s.memory = cw_memory_total() / 2 / s.ranks;
    return s;
}

/* Returns the number after a name in a file of lines "NAME NUMBER"; 0: there is none. */
static uint64_t proc_number(const char *path, const char *name)
{
    char line[256];
    uint64_t v;
    _cleanup_(cw_fclosep) FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), " %" SCNu64, &v) == 1)
            return v;
    return 0;
}

/* Returns the bytes that a cgroup may still take, counting its page cache as free. file: the file with its
 * limit. */
static uint64_t cgroup_room(const char *dir, const char *file)
{
    bool v2 = strcmp(file, "memory.max") == 0;
    uint64_t limit = cgroup_number(dir, file),
             used = cgroup_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
    char path[8500];
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", dir);
    return limit - CW_MIN(used, limit) + proc_number(path, v2 ? "active_file " : "total_active_file ") +
           proc_number(path, v2 ? "inactive_file " : "total_inactive_file ");
}

uint64_t cw_memory_available(void)
{
    uint64_t room = proc_number("/proc/meminfo", "MemAvailable:") * 1024;
    return CW_MIN(room, cgroup_least_memory(cgroup_room));
}

/* Returns the ns without a CPU from a file "schedstat"; 0: the file can't be read. */
static uint64_t schedstat_delay_ns(const char *path)
{
    char line[128];
    uint64_t delay_ns;
    return cw_read_line(path, line, sizeof(line)) == 0 && sscanf(line, "%*u %" SCNu64, &delay_ns) == 1
               ? delay_ns
               : 0;
}

uint64_t cw_peak_rss(void)
{
    return proc_number("/proc/self/status", "VmHWM:") * 1024;
}

double cw_cpu_s(bool of_children)
{
    struct rusage u;
    getrusage(of_children ? RUSAGE_CHILDREN : RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

uint64_t cw_run_delay_ns(void)
{
    char path[300];
    uint64_t sum = 0;
    _cleanup_(cw_closedirp) DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/schedstat", e->d_name);
        sum += e->d_name[0] != '.' ? schedstat_delay_ns(path) : 0;
    }
    return sum;
}

uint64_t cw_thread_delay_ns(void)
{
    return schedstat_delay_ns("/proc/thread-self/schedstat");
}

double cw_process_age(void)
{
    char line[2048];
    unsigned long long start;
    if (cw_read_line("/proc/self/stat", line, sizeof(line)) < 0)
        return 0;
    char *p = strrchr(line, ')'); /* the process's name may contain any character, so search from the end */
    if (!p ||
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &start) != 1)
        return 0;
    return (double)cw_clock_ns(CLOCK_BOOTTIME) * 1e-9 - (double)start / (double)sysconf(_SC_CLK_TCK);
}
