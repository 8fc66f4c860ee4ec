/* TLS by OpenSSL on non-blocking sockets. A BIO of our own calls send and recv: no SIGPIPE, and no copy
 * between. */
#include "net/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/thread.h"
#include "net/openssl.h"

/* Bytes of a TLS record, at most: small pieces are joined up to this size, and large ones are cut. */
#define RECORD ((size_t)16 << 10)

#define N_FILES 3
#define LOOK_NS UINT64_C(1000000000) /* between two checks whether files have changed */

/* Identifies the version of a file that was read. */
struct stamp {
    struct timespec modified;
    ino_t inode;
    off_t size;
};

struct cw_tls {
    _Atomic unsigned refs;
    bool listening;
    BIO_METHOD *socket;
    char *files[N_FILES]; /* certificate, key, authority */
    pthread_mutex_t mutex;
    /* guarded by mutex: */
    SSL_CTX *context;
    struct stamp stamps[N_FILES]; /* of the files from which the context was made */
    uint64_t looked_ns;
};

struct cw_tls_stream {
    struct cw_tls *tls;
    SSL *ssl;
    int fd;
    bool send_wants_readable, receive_wants_writable;
    bool failed; /* for good */
    struct cw_error why;
    char host[256];
};

/* ---- our socket as a BIO ---- */

static bool bio_may_try_again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static int bio_write(BIO *b, const char *data, int size)
{
    const struct cw_tls_stream *s = BIO_get_data(b);
    ssize_t r = send(s->fd, data, (size_t)size, MSG_NOSIGNAL);
    BIO_clear_retry_flags(b);
    if (r < 0 && bio_may_try_again())
        BIO_set_retry_write(b);
    return (int)r;
}

static int bio_read(BIO *b, char *data, int size)
{
    const struct cw_tls_stream *s = BIO_get_data(b);
    ssize_t r = recv(s->fd, data, (size_t)size, 0);
    BIO_clear_retry_flags(b);
    if (r < 0 && bio_may_try_again())
        BIO_set_retry_read(b);
    if (r == 0)
        BIO_set_flags(b, BIO_FLAGS_IN_EOF);
    return (int)r;
}

static long bio_control(BIO *b, int command, long number CW_UNUSED, void *pointer CW_UNUSED)
{
    return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && BIO_test_flags(b, BIO_FLAGS_IN_EOF));
}

static BIO_METHOD *bio_make_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "cachew socket");
    if (m) {
        BIO_meth_set_write(m, bio_write);
        BIO_meth_set_read(m, bio_read);
        BIO_meth_set_ctrl(m, bio_control);
    }
    return m;
}

/* ---- files ---- */

/* Returns the reason of OpenSSL's first error, which tells most. */
static const char *tls_reason(void)
{
    unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    if (code && ERR_SYSTEM_ERROR(code))
        text = strerror(ERR_GET_REASON(code));
    return text ? text : "unknown";
}

static int tls_bad_file(const char *what, const char *file, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_OPTION, file, 0, "the TLS %s %s can't be used: %s", what, file,
                            tls_reason());
}

static int tls_load(SSL_CTX *c, const struct cw_tls_files *f, bool listening, struct cw_error *err)
{
    if (!f->certificate != !f->key || (listening && !f->certificate))
        return cw_error_set(err, CW_E_OPTION,
                            "TLS needs both a certificate and its private key (--tls-cert, --tls-key)");
    if (f->certificate && SSL_CTX_use_certificate_chain_file(c, f->certificate) != 1)
        return tls_bad_file("certificate", f->certificate, err);
    if (f->key && SSL_CTX_use_PrivateKey_file(c, f->key, SSL_FILETYPE_PEM) != 1)
        return tls_bad_file("key", f->key, err);
    if (f->authority && SSL_CTX_load_verify_file(c, f->authority) != 1)
        return tls_bad_file("authority", f->authority, err);
    if (!f->authority && !listening && SSL_CTX_set_default_verify_paths(c) != 1)
        return cw_error_set(err, CW_E_IO, "the system's certificate authorities can't be read: %s",
                            tls_reason());
    if (f->authority && listening) { /* the handshake names these authorities to clients */
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(f->authority);
        if (!names)
            return tls_bad_file("authority", f->authority, err);
        SSL_CTX_set_client_CA_list(c, names);
    }
    return 0;
}

static int tls_make_context(const struct cw_tls *t, SSL_CTX **ret, struct cw_error *err)
{
    const struct cw_tls_files files = {
        .certificate = t->files[0], .key = t->files[1], .authority = t->files[2]};
    SSL_CTX *c = SSL_CTX_new(t->listening ? TLS_server_method() : TLS_client_method());
    if (!c || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1) {
        SSL_CTX_free(c);
        return cw_error_nomem(err, 0, "TLS");
    }
    /* A peer that ends without close_notify is no TLS error: conn_in.c notices incomplete frames. */
    SSL_CTX_set_options(c, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(c, 0);
    int mode = !t->listening || files.authority ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT
                                                : SSL_VERIFY_NONE;
    SSL_CTX_set_verify(c, mode, NULL);
    ERR_clear_error();
    int r = tls_load(c, &files, t->listening, err);
    ERR_clear_error();
    if (r < 0)
        SSL_CTX_free(c);
    else
        *ret = c;
    return r;
}

/* ---- files that change ---- */

static void tls_take_stamps(const struct cw_tls *t, struct stamp stamps[N_FILES])
{
    struct stat st;
    memset(stamps, 0, N_FILES * sizeof(*stamps)); /* they are compared byte by byte */
    for (size_t i = 0; i < N_FILES; i++)
        if (t->files[i] && stat(t->files[i], &st) == 0) {
            stamps[i].modified = st.st_mtim;
            stamps[i].inode = st.st_ino;
            stamps[i].size = st.st_size;
        }
}

/* Returns the context for new connections, with a reference for the caller. Loads changed files; if they do
 * not fit together, as while they are being replaced, the earlier context stays in use. */
static SSL_CTX *tls_context_now(struct cw_tls *t)
{
    struct stamp stamps[N_FILES];
    SSL_CTX *c;
    uint64_t now = cw_now_ns();
    CW_GUARD(&t->mutex);
    if (now - t->looked_ns >= LOOK_NS) {
        t->looked_ns = now;
        tls_take_stamps(t, stamps);
        if (memcmp(stamps, t->stamps, sizeof(stamps)) != 0 && tls_make_context(t, &c, NULL) >= 0) {
            SSL_CTX_free(t->context);
            t->context = c;
            memcpy(t->stamps, stamps, sizeof(stamps));
        }
    }
    c = t->context;
    SSL_CTX_up_ref(c);
    return c;
}

int cw_tls_new(const struct cw_tls_files *files, bool listening, struct cw_tls **ret, struct cw_error *err)
{
    const char *const paths[N_FILES] = {files->certificate, files->key, files->authority};
    struct cw_tls *t = calloc(1, sizeof(*t));
    if (!t)
        return cw_error_nomem(err, sizeof(*t), "TLS");
    *t = (struct cw_tls){.refs = 1, .listening = listening};
    pthread_mutex_init(&t->mutex, NULL);
    t->socket = bio_make_method();
    int r = t->socket ? 0 : cw_error_nomem(err, 0, "TLS");
    for (size_t i = 0; i < N_FILES && r >= 0; i++)
        if (paths[i] && !(t->files[i] = strdup(paths[i])))
            r = cw_error_nomem(err, 0, "TLS");
    tls_take_stamps(t, t->stamps);
    t->looked_ns = cw_now_ns();
    if (r >= 0)
        r = tls_make_context(t, &t->context, err);
    if (r < 0)
        cw_tls_unref(t);
    else
        *ret = t;
    return r;
}

struct cw_tls *cw_tls_ref(struct cw_tls *t)
{
    t->refs++;
    return t;
}

struct cw_tls *cw_tls_unref(struct cw_tls *t)
{
    if (t && --t->refs == 0) {
        SSL_CTX_free(t->context);
        BIO_meth_free(t->socket);
        for (size_t i = 0; i < N_FILES; i++)
            free(t->files[i]);
        pthread_mutex_destroy(&t->mutex);
        free(t);
    }
    return NULL;
}

/* ---- streams ---- */

/* Sets the name or address that the peer's certificate must have. Names are matched by RFC 6125. */
static bool stream_expect_host(SSL *ssl, const char *host)
{
    uint8_t address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static int stream_init(struct cw_tls_stream *s, const char *host, struct cw_error *err)
{
    SSL_CTX *context = tls_context_now(s->tls);
    s->ssl = SSL_new(context);
    SSL_CTX_free(context); /* s->ssl has its own reference */
    BIO *bio = BIO_new(s->tls->socket);
    if (!s->ssl || !bio) {
        BIO_free(bio);
        return cw_error_nomem(err, 0, "a TLS connection");
    }
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    if (!host) {
        SSL_set_accept_state(s->ssl);
        return 0;
    }
    SSL_set_connect_state(s->ssl);
    snprintf(s->host, sizeof(s->host), "%s", host);
    return stream_expect_host(s->ssl, host)
               ? 0
               : cw_error_set(err, CW_E_OPTION,
                              "\"%s\" is not a host name or address that a TLS certificate can have", host);
}

int cw_tls_stream_new(struct cw_tls *t, int fd, const char *host, struct cw_tls_stream **ret,
                      struct cw_error *err)
{
    if (t->listening != !host)
        return cw_error_set(err, CW_E_BUG,
                            "TLS that was set up for %s is used for the opposite: this is a defect of "
                            "Cachew, please report it",
                            t->listening ? "listening" : "connecting");
    struct cw_tls_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "a TLS connection");
    *s = (struct cw_tls_stream){.tls = cw_tls_ref(t), .fd = fd};
    ERR_clear_error();
    int r = stream_init(s, host, err);
    if (r < 0)
        cw_tls_stream_free(s);
    else
        *ret = s;
    return r;
}

struct cw_tls_stream *cw_tls_stream_free(struct cw_tls_stream *s)
{
    if (s) {
        SSL_free(s->ssl);
        cw_tls_unref(s->tls);
        free(s);
    }
    return NULL;
}

/* ---- errors ---- */

static void stream_explain(struct cw_tls_stream *s)
{
    long verified = SSL_get_verify_result(s->ssl);
    unsigned long code = ERR_peek_error();
    if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH)
        cw_error_set(&s->why, CW_E_SERVICE,
                     "TLS: the other side's certificate is not for \"%s\": expected a certificate that names "
                     "this host (cachew keys init --host)",
                     s->host);
    else if (verified != X509_V_OK)
        cw_error_set(&s->why, CW_E_SERVICE, "TLS: the other side's certificate is not accepted: %s",
                     X509_verify_cert_error_string(verified));
    else if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER || ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST)
        cw_error_set(&s->why, CW_E_SERVICE, "TLS: %s: does the other side speak TLS?", tls_reason());
    else
        cw_error_set(&s->why, CW_E_SERVICE, "TLS: %s", tls_reason());
    cw_error_attribute(&s->why, "tls", "", "");
    s->failed = true;
}

const struct cw_error *cw_tls_why(const struct cw_tls_stream *s)
{
    return &s->why;
}

/* Returns the result for a call of OpenSSL that failed: -EAGAIN, 0 at the end, or another -errno. *other: the
 * call waits for the opposite of waits_for (a send for a readable socket, a receive for a writable one). */
static ssize_t stream_outcome(struct cw_tls_stream *s, int r, int waits_for, bool *other)
{
    int errnum = errno, error = SSL_get_error(s->ssl, r);
    *other = (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) && error != waits_for;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (error == SSL_ERROR_SYSCALL && !ERR_peek_error())
        return errnum ? -errnum : CW_SSL_NO_ERRNO;
    stream_explain(s);
    return -EPROTO;
}

/* ---- bytes ---- */

/* Joins small pieces in `buffer`, so that they share a record. Returns its bytes. */
static size_t stream_gather(const struct iovec *pieces, size_t n, size_t offset, uint8_t buffer[RECORD])
{
    size_t have = 0;
    for (; n && have < RECORD; pieces++, n--, offset = 0) {
        size_t part = CW_MIN(pieces->iov_len - offset, RECORD - have);
        memcpy(buffer + have, (const uint8_t *)pieces->iov_base + offset, part);
        have += part;
    }
    return have;
}

ssize_t cw_tls_send(struct cw_tls_stream *s, const struct iovec *pieces, size_t n)
{
    uint8_t buffer[RECORD];
    size_t offset = 0, total = 0;
    s->send_wants_readable = false;
    if (s->failed)
        return -EPROTO;
    while (n) {
        const void *data = (const uint8_t *)pieces->iov_base + offset;
        size_t size = CW_MIN(pieces->iov_len - offset, RECORD);
        if (size < RECORD && n > 1) {
            /* after -EAGAIN the call is repeated with the same bytes first, and no fewer, as OpenSSL requires
             */
            size = stream_gather(pieces, n, offset, buffer);
            data = buffer;
        }
        ERR_clear_error();
        errno = 0;
        int r = SSL_write(s->ssl, data, (int)size);
        if (r <= 0) {
            ssize_t e = stream_outcome(s, r, SSL_ERROR_WANT_WRITE, &s->send_wants_readable);
            return total ? (ssize_t)total : e ? e : -EPIPE;
        }
        total += (size_t)r;
        for (offset += (size_t)r; n && offset >= pieces->iov_len; n--)
            offset -= (pieces++)->iov_len;
    }
    return (ssize_t)total;
}

ssize_t cw_tls_receive(struct cw_tls_stream *s, const struct iovec *pieces, size_t n)
{
    size_t total = 0;
    s->receive_wants_writable = false;
    if (s->failed)
        return -EPROTO;
    for (; n; pieces++, n--)
        for (size_t have = 0; have < pieces->iov_len;) {
            ERR_clear_error();
            errno = 0;
            int r = SSL_read(s->ssl, (uint8_t *)pieces->iov_base + have,
                             (int)CW_MIN(pieces->iov_len - have, (size_t)1 << 30));
            if (r <= 0) {
                ssize_t e = stream_outcome(s, r, SSL_ERROR_WANT_READ, &s->receive_wants_writable);
                return total ? (ssize_t)total : e;
            }
            have += (size_t)r;
            total += (size_t)r;
        }
    return (ssize_t)total;
}

bool cw_tls_wants_writable(const struct cw_tls_stream *s, bool sends)
{
    return (sends && !s->send_wants_readable) || s->receive_wants_writable;
}

bool cw_tls_pending(const struct cw_tls_stream *s)
{
    return s->failed || SSL_has_pending(s->ssl) || SSL_get_shutdown(s->ssl) & SSL_RECEIVED_SHUTDOWN;
}

void cw_tls_end(struct cw_tls_stream *s)
{
    ERR_clear_error();
    if (!s->failed && SSL_is_init_finished(s->ssl))
        (void)SSL_shutdown(s->ssl);
}
