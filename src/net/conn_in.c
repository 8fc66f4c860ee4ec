/*
 * Receiving. One system call reads the rest of the current part into its own memory (a payload into the
 * owner's memory), and the bytes after it into the loop's scratch memory, from which many small frames are
 * parsed one after the other. conn_in.h describes parts.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "net/conn_impl.h"
#include "net/limits.h"

/* Bytes of a payload that are read with one call. They are hashed right after, and must still be in the CPU's
 * cache. */
#define READ_BYTES ((size_t)256 << 10)
#define TURN_BYTES ((size_t)2 << 20)     /* received from one connection before others have their turn */
#define MESSAGE_FIRST ((size_t)64 << 10) /* first allocation for a message that does not come at once */
/* Bytes after a block of a compressed payload that are read with one call. They may expand a thousand times.
 */
#define PACKED_BYTES ((size_t)16 << 10)
#define DISCARD_BYTES ((size_t)64 << 20) /* dropped from a peer that still sends after it was cut off */

/* ---- messages for the connection itself, not for its owner ---- */

#define MAX_OWN 1024 /* queued answers to Ping and unknown requests: with more, the peer does not read */

static void own_on_sent(void *arg)
{
    struct cw_conn *c = arg;
    c->out.n_own--;
}

static int own_answer(struct cw_conn *c, const Cachew__Envelope *e, struct cw_error *err)
{
    if (c->out.n_own == MAX_OWN)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side does not read its messages (is it stopped?): %d answers to it are queued",
            MAX_OWN);
    int r = cw_conn_queue(c, e, NULL, 0, own_on_sent, c, NULL, 0, err);
    c->out.n_own += r >= 0;
    return r;
}

static int own_answer_unknown(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Envelope e;
    Cachew__Failure f;
    struct cw_error unknown = {0};
    if (!m->id)
        return 0;
    cw_error_set(&unknown, CW_E_SERVICE,
                 "%s received a request of a kind that it does not know" CW_OTHER_VERSION,
                 "cachew " CACHEW_VERSION);
    cw_failure_envelope(&e, &f, m->id, &unknown);
    return own_answer(c, &e, err);
}

static int own_answer_ping(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    Cachew__Done done = CACHEW__DONE__INIT;
    Cachew__Envelope e = {CW_MESSAGE(envelope), .re = m->id, .of_case = CACHEW__ENVELOPE__OF_DONE,
                          .done = &done};
    return own_answer(c, &e, err);
}

/* Handles a message for the connection itself. 1: the message is for the owner. */
static int own_handle(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err)
{
    switch (m->of_case) {
    case CACHEW__ENVELOPE__OF__NOT_SET:
        return own_answer_unknown(c, m, err);
    case CACHEW__ENVELOPE__OF_PING:
        return own_answer_ping(c, m, err);
    case CACHEW__ENVELOPE__OF_DONE:
        return m->re & CW_CONN_OWN_ID ? 0 : 1;
    case CACHEW__ENVELOPE__OF_HELLO:
    case CACHEW__ENVELOPE__OF_WELCOME:
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent a second handshake on one connection" CW_OTHER_VERSION);
    case CACHEW__ENVELOPE__OF_FAILURE:
        if (m->re)
            return 1;
        struct cw_error why = {0};
        cw_failure_error(m->failure, &why);
        cw_conn_die(c, &why);
        return 0;
    default:
        return 1;
    }
}

static bool own_is(const Cachew__Envelope *m)
{
    return m->of_case == CACHEW__ENVELOPE__OF__NOT_SET ||
           (m->of_case >= CACHEW__ENVELOPE__OF_HELLO && m->of_case <= CACHEW__ENVELOPE__OF_DONE);
}

static int in_handle(struct cw_conn *c, const Cachew__Envelope *m, void *payload, size_t size,
                     struct cw_frame_fds *fds, struct cw_error *err)
{
    int r = 1;
    if (c->state == CONN_SHAKING)
        r = cw_conn_shake(c, m, err);
    else if (own_is(m))
        r = own_handle(c, m, err);
    if (r == 1 && c->listener) /* it has sent a request, so it no longer counts as waiting */
        cw_listener_forget(c);
    if (r == 1)
        r = c->ops->message(c->user, c, m, payload, size, fds->fd, fds->n, err);
    else if (r >= 0 && fds->n)
        r = cw_error_set(
            err, CW_E_SERVICE,
            "the other side sent file descriptors with a message that has none" CW_OTHER_VERSION);
    cw_frame_close_fds(fds);
    return r;
}

/* ---- parts ---- */

/* Assigns received descriptors to the current frame, if it is the last one that begins in the bytes with
 * which they came. */
static int in_claim_fds(struct cw_conn_in *in, struct cw_error *err)
{
    uint64_t rest = in->came_to - in->frame_start, head = CW_FRAME_HEADER + (uint64_t)in->frame.message;
    if (!in->came.n)
        return 0;
    if (in->frame_start < in->came_to && rest > head && rest - head > in->frame.payload)
        return 0; /* another frame begins in these bytes */
    if (in->frame_start < in->came_from || in->frame_start >= in->came_to)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side sent file descriptors in the middle of a message" CW_OTHER_VERSION);
    in->claimed = in->came;
    in->came.n = 0;
    return 0;
}

static size_t in_message_limit(const struct cw_conn *c)
{
    return c->state == CONN_OPEN ? c->setup->limits.message
                                 : CW_MIN(c->setup->limits.message, CW_HANDSHAKE_BYTES);
}

static int in_header_done(struct cw_conn *c, const uint8_t *header, struct cw_error *err)
{
    int r = cw_frame_read(header, in_message_limit(c), c->state == CONN_OPEN ? c->setup->limits.payload : 0,
                          &c->in.frame, err);
    if (r >= 0 && c->in.frame.packed && !c->packs)
        r = cw_error_set(err, CW_E_SERVICE,
                         "the other side sent a compressed payload, but the handshake agreed on no "
                         "compression" CW_OTHER_VERSION);
    c->in.part = IN_MESSAGE;
    return r < 0 ? r : in_claim_fds(&c->in, err);
}

static int in_frame_done(struct cw_conn *c, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    const Cachew__Envelope *m = in->envelope;
    void *payload = in->payload;
    struct cw_frame_fds fds = in->claimed;
    in->claimed.n = 0;
    in->envelope = NULL;
    in->payload = NULL;
    in->part = IN_HEADER;
    in->frame_start = in->offset;
    int r = in_handle(c, m, payload, in->frame.payload, &fds, err);
    cw_envelope_clear(&in->memory);
    return r;
}

static int in_want_payload(struct cw_conn *c, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    if (!c->ops->payload || own_is(in->envelope))
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent an unexpected payload of %" PRIu64 " bytes" CW_OTHER_VERSION,
                            in->frame.payload);
    if (!in->hash && !(in->hash = XXH3_createState()))
        return cw_error_nomem(err, sizeof(*in->hash), "the hash of a payload");
    XXH3_64bits_reset(in->hash);
    in->part = in->frame.packed ? IN_BLOCK_HEAD : IN_PAYLOAD;
    in->unpacked = 0;
    return c->ops->payload(c->user, c, in->envelope, in->frame.payload, &in->payload, err);
}

static int in_message_done(struct cw_conn *c, const uint8_t *message, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    int r = cw_frame_check(in->frame.message_hash, cw_hash64(message, in->frame.message), "message",
                           in->frame.message, err);
    if (r >= 0)
        r = cw_envelope_read(&in->memory, cw_envelope_limit(in_message_limit(c)), message, in->frame.message,
                             &in->envelope, err);
    if (r < 0)
        return r;
    return in->frame.payload ? in_want_payload(c, err) : in_frame_done(c, err);
}

static int in_payload_done(struct cw_conn *c, struct cw_error *err)
{
    c->traffic.in += c->in.frame.payload;
    if (!c->in.frame.packed)
        c->traffic.in_wire += c->in.frame.payload;
    int r = cw_frame_check(c->in.frame.payload_hash, XXH3_64bits_digest(c->in.hash), "payload",
                           c->in.frame.payload, err);
    return r < 0 ? r : in_frame_done(c, err);
}

/* Returns the memory of the current part, and in iov_len the bytes of the whole part. The memory of a message
 * may be shorter than that (message_capacity). */
static struct iovec in_part(struct cw_conn_in *in)
{
    switch (in->part) {
    case IN_HEADER:
        return (struct iovec){in->header, CW_FRAME_HEADER};
    case IN_MESSAGE:
        return (struct iovec){in->message, in->frame.message};
    case IN_BLOCK_HEAD:
        return (struct iovec){in->block_head, CW_PACK_HEAD};
    case IN_BLOCK:
        return (struct iovec){cw_conn_unpack_memory(in), in->block};
    default:
        return (struct iovec){in->payload, in->frame.payload};
    }
}

/* Handles the current part, which is complete and lies at `at`. */
static int in_part_done(struct cw_conn *c, const uint8_t *at, struct cw_error *err)
{
    c->in.have = 0;
    switch (c->in.part) {
    case IN_HEADER: {
        int r = in_header_done(c, at, err);
        return r < 0 || c->in.frame.message ? r : in_message_done(c, at, err);
    }
    case IN_MESSAGE: {
        int r = in_message_done(c, at, err);
        free(c->in.message);
        c->in.message = NULL;
        c->in.message_capacity = 0;
        return r;
    }
    case IN_BLOCK_HEAD:
        return cw_conn_unpack_head(c, at, err);
    case IN_BLOCK: {
        int r = cw_conn_unpack_block(c, at, err);
        return r == 1 ? in_payload_done(c, err) : r;
    }
    default:
        return in_payload_done(c, err);
    }
}

/* Grows the memory of a message with the bytes received, not to the announced size, which the peer may never
 * send. */
static int in_grow_message(struct cw_conn_in *in, struct cw_error *err)
{
    if (in->have < in->message_capacity)
        return 0;
    size_t capacity = CW_MIN(CW_MAX(in->have * 2, MESSAGE_FIRST), (size_t)in->frame.message);
    uint8_t *message = realloc(in->message, capacity);
    if (!message)
        return cw_error_nomem(err, capacity, "a message");
    in->message = message;
    in->message_capacity = capacity;
    return 0;
}

/* Sets *ret to memory for the rest of the current part, or for some of the rest. */
static int in_part_room(struct cw_conn_in *in, struct iovec *ret, struct cw_error *err)
{
    int r = in->part == IN_MESSAGE ? in_grow_message(in, err) : 0;
    if (r < 0)
        return r;
    struct iovec part = in_part(in);
    size_t rest = (in->part == IN_MESSAGE ? in->message_capacity : part.iov_len) - in->have;
    *ret = (struct iovec){.iov_base = (uint8_t *)part.iov_base + in->have,
                          .iov_len = in->part == IN_PAYLOAD ? CW_MIN(rest, READ_BYTES) : rest};
    return 0;
}

/* Handles n received bytes of the current part, which lie at `at` in the memory that in_part_room returned.
 */
static int in_part_came(struct cw_conn *c, const uint8_t *at, size_t n, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    if (in->part == IN_PAYLOAD)
        XXH3_64bits_update(in->hash, at, n);
    in->have += n;
    in->offset += n;
    struct iovec part = in_part(in);
    if (in->have < part.iov_len)
        return in->part == IN_HEADER ? cw_frame_begins(in->header, in->have, err) : 0;
    return in_part_done(c, part.iov_base, err);
}

/* Parses frames, and parts of frames, from memory. */
static int in_feed(struct cw_conn *c, const uint8_t *data, size_t size, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    int r = 0;
    while (size && r >= 0 && cw_conn_listens(c)) {
        size_t rest = in_part(in).iov_len - in->have, n = CW_MIN(rest, size);
        struct iovec room;
        if (in->have == 0 && n == rest && in->part != IN_PAYLOAD) { /* the whole part: used without a copy */
            in->offset += n;
            r = in_part_done(c, data, err);
        } else if ((r = in_part_room(in, &room, err)) >= 0) {
            n = CW_MIN(n, room.iov_len);
            memcpy(room.iov_base, data, n);
            r = in_part_came(c, room.iov_base, n, err);
        }
        data += n;
        size -= n;
    }
    return r;
}

/* ---- reading ---- */

static int in_take_fds(struct cw_conn_in *in, struct cw_frame_fds *fds, size_t bytes, struct cw_error *err)
{
    if (in->came.n || bytes == 0) {
        cw_frame_close_fds(fds);
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side sent file descriptors in the middle of a message" CW_OTHER_VERSION);
    }
    in->came = *fds;
    in->came_from = in->offset;
    in->came_to = in->offset + bytes;
    return 0;
}

/* Receives with one system call, and handles the bytes. Returns their number, 0 at the end, or -errno.
 * *asked: the bytes for which there was room. err: a fault of the peer. */
static ssize_t in_receive_some(struct cw_conn *c, size_t *asked, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    struct iovec pieces[2];
    struct cw_frame_fds fds = {0};
    size_t n = 0, direct = 0, rest = in_part(in).iov_len - in->have;
    uint8_t *scratch = cw_loop_scratch(c->loop);
    if (in->part == IN_PAYLOAD || in->part == IN_BLOCK || in->have) {
        if (in_part_room(in, &pieces[n], err) < 0)
            return 0;
        direct = pieces[n++].iov_len;
    }
    *asked = direct;
    if (!n || direct == rest) {
        size_t more = in->part == IN_BLOCK || in->part == IN_BLOCK_HEAD ? PACKED_BYTES : CW_LOOP_SCRATCH;
        pieces[n++] = (struct iovec){.iov_base = scratch, .iov_len = more};
        *asked += more;
    }
    ssize_t r = cw_conn_read(c, pieces, n, c->local ? fds.fd : NULL, &fds.n);
    if (r == -EMSGSIZE)
        return cw_error_set(
                   err, CW_E_SERVICE,
                   "the other side sent more than %d file descriptors with a message" CW_OTHER_VERSION,
                   CW_FRAME_FDS),
               0;
    if (fds.n && in_take_fds(in, &fds, r > 0 ? (size_t)r : 0, err) < 0)
        return 0;
    if (r <= 0)
        return r;
    direct = CW_MIN(direct, (size_t)r);
    if (direct && in_part_came(c, pieces[0].iov_base, direct, err) < 0)
        return r;
    if (in_feed(c, scratch, (size_t)r - direct, err) < 0 || !in->came.n || !cw_conn_listens(c))
        return r;
    if (in->part != IN_HEADER || !in->have || in->frame_start < in->came_from) /* no frame began here */
        cw_error_set(err, CW_E_SERVICE,
                     "the other side sent file descriptors in the middle of a message" CW_OTHER_VERSION);
    return r;
}

static void in_ended(struct cw_conn *c)
{
    struct cw_error err = {0};
    if (c->state == CONN_SHAKING)
        cw_error_set(
            &err, CW_E_SERVICE, "the other side closed the connection before the handshake was done%s",
            c->accepted || c->local || c->tls ? ""
                                              : ": it may expect TLS (--tls-ca FILE, tls_ca= in Python)");
    else if (c->in.part != IN_HEADER || c->in.have)
        cw_error_set(&err, CW_E_SERVICE, "the other side closed the connection in the middle of a message");
    cw_conn_die(c, err.status ? &err : NULL);
}

/* Drops received bytes until the peer closes too. If a TCP socket is closed while it has unread bytes, the
 * kernel resets the connection, and the peer may lose what was sent last. */
static void in_discard(struct cw_conn *c)
{
    struct iovec piece = {.iov_base = cw_loop_scratch(c->loop), .iov_len = CW_LOOP_SCRATCH};
    ssize_t r = cw_conn_read(c, &piece, 1, NULL, NULL);
    if (r == -EAGAIN)
        return;
    c->in.discarded += r > 0 ? (size_t)r : 0;
    if (r > 0 && c->in.discarded < DISCARD_BYTES)
        return;
    if (r == 0 && c->out.head && !c->out.shut) { /* the peer sends no more, but may still receive */
        c->in.ended = true;
        cw_conn_watch(c);
        return;
    }
    cw_conn_die(c, NULL);
}

void cw_conn_receive(struct cw_conn *c)
{
    size_t asked = 1, got = 1;
    for (size_t total = 0; cw_conn_listens(c) && got == asked && total < TURN_BYTES;
         total += got + c->in.expanded) {
        struct cw_error err = {0};
        c->in.expanded = 0;
        ssize_t r = in_receive_some(c, &asked, &err);
        if (r == -EAGAIN || r == -EWOULDBLOCK)
            break;
        if (r > 0)
            c->at_ms.heard = cw_loop_now_ms(c->loop);
        got = r > 0 ? (size_t)r : 0;
        if (err.status) {
            if (cw_conn_listens(c))
                cw_conn_cut(c, &err);
        } else if (r < 0) {
            cw_conn_broke(c, (int)-r);
        } else if (r == 0) {
            in_ended(c);
        }
    }
    if (c->state == CONN_CLOSING && !c->in.ended)
        in_discard(c);
    c->in.more = c->tls && c->tls_state != TLS_BROKEN && c->state != CONN_DEAD && !c->in.ended &&
                 cw_tls_pending(c->tls);
    if (c->in.more)
        cw_loop_defer(c->loop, &c->defer);
}

void cw_conn_in_deinit(struct cw_conn *c)
{
    struct cw_conn_in *in = &c->in;
    if (in->payload && c->ops->abandoned)
        c->ops->abandoned(c->user, c, in->payload);
    cw_frame_close_fds(&in->came);
    cw_frame_close_fds(&in->claimed);
    free(in->message);
    cw_unpacker_free(in->unpacker);
    cw_envelope_deinit(&in->memory);
    XXH3_freeState(in->hash);
}
