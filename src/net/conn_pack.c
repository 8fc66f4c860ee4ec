/* Compressed ("packed") payloads of a connection: makes blocks while the connection sends a frame, and
 * expands blocks as they are received. A block has the raw bytes of at most CW_PACK_BLOCK bytes of the
 * payload; a block that does not become smaller is stored, that is, sent uncompressed. */
#include <string.h>

#include "base/clock.h"
#include "net/conn_impl.h"

/* ---- sending ---- */

/* Compresses the beginning of the payload's largest piece, and tells the policy its size and time. */
static void pack_sample(struct cw_conn_out *o, const struct cw_out_frame *f)
{
    const struct iovec *largest = &f->pieces[1];
    const uint8_t *block;
    for (unsigned i = 2; i < f->n_pieces; i++)
        if (f->pieces[i].iov_len > largest->iov_len)
            largest = &f->pieces[i];
    size_t n = CW_MIN(largest->iov_len, CW_PACK_BLOCK);
    uint64_t start = cw_now_ns();
    size_t packed = cw_packer_block(o->packer, largest->iov_base, n, &block);
    uint64_t now = cw_now_ns();
    cw_pack_sampled(&o->policy, now, n, packed, CW_MAX(now - start, 1));
}

void cw_conn_pack_begin(struct cw_conn *c)
{
    struct cw_conn_out *o = &c->out;
    struct cw_out_frame *f = o->head;
    f->begun = true;
    if (cw_pack_begin(&o->policy, cw_now_ns()) && (o->packer || cw_packer_new(&o->packer, NULL) >= 0))
        pack_sample(o, f);
    if (!o->policy.on)
        return;
    f->packed = true;
    cw_frame_set_packed(f->pieces[0].iov_base);
    o->piece = 1;
    o->offset = o->head_sent = 0;
}

/* Makes the next block of the frame at the head. Its raw bytes are first joined in the packer's buffer,
 * unless they lie in one piece (`whole`). Sets o->block, block_left and block_raw, and moves o->piece and
 * o->offset. */
static void pack_next_block(struct cw_conn_out *o)
{
    const struct cw_out_frame *f = o->head;
    const uint8_t *raw = (const uint8_t *)f->pieces[o->piece].iov_base + o->offset;
    bool whole = f->pieces[o->piece].iov_len - o->offset >= CW_PACK_BLOCK;
    size_t n = 0;
    while (n < CW_PACK_BLOCK && o->piece < f->n_pieces) {
        size_t part = CW_MIN(f->pieces[o->piece].iov_len - o->offset, CW_PACK_BLOCK - n);
        if (!whole)
            memcpy(cw_packer_room(o->packer) + n, (const uint8_t *)f->pieces[o->piece].iov_base + o->offset,
                   part);
        n += part;
        o->offset += part;
        if (o->offset == f->pieces[o->piece].iov_len) {
            o->piece++;
            o->offset = 0;
        }
    }
    o->block_raw = n;
    o->block_left = cw_packer_block(o->packer, whole ? raw : cw_packer_room(o->packer), n, &o->block);
}

size_t cw_conn_pack_gather(struct cw_conn_out *o, struct iovec pieces[2])
{
    const struct iovec *first = &o->head->pieces[0];
    size_t n = 0;
    if (!o->block_left)
        pack_next_block(o);
    if (o->head_sent < first->iov_len)
        pieces[n++] = (struct iovec){.iov_base = (uint8_t *)first->iov_base + o->head_sent,
                                     .iov_len = first->iov_len - o->head_sent};
    pieces[n++] = (struct iovec){.iov_base = (void *)(uintptr_t)o->block, .iov_len = o->block_left};
    return n;
}

bool cw_conn_pack_sent(struct cw_conn *c, size_t n)
{
    struct cw_conn_out *o = &c->out;
    size_t first = CW_MIN(n, o->head->pieces[0].iov_len - o->head_sent);
    o->head_sent += first;
    o->queued -= first;
    o->block += n - first;
    o->block_left -= n - first;
    c->traffic.out_wire += n - first;
    if (o->block_left)
        return false;
    o->queued -= o->block_raw;
    c->traffic.out += o->block_raw;
    o->policy.raw += o->block_raw;
    o->block_raw = 0;
    return o->piece == o->head->n_pieces;
}

/* ---- receiving ---- */

/* Returns the raw bytes of the current block: CW_PACK_BLOCK, or the rest of the payload. */
static size_t unpack_raw_size(const struct cw_conn_in *in)
{
    return (size_t)CW_MIN(in->frame.payload - in->unpacked, (uint64_t)CW_PACK_BLOCK);
}

int cw_conn_unpack_head(struct cw_conn *c, const uint8_t *at, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    int r = in->unpacker ? 0 : cw_unpacker_new(&in->unpacker, err);
    if (r < 0)
        return r;
    in->part = IN_BLOCK;
    in->block_raw = unpack_raw_size(in);
    return cw_unpack_head(at, in->block_raw, &in->block, &in->block_stored, err);
}

uint8_t *cw_conn_unpack_memory(const struct cw_conn_in *in)
{
    return in->block_stored ? (uint8_t *)in->payload + in->unpacked : cw_unpacker_room(in->unpacker);
}

int cw_conn_unpack_block(struct cw_conn *c, const uint8_t *at, struct cw_error *err)
{
    struct cw_conn_in *in = &c->in;
    uint8_t *to = (uint8_t *)in->payload + in->unpacked;
    if (!in->block_stored) {
        int r = cw_unpack(in->unpacker, at, in->block, to, in->block_raw, err);
        if (r < 0)
            return r;
    } else if (at != to) {
        memcpy(to, at, in->block_raw);
    }
    XXH3_64bits_update(in->hash, to, in->block_raw);
    c->traffic.in_wire += CW_PACK_HEAD + in->block;
    in->unpacked += in->block_raw;
    in->expanded += in->block_raw;
    in->part = IN_BLOCK_HEAD;
    return in->unpacked == in->frame.payload;
}
