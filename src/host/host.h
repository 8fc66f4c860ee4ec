/*
 * Host processes ("hosts"): Python interpreters, children of this process, that run the user's functions. A
 * host gets the definition of a function once (its spec, JSON) and is then called with rows in shared memory;
 * docs/hosts.md describes both. A host is kept for later calls of pipelines that contain all functions that
 * it has run. There are as many hosts as concurrent calls, usually the number of compute threads.
 *
 * Threads: a host belongs to the thread that acquired it until cw_host_release. Functions without a host
 * argument are thread-safe.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_host;

/* A function to run. Immutable once used. */
struct cw_host_function {
    uint64_t id;       /* hash of the spec; names the function in frames */
    uint64_t identity; /* hash of the function's code and data */
    /* identities of all functions of its pipeline, n_pipeline of them. The function runs only in hosts that
     * have run no others, so that it finds no traces of foreign functions */
    const uint64_t *pipeline;
    unsigned n_pipeline;
    const char *noun;    /* for messages: "function" or "tokenizer" */
    const char *name;    /* for messages */
    const char *spec;    /* docs/hosts.md; compact JSON */
    uint64_t timeout_ns; /* for one record */
    bool together;       /* runs its rows at the same time */
    /* resident bytes that a host may have; 0: half of the machine's memory, divided by the number of CPUs */
    uint64_t memory;
    int (*cancelled)(
        void *); /* called about every 50 ms while a call runs; returns nonzero to cancel. May be NULL */
    void *cancel_arg;
};

/* Why a call got no answer: the host ended. */
struct cw_host_death {
    bool hung;         /* this process killed the host, because a row took longer than timeout_ns */
    bool killed;       /* by SIGKILL from outside: the kernel was short of memory, or a person did it */
    uint64_t progress; /* index of the row that the host was computing; UINT64_MAX: none yet */
    char reason[400];  /* "was killed by signal 11 (Segmentation fault); its last output: ..." */
};

/* How often hosts died during one request, by kind of death. */
struct cw_host_tries {
    unsigned hung, killed, died;
};

/* Counts a death. Returns whether to give the request up. Deaths by SIGKILL from outside have the highest
 * limit: the request does not cause them, but they may come often. */
bool cw_host_give_up(struct cw_host_tries *t, const struct cw_host_death *death);

static inline unsigned cw_host_tried(const struct cw_host_tries *t)
{
    return t->hung + t->killed + t->died;
}

/* Returns a host that knows the function: an idle one that ran functions of its pipeline only, or a new one.
 * CW_E_PIPELINE: the function can't be loaded in a new host. CW_E_IO: no host could be started, or those
 * started died while they loaded the function. */
int cw_host_acquire(const struct cw_host_function *f, struct cw_host **ret,
                    struct cw_error *err) _must_check_;
/* Returns memory for a request of size bytes, valid until the next cw_host_input of this host; aligned to a
 * page, contents undefined. */
int cw_host_input(struct cw_host *h, size_t size, uint8_t **ret, struct cw_error *err) _must_check_;
/* Sends the request of `size` bytes in cw_host_input's memory, and waits for the answer. *ret is the answer
 * in shared memory, valid until the next call. The host wrote it, so it may be malformed, and may even
 * change. 1: the host is dead, and *death says why. CW_E_INTERRUPTED: the call was cancelled, and the host is
 * dead. In both cases the caller still calls cw_host_release. */
int cw_host_call(struct cw_host *h, const struct cw_host_function *f, size_t size, const uint8_t **ret,
                 size_t *ret_size, struct cw_host_death *death, struct cw_error *err) _must_check_;
/* Returns whether the host can be called again. */
bool cw_host_alive(const struct cw_host *h);

/* The calls that a thread has made so far: [1] of functions that run their rows at the same time, [0] of
 * others. */
struct cw_host_calls {
    uint64_t wall_ns[2];
    uint64_t cpu_ns[2]; /* CPU time of the hosts, all their threads, during these calls */
};
struct cw_host_calls cw_host_calls(void); /* of this thread */
/* Returns the CPU time of all hosts of this process so far. During a call it is counted about every 50 ms. */
uint64_t cw_host_cpu_ns(void);
/* Returns how many hosts fit in half of this process's memory, judging by the largest host so far. */
unsigned cw_host_most(void);
/* Makes the host idle again, or frees it if it is dead. Ends one idle host that has not been used for a while
 * if there are more of them than CPUs. Accepts NULL. */
void cw_host_release(struct cw_host *h);
/* Kills the host if it lives, waits for its end and frees it. Accepts NULL; returns NULL. */
struct cw_host *cw_host_free(struct cw_host *h);

/* Sets the interpreter and the file of the program of hosts that start from now on, and ends idle hosts.
 * Default: $CACHEW_PYTHON, or python3 beside this program, or python3 in $PATH, with the module cachew._host.
 */
int cw_host_set_python(const char *python, const char *program, struct cw_error *err) _must_check_;
/* Ends all idle hosts. Hosts in use go on, and are idle again after their release. */
void cw_host_shutdown(void);
