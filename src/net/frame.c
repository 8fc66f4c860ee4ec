/* Frame headers: made, read, checked. */
#include "net/frame.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"

static const uint8_t magic[4] = {'C', 'W', 'F', '1'}, packed_magic[4] = {'C', 'W', 'F', '2'};

/* The header as it is sent; all numbers are little-endian. */
struct header {
    uint8_t magic[4];
    uint32_t message;
    uint64_t sizes; /* lower 48 bits: bytes of the payload; upper 16 bits: frame_sizes_check */
    uint64_t message_hash, payload_hash;
};

_Static_assert(sizeof(struct header) == CW_FRAME_HEADER, "the header of a frame has no gaps");

/* Returns a check of 16 bits on the sizes. The receiver uses the sizes before message and payload have come,
 * when their hashes can't be checked: with a size that was changed on its way it would wait for bytes that
 * never come. */
static uint64_t frame_sizes_check(uint32_t message, uint64_t payload)
{
    const uint32_t sizes[3] = {htole32((uint32_t)payload), htole32((uint32_t)(payload >> 32)),
                               htole32(message)};
    return cw_hash64(sizes, sizeof(sizes)) >> 48;
}

void cw_frame_write(const struct cw_frame *f, uint8_t header[CW_FRAME_HEADER])
{
    struct header h = {.message = htole32(f->message),
                       .sizes = htole64(f->payload | frame_sizes_check(f->message, f->payload) << 48),
                       .message_hash = htole64(f->message_hash),
                       .payload_hash = htole64(f->payload_hash)};
    memcpy(h.magic, f->packed ? packed_magic : magic, sizeof(magic));
    memcpy(header, &h, sizeof(h));
}

void cw_frame_set_packed(uint8_t header[CW_FRAME_HEADER])
{
    memcpy(header, packed_magic, sizeof(packed_magic));
}

int cw_frame_begins(const uint8_t *header, size_t have, struct cw_error *err)
{
    char text[4 * 3 + 1] = "";
    have = CW_MIN(have, sizeof(magic));
    if (memcmp(header, magic, have) == 0 || memcmp(header, packed_magic, have) == 0)
        return 0;
    for (size_t i = 0; i < have; i++)
        (void)snprintf(text + 3 * i, sizeof(text) - 3 * i, " %02x", header[i]);
    /* a TLS record: an alert (0x15), or the handshake of a TLS client (0x16) */
    bool tls = have >= 2 && (header[0] == 0x15 || header[0] == 0x16) && header[1] == 3;
    return cw_error_set(
        err, CW_E_SERVICE,
        "the other side speaks %s: its message begins with the bytes%s, expected 43 57 46 31 or 43 57 46 32",
        tls ? "TLS, but this side does not (use TLS on both sides or on neither)"
            : "another protocol than Cachew's (is the port right?)",
        text);
}

int cw_frame_read(const uint8_t header[CW_FRAME_HEADER], size_t message_limit, size_t payload_limit,
                  struct cw_frame *ret, struct cw_error *err)
{
    struct header h;
    if (cw_frame_begins(header, sizeof(magic), err) < 0)
        return CW_E_SERVICE;
    memcpy(&h, header, sizeof(h));
    uint64_t payload = le64toh(h.sizes) & (CW_FRAME_PAYLOAD_MAX - 1);
    *ret = (struct cw_frame){.message = le32toh(h.message),
                             .payload = payload,
                             .message_hash = le64toh(h.message_hash),
                             .payload_hash = le64toh(h.payload_hash),
                             .packed = h.magic[3] == packed_magic[3]};
    if (le64toh(h.sizes) >> 48 != frame_sizes_check(ret->message, payload))
        return cw_error_set(err, CW_E_SERVICE,
                            "the sizes in a frame's header (message: %" PRIu32 " bytes; payload: %" PRIu64
                            " bytes) were changed on their way: the network or a machine's memory is faulty",
                            ret->message, payload);
    if (ret->packed && ret->payload == 0)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent a message that is marked as having a compressed payload, "
                            "but has no payload" CW_OTHER_VERSION);
    if (ret->message > message_limit)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent a message of %" PRIu32
                            " bytes, expected at most %zu" CW_OTHER_VERSION,
                            ret->message, message_limit);
    if (ret->payload > payload_limit)
        return cw_error_set(err, CW_E_SERVICE,
                            "the other side sent a payload of %" PRIu64
                            " bytes, expected at most %zu" CW_OTHER_VERSION,
                            ret->payload, payload_limit);
    if (ret->payload == 0 && ret->payload_hash != 0)
        return cw_error_set(
            err, CW_E_SERVICE,
            "the other side sent a message that has the hash of a payload, but no payload" CW_OTHER_VERSION);
    return 0;
}

int cw_frame_check(uint64_t expected, uint64_t hash, const char *what, size_t size, struct cw_error *err)
{
    if (expected == hash)
        return 0;
    return cw_error_set(err, CW_E_SERVICE,
                        "a %s of %zu bytes was changed on its way (the network or a machine's memory is "
                        "faulty): its hash is %016" PRIx64 ", expected %016" PRIx64,
                        what, size, hash, expected);
}

uint64_t cw_frame_hash(const struct iovec *pieces, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += pieces[i].iov_len;
    if (!size)
        return 0;
    if (n == 1)
        return cw_hash64(pieces[0].iov_base, pieces[0].iov_len);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (size_t i = 0; i < n; i++)
        XXH3_64bits_update(&state, pieces[i].iov_base, pieces[i].iov_len);
    return XXH3_64bits_digest(&state);
}

void cw_frame_close_fds(struct cw_frame_fds *fds)
{
    while (fds->n)
        close(fds->fd[--fds->n]);
}
