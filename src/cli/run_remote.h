/* `run --service`: takes the batches of a job from a service. Owns the trace. */
#pragma once
#include "base/trace.h"
#include "cli/credentials.h"
#include "cli/pipeline.h"

struct cli_ranks { /* which batches of the epoch this process takes */
    uint64_t epochs, rank, world_size;
    const char *order; /* NULL: not given */
};

/* Whether --order any was given: batches are delivered as soon as they are ready. */
bool cli_ranks_unordered(const struct cli_ranks *ranks);

struct cli_remote {
    /* options; NULL: not given */
    const char *service, *job, *sharding, *guarantee, *transport, *cut, *local_workers, *trace;
    uint64_t credits; /* batches to request in advance; 0: chosen by the size of batches */
    struct cli_credentials credentials;
    /* while it runs */
    struct cw_trace *tracing;
    pid_t local; /* the process that runs the workers of --local-workers; 0: none */
};

#define CLI_REMOTE_OPTIONS(x) \
    {"guarantee", \
     CLI_TEXT, \
     &(x)->guarantee, \
     "G", \
     "treat batches that are lost with a worker as follows: exactly-once (default): compute them again; " \
     "at-most-once, with --service: leave them out", \
     .choices = cli_guarantees}, \
        {"sharding", CLI_TEXT, &(x)->sharding, "S", \
         "with --service, divide each epoch among the ranks (dynamic, the default), or give every rank the " \
         "whole epoch (off)"}, \
        {"service", CLI_TEXT, &(x)->service, "HOST:PORT", \
         "take the batches from the service whose dispatcher is at HOST:PORT, instead of computing them in " \
         "this process"}, \
        {"job", CLI_TEXT, &(x)->job, "NAME", \
         "join the job NAME of the service; all ranks of a job give the same NAME (default: a new job with " \
         "one rank)"}, \
        {"credits", \
         CLI_COUNT, \
         &(x)->credits, \
         "N", \
         "request up to N batches in advance (default: 2 to 64, the fewer the larger the batches)", \
         .min = 1, \
         .max = CW_MAX_CREDITS}, \
        {"transport", \
         CLI_TEXT, \
         &(x)->transport, \
         "T", \
         "receive batches through shm (shared memory), unix (Unix sockets), tcp (TCP), or auto (default: " \
         "the fastest that works)", \
         .choices = cli_transports}, \
        {"cut", CLI_TEXT, &(x)->cut, "C", \
         "with --service, let the workers run the operators up to C, and this process those after it: " \
         "worker " \
         "(default: workers run all), client (workers run as few as possible), auto (where few bytes cross " \
         "the " \
         "network), or an operator, by its number, counted from 0, or by its name"}, \
        {"local-workers", CLI_TEXT, &(x)->local_workers, "N", \
         "with --service, start N workers for it on this host, each with one compute thread, which end " \
         "with " \
         "this process; auto: one for each CPU that is idle now"}, \
        CLI_CONNECT_OPTIONS(&(x)->credentials), \
        {"trace", CLI_TEXT, &(x)->trace, "FILE", \
         "with --service, write to FILE at what times batches were requested, received and delivered " \
         "(Chrome trace format)"}
extern const char *const cli_guarantees[], *const cli_transports[];

/* CW_E_OPTION: an option was given that needs --service, or one (cache_dir) that can't be used with it. */
int cli_remote_check(const struct cli_remote *x, const char *cache_dir, struct cw_error *err) _must_check_;
/* Starts the local workers, and opens the job and its iterator in c->local. The caller calls cli_remote_end,
 * also after an error. */
int cli_remote_open(struct cli_remote *x, struct cli_pipeline *c, const struct cli_ranks *ranks,
                    const json_t *state, struct cw_error *err) _must_check_;
/* Prints to stderr why batches were copied instead of shared in memory, and how many ranges were lost. */
void cli_remote_report(const struct cw_local *local);
/* Prints a message to stderr; for callbacks. */
void cli_note(void *unused, const char *text);
/* Ends the local workers, and waits until they have ended. */
void cli_remote_end(struct cli_remote *x);
