/*
 * Requests over HTTP. One thread of the process, started by the first request, does all of them with libcurl,
 * up to MOST_ACTIVE at a time, and repeats those whose failure may pass. The threads that want the answers
 * wait. Any thread may call.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/text.h"
#include "objects/location.h"

enum cw_transfer_kind {
    CW_TRANSFER_HEAD,  /* the status only */
    CW_TRANSFER_TEXT,  /* a whole answer, of at most TEXT_MOST bytes, in `body` */
    CW_TRANSFER_RANGE, /* the bytes first .. first + length - 1, in `v` */
};

/* What a request came to. */
enum cw_transfer_outcome {
    CW_TRANSFER_DONE,
    CW_TRANSFER_REFUSED,   /* the server's answer is an error: see `status` and `body` */
    CW_TRANSFER_FAILED,    /* there is no complete answer: see `why` */
    CW_TRANSFER_CHANGED,   /* the object has another version: see `etag` and `size` */
    CW_TRANSFER_NO_RANGES, /* the server does not read ranges */
    CW_TRANSFER_CANCELLED,
};

#define CW_ETAG_SIZE 128

/* What only answers of the Hugging Face hub have. */
struct cw_transfer_hub {
    char code[64];   /* what it refused for */
    char link[2048]; /* path and query of the next page of a listing; "": this is the last */
};

struct cw_transfer {
    /* Set by the caller; the rest is zero. */
    enum cw_transfer_kind kind;
    struct cw_location at; /* owned by the transfer from cw_transfer_begin on */
    uint64_t first;        /* of a range */
    size_t length;
    const struct iovec *v; /* length bytes together; borrowed */
    int n_v;
    int64_t version;             /* the version that a range must be of, as in cw_object_stat; -1: any */
    uint64_t was_size;           /* the size that the object of a range must have; UINT64_MAX: any */
    char if_match[CW_ETAG_SIZE]; /* the version's ETag, with quotes; "": not known */
    uint64_t patience_ns;        /* how long the request may take, with all its repetitions */

    /* The answer, when cw_transfer_end has returned. */
    enum cw_transfer_outcome outcome;
    long status; /* HTTP status of the last answer; 0: there was none */
    char etag[CW_ETAG_SIZE], modified[64], region[64];

    struct cw_transfer_hub hub;

    uint64_t size; /* of the object; UINT64_MAX: not known */
    struct cw_text body;
    char why[300];    /* what went wrong with the connection, or "" */
    unsigned n_tries; /* requests that were sent */

    /* Only transfer.c and exchange.c use these. */
    struct cw_transfer *next;
    pthread_cond_t ended;
    bool over, cancel;            /* guarded by the mutex of transfer.c */
    struct cw_exchange *exchange; /* the request that is being done; NULL: none */
    size_t got, got_before;       /* bytes of the range that arrived; those before the last request */
    uint64_t not_before_ns, deadline_ns, wait_ns;
};

/* Begins a request. On failure nothing was begun, and t->at is freed. */
int cw_transfer_begin(struct cw_transfer *t, struct cw_error *err) _must_check_;
/* Waits until the request is over. cancel: it is given up, unless it is over. Afterwards the caller reads the
 * answer, and calls cw_transfer_deinit. */
void cw_transfer_end(struct cw_transfer *t, bool cancel);
void cw_transfer_deinit(struct cw_transfer *t);
/* Returns the version (cw_object_stat) that an ETag and a time of change stand for. */
int64_t cw_transfer_version(const char *etag, const char *modified);
