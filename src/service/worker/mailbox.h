/*
 * Commands from the loop's thread to a stream's thread, and answers the other way, each in order. The stream
 * owns its mailbox (stream.c); its leases (lease.c) and its origin (origin.c) send answers.
 */
#pragma once
#include <pthread.h>

#include "base/list.h"
#include "engine/part.h"
#include "net/loop.h"
#include "proto/cachew.pb-c.h"
#include "service/worker/peer.h"

/* A Get of a client: batches at .. end - 1 of a range, its elements at .. end - 1 of a key, or its keys from
 * `at` on. */
struct cw_request {
    struct cw_link link; /* in the requests of its lease */
    struct cw_peer *peer;
    uint64_t id;           /* of the message */
    uint64_t requested_ns; /* 0 without a trace */
    uint64_t epoch, begin;
    Cachew__What what;
    uint32_t key;
    uint64_t at, end;
    struct cw_assembly *part; /* ROWS: the elements, waiting for memory or for map_batches */
};

/* Returns whether a request is for elements of a key, as a batch (ROWS) or as rows that the client joins
 * (PART). */
static inline bool cw_request_for_rows(const struct cw_request *r)
{
    return r->what == CACHEW__WHAT__WHAT_ROWS || r->what == CACHEW__WHAT__WHAT_PART;
}

/* Frees a request that has no part. NULL is ignored. */
void cw_request_free(struct cw_request *r);

enum cw_command_kind {
    CW_COMMAND_LEASE,
    CW_COMMAND_REVOKE, /* all ranges that lie within begin .. end */
    CW_COMMAND_GET,
    CW_COMMAND_FORGET_PEER,
    CW_COMMAND_MEMORY,
    CW_COMMAND_END, /* the last command */
};

struct cw_command {
    struct cw_command *next;
    enum cw_command_kind kind;
    uint64_t epoch, begin, end; /* LEASE, REVOKE */
    uint64_t from;              /* LEASE: the first position that is wanted */
    uint64_t lease;             /* LEASE: its number */
    bool whole;                 /* LEASE: the range must not be ended early */
    size_t memory;              /* MEMORY: bytes */
    struct cw_request *request; /* GET */
    struct cw_peer *peer;       /* FORGET_PEER */
};

enum cw_answer_kind {
    CW_ANSWER_OPENED,
    CW_ANSWER_NOT_OPENED, /* the first answer; EXITED follows */
    /* to a request: */
    CW_ANSWER_BATCH,
    CW_ANSWER_PART,
    CW_ANSWER_KEYS,
    CW_ANSWER_END,
    CW_ANSWER_RANGE_FAILED,
    CW_ANSWER_NOT_HERE,
    CW_ANSWER_PULLED, /* to a Pull */
    CW_ANSWER_COMPLETED,
    CW_ANSWER_FAILED, /* the stream: its leases are gone */
    CW_ANSWER_EXITED, /* the last answer: the thread ends */
};

/* What a range gave. */
struct cw_report {
    uint64_t n_batches; /* of a sequential range */
    uint64_t *elements; /* of a placed range, by key. Owned */
    size_t n_elements;
    /* COMPLETED: */
    uint64_t lease;     /* its number */
    bool last;          /* as in message Completed */
    uint8_t stream[16]; /* its name */
};

/* An answer on its way to a client, or whose batch the client has as a shm_loan. */
struct cw_delivery {
    struct cw_link link;             /* loan: of client.loans */
    struct cw_worker_stream *stream; /* of the batch */
    bool loan;                       /* the client has the batch as shared memory */
    uint64_t slabs[2];               /* loan: ids by which the client returns them; 0: returned */
};

struct cw_answer {
    struct cw_answer *next;
    enum cw_answer_kind kind;
    struct cw_peer *peer;
    uint64_t re, epoch, begin, end;
    /* BATCH: its number, or its first element; PART, KEYS: the first element; RANGE_FAILED: as the request */
    uint64_t at;
    Cachew__What what;       /* RANGE_FAILED */
    uint32_t key;            /* BATCH, PART */
    struct cw_report report; /* END, COMPLETED */
    size_t bytes;            /* taken from the peer's room */
    bool handed_out; /* BATCH, PART: the bytes are in the peer's budget of that name; else in the runner's */
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    struct cw_part rows;   /* PART */
    uint8_t *data;         /* KEYS, PULLED: `bytes` of them; PULLED, NULL: `why` */
    bool over;             /* KEYS: no keys follow; `why`: what ended the range */
    uint64_t requested_ns; /* BATCH, PART: as the request */
    struct cw_error *why;
    struct cw_delivery delivery; /* the loop's thread only */
};

/* Whether it brings a batch or rows of one. */
static inline bool cw_answer_has_rows(const struct cw_answer *a)
{
    return a->kind == CW_ANSWER_BATCH || a->kind == CW_ANSWER_PART;
}

/* Returns a copy of x, with peer, id, range and `at` of the request that it answers (NULL: none). NULL: out
 * of memory, and what x points to is still the caller's. */
struct cw_answer *cw_answer_new(const struct cw_request *r, const struct cw_answer *x);
/* An answer that was made before its request answers r. */
void cw_answer_set_request(struct cw_answer *a, const struct cw_request *r);
/* The caller took the batch out of it, or releases it first. NULL is ignored. */
void cw_answer_free(struct cw_answer *a);
/* Returns a copy of an error for an answer; where memory is short, the message says what to change. NULL: out
 * of memory. */
struct cw_error *cw_answer_why(const struct cw_error *why);

struct cw_mailbox {
    /* immutable */
    struct cw_loop *loop;
    struct cw_post post; /* posted when there are answers */

    pthread_mutex_t mutex;
    pthread_cond_t wake; /* of the stream's thread */
    /* guarded by mutex: */
    struct cw_command *commands, **commands_tail;
    struct cw_answer *answers, **answers_tail;
    bool woken;
    size_t n_batches; /* answered with, and not returned yet */
};

/* on_answers(arg) is called on the loop's thread when there are answers. */
void cw_mailbox_init(struct cw_mailbox *m, struct cw_loop *loop, void (*on_answers)(void *arg), void *arg);
/* After the stream's thread has ended. Frees commands and answers that were not taken. */
void cw_mailbox_deinit(struct cw_mailbox *m);

/* ---- the loop's thread ---- */

/* Queues a command, which it takes over. */
void cw_mailbox_command(struct cw_mailbox *m, struct cw_command *c);
/* Takes all answers, in order; the caller frees each. */
struct cw_answer *cw_mailbox_answers(struct cw_mailbox *m);
/* A batch that an answer brought was released. */
void cw_mailbox_batch_back(struct cw_mailbox *m);

/* ---- the stream's thread ---- */

/* Waits for commands, or for cw_mailbox_wake. Returns the commands, which the caller frees; NULL: woken. */
struct cw_command *cw_mailbox_wait(struct cw_mailbox *m);
void cw_command_free(struct cw_command *c);
/* Waits until all batches are back. */
void cw_mailbox_wait_batches(struct cw_mailbox *m);

/* ---- any thread ---- */

void cw_mailbox_wake(struct cw_mailbox *m);
/* Queues an answer, which it takes over. */
void cw_mailbox_answer(struct cw_mailbox *m, struct cw_answer *a);
