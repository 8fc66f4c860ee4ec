/* One host process: starting it, talking to it, watching over it. Used by one thread at a time. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "host/host.h"

#define CW_HOST_MAX_FUNCTIONS \
    256 /* functions that a host is told, loaded or not, before a new host replaces it */

struct cw_host_known {
    uint64_t id, identity; /* as in struct cw_host_function */
    bool refused;          /* it could not be loaded, among the functions before it */
};

struct cw_host {
    struct cw_host *next; /* in the list of idle ones */
    pid_t pid;
    int pidfd, socket, output; /* output: of a pipe, for the text that the host prints */
    int life;                  /* our end of a pipe: when it closes the kernel kills the host */
    int in_fd, out_fd;         /* shared memory: requests, answers */
    uint8_t *in, *out;
    size_t in_size, out_size;
    bool dead;
    uint64_t n_calls;
    /* limit of memory where the function states none; computed once, because that takes many system calls */
    uint64_t share;
    struct cw_host_known functions[CW_HOST_MAX_FUNCTIONS]; /* that the host was told */
    unsigned n_functions;
    const char *running; /* name of the function, for lines that the host prints */
    char said[1024];     /* the last bytes that it printed */
    size_t n_said;
    char line[1024]; /* the line that it is printing */
    size_t n_line;
};

/* program: file of the host's program; NULL: the module cachew._host. */
int cw_host_start(const char *python, const char *program, struct cw_host **ret,
                  struct cw_error *err) _must_check_;
/* Sends a function that the host does not know yet. 1: the host died, *death says why. CW_E_PIPELINE: the
 * host lives, and can't load the function. */
int cw_host_define(struct cw_host *h, const struct cw_host_function *f, struct cw_host_death *death,
                   struct cw_error *err) _must_check_;
/* Returns the function's index in h->functions; negative: the host was not told. */
int cw_host_find(const struct cw_host *h, uint64_t id);
