/* Unpacking messages in bounded memory, because a few bytes of a message can take many in memory. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"

/* First in the initialiser of a message or of an entry of the journal: {CW_MESSAGE(query), .what = what}.
 * Fields that are not named are sent as empty; here texts among them are NULL, so such a message is only
 * packed, never read. */
#define CW_MESSAGE(name) .base = PROTOBUF_C_MESSAGE_INIT(&cachew__##name##__descriptor)

/* Memory for one message at a time, freed as a whole. All zeros is empty. */
struct cw_envelope_memory {
    struct cw_envelope_block *blocks; /* the one in use first */
    size_t used, limit;               /* bytes */
    bool refused, exhausted;          /* refused: by the limit; exhausted: by the system */
};

/* Returns the limit in memory for a limit on bytes. A list of small messages takes up to 40 times its bytes,
 * a text takes them once. With a factor of four, lists may be a tenth of the largest message. */
static inline size_t cw_envelope_limit(size_t message_limit)
{
    return message_limit * 4 + (64 << 10);
}

/* Unpacks a message; *ret lies in `memory`, which must be empty or cleared. < 0: it is no Envelope, or would
 * take more than `limit` bytes. */
int cw_envelope_read(struct cw_envelope_memory *memory, size_t limit, const uint8_t *data, size_t size,
                     const Cachew__Envelope **ret, struct cw_error *err) _must_check_;
/* Ends the message; a little memory is kept for the next one. */
void cw_envelope_clear(struct cw_envelope_memory *memory);
void cw_envelope_deinit(struct cw_envelope_memory *memory);
