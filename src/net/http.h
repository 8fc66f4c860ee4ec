/*
 * A small HTTP server on a loop, for metrics, health, status and the pages that show them. It answers GET and
 * HEAD requests from a handler, which must not wait. Browsers may not load anything from other servers into
 * its pages. Loop thread only.
 */
#pragma once
#include "base/error.h"
#include "base/text.h"
#include "net/loop.h"

struct cw_http_reply {
    unsigned status;     /* 200, unless the handler sets it */
    const char *type;    /* a constant; "text/plain; charset=utf-8", unless the handler sets it */
    struct cw_text body; /* freed by the server */
};

/* path begins with "/" and is decoded. query is the part after "?", not decoded, or "". Both come from the
 * peer and are not trusted. */
typedef void (*cw_http_handler)(void *user, const char *path, const char *query, struct cw_http_reply *reply);

struct cw_http;
/* Listens at "HOST:PORT" (port 0: any free one) or "[IPV6]:PORT". A connection serves one request of at most
 * 16 KiB within 10 s. When there are 128 connections, the oldest is ended, so that a new one can be accepted.
 */
int cw_http_new(struct cw_loop *l, const char *address, cw_http_handler handler, void *user,
                struct cw_http **ret, struct cw_error *err) _must_check_;
const char *cw_http_address(const struct cw_http *h); /* with the real port */
struct cw_http *cw_http_free(struct cw_http *h);
