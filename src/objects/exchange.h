/* One request of a transfer and its answer, with libcurl. Only the I/O thread (transfer.c) calls this. */
#pragma once
#include <curl/curl.h>

#include "objects/transfer.h"

struct cw_exchange {
    CURL *easy;
    struct cw_transfer *t;
    struct curl_slist *headers;
    char why[CURL_ERROR_SIZE];
    uint64_t range_first, range_size; /* of Content-Range; range_size UINT64_MAX: none */
    double retry_after_s;
    char linked_etag[CW_ETAG_SIZE]; /* that the hub names before it leads to another server; "": none */
    bool checked;                   /* the answer's headers were checked */
    enum cw_transfer_outcome
        stopped; /* why the answer is not read on; CW_TRANSFER_DONE: it is, or is complete */
};

/* What to do after an exchange. */
enum cw_exchange_next { CW_EXCHANGE_OVER, CW_EXCHANGE_AGAIN, CW_EXCHANGE_AGAIN_SOON };

/* Makes the request of a transfer in t->exchange. false: out of memory. */
bool cw_exchange_begin(struct cw_transfer *t, CURL *easy, uint64_t now_ns);
/* Ends the exchange, and sets the transfer's outcome. AGAIN: the request failed for a reason that may not
 * last, so send it again. AGAIN_SOON: the same, and the server was not reached at all. *ret_wait_s: how long
 * the server asks to wait; 0: it does not ask. */
enum cw_exchange_next cw_exchange_end(struct cw_transfer *t, CURLcode code, double *ret_wait_s);
/* Frees the exchange, and returns its handle for another one. */
CURL *cw_exchange_free(struct cw_transfer *t);
