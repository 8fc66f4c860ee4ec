/* Ranks of jobs, and what their clients are answered. A rank exists from its first Attach until its job is
 * freed; its client may leave and return meanwhile. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "policy/pace.h"
#include "proto/cachew.pb-c.h"
#include "service/dispatcher/types.h"

/* What a rank reported of its speed. */
struct rank_pace {
    struct cw_pace now;
    struct cw_pace at_policy; /* at the policy's last decision */
    struct cw_pace at_point;  /* at the last point of the history, with ... */
    uint64_t batches_at_point;
    bool known;    /* it was reported since the rank attached */
    bool waiting;  /* the last Progress says that it waits for a batch */
    float waited;  /* part of the time between the last two points that it waited; NAN: not known */
    double demand; /* batches per second that it would take without waiting; 0: not known */
};

struct progress {
    uint64_t n_batches, n_lost, wait_ns, g, digest_lo, digest_hi;
};

struct rank {
    struct job *job;
    uint32_t number;
    struct cw_peer *client; /* NULL: not attached */
    uint64_t attach_id;     /* of the Attach to be answered; 0: answered */
    Cachew__Place from;     /* cursor */
    uint64_t snapshot;      /* of its saved state; 0: none */
    uint64_t pos, began_at; /* its cursor; where it began when it attached */
    uint64_t next_report;   /* position: reports of ranges before it were sent */
    struct progress progress;
    struct rank_pace pace;
    uint64_t heard_ns;       /* when its last message came */
    uint8_t incarnation[16]; /* of the last client */
    bool began, finished, greeted;
    bool leaves;         /* it sent Detach */
    char took_over[200]; /* the client that it replaced, for Attached; "": none */
    uint64_t held;       /* hash of the reason in the last Held that it was sent; 0: nothing holds it */
};

/* *ret: the rank, made where it is not known. */
int cw_dp_rank_get(struct cw_dispatcher *d, struct job *j, uint32_t number, struct rank **ret,
                   struct cw_error *err) _must_check_;
/* Frees all ranks of the job, and detaches their clients without a message. */
void cw_dp_ranks_free(struct cw_dispatcher *d, struct job *j);
/* Separates the rank from its client, if it has one. */
void cw_dp_rank_detach(struct cw_dispatcher *d, struct rank *r);
/* *ret: the position of a cursor in the plan, which is known. CW_E_OPTION: it has none. CW_E_STATE: the
 * snapshot is another one. */
int cw_dp_rank_position(const struct job *j, const Cachew__Place *from, uint64_t snapshot, uint64_t *ret,
                        struct cw_error *err) _must_check_;
/* Finds the position of the rank's cursor, now that the plan is known, or refuses its client. */
void cw_dp_rank_begin(struct cw_dispatcher *d, struct rank *r);
/* Answers Attach with Failure, and detaches. */
void cw_dp_rank_refuse(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);
/* Answers Attach with Attached, then sends all that the client needs to know. */
void cw_dp_rank_greet(struct cw_dispatcher *d, struct rank *r);
/* Sends Ended with the reason, and detaches. */
void cw_dp_rank_end(struct cw_dispatcher *d, struct rank *r, const struct cw_error *why);
