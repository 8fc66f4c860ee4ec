/*
 * Leased ranges of a stream, and the requests for what they give. The stream's thread only.
 *
 * Every request for a leased range is answered, whatever other clients ask for. Batches come in order: one
 * that is taken from the runner before a client asks for it is kept, as long as there is room. Rows (elements
 * by key) stay in the runner until they were sent. A range whose batches or rows are asked for again, or
 * found no room, is computed again from there.
 *
 * leases.c: which ranges there are, in the runner or not. serve.c: batches. rows.c: rows, and keys.
 */
#pragma once
#include "service/worker/stream.h"

/* A batch of a range, or the range's part of one, that the runner gave. */
struct kept {
    struct kept *next; /* in the order of index */
    uint64_t index;    /* in the range, whose first batch, or part of one, is number 0 */
    struct cw_batch *batch;
    struct cw_quarantined *quarantined;
    struct cw_part *rows; /* a part; NULL: a batch */
    size_t bytes;         /* of stream.kept_bytes */
};

/* Elements first .. end - 1 of a key that a request got, while some before them may still be asked for. */
struct rows_span {
    struct rows_span *next;
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
    bool whole;              /* it must not be ended early */
    uint64_t number;         /* as Range.lease */
    bool computed;           /* and the dispatcher was told */
    struct cw_error *failed; /* it ends in an error: instead of batch failed_at, or behind all elements */
    struct cw_request *requests;

    /* Batches: */
    /* and parts of batches. Counted ranges: known from the start; sequential ones: once computed */
    uint64_t n_batches;
    uint64_t next_batch;            /* the one that the runner gives next */
    uint64_t lowest;                /* the first batch that was ever asked for; UINT64_MAX: none was */
    struct cw_assembly *unfinished; /* next_batch, waiting for memory or for map_batches */
    uint64_t failed_at;
    struct kept *kept;
    uint8_t *sent;    /* a bit per batch; zeros beyond those that were */
    size_t sent_room; /* bytes */

    /* Rows, by key: */
    uint64_t *elements;      /* once computed or failed; before: 0 */
    uint64_t *sent_upto;     /* all before this element were sent once */
    uint64_t *dropped;       /* the runner has none before this element any more */
    struct rows_span *spans; /* none before `dropped` */
    uint8_t *keys;           /* where there are several: of each element so far, as message Keys has them */
    size_t n_keys;
};

/* ---- leases.c ---- */
void cw_kept_free(struct cw_stream *s, struct kept *k);
/* Takes a range out of the runner: it can be begun again. */
void cw_lease_close(struct cw_stream *s, struct cw_lease *l);
/* Begins it in the runner: a counted range from a batch on, others from their begin on. The stream may fail,
 * and the lease be gone. */
void cw_lease_open(struct cw_stream *s, struct cw_lease *l, uint64_t first_batch);
/* The same for a request, unless memory is short for another one. False: it was not begun; the stream may
 * have failed. */
bool cw_lease_open_for(struct cw_stream *s, struct cw_lease *l, const struct cw_request *r);
void cw_lease_out_of_memory(struct cw_stream *s);
/* If the first range that is being computed takes too long, ends it behind what was begun of it: the
 * dispatcher leases the rest anew. */
void cw_lease_shorten(struct cw_stream *s);
/* A request that is done with leaves its lease; it is the caller's. Its part is dropped. */
void cw_lease_remove(struct cw_stream *s, struct cw_lease *l, struct cw_request *r);
/* The same, and the request is freed; or answered, and freed. */
void cw_lease_done(struct cw_stream *s, struct cw_lease *l, struct cw_request *r);
void cw_lease_reply(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, enum cw_answer_kind kind,
                    const struct cw_error *why);

/* ---- serve.c ---- */
/* Returns whether an error of this status comes from a record, the data or the pipeline, and so is the same
 * on every worker. The exception: a data file that is missing or was changed on this worker alone is
 * CW_E_DATA, too. Such an error also ends the runner (cw_runner_fatal), so the stream fails and other workers
 * take over. */
bool cw_lease_lasting(const struct cw_stream *s, int status);
/* The batch that a request is at goes to its client. False: the stream failed. */
bool cw_lease_answer_batch(struct cw_stream *s, struct cw_lease *l, struct cw_request *r, struct cw_batch *b,
                           struct cw_quarantined *quarantined);
/* The same with rows that the client joins to a batch, which become the answer's. False: the stream failed.
 */
bool cw_lease_answer_rows(struct cw_stream *s, struct cw_lease *l, struct cw_request *r,
                          struct cw_part *rows);
/* All of it is computed: the dispatcher is told. False: the stream failed. */
bool cw_lease_completed(struct cw_stream *s, struct cw_lease *l);
/* The range has less than r asks for: the report answers it. */
void cw_lease_reply_end(struct cw_stream *s, struct cw_lease *l, struct cw_request *r);

/* ---- rows.c ---- */
/* As cw_leases_serve, for one placed range. */
bool cw_lease_serve_rows(struct cw_stream *s, struct cw_lease *l);
/* The first request for rows of l that are computed. NULL: there is none. */
struct cw_request *cw_lease_rows_there(struct cw_stream *s, const struct cw_lease *l);
/* The range was begun again: rows that will not be asked for again are not kept. */
void cw_lease_drop_rows(struct cw_stream *s, struct cw_lease *l);
/* Nothing can be computed before rows are taken: clients get the keys of elements so far, so that they know
 * which rows to take. Returns whether any did; not where the stream failed. */
bool cw_leases_give_keys(struct cw_stream *s);
/* Memory is full of rows of l, and a client asks for rows or keys behind them: it needs no more of the rows
 * before than it asked for. Rows that no client asked for are dropped, and computed again for one that does.
 * Returns whether any were. Of pipelines with one key they stay. */
bool cw_lease_give_up_rows(struct cw_stream *s, struct cw_lease *l);
/* Memory is short for a request of l: the last one of a range behind l that has a part gives it back, and no
 * other begins one before that request is done with. Returns whether there was any. */
bool cw_leases_give_up_part(struct cw_stream *s, const struct cw_lease *l, const struct cw_request *first);
void cw_request_drop_part(struct cw_stream *s, struct cw_request *r);
