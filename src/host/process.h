/* One host process: starting it, talking to it, watching over it. Used by one thread at a time. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "host/host.h"

#define CW_HOST_MAX_FUNCTIONS \
    256 /* that a host is told, loaded or not, before it is replaced by a fresh one */

struct cw_host {
    struct cw_host *next; /* in the list of idle ones */
    pid_t pid;
    int pidfd, socket, output; /* output: what it prints */
    int life;                  /* our end of a pipe: when it closes the kernel kills the host */
    int in_fd, out_fd;         /* shared memory: requests, answers */
    uint8_t *in, *out;
    size_t in_size, out_size;
    bool dead;
    uint64_t n_calls;
    /* of the machine's memory: what it may have where nothing is said; finding out takes many system calls */
    uint64_t share;
    uint64_t functions[CW_HOST_MAX_FUNCTIONS]; /* that it was told */
    uint64_t identities[CW_HOST_MAX_FUNCTIONS];
    bool refused[CW_HOST_MAX_FUNCTIONS]; /* and that could not be loaded, among what it has loaded */
    unsigned n_functions;
    const char *running; /* name of the function, for what it prints */
    char said[1024];     /* the end of what it printed */
    size_t n_said;
    char line[1024]; /* the line that it is printing */
    size_t n_line;
};

/* program: of the host; NULL: the module cachew._host. */
int cw_host_start(const char *python, const char *program, struct cw_host **ret,
                  struct cw_error *err) _must_check_;
/* Tells it a function that it does not know yet. 1: it died, *death says why. CW_E_PIPELINE: it lives, and
 * can't load it. */
int cw_host_define(struct cw_host *h, const struct cw_host_function *f, struct cw_host_death *death,
                   struct cw_error *err) _must_check_;
/* The function's number in h->functions; negative: it was not told. */
int cw_host_find(const struct cw_host *h, uint64_t id);
