/*
 * TLS 1.3 for connections over TCP. Unix sockets use no TLS: the permissions of their files protect them.
 * struct cw_tls is made once from the certificate files and shared by connections. conn.c makes one
 * cw_tls_stream per connection.
 */
#pragma once
#include <sys/uio.h>

#include "base/error.h"

struct cw_tls; /* reference-counted; any thread may use it */

struct cw_tls_files {
    /* PEM: our certificate, then the intermediate certificates up to the authority; listening: required */
    const char *certificate;
    const char *key; /* PEM: the key of our certificate */
    /* PEM: the authorities that the peer's certificate must come from. NULL: listening, peers need no
     * certificate; connecting, the system's authorities */
    const char *authority;
};

/* CW_E_OPTION: a file can't be used; the error names the file and the reason. When a connection begins, at
 * most once a second, the files are checked for changes; changed files are used from then on if they are
 * valid together. */
int cw_tls_new(const struct cw_tls_files *files, bool listening, struct cw_tls **ret,
               struct cw_error *err) _must_check_;
struct cw_tls *cw_tls_ref(struct cw_tls *t);
struct cw_tls *cw_tls_unref(struct cw_tls *t);

/* ---- for conn.c ---- */

struct cw_tls_stream;
/* Begins TLS on the connected socket fd, which stays the caller's. host: the name or address that the peer's
 * certificate must have; NULL: this side is the server. */
int cw_tls_stream_new(struct cw_tls *t, int fd, const char *host, struct cw_tls_stream **ret,
                      struct cw_error *err) _must_check_;
struct cw_tls_stream *cw_tls_stream_free(struct cw_tls_stream *s);
/* As cw_socket_send and cw_socket_receive, without descriptors; both also do the TLS handshake. -EPROTO: TLS
 * failed, and cw_tls_why has the reason. */
ssize_t cw_tls_send(struct cw_tls_stream *s, const struct iovec *pieces, size_t n);
ssize_t cw_tls_receive(struct cw_tls_stream *s, const struct iovec *pieces, size_t n);
/* Returns why TLS failed; status 0: it did not fail. */
const struct cw_error *cw_tls_why(const struct cw_tls_stream *s);
/* Returns whether the socket must become writable before a call that returned -EAGAIN is repeated. sends:
 * the caller has a cw_tls_send to repeat as well as a cw_tls_receive. */
bool cw_tls_wants_writable(const struct cw_tls_stream *s, bool sends);
/* Returns whether cw_tls_receive has bytes, an end or a failure to report although the socket is not
 * readable. */
bool cw_tls_pending(const struct cw_tls_stream *s);
/* Tells the peer that no more bytes follow (close_notify). */
void cw_tls_end(struct cw_tls_stream *s);
