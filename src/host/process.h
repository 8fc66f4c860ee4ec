/* One host process: starts it, exchanges frames with it, and watches its time, memory and output. Used by one
 * thread at a time. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "host/host.h"

/* Functions that are sent to a host, loaded or refused, before a new host replaces it. */
#define CW_HOST_MAX_FUNCTIONS 256

struct cw_host_known {
    uint64_t id, identity; /* as in struct cw_host_function */
    bool refused;          /* the host could not load it, with the functions loaded before */
};

struct cw_host {
    struct cw_host *next;      /* in the list of idle hosts */
    pid_t pid;                 /* 0: the process has been waited for */
    int pidfd, socket, output; /* output: our end of the pipe to which the host prints */
    int life;                  /* our end of a pipe: when it closes, the kernel kills the host */
    int in_fd, out_fd;         /* shared memory: requests, answers */
    uint8_t *in, *out;
    size_t in_size, out_size;
    bool dead, looked; /* looked: its memory was measured */
    uint64_t n_calls;
    uint64_t cpu_ns;  /* CPU time, as far as it is counted in cw_host_cpu_ns */
    uint64_t idle_ns; /* since when it is idle */
    /* limit of resident bytes if the function has none; computed once, because that takes many system calls
     */
    uint64_t share;
    struct cw_host_known functions[CW_HOST_MAX_FUNCTIONS]; /* that were sent to the host */
    unsigned n_functions;
    const char *running; /* name of the function in progress, which precedes each line of output */
    char said[1024];     /* the last bytes that it printed */
    size_t n_said;
    char line[1024]; /* the current line of output, not complete yet */
    size_t n_line;
};

/* Starts a host. program: file of the host's program; NULL: the module cachew._host. */
int cw_host_start(const char *python, const char *program, struct cw_host **ret,
                  struct cw_error *err) _must_check_;
/* Sends the function to the host, unless it was sent before, and waits until it is loaded. 1: the host died,
 * and *death says why. CW_E_PIPELINE: the host lives, but can't load the function. */
int cw_host_define(struct cw_host *h, const struct cw_host_function *f, struct cw_host_death *death,
                   struct cw_error *err) _must_check_;
/* Returns the function's index in h->functions; negative: it was not sent to the host. */
int cw_host_find(const struct cw_host *h, uint64_t id);
