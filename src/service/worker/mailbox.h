/* A mailbox: two queues between the loop's thread and a stream's thread. Commands go to the stream, answers
 * come from it, each in order. The stream owns its mailbox (stream.c) and takes commands; its leases
 * (lease.c) and its origin (origin.c) send answers. control.c takes the answers on the loop's thread. */
#pragma once
#include <pthread.h>

#include "base/list.h"
#include "engine/part.h"
#include "net/loop.h"
#include "proto/cachew.pb-c.h"
#include "service/worker/peer.h"

/* A client's request (message Get) for what the range that begins at position `begin` gives. `what` says what
 * is requested: batches number `at` to end - 1 of the range; elements number `at` to end - 1 of a key (ROWS,
 * PART); or the keys of the elements from number `at` on (KEYS, `end` unused). */
struct cw_request {
    struct cw_link link; /* in the requests of its lease */
    struct cw_peer *peer;
    uint64_t id;           /* id of the message Get */
    uint64_t requested_ns; /* when it came; 0: there is no trace */
    uint64_t epoch, begin;
    Cachew__What what;
    uint32_t key;
    uint64_t at, end;
    /* ROWS: the batch's elements so far, while the batch waits for memory or for map_batches. Owned */
    struct cw_assembly *part;
};

/* Returns whether a request is for elements of a key: as a batch (ROWS), or as rows that the client joins
 * (PART). */
static inline bool cw_request_for_rows(const struct cw_request *r)
{
    return r->what == CACHEW__WHAT__WHAT_ROWS || r->what == CACHEW__WHAT__WHAT_PART;
}

/* Frees a request. Its part must be NULL. Accepts NULL. */
void cw_request_free(struct cw_request *r);

enum cw_command_kind {
    CW_COMMAND_LEASE,
    CW_COMMAND_REVOKE, /* all ranges within positions begin to end - 1 */
    CW_COMMAND_GET,
    CW_COMMAND_FORGET_PEER,
    CW_COMMAND_MEMORY,
    CW_COMMAND_END, /* the last command */
};

struct cw_command {
    struct cw_command *next;
    enum cw_command_kind kind;
    uint64_t epoch, begin, end; /* LEASE, REVOKE */
    uint64_t from;              /* LEASE: the first position that a client needs */
    uint64_t lease;             /* LEASE: its number */
    bool whole;                 /* LEASE: the range must not be ended early */
    size_t memory;              /* MEMORY: bytes */
    struct cw_request *request; /* GET */
    struct cw_peer *peer;       /* FORGET_PEER */
};

enum cw_answer_kind {
    CW_ANSWER_OPENED,
    CW_ANSWER_NOT_OPENED, /* opening failed; the next answer is EXITED */
    /* answers to a request, up to PULLED: */
    CW_ANSWER_BATCH,
    CW_ANSWER_PART,
    CW_ANSWER_KEYS,
    CW_ANSWER_END,
    CW_ANSWER_RANGE_FAILED,
    CW_ANSWER_NOT_HERE,
    CW_ANSWER_PULLED, /* answers a Pull of another worker */
    CW_ANSWER_COMPLETED,
    CW_ANSWER_FAILED, /* the stream failed, and its leases are freed */
    CW_ANSWER_EXITED, /* the last answer: the stream's thread ends */
};

/* The report of a finished range. */
struct cw_report {
    uint64_t n_batches; /* of a sequential range */
    uint64_t *elements; /* number of elements by key, of a placed range. Owned */
    size_t n_elements;
    /* COMPLETED: */
    uint64_t lease;     /* number of the lease */
    bool last;          /* as in message Completed */
    uint8_t stream[16]; /* id of the stream */
};

/* The state of an answer that is on its way to a client, or of a shm_loan: a batch in shared memory that the
 * client uses. */
struct cw_delivery {
    struct cw_link link;             /* loan: in client.loans */
    struct cw_worker_stream *stream; /* stream of the batch */
    bool loan;                       /* the client uses the batch in shared memory */
    uint64_t slabs[2];               /* loan: ids by which the client returns them; 0: returned */
};

struct cw_answer {
    struct cw_answer *next;
    enum cw_answer_kind kind;
    struct cw_peer *peer;
    uint64_t re; /* id of the message that is answered */
    uint64_t epoch, begin, end;
    /* BATCH: number of the batch in its range; for a request of elements (ROWS) the number of its first
     * element. PART, KEYS: number of the first element. RANGE_FAILED: as in the request */
    uint64_t at;
    Cachew__What what;       /* RANGE_FAILED */
    uint32_t key;            /* BATCH, PART */
    struct cw_report report; /* END, COMPLETED */
    /* bytes that count as on their way to the peer; KEYS, PULLED: the size of `data` */
    size_t bytes;
    /* BATCH, PART: `bytes` are charged to the budget of peer->handed_out; false: to the budget of the
     * stream's runner */
    bool handed_out;
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    struct cw_part rows;   /* PART */
    uint8_t *data;         /* KEYS, PULLED: `bytes` bytes, owned; PULLED with NULL: `why` is the error */
    bool over;             /* KEYS: the range has no more keys; `why`: the error that ended it, or NULL */
    uint64_t requested_ns; /* BATCH, PART: as in the request */
    struct cw_error *why;
    struct cw_delivery delivery; /* the loop's thread only */
};

/* Whether the answer contains a batch or rows of a batch. */
static inline bool cw_answer_has_rows(const struct cw_answer *a)
{
    return a->kind == CW_ANSWER_BATCH || a->kind == CW_ANSWER_PART;
}

/* Returns a copy of the answer x as the answer to request r: with peer, id, range and `at` of r (r NULL:
 * unchanged). The copy owns what x points to. Returns NULL if memory is short; then x still owns what it
 * points to. */
struct cw_answer *cw_answer_new(const struct cw_request *r, const struct cw_answer *x);
/* Makes `a` the answer to request r: sets peer, id, range and `at`. */
void cw_answer_set_request(struct cw_answer *a, const struct cw_request *r);
/* Frees an answer, but not its batch: the caller must have taken or released that. Accepts NULL. */
void cw_answer_free(struct cw_answer *a);
/* Returns a copy of an error for an answer. If memory was short, the message also says what to change. NULL:
 * out of memory. */
struct cw_error *cw_answer_why(const struct cw_error *why);

struct cw_mailbox {
    /* immutable */
    struct cw_loop *loop;
    struct cw_post post; /* posted to the loop when there are answers */

    pthread_mutex_t mutex;
    pthread_cond_t wake; /* the stream's thread waits for it */
    /* guarded by mutex: */
    struct cw_command *commands, **commands_tail;
    struct cw_answer *answers, **answers_tail;
    bool woken;
    size_t n_batches; /* batches in answers that were not released yet */
};

/* Initializes *m. on_answers(arg) is called on the loop's thread when there are answers. */
void cw_mailbox_init(struct cw_mailbox *m, struct cw_loop *loop, void (*on_answers)(void *arg), void *arg);
/* Call after the stream's thread has ended and the batches of all answers are released. Frees commands and
 * answers that were not taken. */
void cw_mailbox_deinit(struct cw_mailbox *m);

/* ---- the loop's thread ---- */

/* Queues a command, and takes ownership of it. */
void cw_mailbox_command(struct cw_mailbox *m, struct cw_command *c);
/* Removes and returns all answers, as a list in order. The caller owns them. */
struct cw_answer *cw_mailbox_answers(struct cw_mailbox *m);
/* Call when the batch of an answer is released. */
void cw_mailbox_batch_back(struct cw_mailbox *m);

/* ---- the stream's thread ---- */

/* Waits for commands, or for cw_mailbox_wake. Returns the commands as a list in order, which the caller owns;
 * NULL: it was woken without a command. */
struct cw_command *cw_mailbox_wait(struct cw_mailbox *m);
void cw_command_free(struct cw_command *c);
/* Waits until the batches of all answers are released. */
void cw_mailbox_wait_batches(struct cw_mailbox *m);

/* ---- any thread ---- */

/* Ends the stream's wait in cw_mailbox_wait; if it does not wait now, its next wait ends at once. */
void cw_mailbox_wake(struct cw_mailbox *m);
/* Queues an answer, and takes ownership of it. */
void cw_mailbox_answer(struct cw_mailbox *m, struct cw_answer *a);
