/* The idle hosts of this process (Python processes that run functions), and the choice of a host for a call.
 * A host in use belongs to its caller. Code that runs functions calls cw_host_acquire and cw_host_release. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/thread.h"
#include "host/process.h"

/* A request is given up after this number of deaths of hosts: of hosts that died by themselves, were killed,
 * or hung. */
#define ATTEMPTS 3
#define ATTEMPTS_KILLED 10
#define ATTEMPTS_HUNG 2 /* few, because each takes the whole time limit of a call */
#define UNUSED_NS UINT64_C(30000000000)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* guarded by mutex: */
static struct cw_host *idle;
static pid_t owner; /* the process that started the idle hosts; differs from getpid() in a forked child */
static char *python, *program;

bool cw_host_give_up(struct cw_host_tries *t, const struct cw_host_death *death)
{
    *(death->hung ? &t->hung : death->killed ? &t->killed : &t->died) += 1;
    return t->hung >= ATTEMPTS_HUNG || t->killed >= ATTEMPTS_KILLED || t->died >= ATTEMPTS;
}

bool cw_host_alive(const struct cw_host *h)
{
    return !h->dead;
}

int cw_host_set_python(const char *new_python, const char *new_program, struct cw_error *err)
{
    _cleanup_free_ char *python_copy = strdup(new_python), *program_copy = strdup(new_program);
    if (!python_copy || !program_copy)
        return cw_error_nomem(err, 0, "a path");
    CW_WITH (&mutex) {
        free(python);
        free(program);
        python = CW_STEAL(python_copy);
        program = CW_STEAL(program_copy);
    }
    cw_host_shutdown(); /* later calls find hosts of the new program only */
    return 0;
}

/* Returns the default interpreter, which the caller frees. */
static char *pool_find_python(void)
{
    char self[4096];
    const char *env = getenv("CACHEW_PYTHON");
    if (env && *env)
        return strdup(env);
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 16);
    char *slash = n > 0 ? memrchr(self, '/', (size_t)n) : NULL;
    if (slash) {
        memcpy(slash, "/python3", 9);
        if (access(self, X_OK) == 0)
            return strdup(self);
    }
    return strdup("python3");
}

static int pool_start_host(struct cw_host **ret, struct cw_error *err)
{
    pthread_mutex_lock(&mutex);
    _cleanup_free_ char *path = python ? strdup(python) : pool_find_python(),
                        *file = program ? strdup(program) : NULL;
    bool complete = path && !file == !program;
    pthread_mutex_unlock(&mutex);
    return complete ? cw_host_start(path, file, ret, err) : cw_error_nomem(err, 0, "a path");
}

/* In a forked child, drops the list, whose hosts belong to the parent; its memory is leaked. Mutex held. */
static void pool_forget_after_fork(void)
{
    if (owner != getpid())
        idle = NULL;
    owner = getpid();
}

/* Returns whether all functions that the host has loaded belong to f's pipeline. */
static bool host_suits(const struct cw_host *h, const struct cw_host_function *f)
{
    for (unsigned i = 0; i < h->n_functions; i++) {
        unsigned k = 0;
        while (k < f->n_pipeline && f->pipeline[k] != h->functions[i].identity)
            k++;
        if (k == f->n_pipeline)
            return false;
    }
    return true;
}

/* Takes an idle host that suits the function out of the list, preferably one that has loaded the function.
 * NULL: no host suits. */
static struct cw_host *pool_take_idle(const struct cw_host_function *f)
{
    CW_GUARD(&mutex);
    pool_forget_after_fork();
    struct cw_host **known = NULL, **other = NULL;
    for (struct cw_host **at = &idle; *at && !known; at = &(*at)->next) {
        int i = cw_host_find(*at, f->id);
        if (!host_suits(*at, f))
            continue;
        if (i >= 0 && !(*at)->functions[i].refused)
            known = at;
        else if (i < 0 && !other)
            other = at;
    }
    struct cw_host **best = known ? known : other;
    return best ? CW_POP(*best) : NULL;
}

static void pool_free_list(struct cw_host *list)
{
    while (list)
        cw_host_free(CW_POP(list));
}

/* Ends idle hosts of other pipelines, those idle for longest first, until their number is at most that of the
 * CPUs. Some are kept, because pipelines may run in turn. */
static void pool_trim(const struct cw_host_function *f)
{
    struct cw_host *old = NULL;
    unsigned keep = cw_cpu_budget();
    CW_WITH (&mutex) {
        pool_forget_after_fork();
        for (struct cw_host **at = &idle; *at;) {
            bool ours = host_suits(*at, f);
            if (ours || keep > 0) {
                keep -= !ours;
                at = &(*at)->next;
                continue;
            }
            struct cw_host *h = CW_POP(*at);
            h->next = old;
            old = h;
        }
    }
    pool_free_list(old);
}

int cw_host_acquire(const struct cw_host_function *f, struct cw_host **ret, struct cw_error *err)
{
    struct cw_error why = {0}; /* error of one host; copied to *err only if no other host is tried */
    struct cw_host_death death;
    struct cw_host_tries tries = {0};
    bool refused = false;
    for (;;) {
        struct cw_host *h = refused ? NULL : pool_take_idle(f);
        bool fresh = !h;
        if (fresh) {
            pool_trim(f);
            int r = pool_start_host(&h, err);
            if (r < 0)
                return r;
        }
        int r = cw_host_define(h, f, &death, &why);
        if (r == 0) {
            *ret = h;
            return 0;
        }
        if (r == CW_E_PIPELINE &&
            !fresh) { /* functions that the host has loaded before may be the reason: try a new host */
            cw_host_release(h);
            refused = true;
            continue;
        }
        cw_host_free(h);
        if (r < 0)
            return cw_error_copy(err, &why);
        if (fresh && cw_host_give_up(&tries,
                                     /* only deaths of fresh hosts count: a used host may have died while
                                      * idle, or because of functions loaded before */
                                     &death))
            return cw_error_set(err, CW_E_IO, "the host process that loads the %s %s %s", f->noun, f->name,
                                death.reason);
    }
}

/* Takes the host that has been idle for longest out of the list, if it was not used for UNUSED_NS and there
 * are more idle hosts than CPUs: more functions were waiting at a time before than now. NULL: none. Mutex
 * held. */
static struct cw_host *pool_take_unused(uint64_t now_ns)
{
    unsigned n = 1;
    struct cw_host **last = &idle;
    for (; (*last)->next; last = &(*last)->next)
        n++;
    return n > cw_cpu_budget() && now_ns - (*last)->idle_ns > UNUSED_NS ? CW_POP(*last) : NULL;
}

void cw_host_release(struct cw_host *h)
{
    if (!h)
        return;
    if (h->dead) {
        cw_host_free(h);
        return;
    }
    h->running = "idle";
    h->idle_ns = cw_now_ns();
    struct cw_host *old = NULL;
    CW_WITH (&mutex) {
        pool_forget_after_fork();
        h->next = idle;
        idle = h;
        old = pool_take_unused(h->idle_ns);
    }
    cw_host_free(old);
}

void cw_host_shutdown(void)
{
    struct cw_host *list = NULL;
    CW_WITH (&mutex) {
        pool_forget_after_fork();
        list = CW_STEAL(idle);
    }
    pool_free_list(list);
}
