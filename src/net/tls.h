/*
 * TLS 1.3 for connections over TCP (Unix sockets stay as they are: the file's rights protect them). struct
 * cw_tls is made once from files and shared by connections; conn.c uses the rest, one stream per connection.
 */
#pragma once
#include <sys/uio.h>

#include "base/error.h"

struct cw_tls; /* counted; any thread */

struct cw_tls_files {
    const char *certificate; /* PEM: ours, then those between it and the authority; listening: required */
    const char *key;         /* PEM: of certificate */
    /* PEM: whose certificates the peer's must come from. Listening, NULL: peers need none. Connecting, NULL:
     * the system's */
    const char *authority;
};

/* CW_E_OPTION: a file can't be used; the error says which and why. The files are checked again when a
 * connection begins, at most once a second; changed ones are used from then on if they are sound. */
int cw_tls_new(const struct cw_tls_files *files, bool listening, struct cw_tls **ret,
               struct cw_error *err) _must_check_;
struct cw_tls *cw_tls_ref(struct cw_tls *t);
struct cw_tls *cw_tls_unref(struct cw_tls *t);

/* ---- for conn.c ---- */

struct cw_tls_stream;
/* host: the name or address that the peer's certificate must have; NULL: listening. */
int cw_tls_stream_new(struct cw_tls *t, int fd, const char *host, struct cw_tls_stream **ret,
                      struct cw_error *err) _must_check_;
struct cw_tls_stream *cw_tls_stream_free(struct cw_tls_stream *s);
/* As cw_socket_send and cw_socket_receive; both do the handshake on the way. -EPROTO: cw_tls_why says why. */
ssize_t cw_tls_send(struct cw_tls_stream *s, const struct iovec *pieces, size_t n);
ssize_t cw_tls_receive(struct cw_tls_stream *s, const struct iovec *pieces, size_t n);
/* status 0: TLS did not fail. */
const struct cw_error *cw_tls_why(const struct cw_tls_stream *s);
/* Returns whether the socket must become writable before a call that gave -EAGAIN is repeated: receiving, or
 * (sends) also sending. */
bool cw_tls_wants_writable(const struct cw_tls_stream *s, bool sends);
/* Returns whether bytes can be received although the socket is not readable. */
bool cw_tls_pending(const struct cw_tls_stream *s);
/* Notifies the peer that no bytes follow. */
void cw_tls_end(struct cw_tls_stream *s);
