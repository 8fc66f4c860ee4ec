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
    double ranges_per_s;      /* completions of each worker; 0: no limit */
    double seconds;           /* that are measured, after a run-in */
};

/* The distribution of response times. */
struct load_times {
    uint64_t n;
    double seconds; /* in which n answers came */
    double p50_s, p99_s, most_s;
};

/* Measures completions of an endless stream's ranges: leased, reported one by one, acknowledged, passed by
 * the clients. Prints "measuring" to stderr when it begins to. */
int load_completions(const struct load_options *o, struct load_times *ret, struct cw_error *err) _must_check_;
/* Measures a heartbeat per worker and second; *ret_sent of them were sent. The times are those of queries
 * by an admin client. */
int load_heartbeats(const struct load_options *o, uint64_t *ret_sent, struct load_times *ret,
                    struct cw_error *err) _must_check_;

/* Measures decisions: workers of one job report each second; *ret_sent reports were sent. */
int load_scaling(const struct load_options *o, uint64_t *ret_sent, double *ret_seconds,
                 struct cw_error *err) _must_check_;

/* ---- shared by the measurements ---- */

/* Times are counted by 20 us, up to 2 s. */
#define LOAD_STEP_NS UINT64_C(20000)

struct load_histogram {
    uint64_t n, most_ns, counts[100000];
};

void load_count(struct load_histogram *h, uint64_t ns);
/* Fills in everything except `seconds`. */
void load_times(const struct load_histogram *h, struct load_times *ret);

struct swarm_worker {
    struct swarm *swarm;
    struct cw_conn *conn; /* NULL: not connected */
    uint64_t last_id;
    size_t index;
};

struct swarm {
    /* filled in by the caller */
    const struct load_options *o;
    struct cw_loop *loop;
    void *user;
    void (*ready)(void *user); /* all are registered */
    int (*message)(void *user, struct swarm_worker *w, const Cachew__Envelope *m, struct cw_error *err);
    /* internal */
    uint8_t fingerprint[16]; /* of the pipeline, unlike all others */
    struct swarm_worker *workers;
    size_t n_begun, n_registered, n_open;
    bool closing;
    struct cw_error failed; /* why the run ended early */
};

/* Connects and registers them, a few at a time, while the loop runs. */
int swarm_start(struct swarm *s, struct cw_error *err) _must_check_;
/* Opens a connection of another role. It counts among the open ones, so its `closed` must call
 * swarm_closed. */
int swarm_connect(struct swarm *s, Cachew__Role role, const struct cw_conn_ops *ops, void *user,
                  struct cw_conn **ret, struct cw_error *err) _must_check_;
void swarm_closed(struct swarm *s, const struct cw_error *why);
/* Answers Prepare with an endless stream, in ranges of range_size positions, of which the worker wants
 * `capacity` at a time. ret_stream: its id. */
int swarm_prepared(struct swarm_worker *w, uint64_t re, const Cachew__Prepare *p, uint64_t range_size,
                   uint32_t capacity, uint8_t ret_stream[16], struct cw_error *err) _must_check_;
/* Ends the run with this error. */
void swarm_fail(struct swarm *s, const struct cw_error *why);
/* Closes the workers' connections, waits until all connections are closed (the others must be closing), and
 * frees its memory and the loop. Timers must be freed before; the loop must not be running, and may be NULL.
 * Returns r, or the error that ended the run. */
int swarm_end(struct swarm *s, int r, struct cw_error *err) _must_check_;

/* A rank of a job over all workers of a swarm. */
struct swarm_client {
    /* filled in by the caller */
    struct swarm *swarm;
    const char *job;           /* the job's name, to which the process id is added */
    void (*begin)(void *user); /* called when it is attached; user: the swarm's */
    unsigned rank;
    /* internal */
    int fd;
    struct cw_watch *watch; /* NULL: it is not connected */
    bool attached;
    size_t n_in; /* bytes received until it is attached */
    uint8_t in[4096];
};

/* Connects and attaches. */
void swarm_attach(struct swarm_client *c);
/* Reports that all positions before this one are passed. pace NULL: none. Does nothing without a
 * connection. */
int swarm_progress(struct swarm_client *c, uint64_t position, Cachew__Pace *pace,
                   struct cw_error *err) _must_check_;
/* Ends the job for good. To be called before swarm_end. */
void swarm_detach(struct swarm_client *c);
