/* Ranks of jobs, and the answers to their clients' Attach requests. A rank exists from its first Attach until
 * its job is freed; in this time its client may leave and return. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/pace.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* The speed that a rank reported. */
struct rank_pace {
    struct cw_pace now;
    struct cw_pace at_policy;  /* value of `now` at the policy's last query */
    struct cw_pace at_point;   /* value of `now` at the last point of the history, with ... */
    uint64_t batches_at_point; /* ... the number of batches then */
    bool known;                /* the rank reported its pace since it attached */
    bool waiting;              /* according to its last Progress, the rank is waiting for a batch */
    float waited;  /* share of the time between the last two points that it waited; NAN: not known */
    double demand; /* batches per second that it would take if it never waited; 0: not known */
};

struct progress {
    uint64_t n_batches, n_lost, wait_ns, g, digest_lo, digest_hi;
};

struct rank {
    struct job *job;
    uint32_t number;
    struct cw_peer *client; /* NULL: not attached */
    uint64_t attach_id;     /* id of the Attach that is not answered yet; 0: none */
    Cachew__Place from;     /* cursor, as the client sent it */
    uint64_t snapshot;      /* snapshot of the data in the client's saved state; 0: it has none */
    uint64_t pos, began_at; /* its cursor, and its cursor when it attached, counted over all epochs */
    uint64_t next_report;   /* position: reports of all ranges before it were sent */
    struct progress progress;
    struct rank_pace pace;
    uint64_t heard_ns;       /* when its last message came */
    uint8_t incarnation[16]; /* incarnation of the last client */
    bool began, finished, greeted;
    bool leaves;         /* its client sent Detach */
    char took_over[200]; /* describes the client that its client replaced, for Attached; "": none */
    uint64_t held;       /* hash of the reason in the last Held that was sent; 0: no reason */
};

/* ret: the job's rank with this number; added if it does not exist. */
int cw_dp_rank_get(struct cw_dispatcher *d, struct job *j, uint32_t number, struct rank **ret,
                   struct cw_error *err) _must_check_;
/* Frees all ranks of the job, and detaches their clients without a message. */
void cw_dp_ranks_free(struct cw_dispatcher *d, struct job *j);
/* Separates the rank from its client, if it has one. Sends nothing. */
void cw_dp_rank_detach(struct cw_dispatcher *d, struct rank *r);
/* ret: the position of a cursor, counted over all epochs. The stream's plan must be known. CW_E_OPTION: the
 * job has no such position. CW_E_STATE: the state was saved with other data. */
int cw_dp_rank_position(const struct job *j, const Cachew__Place *from, uint64_t snapshot, uint64_t *ret,
                        struct cw_error *err) _must_check_;
/* Call when the plan is known: sets the rank's position from its cursor, or refuses its client. */
void cw_dp_rank_begin(struct cw_dispatcher *d, struct rank *r);
/* Answers Attach with Failure, and detaches the client. */
void cw_dp_rank_refuse(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);
/* Answers Attach with Attached, then sends the addresses, placements and reports that the client needs. */
void cw_dp_rank_greet(struct cw_dispatcher *d, struct rank *r);
/* Sends Ended with the reason, and detaches the client. */
void cw_dp_rank_end(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);
