/*
 * The receiving half of a connection. A frame is received in parts: header, message, payload; a compressed
 * payload comes as heads and blocks, which conn_pack.c expands. "The current part" (frame, block) is the one
 * that is being received. A read may return bytes beyond the current part: they lie in the loop's scratch
 * memory, and are parsed from there at once. Loop thread only.
 */
#pragma once
#include "base/hash.h"
#include "net/envelope.h"
#include "net/frame.h"
#include "net/pack.h"

struct cw_conn;

struct cw_conn_in {
    enum { IN_HEADER, IN_MESSAGE, IN_PAYLOAD, IN_BLOCK_HEAD, IN_BLOCK } part;

    size_t have; /* bytes of the current part that were received */
    uint8_t header[CW_FRAME_HEADER];
    struct cw_frame frame;
    uint8_t *message;        /* the current message, as far as received */
    size_t message_capacity; /* bytes allocated; grows with the bytes received, up to the announced size */
    struct cw_envelope_memory memory;
    const Cachew__Envelope *envelope; /* the unpacked message, in `memory`, while its payload is received */
    void *payload;                    /* memory that the connection's owner gave (ops->payload); NULL: none */
    struct cw_unpacker *unpacker;     /* NULL: not needed yet */
    uint8_t block_head[CW_PACK_HEAD];
    size_t block;                /* bytes of the current block on the wire, without its head */
    size_t block_raw;            /* bytes of the current block after decompression */
    size_t unpacked;             /* bytes of the payload that earlier blocks gave */
    bool block_stored;           /* the current block is not compressed */
    size_t expanded;             /* bytes of payload that blocks gave since the last read */
    XXH3_state_t *hash;          /* of the payload, as far as received */
    uint64_t offset;             /* bytes that were parsed since the connection began */
    uint64_t frame_start;        /* offset at which the current frame begins */
    struct cw_frame_fds came;    /* descriptors that were received and not assigned to a frame yet */
    struct cw_frame_fds claimed; /* descriptors of the current frame */
    uint64_t came_from, came_to; /* offsets of the bytes with which `came` was received */
    size_t discarded;            /* bytes received and dropped while closing */
    bool more;                   /* TLS has decrypted bytes, which do not make the socket readable */
    bool ended;                  /* while closing: the peer sends no more */
};

/* ---- conn_in.c ---- */

/* Receives and handles bytes, at most about 2 MiB at a time, so that other connections have their turn. */
void cw_conn_receive(struct cw_conn *c);
void cw_conn_in_deinit(struct cw_conn *c);

/* ---- conn_pack.c ---- */

/* Handle a complete part of a compressed payload, which lies at `at`: the head of a block, or its data. 1:
 * the payload is complete. */
int cw_conn_unpack_head(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
int cw_conn_unpack_block(struct cw_conn *c, const uint8_t *at, struct cw_error *err) _must_check_;
/* Returns the memory into which the data of the current block are received: the payload itself if they are
 * uncompressed, else a buffer for compressed data. */
uint8_t *cw_conn_unpack_memory(const struct cw_conn_in *in);
