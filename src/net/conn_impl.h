/*
 * The inside of a connection. conn.c: its life; conn_in.c: receiving; conn_out.c: sending; handshake.c: the
 * first two messages; listener.c: where accepted ones come from. Loop thread only. Nothing but cw_conn_finish
 * frees a connection, and only from the loop's deferred work: whoever is told of something may close whatever
 * it likes.
 */
#pragma once
#include "base/hash.h"
#include "base/list.h"
#include "net/address.h"
#include "net/conn.h"
#include "net/envelope.h"
#include "net/frame.h"
#include "net/loop_impl.h"
#include "net/pack.h"
#include "net/tls.h"

enum conn_state {
    CONN_RESOLVING,  /* the host's name */
    CONN_CONNECTING, /* to one of its addresses */
    CONN_SHAKING,    /* bytes go both ways; Hello and Welcome */
    CONN_OPEN,
    CONN_CLOSING, /* what is queued is sent, what comes is thrown away, until the peer closes too */
    CONN_DEAD,    /* cw_conn_finish follows */
};

/* What all connections of a listener share; immutable. */
struct cw_conn_setup {
    unsigned refs;
    Cachew__Hello *hello; /* ours: with the token, if we connect */
    char *token;          /* that theirs must have; NULL: none */
    struct cw_conn_limits limits;
    uint64_t timeout_ms;
    struct cw_tls *tls; /* counted; NULL: plain */
    bool pack;
};

struct cw_out_frame {
    struct cw_out_frame *next;
    size_t size;        /* of the frame */
    bool begun, packed; /* whether its payload goes in blocks is decided when it begins */
    void (*release)(void *arg);
    void *arg;
    int fds[CW_FRAME_FDS]; /* not sent yet */
    unsigned n_fds, n_pieces;
    struct iovec pieces[]; /* the first: header and message, which follow */
};

struct cw_conn_out {
    struct cw_out_frame *head, **tail;      /* to be sent */
    struct cw_out_frame *done, **done_tail; /* sent, to be released */
    size_t queued, n_frames;                /* bytes to be sent; frames that are not sent */
    /* of the connection itself that are not released: answers to Ping, and to what is not known */
    unsigned n_own;
    unsigned piece; /* of head, to be sent next */
    size_t offset;  /* in it */
    bool blocked;   /* the socket takes no more: waits until it is writable */
    bool shut;      /* nothing follows */
    /* Packed frames: piece and offset are where the next block begins; of what lies before, there are still
     * to be sent: */
    size_t head_sent;         /* the first piece, from here on; */
    const uint8_t *block;     /* the block at hand, */
    size_t block_left;        /* so many bytes of it, */
    size_t block_raw;         /* which are so many of the payload */
    struct cw_packer *packer; /* NULL: none was needed yet */
    struct cw_pack_policy policy;
};

/* A frame is received part by part: header, message, payload or, where that is packed, blocks. What a read
 * gives beyond the part at hand lies in the loop's scratch memory and is taken from there. */
struct cw_conn_in {
    enum { IN_HEADER, IN_MESSAGE, IN_PAYLOAD, IN_BLOCK_HEAD, IN_BLOCK } part;

    size_t have; /* bytes of the part */
    uint8_t header[CW_FRAME_HEADER];
    struct cw_frame frame;
    uint8_t *message; /* a part of one, as far as it came */
    size_t message_capacity;
    struct cw_envelope_memory memory;
    const Cachew__Envelope *envelope; /* in memory; there while its payload comes */
    void *payload;
    struct cw_unpacker *unpacker; /* NULL: none was needed yet */
    uint8_t block_head[CW_PACK_HEAD];
    size_t block;               /* bytes of the block at hand, which are to become */
    size_t unpacked, block_raw; /* so many of the payload, behind so many */
    bool block_stored;
    size_t expanded;    /* bytes that blocks became since the last look */
    XXH3_state_t *hash; /* of the payload so far */
    /* bytes of the stream: taken so far; at the beginning of the frame at hand */
    uint64_t offset, frame_start;

    /* of a frame that has not begun; of the frame at hand */
    struct cw_conn_fds {
        int fd[CW_FRAME_FDS];
        size_t n;
    } came, claimed;

    uint64_t came_from, came_to; /* the bytes of the stream that they came with */
    size_t discarded;            /* bytes, while closing */
    bool more;                   /* TLS has some that the socket does not tell of */
    bool ended;                  /* while closing: nothing more comes */
};

struct cw_conn {
    struct cw_loop *loop;
    struct cw_conn_setup *setup;
    const struct cw_conn_ops *ops;
    void *user;
    enum conn_state state;
    bool accepted; /* it came from a listener */
    bool opened;   /* its owner took it */
    bool opening;  /* its owner is being asked */
    bool local;
    bool packs;                /* payloads may be compressed, both ways */
    int fd;                    /* -1: none yet */
    struct cw_watch *watch;    /* of fd */
    struct cw_tls_stream *tls; /* on fd; NULL: plain */
    bool looked;               /* accepted, with TLS: whether the peer speaks it, ... */
    bool plain;                /* ... and it does not: it is told so, as it can understand it, and let go */
    bool broken; /* TLS failed, and has told the peer: nothing more is sent, what comes is thrown away */
    struct cw_timer *timer;
    struct cw_defer defer;
    struct cw_error why;
    char peer[320]; /* address, for people */

    /* connecting */
    struct cw_address address;
    struct resolving *resolving;
    struct addrinfo *addresses, *next_address;

    /* listening: those that have asked for nothing yet are in a list, the oldest first */
    struct cw_listener *listener;
    struct cw_link waiting;
    uint64_t since_ms;

    uint64_t deadline_ms; /* for connecting, shaking hands and closing */
    uint64_t closing_since_ms;
    uint64_t heard_ms, said_ms, pinged_ms;
    uint64_t due_ms;   /* open: when the timer is to call */
    uint64_t last_id;  /* of our own requests */
    uint64_t hello_id; /* of the peer's Hello */
    uint64_t common;   /* capabilities that both have: bit i is setup->hello->capabilities[i] */
    struct cw_conn_in in;
    struct cw_conn_out out;
    struct cw_conn_traffic traffic;
};

/* Ids of requests that a connection itself makes (Hello, Ping) have this bit; its owner's don't. */
#define CW_CONN_OWN_ID (UINT64_C(1) << 63)

/* ---- conn.c ---- */
int cw_conn_new(struct cw_loop *l, struct cw_conn_setup *setup, const struct cw_conn_ops *ops, void *user,
                struct cw_conn **ret, struct cw_error *err) _must_check_;
/* Of a connected socket, which is c's from here on, also if the result is negative. */
int cw_conn_establish(struct cw_conn *c, int fd, struct cw_error *err) _must_check_;
/* Never opened nor told to anybody. */
void cw_conn_drop(struct cw_conn *c);
/* Over, now; err NULL: nothing is wrong. */
void cw_conn_die(struct cw_conn *c, const struct cw_error *err);
/* Over because of what the peer did, which is said to it. */
void cw_conn_cut(struct cw_conn *c, const struct cw_error *err);

static inline bool cw_conn_listens(const struct cw_conn *c)
{
    return c->state == CONN_SHAKING || c->state == CONN_OPEN;
}

/* By the socket or by TLS: as cw_socket_send and cw_socket_receive. */
ssize_t cw_conn_write(struct cw_conn *c, struct iovec *pieces, size_t n, const int *fds, size_t n_fds);
ssize_t cw_conn_read(struct cw_conn *c, struct iovec *pieces, size_t n, int *fds, size_t *n_fds);
/* Over, because one of them gave -errno. */
void cw_conn_broke(struct cw_conn *c, int errnum);
/* Readable always, writable when something waits for it. */
void cw_conn_watch(struct cw_conn *c);

/* Open: signs of life are looked at then. */
void cw_conn_call_at(struct cw_conn *c, uint64_t ms);
/* c->watch, whose events are the connection's. */
int cw_conn_watch_new(struct cw_conn *c, int fd, struct cw_error *err) _must_check_;

/* ---- connect.c ---- */
/* Nobody waits for its host's addresses any more. */
void cw_conn_resolve_cancel(struct cw_conn *c);
/* The next address that does not fail at once; the event of the socket says how it went on. */
void cw_conn_try_addresses(struct cw_conn *c);
/* The one that was tried is silent. */
void cw_conn_next_address(struct cw_conn *c);
/* That event came. */
void cw_conn_connected(struct cw_conn *c);

/* ---- conn_in.c ---- */
void cw_conn_receive(struct cw_conn *c);
void cw_conn_in_deinit(struct cw_conn *c);

/* ---- conn_pack.c ---- */
/* A frame is at the head of the queue, and nothing of it was sent: decides whether its payload is packed. */
void cw_conn_pack_begin(struct cw_conn *c);
/* Of a packed frame at the head: what is to be sent next. Returns how many pieces. */
size_t cw_conn_pack_gather(struct cw_conn_out *o, struct iovec pieces[2]);
/* n bytes of that went. Returns whether the frame is through. */
bool cw_conn_pack_sent(struct cw_conn *c, size_t n);
/* A part of a packed payload is whole and lies at `at`: the head of a block, or a block. 1: it was the last
 * of the payload. */
int cw_conn_unpack_head(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
int cw_conn_unpack_block(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
/* Where the rest of the block at hand is to be received. */
struct iovec cw_conn_unpack_room(const struct cw_conn_in *in);

/* ---- conn_out.c ---- */
int cw_conn_queue(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                  void (*release)(void *arg), void *arg, const int *fds, size_t n_fds,
                  struct cw_error *err) _must_check_;
/* Sends what the socket takes; calls nobody. */
void cw_conn_push(struct cw_conn *c);
/* Sends, releases, and tells that all is sent. */
void cw_conn_flush(struct cw_conn *c);
/* Releases everything. */
void cw_conn_out_clear(struct cw_conn *c);

/* ---- handshake.c ---- */
int cw_conn_setup_new(const struct cw_conn_options *o, bool connecting, struct cw_conn_setup **ret,
                      struct cw_error *err) _must_check_;
struct cw_conn_setup *cw_conn_setup_ref(struct cw_conn_setup *s);
struct cw_conn_setup *cw_conn_setup_unref(struct cw_conn_setup *s);
int cw_conn_say_hello(struct cw_conn *c, struct cw_error *err) _must_check_;
/* The first message. */
int cw_conn_shake(struct cw_conn *c, const Cachew__Envelope *m, struct cw_error *err) _must_check_;

/* ---- listener.c ---- */
/* It is open, or over: it does not count as waiting any more. */
void cw_listener_forget(struct cw_conn *c);
