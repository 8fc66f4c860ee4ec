/* Frames: what is around a message and its payload on a connection (docs/protocol.md, "Frames"). Pure
 * functions. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

#define CW_FRAME_HEADER 32
#define CW_FRAME_PAYLOAD_MAX (UINT64_C(1) << 48)
#define CW_FRAME_FDS 4 /* descriptors with one frame, at most */

struct cw_frame {
    uint32_t message; /* bytes */
    uint64_t payload; /* bytes, less than CW_FRAME_PAYLOAD_MAX */
    uint64_t message_hash, payload_hash;
    bool packed; /* the payload comes in blocks (pack.h); its size and hash are those that it has without */
};

void cw_frame_write(const struct cw_frame *f, uint8_t header[CW_FRAME_HEADER]);
/* The header of the same frame, packed. */
void cw_frame_set_packed(uint8_t header[CW_FRAME_HEADER]);
/* < 0: not a frame of ours, or beyond the limits. */
int cw_frame_read(const uint8_t header[CW_FRAME_HEADER], size_t message_limit, size_t payload_limit,
                  struct cw_frame *ret, struct cw_error *err) _must_check_;
/* < 0: a header that begins with these bytes is not one of ours. So who speaks something else learns it at
 * once. */
int cw_frame_begins(const uint8_t *header, size_t have, struct cw_error *err) _must_check_;
/* < 0: these bytes are not what was sent. what: "message" or "payload". */
int cw_frame_check(uint64_t expected, uint64_t hash, const char *what, size_t size,
                   struct cw_error *err) _must_check_;
/* XXH3 of the pieces, one after the other; 0 where there is nothing. */
uint64_t cw_frame_hash(const struct iovec *pieces, size_t n);
