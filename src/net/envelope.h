/* Unpacks messages (envelopes) into memory of bounded size. A message can take many times its bytes when it
 * is unpacked, so a limit on its bytes alone is not enough. */
#pragma once
#include "base/error.h"
#include "proto/cachew.pb-c.h"

/* Comes first in the initialiser of a message or of an entry of the journal: {CW_MESSAGE(query), .what =
 * what}. Fields that the initialiser does not name are sent as empty. In this struct, texts among them are
 * NULL, so such a message may be packed, but not read. */
#define CW_MESSAGE(name) .base = PROTOBUF_C_MESSAGE_INIT(&cachew__##name##__descriptor)

/* Memory for one message at a time, freed as a whole. Initialise it with zeros. */
struct cw_envelope_memory {
    struct cw_envelope_block *blocks; /* the one in use first */
    size_t used, limit;               /* bytes */
    bool refused, exhausted;          /* an allocation failed: beyond the limit; the system had no memory */
};

/* Returns the limit on unpacked bytes for a limit on the bytes of a message. A list of small messages takes
 * up to 40 times its bytes when unpacked, a text takes them once. With a factor of four, about a tenth of the
 * largest message may be such lists. */
static inline size_t cw_envelope_limit(size_t message_limit)
{
    return message_limit * 4 + (64 << 10);
}

/* Unpacks a message. *ret lies in `memory`, which must be empty or cleared. < 0: the data are no Envelope, or
 * would take more than `limit` bytes when unpacked. */
int cw_envelope_read(struct cw_envelope_memory *memory, size_t limit, const uint8_t *data, size_t size,
                     const Cachew__Envelope **ret, struct cw_error *err) _must_check_;
/* Ends the message; a little memory is kept for the next one. */
void cw_envelope_clear(struct cw_envelope_memory *memory);
void cw_envelope_deinit(struct cw_envelope_memory *memory);
