/*
 * Compression of payloads, block by block, and the decision whether to compress (docs/protocol.md,
 * "Compressed payloads"; docs/adr/0013). "Packed" means compressed, "raw" means uncompressed. Nothing here
 * does I/O or reads a clock.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tuned.h"

#define CW_PACK_CAPABILITY "zstd"
/* Raw bytes of a block: small enough for a CPU's cache, and within the reach of zstd's window at level 1. */
#define CW_PACK_BLOCK ((size_t)256 << 10)
#define CW_PACK_HEAD 4                      /* bytes of a block's head: le32, the bytes of its data, */
#define CW_PACK_STORED UINT32_C(0x80000000) /* and this bit if the data are not compressed ("stored") */
/* Payloads with fewer bytes are never compressed. */
#define CW_PACK_MIN ((size_t)64 << 10)

/* ---- blocks ---- */

struct cw_packer;
int cw_packer_new(struct cw_packer **ret, struct cw_error *err) _must_check_;
struct cw_packer *cw_packer_free(struct cw_packer *p);
/* Returns a buffer of CW_PACK_BLOCK bytes, in which the caller may join the raw bytes of a block. */
uint8_t *cw_packer_room(struct cw_packer *p);
/* Makes the block of n raw bytes (1 .. CW_PACK_BLOCK). *ret is the block with its head, valid until the next
 * call. Returns its size in bytes. */
size_t cw_packer_block(struct cw_packer *p, const uint8_t *raw, size_t n, const uint8_t **ret);

struct cw_unpacker;
int cw_unpacker_new(struct cw_unpacker **ret, struct cw_error *err) _must_check_;
struct cw_unpacker *cw_unpacker_free(struct cw_unpacker *u);
/* Returns a buffer for the data of a compressed block. */
uint8_t *cw_unpacker_room(struct cw_unpacker *u);
/* Reads the head of a block of n raw bytes. *ret: bytes of its data on the wire; *stored: they are not
 * compressed. < 0: no such block has this head. */
int cw_unpack_head(const uint8_t head[CW_PACK_HEAD], size_t n, size_t *ret, bool *stored,
                   struct cw_error *err) _must_check_;
/* Decompresses the data of a block to n bytes. < 0: they do not decompress to exactly n bytes. */
int cw_unpack(struct cw_unpacker *u, const uint8_t *from, size_t size, uint8_t *to, size_t n,
              struct cw_error *err) _must_check_;

/* ---- whether to compress ---- */

/*
 * Decides for one connection whether to compress payloads. The network is the bottleneck if the socket took
 * no bytes for most of the time in which there were bytes to send. Then a sample is compressed. Compression
 * is turned on if payloads would arrive sooner, where compressing and sending overlap. It is turned off again
 * if payloads do not arrive sooner than before; from time to time one window is sent uncompressed to measure
 * that. A window is the time in which some megabytes of payload are sent; all measurements are per window.
 */
struct cw_pack_policy {
    bool on;                      /* payloads that begin now are compressed */
    bool busy, blocked;           /* since at_ns: frames are queued; the socket does not take them */
    uint64_t at_ns;               /* time of the last cw_pack_state */
    uint64_t busy_ns, blocked_ns; /* time in this window in which busy, blocked was set */
    uint64_t raw;                 /* raw bytes of payloads sent in this window; the connection adds to it */
    double plain;                 /* raw bytes per second of the last window without compression */
    uint64_t not_before_ns, patience_ns; /* off: no try before; the length of that pause */
    uint64_t look_again_ns;              /* on: when to send the next window without compression */
    struct cw_tuned told;                /* the last decision; told.what NULL: none so far */
};

/* Notes the state from now on. busy: frames are queued; blocked: the socket does not take them. */
void cw_pack_state(struct cw_pack_policy *p, uint64_t now_ns, bool busy, bool blocked);
/* To be called when a payload begins. Returns whether the caller should compress a sample of it, and pass the
 * result to cw_pack_sampled; then p->on tells whether to compress the payload. */
bool cw_pack_begin(struct cw_pack_policy *p, uint64_t now_ns);
/* raw, packed: bytes of the sample before and after compression; took_ns: the time of compressing it. */
void cw_pack_sampled(struct cw_pack_policy *p, uint64_t now_ns, size_t raw, size_t packed, uint64_t took_ns);
