/*
 * The sending half of a connection: a queue of frames, whose payloads are sent from where they lie, without a
 * copy. conn_out.c owns the queue. For a compressed payload, conn_pack.c makes and sends the blocks of the
 * frame at the head of the queue. Loop thread only.
 */
#pragma once
#include <sys/uio.h>

#include "net/frame.h"
#include "net/pack.h"
#include "proto/cachew.pb-c.h"

struct cw_conn;

struct cw_out_frame {
    struct cw_out_frame *next;
    size_t size; /* bytes of the frame */
    bool begun;  /* whether to compress its payload is decided */
    bool packed; /* its payload is sent in compressed blocks */
    void (*release)(void *arg);
    void *arg;
    struct cw_frame_fds fds; /* descriptors that are not sent yet */
    unsigned n_pieces;
    struct iovec pieces[]; /* the first: header and message, whose bytes follow this array in memory */
};

struct cw_conn_out {
    struct cw_out_frame *head, **tail;      /* to be sent */
    struct cw_out_frame *done, **done_tail; /* sent, to be released */
    size_t queued, n_frames;                /* bytes and frames that are not sent */
    unsigned n_own;                         /* queued answers to Ping and to unknown requests */
    unsigned piece;                         /* of head: index of the piece to be sent next */
    size_t offset;                          /* in that piece: bytes that were sent */
    bool blocked;                           /* the socket takes no more until it is writable */
    bool shut;                              /* the sending direction was shut down */
    /* If the frame at the head is packed, `piece` and `offset` are where the next block begins. The state of
     * the first piece and of the current block: */
    size_t head_sent;         /* bytes of the first piece that were sent */
    const uint8_t *block;     /* the rest of the current block, with its head; in the packer's memory */
    size_t block_left;        /* bytes of that rest */
    size_t block_raw;         /* bytes of the current block before compression */
    struct cw_packer *packer; /* NULL: not needed yet */
    struct cw_pack_policy policy;
};

/* ---- conn_out.c ---- */

/* As cw_conn_send, but in each state in which frames are sent (CONN_SHAKING, CONN_OPEN, CONN_CLOSING). On
 * failure, release is not called. */
int cw_conn_queue(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                  void (*release)(void *arg), void *arg, const int *fds, size_t n_fds,
                  struct cw_error *err) _must_check_;

/* Queues a message without payload. */
static inline int _must_check_ cw_conn_queue_message(struct cw_conn *c, const Cachew__Envelope *m,
                                                     struct cw_error *err)
{
    return cw_conn_queue(c, m, NULL, 0, NULL, NULL, NULL, 0, err);
}

/* Sends as many bytes as the socket takes. Calls no callback of the owner. */
void cw_conn_push(struct cw_conn *c);
/* Sends, releases the frames that were sent, and calls `drained` if the queue became empty. */
void cw_conn_flush(struct cw_conn *c);
/* Releases all frames. */
void cw_conn_out_clear(struct cw_conn *c);

/* ---- conn_pack.c ---- */

/* Decides whether to compress the payload of the frame at the head, of which nothing was sent yet. */
void cw_conn_pack_begin(struct cw_conn *c);
/* Fills in the pieces of a packed frame that are to be sent next: the rest of header and message, and of a
 * block. Returns their number. */
size_t cw_conn_pack_gather(struct cw_conn_out *o, struct iovec pieces[2]);
/* Accounts for n bytes of these pieces that were sent. Returns whether the whole frame was sent. */
bool cw_conn_pack_sent(struct cw_conn *c, size_t n);
