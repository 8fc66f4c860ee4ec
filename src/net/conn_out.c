/* Sending. Frames are queued, and sent together before the loop waits again, with gathering system calls and
 * without copies of payloads. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/conn_impl.h"

#define MAX_PIECES 1024                /* of a payload */
#define GATHER_BYTES ((size_t)1 << 20) /* passed to one system call: a socket seldom takes more at a time */
#define PUSH_BYTES ((size_t)4 << 20)   /* sent by one connection before others have their turn */
/* once this many are queued, they are sent without waiting for the loop */
#define EAGER_BYTES ((size_t)256 << 10)

/* ---- frames ---- */

static int frame_duplicate_fds(struct cw_out_frame *f, const int *fds, size_t n, struct cw_error *err)
{
    for (size_t i = 0; i < n; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return cw_error_errno(err, CW_E_IO, errno, "file descriptor %d can't be duplicated", fds[i]);
        f->fds.fd[f->fds.n++] = fd;
    }
    return 0;
}

static int frame_new(const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                     struct cw_out_frame **ret, struct cw_error *err)
{
    struct cw_frame h = {.message = (uint32_t)cachew__envelope__get_packed_size(m)};
    size_t head = CW_FRAME_HEADER + (size_t)h.message,
           room = sizeof(struct cw_out_frame) + (n + 1) * sizeof(struct iovec) + head;
    struct cw_out_frame *f = malloc(room);
    if (!f)
        return cw_error_nomem(err, room, "a message");
    *f = (struct cw_out_frame){.n_pieces = 1};
    uint8_t *bytes = (uint8_t *)&f->pieces[n + 1];
    cachew__envelope__pack(m, bytes + CW_FRAME_HEADER);
    h.message_hash = cw_hash64(bytes + CW_FRAME_HEADER, h.message);
    h.payload_hash = cw_frame_hash(payload, n);
    for (size_t i = 0; i < n; i++)
        if (payload[i].iov_len) {
            h.payload += payload[i].iov_len;
            f->pieces[f->n_pieces++] = payload[i];
        }
    cw_frame_write(&h, bytes);
    f->pieces[0] = (struct iovec){.iov_base = bytes, .iov_len = head};
    f->size = head + h.payload;
    *ret = f;
    return 0;
}

static void frames_release(struct cw_out_frame **list)
{
    while (*list) {
        struct cw_out_frame *f = CW_POP(*list);
        cw_frame_close_fds(&f->fds);
        if (f->release)
            f->release(f->arg);
        free(f);
    }
}

/* ---- queue ---- */

static int out_check(struct cw_conn *c, size_t n, size_t n_fds, struct cw_error *err)
{
    if (!cw_conn_listens(c) && c->state != CONN_CLOSING)
        return cw_error_set(err, CW_E_SERVICE, "%s: the connection is not open", c->peer);
    if (n > MAX_PIECES)
        return cw_error_set(err, CW_E_BUG,
                            "a payload is made of %zu parts, expected at most %d: this is a defect of "
                            "Cachew, please report it",
                            n, MAX_PIECES);
    if (n_fds > CW_FRAME_FDS || (n_fds && !c->local))
        return cw_error_set(err, CW_E_BUG,
                            "a message has %zu file descriptors, expected at most %d: this is a defect of "
                            "Cachew, please report it",
                            n_fds, c->local ? CW_FRAME_FDS : 0);
    return 0;
}

size_t cw_conn_queued(const struct cw_conn *c)
{
    return c->out.queued + c->out.n_frames * sizeof(struct cw_out_frame);
}

/* Checks the limit on queued bytes for a frame of `size` more. If the queue is too long, first tries to send:
 * frames may be queued only because the loop did not come to send them. */
static int out_check_limit(struct cw_conn *c, size_t size, struct cw_error *err)
{
    size_t limit = c->setup->limits.queued;
    size += sizeof(struct cw_out_frame);
    if (!limit || cw_conn_queued(c) + size <= limit)
        return 0;
    if (c->owner != OWNER_OPENING)
        cw_conn_push(c);
    if (c->state == CONN_DEAD || cw_conn_queued(c) + size <= limit)
        return c->state == CONN_DEAD
                   ? cw_error_set(err, CW_E_SERVICE, "%s: the connection has ended", c->peer)
                   : 0;
    struct cw_error why = {0};
    cw_error_set(&why, CW_E_SERVICE,
                 "the other side does not read its messages (is it stopped?): %zu bytes are queued, and the "
                 "next message has %zu more; expected at most %zu in all",
                 cw_conn_queued(c), size, limit);
    cw_conn_die(c, &why);
    return cw_error_set(err, CW_E_SERVICE, "%s: %s", c->peer, why.message);
}

static void out_enqueue(struct cw_conn *c, struct cw_out_frame *f)
{
    /* begun: it is decided whether to compress the payload. For a large payload this is decided only when the
     * frame reaches the head of the queue; a small payload, or one of an uncompressed connection, is sent as
     * it is. */
    f->begun = !c->packs || f->size - f->pieces[0].iov_len < CW_PACK_MIN;
    *c->out.tail = f;
    c->out.tail = &f->next;
    c->out.queued += f->size;
    c->out.n_frames++;
    if (c->out.queued >= EAGER_BYTES && !c->out.blocked && c->owner != OWNER_OPENING)
        cw_conn_push(c);
    /* cw_conn_flush sends the rest, and releases frames that were sent. While the socket is blocked, the loop
     * calls it when the socket is writable. */
    if (!c->out.blocked || c->out.done)
        cw_loop_defer(c->loop, &c->defer);
}

int cw_conn_queue(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                  void (*release)(void *arg), void *arg, const int *fds, size_t n_fds, struct cw_error *err)
{
    struct cw_out_frame *f = NULL;
    int r = out_check(c, n, n_fds, err);
    if (r >= 0)
        r = frame_new(m, payload, n, &f, err);
    if (r >= 0)
        r = frame_duplicate_fds(f, fds, n_fds, err);
    if (r >= 0)
        r = out_check_limit(c, f->size, err);
    if (r < 0) { /* `release` is not called: the payload still belongs to the caller */
        if (f)
            cw_frame_close_fds(&f->fds);
        free(f);
        return r;
    }
    f->release = release;
    f->arg = arg;
    out_enqueue(c, f);
    return 0;
}

/* ---- sending ---- */

/* Gathers the pieces to be sent next, over several frames. Descriptors are sent with the first byte of their
 * frame, and in a call without other frames, so that the receiver knows to which frame they belong. Returns
 * the number of pieces. */
static size_t out_gather(const struct cw_conn_out *o, struct iovec *pieces, size_t *bytes)
{
    size_t n = 0, offset = o->offset;
    unsigned piece = o->piece;
    *bytes = 0;
    for (const struct cw_out_frame *f = o->head; f && (f == o->head || (!f->fds.n && f->begun));
         f = f->next, piece = 0) {
        for (; piece < f->n_pieces && n < IOV_MAX; piece++, offset = 0) {
            pieces[n].iov_base = (char *)f->pieces[piece].iov_base + offset;
            pieces[n].iov_len = f->pieces[piece].iov_len - offset;
            *bytes += pieces[n++].iov_len;
        }
        if (n == IOV_MAX || *bytes >= GATHER_BYTES || f->fds.n)
            break;
    }
    return n;
}

/* Moves the frame at the head, which was sent, to the list `done`. */
static void out_head_done(struct cw_conn_out *o)
{
    struct cw_out_frame *f = CW_POP(o->head);
    o->piece = 0;
    o->offset = 0;
    o->n_frames--;
    if (!o->head)
        o->tail = &o->head;
    f->next = NULL;
    *o->done_tail = f;
    o->done_tail = &f->next;
}

static void out_payload_sent(struct cw_conn *c, size_t n)
{
    c->traffic.out += n;
    c->traffic.out_wire += n;
    c->out.policy.raw += n;
}

static void out_sent(struct cw_conn *c, size_t n)
{
    struct cw_conn_out *o = &c->out;
    o->queued -= n;
    while (n) {
        struct cw_out_frame *f = o->head;
        size_t left = f->pieces[o->piece].iov_len - o->offset;
        cw_frame_close_fds(&f->fds);
        if (o->piece > 0)
            out_payload_sent(c, CW_MIN(n, left));
        if (n < left) {
            o->offset += n;
            return;
        }
        n -= left;
        o->offset = 0;
        if (++o->piece < f->n_pieces)
            continue;
        out_head_done(o);
    }
}

/* Sends with one system call as much as it takes. Returns the bytes, or -errno. */
static ssize_t out_send_some(struct cw_conn *c)
{
    struct cw_conn_out *o = &c->out;
    struct iovec pieces[IOV_MAX];
    size_t bytes, n;
    if (!o->head->begun)
        cw_conn_pack_begin(c);
    if (!o->head->packed) { /* packed: the payload is sent compressed */
        n = out_gather(o, pieces, &bytes);
        ssize_t r = cw_conn_write(c, pieces, n, o->head->fds.fd, o->head->fds.n);
        if (r > 0)
            out_sent(c, (size_t)r);
        return r;
    }
    n = cw_conn_pack_gather(o, pieces);
    ssize_t r = cw_conn_write(c, pieces, n, NULL, 0);
    if (r > 0 && cw_conn_pack_sent(c, (size_t)r))
        out_head_done(o);
    return r;
}

static void out_note_state(struct cw_conn *c)
{
    if (c->packs)
        cw_pack_state(&c->out.policy, cw_now_ns(), c->out.head != NULL, c->out.blocked);
}

void cw_conn_push(struct cw_conn *c)
{
    struct cw_conn_out *o = &c->out;
    o->blocked = false;
    if (c->tls_state == TLS_BROKEN)
        return;
    out_note_state(c);
    for (size_t pushed = 0; o->head && pushed < PUSH_BYTES;) {
        size_t queued = o->queued;
        ssize_t r = out_send_some(c);
        if (r == -EAGAIN || r == -EWOULDBLOCK) {
            o->blocked = true;
            break;
        }
        if (r < 0) {
            cw_conn_broke(c, (int)-r);
            return;
        }
        c->at_ms.sent = cw_loop_now_ms(c->loop);
        pushed += CW_MAX((size_t)r, queued - o->queued);
    }
    out_note_state(c);
    cw_conn_watch(c);
}

void cw_conn_flush(struct cw_conn *c)
{
    struct cw_conn_out *o = &c->out;
    bool something = o->head || o->done;
    if (o->head)
        cw_conn_push(c);
    struct cw_out_frame *done = CW_STEAL(o->done);
    o->done_tail = &o->done;
    frames_release(&done);
    if (c->state == CONN_DEAD)
        return;
    if (o->head && !o->blocked && c->tls_state != TLS_BROKEN)
        cw_loop_defer(c->loop, &c->defer);
    if (something && !o->head && c->state == CONN_OPEN && c->ops->drained)
        c->ops->drained(c->user, c);
    if (c->state == CONN_CLOSING && (!o->head || c->tls_state == TLS_BROKEN) && !o->shut) {
        o->shut = true;
        if (c->tls && c->tls_state != TLS_BROKEN)
            cw_tls_end(c->tls);
        (void)shutdown(c->fd, SHUT_WR);
        if (c->in.ended)
            cw_conn_die(c, NULL);
    }
}

void cw_conn_out_clear(struct cw_conn *c)
{
    struct cw_conn_out *o = &c->out;
    struct cw_out_frame *done = CW_STEAL(o->done), *rest = CW_STEAL(o->head);
    o->tail = &o->head;
    o->done_tail = &o->done;
    o->queued = o->offset = o->n_frames = o->block_left = o->block_raw = 0;
    o->piece = 0;
    frames_release(&done);
    frames_release(&rest);
}

/* ---- for the owner ---- */

int cw_conn_send(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                 void (*release)(void *arg), void *arg, const int *fds, size_t n_fds, struct cw_error *err)
{
    int r = c->state == CONN_OPEN
                ? cw_conn_queue(c, m, payload, n, release, arg, fds, n_fds, err)
                : cw_error_set(err, CW_E_SERVICE, "%s: the connection is not open", c->peer);
    if (r < 0 && release) /* cw_conn_queue has not called it; cw_conn_send calls it in any case */
        release(arg);
    return r;
}

/* A message that is serialised once for several connections. Their frames all point to the bytes of `frame`.
 */
struct shared {
    size_t refs;
    struct cw_out_frame *frame; /* never queued itself */
};

static void shared_unref(void *arg)
{
    struct shared *s = arg;
    if (--s->refs > 0)
        return;
    free(s->frame);
    free(s);
}

static int shared_send(struct cw_conn *c, struct shared *s, struct cw_error *err)
{
    size_t size = s->frame->size, room = sizeof(*s->frame) + sizeof(struct iovec);
    int r = out_check(c, 0, 0, err);
    if (r >= 0)
        r = out_check_limit(c, size, err);
    struct cw_out_frame *f = r < 0 ? NULL : malloc(room);
    if (!f)
        return r < 0 ? r : cw_error_nomem(err, room, "a message");
    *f = (struct cw_out_frame){.size = size, .release = shared_unref, .arg = s, .n_pieces = 1};
    f->pieces[0] = s->frame->pieces[0];
    s->refs++;
    out_enqueue(c, f);
    return 0;
}

void cw_conn_send_all(struct cw_conn *const *conns, size_t n, const Cachew__Envelope *m)
{
    struct cw_error err = {0};
    if (n == 1) {
        if (cw_conn_send(conns[0], m, NULL, 0, NULL, NULL, NULL, 0, &err) < 0)
            cw_conn_close(conns[0], &err);
        return;
    }
    struct shared *s = calloc(1, sizeof(*s));
    int r = s ? frame_new(m, NULL, 0, &s->frame, &err) : cw_error_nomem(&err, sizeof(*s), "a message");
    if (s)
        s->refs = 1;
    for (size_t i = 0; i < n; i++)
        if (r < 0 || shared_send(conns[i], s, &err) < 0)
            cw_conn_close(conns[i], &err);
    if (s)
        shared_unref(s);
}
