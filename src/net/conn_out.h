/*
 * The sending half of a connection: a queue of frames that are sent from where their payload lies. conn_out.c
 * owns the queue; conn_pack.c sends the frame at its head in compressed blocks. Loop thread only.
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
    bool begun;  /* it was decided whether its payload is compressed */
    bool packed; /* the payload is sent in compressed blocks */
    void (*release)(void *arg);
    void *arg;
    struct cw_frame_fds fds; /* not sent yet */
    unsigned n_pieces;
    struct iovec pieces[]; /* the first: header and message, which lie behind the pieces */
};

struct cw_conn_out {
    struct cw_out_frame *head, **tail;      /* to be sent */
    struct cw_out_frame *done, **done_tail; /* sent, to be released */
    size_t queued, n_frames;                /* bytes and frames that are not sent */
    unsigned n_own;                         /* the connection's own answers that are not released */
    unsigned piece;                         /* of head, to be sent next */
    size_t offset;                          /* in that piece */
    bool blocked;                           /* the socket takes no more until it is writable */
    bool shut;                              /* the sending direction was shut down */
    /* A packed frame: `piece` and `offset` are where the next block begins. Of what lies before, not sent
     * yet: */
    size_t head_sent;         /* bytes of the first piece that were sent */
    const uint8_t *block;     /* the rest of the block under way */
    size_t block_left;        /* bytes of it */
    size_t block_raw;         /* bytes of the payload that the block stands for */
    struct cw_packer *packer; /* NULL: not needed yet */
    struct cw_pack_policy policy;
};

/* ---- conn_out.c ---- */

/* As cw_conn_send, in any state that sends; on failure release is not called. */
int cw_conn_queue(struct cw_conn *c, const Cachew__Envelope *m, const struct iovec *payload, size_t n,
                  void (*release)(void *arg), void *arg, const int *fds, size_t n_fds,
                  struct cw_error *err) _must_check_;

/* Queues a message without payload. */
static inline int _must_check_ cw_conn_queue_message(struct cw_conn *c, const Cachew__Envelope *m,
                                                     struct cw_error *err)
{
    return cw_conn_queue(c, m, NULL, 0, NULL, NULL, NULL, 0, err);
}

/* Sends what the socket takes. Calls no callback of the owner. */
void cw_conn_push(struct cw_conn *c);
/* Sends, releases what was sent, and reports `drained`. */
void cw_conn_flush(struct cw_conn *c);
/* Releases all frames. */
void cw_conn_out_clear(struct cw_conn *c);

/* ---- conn_pack.c ---- */

/* Decides whether the payload of the frame at the head, of which nothing was sent, is compressed. */
void cw_conn_pack_begin(struct cw_conn *c);
/* Returns the pieces of a packed frame that are to be sent next. */
size_t cw_conn_pack_gather(struct cw_conn_out *o, struct iovec pieces[2]);
/* Accounts for n bytes of these that were sent. Returns whether the frame is complete. */
bool cw_conn_pack_sent(struct cw_conn *c, size_t n);
