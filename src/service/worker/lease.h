/*
 * A leased range of a stream, and the requests that wait for its batches, rows or keys. The stream's thread
 * owns all of this, and no other thread uses it. leases.c adds leases; batches.c and rows.c serve their
 * requests. Positions, ranges and leases: docs/service.md.
 *
 * Every request for a leased range is answered, whatever other clients request (unless memory runs out, see
 * cw_lease_reply). The runner (engine/runner.h) computes the range's batches in order. A batch that is taken
 * from the runner before a client requests it is kept while there is room. Rows (elements by key) stay in the
 * runner until they are sent. A range is computed again if batches or rows are requested that were not kept,
 * or were sent before.
 */
#pragma once
#include "base/trace.h"
#include "dataset/sequence.h"
#include "engine/runner.h"
#include "service/worker/mailbox.h"

/* Kept batches use at most 1/8 of a stream's memory. They were taken from the runner because a rank requested
 * a later batch, and wait for another rank. */
#define CW_KEPT_PART 8

/* Elements first to end - 1 of a key that were given to a request out of order: earlier elements of the key
 * have not been sent yet. */
struct cw_span {
    struct cw_span *next;
    uint32_t key;
    uint64_t first, end;
    /* sent: they were sent to the client. gone: they left the runner; to send them again, the range must be
     * computed again */
    bool sent, gone;
};

struct cw_lease {
    struct cw_lease *next;
    uint64_t epoch, begin, end;
    uint64_t leased_ns;
    /* NULL: the runner does not have the range, because all of it was taken, or it was closed to free memory
     */
    struct cw_range *range;
    bool whole;      /* the range must not be ended early */
    uint64_t number; /* number of the lease, as in Range.lease */
    bool computed;   /* all of the range is computed, and COMPLETED was sent */
    /* the error with which the range ends. By number: it is the answer to requests for batch failed_at and
     * later ones. By key: to requests after the last element. Owned; NULL: none */
    struct cw_error *failed;
    struct cw_link requests; /* struct cw_request, which wait */

    /* Batches, and parts of batches: */
    /* ranges of kind COUNTED: known from the start; SEQUENTIAL: known once computed */
    uint64_t n_batches;
    uint64_t next_batch;            /* the batch that the runner gives next */
    uint64_t lowest;                /* the first batch that was ever requested; UINT64_MAX: none was */
    struct cw_assembly *unfinished; /* next_batch, if it waits for memory or for map_batches */
    uint64_t failed_at;
    struct cw_answer *kept; /* kept batches, sorted by `at` */
    uint8_t *sent;          /* one bit per batch: it was sent */
    size_t sent_room;       /* bytes of `sent` */

    /* Rows, by key: */
    uint64_t *elements;    /* [n_keys] number of elements, once computed or failed; before: 0 */
    uint64_t *sent_upto;   /* [n_keys] all elements before this one were sent */
    uint64_t *dropped;     /* [n_keys] elements before this one were dropped from the runner */
    struct cw_span *spans; /* of elements that are not dropped */
    uint8_t *keys;         /* with several keys: the key of each element so far, encoded as in message Keys */
    size_t n_keys;
};

/* How a stream's epochs are divided into ranges, and how clients request what ranges give. */
enum cw_ranges_kind {
    CW_RANGES_COUNTED,    /* batches are requested by number: batch g has fixed positions */
    CW_RANGES_SEQUENTIAL, /* an epoch is one range; its batches are requested by number */
    /* elements are requested by key, as rows or batches; the clients decide which elements make a batch */
    CW_RANGES_PLACED,
};

/* All leases of a stream. */
struct cw_leases {
    /* immutable once the stream is open */
    enum cw_ranges_kind kind;
    unsigned n_keys, threads;
    uint64_t seed, range_ns; /* range_ns: a range that takes longer than this is ended early */
    const uint8_t *stream;   /* id of the stream, 16 bytes */
    const struct cw_sequence *sequence;
    struct cw_runner *runner; /* owned by the stream; NULL: not open */
    struct cw_mailbox *mailbox;
    struct cw_trace *trace; /* or NULL */

    size_t memory;         /* bytes that the stream may use; 1/CW_KEPT_PART of them for kept batches */
    size_t kept_bytes;     /* bytes of kept batches */
    struct cw_lease *list; /* sorted by (epoch, begin) */
    unsigned n_parts;      /* parts (unfinished batches) that requests hold, ... */
    size_t part_bytes;     /* ... and the bytes of the newest part */
    uint64_t completed_ns; /* when a range was completed last */
    /* the request that waits for memory, or NULL. Until it is answered, no other request may begin an
     * unfinished batch or compute a range again */
    const struct cw_request *short_of;
    bool failed; /* the stream failed: the runner can't be used any more, and all leases are freed */
};

/* Returns the link to the first lease at or after (epoch, begin). */
struct cw_lease **cw_lease_find(struct cw_leases *s, uint64_t epoch, uint64_t begin);
/* Returns the request for the earliest batch whose client has room for answers; of equal ones the oldest.
 * NULL: there is none. */
struct cw_request *cw_lease_first_request(const struct cw_lease *l);
/* Returns the bytes of a batch's slabs. */
size_t cw_lease_batch_bytes(const struct cw_batch *b);
/* Removes the kept batch *at from its list, and returns it. */
struct cw_answer *cw_kept_pop(struct cw_leases *s, struct cw_answer **at);
/* Frees an answer whose batch or rows were not sent. */
void cw_kept_free(struct cw_leases *s, struct cw_answer *k);

/* ---- failing: all leases are freed, and other workers run the ranges ---- */

/* Fails the stream for a reason of this worker's own. Does nothing if the stream has failed already. */
void cw_leases_fail(struct cw_leases *s, const struct cw_error *why);
/* Fails the stream because memory is short. Returns false. */
bool cw_leases_out_of_memory(struct cw_leases *s);
/* Returns whether an error of this status comes from a record, the data or the pipeline, and so is the same
 * on every worker. One CW_E_DATA is not: a data file that is missing or was changed on this worker alone.
 * That one also ends the runner (cw_runner_fatal), so the stream fails here, and other workers take over. */
bool cw_leases_error_lasts(const struct cw_leases *s, int status);
/* Frees all leases; their requests are answered with NOT_HERE. */
void cw_leases_clear(struct cw_leases *s);
/* Frees one lease, which is unlinked already, in the same way. */
void cw_lease_free(struct cw_leases *s, struct cw_lease *l);

/* ---- the range in the runner ---- */

/* Removes the range from the runner. It can be opened again. */
void cw_lease_close(struct cw_leases *s, struct cw_lease *l);
/* Opens the range in the runner: a counted range from batch first_batch on, other ranges from their begin.
 * Returns false if the stream failed; then the lease is freed. */
bool cw_lease_open(struct cw_leases *s, struct cw_lease *l, uint64_t first_batch);
/* Opens the range for request r, unless memory is short for another request. Returns false if the range was
 * not opened; the stream may have failed. */
bool cw_lease_open_for(struct cw_leases *s, struct cw_lease *l, const struct cw_request *r);

/* ---- answers ---- */

/* Call when a request is answered, or its client is gone: unlinks and frees the request, and drops its part.
 */
void cw_lease_done(struct cw_leases *s, struct cw_request *r);
/* Gives a request's part back to the runner, if it has one. */
void cw_request_drop_part(struct cw_leases *s, struct cw_request *r);
/* Answers the request with `kind` and `why` (NULL: no error), and frees it. If memory is short, no answer is
 * sent; the client requests again when the connection or the lease ends. */
void cw_lease_reply(struct cw_leases *s, struct cw_request *r, enum cw_answer_kind kind,
                    const struct cw_error *why);
/* The range ends before what r requests: answers r with the range's report, and frees it. The stream may have
 * failed. */
void cw_lease_reply_end(struct cw_leases *s, struct cw_lease *l, struct cw_request *r);
/* Makes an answer, not yet for a request, of the assembly `from`, and frees the assembly. n = 0: the answer
 * has the whole batch. n > 0: it has the first n rows, of which the client makes a batch together with other
 * parts. */
int cw_lease_take(struct cw_leases *s, struct cw_assembly *from, uint64_t n, struct cw_answer **ret,
                  struct cw_error *err) _must_check_;
/* Sends an answer from cw_lease_take to the client of request r, as element or batch r->at. Takes ownership
 * of the answer, not of the request. */
void cw_lease_send(struct cw_leases *s, const struct cw_lease *l, const struct cw_request *r,
                   struct cw_answer *a);
/* Call when all of the range is computed: reports that to the dispatcher. Returns false if the stream failed.
 */
bool cw_lease_completed(struct cw_leases *s, struct cw_lease *l);
