/*
 * Load for a dispatcher, made by this process: simulated workers and a client that speak the real protocol,
 * each over a connection of its own, and compute nothing. One thread with a loop. swarm.c: workers that are
 * connected and registered; client.c: the client of a job; completions.c: ranges that are completed;
 * heartbeats.c: that workers are alive; scaling.c: what they compute.
 */
#pragma once
#include "net/conn.h"

struct load_options {
    const char *address, *token; /* token NULL: none */
    size_t n_workers;
    unsigned in_flight;       /* completions of a worker that wait for their acknowledgement */
    unsigned n_ranks, n_keys; /* of the job. n_keys 0: batches follow from positions */
    double ranges_per_s;      /* completions of each worker; 0: as many as may be */
    double seconds;           /* measured; before that it runs in */
};

/* How long answers took. */
struct load_times {
    uint64_t n;
    double seconds; /* in which so many came */
    double p50_s, p99_s, most_s;
};

/* Ranges of an endless stream: leased, said to be completed one by one, acknowledged, passed by the clients.
 * Prints "measuring" to standard error when it begins to. */
int load_completions(const struct load_options *o, struct load_times *ret, struct cw_error *err) _must_check_;
/* A heartbeat per worker and second, as real ones send them; *ret_sent of them. The times are those of
 * questions that an admin client asks meanwhile. */
int load_heartbeats(const struct load_options *o, uint64_t *ret_sent, struct load_times *ret,
                    struct cw_error *err) _must_check_;

/* What deciding takes: workers of one job that say each second what they have computed; *ret_sent of that. */
int load_scaling(const struct load_options *o, uint64_t *ret_sent, double *ret_seconds,
                 struct cw_error *err) _must_check_;

/* ---- what they have in common ---- */

/* Times, counted by 20 us up to 2 s. */
#define LOAD_STEP_NS UINT64_C(20000)

struct load_histogram {
    uint64_t n, most_ns, counts[100000];
};

void load_count(struct load_histogram *h, uint64_t ns);
/* All but `seconds`. */
void load_times(const struct load_histogram *h, struct load_times *ret);

struct swarm_worker {
    struct swarm *swarm;
    struct cw_conn *conn; /* NULL: none yet, or over */
    uint64_t last_id;
    size_t index;
};

struct swarm {
    /* by who makes it */
    const struct load_options *o;
    struct cw_loop *loop;
    void *user;
    void (*ready)(void *user); /* all are registered */
    int (*message)(void *user, struct swarm_worker *w, const Cachew__Envelope *m, struct cw_error *err);
    /* its own */
    uint8_t fingerprint[16]; /* of the pipeline; no other one has it */
    struct swarm_worker *workers;
    size_t n_begun, n_registered, n_open;
    bool closing;
    struct cw_error failed; /* why the run ended early */
};

/* Connects and registers them, a few at a time, while the loop runs. */
int swarm_start(struct swarm *s, struct cw_error *err) _must_check_;
/* A connection of another role, which counts among those that are open: its `closed` must call swarm_closed.
 */
int swarm_connect(struct swarm *s, Cachew__Role role, const struct cw_conn_ops *ops, void *user,
                  struct cw_conn **ret, struct cw_error *err) _must_check_;
void swarm_closed(struct swarm *s, const struct cw_error *why);
/* The answer to Prepare: an endless stream, of ranges of so many positions, of which the worker wants as many
 * at a time; ret_stream is its id. */
int swarm_prepared(struct swarm_worker *w, uint64_t re, const Cachew__Prepare *p, uint64_t range_size,
                   uint32_t capacity, uint8_t ret_stream[16], struct cw_error *err) _must_check_;
/* The run ends with this. */
void swarm_fail(struct swarm *s, const struct cw_error *why);
/* Closes the workers' connections, waits until all are over (the others must be closing), and frees what is
 * its own. The loop does not run. */
void swarm_end(struct swarm *s);

/* A rank of a job over all workers of a swarm. */
struct swarm_client {
    /* by who makes it */
    struct swarm *swarm;
    const char *job;           /* its name, to which the process id is added */
    void (*begin)(void *user); /* it is attached; user: the swarm's */
    unsigned rank;
    /* its own */
    int fd;
    struct cw_watch *watch; /* NULL: it is not connected */
    bool attached;
    size_t n_in; /* received, until it is attached */
    uint8_t in[4096];
};

/* Connects and attaches. */
void swarm_attach(struct swarm_client *c);
/* All before this position is passed; pace NULL: it says nothing of that. Without a connection nothing is
 * said. */
int swarm_progress(struct swarm_client *c, uint64_t position, Cachew__Pace *pace,
                   struct cw_error *err) _must_check_;
/* The job is over, for good. Before swarm_end. */
void swarm_detach(struct swarm_client *c);
