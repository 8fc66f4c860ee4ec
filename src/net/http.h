/*
 * A small HTTP server on a loop, for metrics, health, status and pages that show them: GET and HEAD, answered
 * at once. What a browser gets may use nothing but what comes from the same server. Everything on the loop's
 * thread.
 */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "net/loop.h"

struct cw_http_reply {
    unsigned status;     /* 200, unless the handler says otherwise */
    const char *type;    /* a constant; "text/plain; charset=utf-8" likewise */
    struct cw_text body; /* its memory is the server's */
};

/* path begins with "/", percent signs decoded; query: what follows "?", as it came, or "". Both are the
 * peer's words. */
typedef void (*cw_http_handler)(void *user, const char *path, const char *query, struct cw_http_reply *reply);

struct cw_http;
/* "HOST:PORT" (port 0: any that is free) or "[IPV6]:PORT". A connection is for one request of at most 16 KiB
 * and its answer, and has 10 s for both. With 128 of them the oldest is ended: who asks finds a place. */
int cw_http_new(struct cw_loop *l, const char *address, cw_http_handler handler, void *user,
                struct cw_http **ret, struct cw_error *err) _must_check_;
const char *cw_http_address(const struct cw_http *h); /* with the real port */
struct cw_http *cw_http_free(struct cw_http *h);
