/*
 * Payloads that are compressed on their way, block by block, and when that pays (docs/protocol.md,
 * "Compressed payloads"; docs/adr/0013). Nothing here does I/O or looks at a clock.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/tuned.h"

#define CW_PACK_CAPABILITY "zstd"
/* Bytes of a payload that are compressed at a time: what a level-1 window reaches, and in a cache. */
#define CW_PACK_BLOCK ((size_t)256 << 10)
#define CW_PACK_HEAD 4                      /* le32 before each block: its bytes on the wire, */
#define CW_PACK_STORED UINT32_C(0x80000000) /* with this, if they are as they were */
/* Smaller payloads are not worth it. */
#define CW_PACK_MIN ((size_t)64 << 10)

/* ---- blocks ---- */

struct cw_packer;
int cw_packer_new(struct cw_packer **ret, struct cw_error *err) _must_check_;
struct cw_packer *cw_packer_free(struct cw_packer *p);
/* Room for the raw bytes of a block that do not lie in one piece. */
uint8_t *cw_packer_room(struct cw_packer *p);
/* A block of n bytes (1 .. CW_PACK_BLOCK), with its head: *ret, there until the next call. Returns its size.
 */
size_t cw_packer_block(struct cw_packer *p, const uint8_t *raw, size_t n, const uint8_t **ret);

struct cw_unpacker;
int cw_unpacker_new(struct cw_unpacker **ret, struct cw_error *err) _must_check_;
struct cw_unpacker *cw_unpacker_free(struct cw_unpacker *u);
/* Room for a compressed block. */
uint8_t *cw_unpacker_room(struct cw_unpacker *u);
/* Bytes of the block with this head, which is to become n raw ones; *stored: they are as they were. < 0:
 * no block has this head. */
int cw_unpack_head(const uint8_t head[CW_PACK_HEAD], size_t n, size_t *ret, bool *stored,
                   struct cw_error *err) _must_check_;
/* < 0: these bytes are no block of exactly n. */
int cw_unpack(struct cw_unpacker *u, const uint8_t *from, size_t size, uint8_t *to, size_t n,
              struct cw_error *err) _must_check_;

/* ---- when ---- */

/*
 * Decides for one connection. The link is the bottleneck when, of the time in which there was something to be
 * sent, the socket took nothing for most. Then a sample is compressed: it pays if a payload would be through
 * sooner, compressing and sending side by side. What was expected is compared with what is, and given up if
 * it is not so; the link's own speed is looked at again from time to time. All numbers are per window of some
 * megabytes.
 */
struct cw_pack_policy {
    bool on;            /* payloads that begin now are compressed */
    bool busy, blocked; /* since at_ns: something is to be sent; and the socket does not take it */
    uint64_t at_ns;
    uint64_t busy_ns, blocked_ns; /* of this window */
    uint64_t raw;                 /* of this window: bytes of payloads that were sent; its owner adds to it */
    double plain;                 /* raw bytes a second that went through without */
    uint64_t not_before_ns, patience_ns; /* it did not pay: not tried again before; and how long that was */
    uint64_t look_again_ns;              /* on: then a window without */
    struct cw_tuned told;                /* what was decided last; told.what NULL: nothing was */
};

/* How things are from now on. */
void cw_pack_state(struct cw_pack_policy *p, uint64_t now_ns, bool busy, bool blocked);
/* A payload begins. Whether a sample of it is wanted: what it became is told by cw_pack_sampled. */
bool cw_pack_begin(struct cw_pack_policy *p, uint64_t now_ns);
void cw_pack_sampled(struct cw_pack_policy *p, uint64_t now_ns, size_t raw, size_t packed, uint64_t took_ns);
