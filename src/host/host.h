/*
 * Host processes: Python interpreters beside this one that run the user's functions. A host is told once what
 * a function is (its spec, JSON) and is then called with rows in shared memory; docs/hosts.md describes both.
 * Hosts are kept for the next call, of any pipeline of this process that has the functions that they ran; how
 * many there are is how many calls run at a time, which is the number of compute threads.
 *
 * Threads: a host belongs to the thread that acquired it until cw_host_release; everything else here is
 * thread-safe.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_host;

/* What is to run. Immutable once used. */
struct cw_host_function {
    uint64_t id;       /* a hash of the spec: hosts know functions by it */
    uint64_t identity; /* a hash of what the function is known by, */
    /* and of those of its pipeline, n_pipeline: where others have run it does not run, so that it finds
     * nothing that they left */
    const uint64_t *pipeline;
    unsigned n_pipeline;
    const char *name;    /* for messages */
    const char *spec;    /* docs/hosts.md; compact JSON */
    uint64_t timeout_ns; /* for one record */
    /* resident bytes that a host may have; 0: half of the machine's memory, divided by its CPUs */
    uint64_t memory;
    int (*cancelled)(void *); /* may be NULL; asked every few milliseconds while a call runs */
    void *cancel_arg;
};

/* How a call ended that got no answer. */
struct cw_host_death {
    bool hung;         /* this process killed it: it took longer than allowed */
    bool killed;       /* by SIGKILL from outside: the kernel short of memory, or an operator */
    uint64_t progress; /* the row that it was computing; UINT64_MAX: none yet */
    char reason[400];  /* "was killed by signal 11 (Segmentation fault); its last output: ..." */
};

/* How often hosts died of one request. */
struct cw_host_tries {
    unsigned hung, killed, died;
};

/* Counts a death; returns whether to give up. Deaths from outside have the highest limit: they do not follow
 * from the request, but may come often. */
bool cw_host_give_up(struct cw_host_tries *t, const struct cw_host_death *death);

static inline unsigned cw_host_tried(const struct cw_host_tries *t)
{
    return t->hung + t->killed + t->died;
}

/* Returns a host that knows the function: an idle one that ran functions of its pipeline only, or a new one.
 * CW_E_PIPELINE: the function can't be loaded in a new one; CW_E_IO: there is no such host. */
int cw_host_acquire(const struct cw_host_function *f, struct cw_host **ret,
                    struct cw_error *err) _must_check_;
/* Returns memory for a request of size bytes, valid until the next cw_host_input of this host; aligned to a
 * page, contents undefined. */
int cw_host_input(struct cw_host *h, size_t size, uint8_t **ret, struct cw_error *err) _must_check_;
/* Sends the request, waits for the answer: in memory that the host wrote and may not be trusted to be
 * well-formed; valid until the next call. 1: the host is dead, *death says why. CW_E_INTERRUPTED: cancelled;
 * the host is dead too. After either: cw_host_release. */
int cw_host_call(struct cw_host *h, const struct cw_host_function *f, size_t size, const uint8_t **ret,
                 size_t *ret_size, struct cw_host_death *death, struct cw_error *err) _must_check_;
/* Returns whether the host can be called again. */
bool cw_host_alive(const struct cw_host *h);
/* Makes the host idle again, or frees it if it is dead. Accepts NULL. */
void cw_host_release(struct cw_host *h);
/* Kills the host if it lives, waits for its end and frees it. Accepts NULL; returns NULL. */
struct cw_host *cw_host_free(struct cw_host *h);

/* Sets the interpreter and the file of the program of hosts that start from now on. Default: $CACHEW_PYTHON,
 * or python3 beside this program, or python3 in $PATH, with the module cachew._host. */
int cw_host_set_python(const char *python, const char *program, struct cw_error *err) _must_check_;
/* Ends all idle hosts; others end when they are released. */
void cw_host_shutdown(void);
