/*
 * A leased range of a stream, and the requests that wait for its batches, rows or keys. The stream's thread
 * only; it owns all of this. leases.c adds leases, batches.c and rows.c serve their requests.
 *
 * Every request for a leased range is answered, whatever other clients request. Batches come in order: a
 * batch that is taken from the runner before a client requests it is kept while there is room. Rows (elements
 * by key) stay in the runner until they were sent. A range is computed again when its batches or rows are
 * requested again, or found no room.
 */
#pragma once
#include "base/trace.h"
#include "dataset/sequence.h"
#include "engine/runner.h"
#include "service/worker/mailbox.h"

/* At most 1/8 of a stream's memory holds batches that were taken for one rank while another rank requested
 * those behind them. */
#define CW_KEPT_PART 8

/* Elements first .. end - 1 of a key that a request got, while elements before them may still be requested.
 */
struct cw_span {
    struct cw_span *next;
    uint32_t key;
    uint64_t first, end;
    /* gone: the runner gave them away, and has them again only when the range is begun again */
    bool sent, gone;
};

struct cw_lease {
    struct cw_lease *next;
    uint64_t epoch, begin, end;
    uint64_t leased_ns;
    struct cw_range *range;  /* NULL: not in the runner, because all of it was taken, or it gave way */
    bool whole;              /* the range must not be ended early */
    uint64_t number;         /* as Range.lease */
    bool computed;           /* all of it, and COMPLETED was answered */
    struct cw_error *failed; /* it ends in an error: instead of batch failed_at, or behind all elements */
    struct cw_link requests;

    /* Batches, and parts of batches: */
    uint64_t n_batches;             /* counted: known from the start; sequential: once computed */
    uint64_t next_batch;            /* the batch that the runner gives next */
    uint64_t lowest;                /* the first batch that was ever requested; UINT64_MAX: none was */
    struct cw_assembly *unfinished; /* next_batch, waiting for memory or for map_batches */
    uint64_t failed_at;
    struct cw_answer *kept; /* taken from the runner, without a request; in the order of `at` */
    uint8_t *sent;          /* a bit per batch; zeros beyond those that were sent */
    size_t sent_room;       /* bytes */

    /* Rows, by key: */
    uint64_t *elements;    /* once computed or failed; before: 0 */
    uint64_t *sent_upto;   /* all before this element were sent once */
    uint64_t *dropped;     /* the runner has none before this element any more */
    struct cw_span *spans; /* none before `dropped` */
    uint8_t *keys;         /* where there are several: of each element so far, as message Keys has them */
    size_t n_keys;
};

/* How a stream's epochs are divided into ranges, and how clients request what ranges give. */
enum cw_ranges_kind {
    CW_RANGES_COUNTED,    /* batches follow from positions */
    CW_RANGES_SEQUENTIAL, /* an epoch is one range */
    CW_RANGES_PLACED,     /* rows by key */
};

/* All leases of a stream. */
struct cw_leases {
    /* immutable once the stream is open */
    enum cw_ranges_kind kind;
    unsigned n_keys, threads;
    uint64_t seed, range_ns; /* range_ns: a range that was computed for this long is ended early */
    const uint8_t *stream;   /* its name, 16 bytes */
    const struct cw_sequence *sequence;
    struct cw_runner *runner; /* the stream's, which takes it away when it ends; NULL: not opened */
    struct cw_mailbox *mailbox;
    struct cw_trace *trace; /* or NULL */

    size_t memory;         /* bytes of the stream; 1/CW_KEPT_PART of it is for: */
    size_t kept_bytes;     /* of batches taken from the runner before a client requested them */
    struct cw_lease *list; /* in the order of (epoch, begin) */
    unsigned n_parts;      /* that requests hold, */
    size_t part_bytes;     /* and the bytes of the last one */
    uint64_t completed_ns; /* when a range was completed last */
    /* memory is short for this request: no other begins a part, or a range again */
    const struct cw_request *short_of;
    bool failed; /* the runner is of no use any more, and there are no leases */
};

/* Returns where the first lease from (epoch, begin) on is linked. */
struct cw_lease **cw_lease_find(struct cw_leases *s, uint64_t epoch, uint64_t begin);
/* Returns the request for the earliest batch, of clients that have room; of two such requests, the first.
 * NULL: none. */
struct cw_request *cw_lease_first_request(const struct cw_lease *l);
/* Returns the bytes of a batch's slabs. */
size_t cw_lease_batch_bytes(const struct cw_batch *b);
/* Takes what is linked at `at` out of the kept batches. */
struct cw_answer *cw_kept_pop(struct cw_leases *s, struct cw_answer **at);
/* Frees a batch, or rows, that no request got. */
void cw_kept_free(struct cw_leases *s, struct cw_answer *k);

/* ---- failing: all leases are freed, and other workers run the ranges ---- */

/* The worker can't go on with the stream, for a reason of its own. Does nothing where it failed before. */
void cw_leases_fail(struct cw_leases *s, const struct cw_error *why);
/* The same for want of memory. Returns false. */
bool cw_leases_out_of_memory(struct cw_leases *s);
/* Returns whether an error of this status comes from a record, the data or the pipeline, and so is the same
 * on every worker. The exception: a data file that is missing or was changed on this worker alone is
 * CW_E_DATA, too. Such an error also ends the runner (cw_runner_fatal), so the stream fails and other workers
 * take over. */
bool cw_leases_error_lasts(const struct cw_leases *s, int status);
/* Frees all leases; their requests are answered with NOT_HERE. */
void cw_leases_clear(struct cw_leases *s);
/* Frees one lease, which was unlinked, likewise. */
void cw_lease_free(struct cw_leases *s, struct cw_lease *l);

/* ---- the range in the runner ---- */

/* Takes a range out of the runner; it can be begun again. */
void cw_lease_close(struct cw_leases *s, struct cw_lease *l);
/* Begins the range in the runner: a counted one from a batch on, others from their begin on. Returns false if
 * the stream failed, and the lease is gone. */
bool cw_lease_open(struct cw_leases *s, struct cw_lease *l, uint64_t first_batch);
/* The same for a request, unless memory is short for another one. Returns false if it was not begun; the
 * stream may have failed. */
bool cw_lease_open_for(struct cw_leases *s, struct cw_lease *l, const struct cw_request *r);

/* ---- answers ---- */

/* A request is answered, or its client is gone: unlinks and frees it. Its part is dropped. */
void cw_lease_done(struct cw_leases *s, struct cw_request *r);
/* Gives a request's part back to the runner, if it has one. */
void cw_request_drop_part(struct cw_leases *s, struct cw_request *r);
/* Answers with `kind` and `why` (NULL: none) and frees the request. Without
 * memory for the answer, the client requests it again, from another worker, when the connection or the lease
 * ends. */
void cw_lease_reply(struct cw_leases *s, struct cw_request *r, enum cw_answer_kind kind,
                    const struct cw_error *why);
/* The range has less than r requests: the report answers it. Frees the request. The stream may have failed.
 */
void cw_lease_reply_end(struct cw_leases *s, struct cw_lease *l, struct cw_request *r);
/* Moves the batch of an assembly, or (n > 0) its first n rows, which the client joins to a batch, to an
 * answer without a request. Frees the assembly. */
int cw_lease_take(struct cw_leases *s, struct cw_assembly *from, uint64_t n, struct cw_answer **ret,
                  struct cw_error *err) _must_check_;
/* Sends such an answer for a request, which it is at. */
void cw_lease_send(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *r,
                   struct cw_answer *a);
/* All of the range is computed: reports it to the dispatcher. Returns false if the stream failed. */
bool cw_lease_completed(struct cw_leases *s, struct cw_lease *l);
