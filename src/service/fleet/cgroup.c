/* A control group (cgroup) of Linux, version 1 or 2, that limits the CPU time of the processes in it. It is
 * made below this process's own group, if this process may do that. local.c makes one group per worker. */
#include "service/fleet/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/machine.h"

/* Period of the limit, in us. A group that has used its part of a period stands still until the next period.
 * With 50 ms, a throttled worker still answers in time. */
#define PERIOD_US 50000
#define LEAST_US 1000 /* the least quota per period that the kernel accepts */
#define WHY_BYTES 600

struct cw_cgroup {
    char path[PATH_MAX];
    int entry;
};

/* Finds where groups are mounted: for version 1 those of the cpu controller, for version 2 all. Returns
 * whether they are. */
static bool cgroup_find_mount(int version, char mount[PATH_MAX])
{
    bool found = false;
    FILE *f = setmntent("/proc/self/mounts", "re");
    for (const struct mntent *m; f && !found && (m = getmntent(f));) {
        found = version == 1 ? strcmp(m->mnt_type, "cgroup") == 0 && hasmntopt(m, "cpu")
                             : strcmp(m->mnt_type, "cgroup2") == 0;
        snprintf(mount, PATH_MAX, "%s", m->mnt_dir);
    }
    if (f)
        endmntent(f);
    return found;
}

/* Finds the group that this process is in, by a line ID:CONTROLLER,CONTROLLER:PATH; "" if that is not known.
 */
static void cgroup_find_own(int version, char own[PATH_MAX])
{
    char line[2 * PATH_MAX];
    FILE *f = fopen("/proc/self/cgroup", "re");
    own[0] = '\0';
    while (f && fgets(line, sizeof(line), f)) {
        char *rest = line;
        (void)strsep(&rest, ":");
        char *controllers = strsep(&rest, ":"), *path = strsep(&rest, "\n");
        bool found = path && version == 2 && !*controllers;
        for (char *name; path && version == 1 && (name = strsep(&controllers, ","));)
            found |= strcmp(name, "cpu") == 0;
        if (found)
            snprintf(own, PATH_MAX, "%s", strcmp(path, "/") == 0 ? "" : path);
    }
    if (f)
        fclose(f);
}

static int cgroup_write(const char *folder, const char *name, const char *text)
{
    char path[2 * PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    int e = errno;
    close(fd);
    errno = e;
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

static int cgroup_limit(const struct cw_cgroup *c, int version, double cpus)
{
    char text[64];
    long quota = (long)fmax(cpus * PERIOD_US, LEAST_US);
    if (version == 2) {
        snprintf(text, sizeof(text), "%ld %d", quota, PERIOD_US);
        return cgroup_write(c->path, "cpu.max", text);
    }
    snprintf(text, sizeof(text), "%d", PERIOD_US);
    if (cgroup_write(c->path, "cpu.cfs_period_us", text) < 0)
        return -1;
    snprintf(text, sizeof(text), "%ld", quota);
    return cgroup_write(c->path, "cpu.cfs_quota_us", text);
}

/* Finds the group below which new groups are made: that of this process. */
static bool cgroup_find_parent(int version, char parent[2 * PATH_MAX])
{
    char mount[PATH_MAX], own[PATH_MAX];
    struct stat st;
    if (!cgroup_find_mount(version, mount))
        return false;
    cgroup_find_own(version, own);
    snprintf(parent, 2 * PATH_MAX, "%s%s", mount, own);
    if (stat(parent, &st) < 0) /* in a container the path may be the host's: then the mount is this group */
        snprintf(parent, 2 * PATH_MAX, "%s", mount);
    return true;
}

/* In version 2, a group that itself has processes, as the parent may have, can limit the CPU time of threaded
 * child groups only. Whole processes may enter a threaded group, too. The type must not be changed if the
 * parent is the root group or has no processes: then the new group's type is not "domain invalid". */
int cw_cgroup_admit(const char *path)
{
    char name[PATH_MAX + 64], type[64] = "";
    snprintf(name, sizeof(name), "%s/cgroup.type", path);
    if (cw_read_line(name, type, sizeof(type)) < 0)
        return -1;
    return strncmp(type, "domain invalid", strlen("domain invalid")) == 0
               ? cgroup_write(path, "cgroup.type", "threaded")
               : 0;
}

static int cgroup_failed(const char *what, const char *path, char why[WHY_BYTES])
{
    snprintf(why, WHY_BYTES, "%s %.400s: %s", what, path, strerror(errno));
    return -1;
}

/* Makes a group in the tree of one version. Returns 0, or -1 with the reason in `why`. */
static int cgroup_make(struct cw_cgroup *c, int version, const char *name, double cpus, char why[WHY_BYTES])
{
    char parent[2 * PATH_MAX], procs[PATH_MAX + 64];
    if (!cgroup_find_parent(version, parent)) {
        snprintf(why, WHY_BYTES, "has no mounted cpu controller");
        return -1;
    }
    if (version == 2 && cgroup_write(parent, "cgroup.subtree_control", "+cpu") < 0)
        return cgroup_failed(errno == ENOENT || errno == EINVAL ? "has no cpu controller in"
                             : errno == EBUSY ? "can't limit child groups while processes are in"
                                              : "can't give CPU time to groups in",
                             parent, why);
    if (snprintf(c->path, sizeof(c->path), "%s/%s", parent, name) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return cgroup_failed("can't make a group in", parent, why);
    }
    if (mkdir(c->path, 0755) < 0)
        return cgroup_failed("can't make", c->path, why);
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", c->path);
    if ((version == 1 || cw_cgroup_admit(c->path) == 0) && cgroup_limit(c, version, cpus) == 0 &&
        (c->entry = open(procs, O_WRONLY | O_CLOEXEC)) >= 0)
        return 0;
    cgroup_failed("can't limit", c->path, why);
    (void)rmdir(c->path);
    return -1;
}

int cw_cgroup_new(const char *name, double cpus, struct cw_cgroup **ret, struct cw_error *err)
{
    char first[WHY_BYTES], second[WHY_BYTES];
    struct cw_cgroup *c = calloc(1, sizeof(*c));
    if (!c)
        return cw_error_nomem(err, sizeof(*c), "a control group");
    if (cgroup_make(c, 1, name, cpus, first) < 0 && cgroup_make(c, 2, name, cpus, second) < 0) {
        free(c);
        return cw_error_set(
            err, CW_E_OPTION,
            "CPU time can't be limited here, because no control group %s can be made: cgroup version 1 "
            "%.400s; version 2 %.400s; expected to run as root, or in a delegated control group",
            name, first, second);
    }
    *ret = c;
    return 0;
}

/* Removes groups of ended processes, `PREFIX-PID-...`, below one parent. A group with processes stays. */
static void cgroup_sweep(const char *parent, const char *prefix)
{
    _cleanup_(cw_closedirp) DIR *folder = opendir(parent);
    const struct dirent *e;
    size_t size = strlen(prefix);
    while (folder && (e = readdir(folder))) {
        char *end = NULL;
        long pid = strncmp(e->d_name, prefix, size) == 0 && e->d_name[size] == '-'
                       ? strtol(e->d_name + size + 1, &end, 10)
                       : 0;
        if (pid > 0 && *end == '-' && (pid == getpid() || (kill((pid_t)pid, 0) < 0 && errno == ESRCH)))
            (void)unlinkat(dirfd(folder), e->d_name, AT_REMOVEDIR);
    }
}

void cw_cgroup_sweep(const char *prefix)
{
    char parent[2 * PATH_MAX];
    for (int version = 1; version <= 2; version++)
        if (cgroup_find_parent(version, parent))
            cgroup_sweep(parent, prefix);
}

int cw_cgroup_entry(const struct cw_cgroup *c)
{
    return c->entry;
}

struct cw_cgroup *cw_cgroup_free(struct cw_cgroup *c)
{
    if (!c)
        return NULL;
    close(c->entry);
    /* fails if processes that the worker started are still in the group: then it stays until it is swept */
    (void)rmdir(c->path);
    free(c);
    return NULL;
}
