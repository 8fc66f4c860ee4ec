/* The header of a frame, which carries a message and its payload (docs/protocol.md, "Frames"). Pure
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
    bool packed; /* the payload comes in compressed blocks (pack.h); `payload` and its hash are of the
                    uncompressed payload */
};

/* File descriptors of a frame, owned by this struct. */
struct cw_frame_fds {
    int fd[CW_FRAME_FDS];
    size_t n;
};

void cw_frame_close_fds(struct cw_frame_fds *fds);
void cw_frame_write(const struct cw_frame *f, uint8_t header[CW_FRAME_HEADER]);
/* Changes the header of a frame so that it announces a packed payload. */
void cw_frame_set_packed(uint8_t header[CW_FRAME_HEADER]);
/* Parses and checks a header. < 0: it is not a valid header, or a size is beyond the limits. */
int cw_frame_read(const uint8_t header[CW_FRAME_HEADER], size_t message_limit, size_t payload_limit,
                  struct cw_frame *ret, struct cw_error *err) _must_check_;
/* Checks the first `have` bytes of a header, so that a peer of another protocol is refused at once. < 0: no
 * header begins with them. */
int cw_frame_begins(const uint8_t *header, size_t have, struct cw_error *err) _must_check_;
/* Compares hashes. < 0: they differ, so the bytes were changed on their way. what: "message" or "payload";
 * size: its bytes. */
int cw_frame_check(uint64_t expected, uint64_t hash, const char *what, size_t size,
                   struct cw_error *err) _must_check_;
/* Returns the XXH3 hash of the joined pieces; 0 if they have no bytes. */
uint64_t cw_frame_hash(const struct iovec *pieces, size_t n);
