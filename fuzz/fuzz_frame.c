/*
 * Fuzzes the bytes that a peer sends: frames one after the other, each with an Envelope, under limits of
 * size. An accepted message must lie within its bytes, take no more memory than is allowed, and be the same
 * when it is written and read again. A block of a compressed payload must decompress to the announced size,
 * or be refused.
 */
#include <stdlib.h>
#include <string.h>

#include "net/conn.h"
#include "net/envelope.h"
#include "net/frame.h"
#include "net/pack.h"

#define MESSAGE_LIMIT 3000
#define PAYLOAD_LIMIT 1000

static void again(const Cachew__Envelope *e, size_t limit)
{
    struct cw_envelope_memory memory = {0};
    const Cachew__Envelope *second;
    size_t size = cachew__envelope__get_packed_size(e);
    uint8_t *bytes = malloc(size + 1);
    if (!bytes)
        return;
    if (cachew__envelope__pack(e, bytes) != size)
        abort();
    /* Unknown fields may take more bytes when they are written again, so the second limit is larger. */
    if (cw_envelope_read(&memory, limit * 4, bytes, size, &second, NULL) >= 0 &&
        (second->of_case != e->of_case || second->id != e->id || second->re != e->re))
        abort();
    cw_envelope_deinit(&memory);
    free(bytes);
}

static void look(const Cachew__Envelope *e)
{
    struct cw_error err;
    if (e->of_case == CACHEW__ENVELOPE__OF_FAILURE && cw_failure_error(e->failure, &err) >= 0)
        abort();
}

/* Decompresses the blocks in these bytes, until one is refused. */
static void unpack(const uint8_t *data, size_t size, size_t payload)
{
    static struct cw_unpacker *u;
    uint8_t *to = malloc(payload); /* exactly as large as was announced */
    if (!to || (!u && cw_unpacker_new(&u, NULL) < 0))
        abort();
    for (size_t have = 0; have < payload && size >= CW_PACK_HEAD;) {
        size_t raw = payload - have < CW_PACK_BLOCK ? payload - have : CW_PACK_BLOCK, n;
        bool stored;
        if (cw_unpack_head(data, raw, &n, &stored, NULL) < 0)
            break;
        data += CW_PACK_HEAD;
        size -= CW_PACK_HEAD;
        if (n > CW_PACK_BLOCK)
            abort();
        if (n > size)
            break;
        if (stored)
            memcpy(to + have, data, n);
        else if (cw_unpack(u, data, n, to + have, raw, NULL) < 0)
            break;
        have += raw;
        data += n;
        size -= n;
    }
    free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cw_envelope_memory memory = {0};
    const size_t limit = cw_envelope_limit(MESSAGE_LIMIT);
    /* A stream of frames. The hash of a message is not checked, because fuzzed bytes would never match it. */
    while (size >= CW_FRAME_HEADER) {
        struct cw_frame f;
        const Cachew__Envelope *e;
        uint8_t header[CW_FRAME_HEADER];
        if (cw_frame_begins(data, size, NULL) < 0 ||
            cw_frame_read(data, MESSAGE_LIMIT, PAYLOAD_LIMIT, &f, NULL) < 0)
            break;
        cw_frame_write(&f, header);
        if (memcmp(header, data, sizeof(header)) != 0)
            abort();
        data += CW_FRAME_HEADER;
        size -= CW_FRAME_HEADER;
        size_t n = f.message < size ? f.message : size;
        uint8_t *message = malloc(n + 1); /* a heap block, so that ASan finds reads past its end */
        if (!message)
            break;
        memcpy(message, data, n);
        if (cw_envelope_read(&memory, limit, message, n, &e, NULL) >= 0) {
            look(e);
            again(e, limit);
        }
        if (memory.used > limit)
            abort();
        cw_envelope_clear(&memory);
        free(message);
        data += n;
        size -= n;
        if (f.packed)
            unpack(data, size, (size_t)f.payload);
        size_t skip = f.payload < size ? (size_t)f.payload : size;
        data += skip;
        size -= skip;
    }
    cw_envelope_deinit(&memory);
    return 0;
}
