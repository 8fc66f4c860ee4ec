/*
 * The receiving half of a connection. A frame is received part by part: header, message, payload or, where
 * that is packed, blocks. Bytes beyond the part at hand lie in the loop's scratch memory and are taken from
 * there. Loop thread only.
 */
#pragma once
#include "base/hash.h"
#include "net/envelope.h"
#include "net/frame.h"
#include "net/pack.h"

struct cw_conn;

struct cw_conn_in {
    enum { IN_HEADER, IN_MESSAGE, IN_PAYLOAD, IN_BLOCK_HEAD, IN_BLOCK } part;

    size_t have; /* bytes of the part */
    uint8_t header[CW_FRAME_HEADER];
    struct cw_frame frame;
    uint8_t *message;        /* as much of it as has come */
    size_t message_capacity; /* bytes; grows with what comes, up to the announced size */
    struct cw_envelope_memory memory;
    const Cachew__Envelope *envelope; /* in memory, while its payload is received */
    void *payload;                    /* the owner's memory; NULL: none */
    struct cw_unpacker *unpacker;     /* NULL: not needed yet */
    uint8_t block_head[CW_PACK_HEAD];
    size_t block;                /* bytes of the block at hand on the wire */
    size_t block_raw;            /* bytes of the payload that it stands for */
    size_t unpacked;             /* bytes of the payload before it */
    bool block_stored;           /* the block is not compressed */
    size_t expanded;             /* bytes of payload that came out of blocks in this turn */
    XXH3_state_t *hash;          /* of the payload so far */
    uint64_t offset;             /* bytes of the stream that were taken */
    uint64_t frame_start;        /* where in the stream the frame at hand begins */
    struct cw_frame_fds came;    /* of a frame that has not begun yet */
    struct cw_frame_fds claimed; /* of the frame at hand */
    uint64_t came_from, came_to; /* bytes of the stream that `came` came with */
    size_t discarded;            /* bytes, while closing */
    bool more;                   /* TLS has bytes that the socket does not show */
    bool ended;                  /* while closing: the peer sends no more */
};

/* ---- conn_in.c ---- */

/* Receives and handles what has come, for one turn of the loop. */
void cw_conn_receive(struct cw_conn *c);
void cw_conn_in_deinit(struct cw_conn *c);

/* ---- conn_pack.c ---- */

/* Handle a complete part of a packed payload at `at`: the head of a block, or a block. 1: it was the last. */
int cw_conn_unpack_head(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
int cw_conn_unpack_block(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
/* Returns the memory for the block at hand. */
uint8_t *cw_conn_unpack_memory(const struct cw_conn_in *in);
