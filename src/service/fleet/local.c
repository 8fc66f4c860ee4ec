/* The provisioner of local processes. Each worker is a child of this process; if its CPU time is limited, it
 * is in its own control group. Loop thread only; called by fleet.c through its table. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/macro.h"
#include "service/fleet/cgroup.h"
#include "service/fleet/provisioner.h"
#include "net/loop.h"

/* Control groups are named GROUP-PID-NAME. */
#define GROUP "cachew"

struct local {
    struct cw_provisioner base; /* must be the first member */
    struct cw_loop *loop;
    const char **argv; /* n arguments, and room for --name, --pool, their values and NULL */
    size_t n;
    char *pool;
    double cpu_share;
};

struct process {
    struct local *local;
    void *unit;
    pid_t pid;
    int pidfd;
    struct cw_watch *watch;
    struct cw_cgroup *cgroup;
};

/* Runs the worker in the child process, without input. Calls only functions that are allowed between fork and
 * exec. */
static void process_exec(const struct process *x, const char *const *argv, pid_t parent)
{
    cw_child_begin(parent);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    /* its stdout is dropped: nobody needs its ready line, as the dispatcher notices when the worker serves */
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0)
        _exit(1);
    if (x->cgroup && write(cw_cgroup_entry(x->cgroup), "0", 1) != 1)
        _exit(1);
    execv("/proc/self/exe", (char **)(uintptr_t)argv);
    _exit(127);
}

static void process_free(struct process *x)
{
    if (x->watch)
        cw_watch_free(x->watch);
    if (x->pidfd >= 0)
        close(x->pidfd);
    cw_cgroup_free(x->cgroup);
    free(x);
}

static void process_on_exit(void *arg, int events CW_UNUSED)
{
    struct process *x = arg;
    struct local *l = x->local;
    void *unit = x->unit;
    char why[128];
    int status;
    if (waitpid(x->pid, &status, WNOHANG) != x->pid)
        return;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "process %d was killed by signal %d (%s)", (int)x->pid, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(why, sizeof(why), "process %d ended with exit code %d", (int)x->pid, WEXITSTATUS(status));
    process_free(x);
    l->base.ended(unit, why);
}

static int process_start(struct process *x, const char *name, struct cw_error *err)
{
    struct local *l = x->local;
    pid_t parent = getpid();
    l->argv[l->n] = "--name";
    l->argv[l->n + 1] = name;
    l->argv[l->n + 2] = "--pool";
    l->argv[l->n + 3] = l->pool;
    fflush(NULL);
    x->pid = fork();
    if (x->pid == 0)
        process_exec(x, l->argv, parent);
    if (x->pid < 0)
        return cw_error_errno(err, CW_E_IO, errno, "can't start a worker");
    x->pidfd = (int)syscall(SYS_pidfd_open, x->pid, 0);
    return x->pidfd < 0 ? cw_error_errno(err, CW_E_IO, errno, "can't watch a worker") : 0;
}

static int local_start(struct cw_provisioner *p, const char *name, void *unit, void **ret,
                       struct cw_error *err)
{
    struct local *l = (struct local *)p;
    struct process *x = calloc(1, sizeof(*x));
    char group[160];
    if (!x)
        return cw_error_nomem(err, sizeof(*x), "a worker");
    *x = (struct process){.local = l, .unit = unit, .pidfd = -1};
    snprintf(group, sizeof(group), GROUP "-%d-%.120s", (int)getpid(), name);
    int r = l->cpu_share > 0 ? cw_cgroup_new(group, l->cpu_share, &x->cgroup, err) : 0;
    if (r >= 0)
        r = process_start(x, name, err);
    if (r >= 0)
        r = cw_watch_new(l->loop, x->pidfd, process_on_exit, x, &x->watch, err);
    if (r < 0) {
        if (x->pid > 0) {
            kill(x->pid, SIGKILL);
            waitpid(x->pid, NULL, 0);
        }
        process_free(x);
        return r;
    }
    cw_watch_set(x->watch, 1);
    *ret = x;
    return 0;
}

static void local_end(struct cw_provisioner *p CW_UNUSED, void *unit, bool now)
{
    const struct process *x = unit;
    kill(x->pid, now ? SIGKILL : SIGTERM); /* it was not waited for, so no other process has its id */
}

static void local_free(struct cw_provisioner *p)
{
    struct local *l = (struct local *)p;
    if (l->cpu_share > 0)
        /* groups that could not be removed when their worker ended, because they still had processes */
        cw_cgroup_sweep(GROUP);
    free(l->argv);
    free(l->pool);
    free(l);
}

static const struct cw_provisioner_ops local_ops = {
    .start = local_start, .end = local_end, .free = local_free};

int cw_local_new(const struct cw_local_options *o, struct cw_provisioner **ret, struct cw_error *err)
{
    struct cw_cgroup *trial = NULL;
    char name[64];
    snprintf(name, sizeof(name), GROUP "-%d-trial", (int)getpid());
    int r = o->cpu_share > 0 ? cw_cgroup_new(name, o->cpu_share, &trial, err) : 0;
    if (r < 0)
        return r;
    cw_cgroup_free(trial);
    if (o->cpu_share > 0)
        cw_cgroup_sweep(GROUP);
    struct local *l = malloc(sizeof(*l));
    if (!l)
        return cw_error_nomem(err, sizeof(*l), "a provisioner");
    *l = (struct local){.base.ops = &local_ops,
                        .n = o->n,
                        .loop = o->loop,
                        .cpu_share = o->cpu_share,
                        .argv = calloc(o->n + 5, sizeof(*l->argv)),
                        .pool = strdup(o->pool)};
    if (!l->argv || !l->pool) {
        local_free(&l->base);
        return cw_error_nomem(err, sizeof(*l), "a provisioner");
    }
    memcpy(l->argv, o->argv, o->n * sizeof(*l->argv));
    *ret = &l->base;
    return 0;
}
