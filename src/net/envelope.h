/* Messages from bytes, in memory that is bounded: a few bytes of a message can become many in memory. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"

/* First in the initialiser of a message or of an entry of the journal: {CW_MESSAGE(query), .what = what}.
 * Fields that are not named are sent as empty; here texts among them are NULL, so such a message is only
 * packed, never read. */
#define CW_MESSAGE(name) .base = PROTOBUF_C_MESSAGE_INIT(&cachew__##name##__descriptor)

/* Where one message at a time is unpacked; freed as a whole. All zeros is empty. */
struct cw_envelope_memory {
    struct cw_envelope_block *blocks; /* the one in use first */
    size_t used, limit;               /* bytes */
    bool refused, exhausted;          /* by the limit; by the system */
};

/* How much a message may take in memory, by the limit on its bytes. A list of small messages takes up to 40
 * times its bytes, a text takes them once: with four times the largest message, lists may still be a tenth of
 * it. */
static inline size_t cw_envelope_limit(size_t message_limit)
{
    return message_limit * 4 + (64 << 10);
}

/* *ret lies in `memory`, which must be empty or cleared; it may point nowhere else. < 0: not an Envelope, or
 * it would take more than `limit` bytes. */
int cw_envelope_read(struct cw_envelope_memory *memory, size_t limit, const uint8_t *data, size_t size,
                     const Cachew__Envelope **ret, struct cw_error *err) _must_check_;
/* What was read is gone; a little memory is kept for the next. */
void cw_envelope_clear(struct cw_envelope_memory *memory);
void cw_envelope_deinit(struct cw_envelope_memory *memory);
