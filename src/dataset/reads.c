/* How the records of a sequence are read: in which order, and their bytes. Stateless; any thread. */
#include "base/crash.h"
#include "base/machine.h"
#include "dataset/orders.h"
#include "storage/file.h"
#include "storage/throttle.h"

static int extent_readv(const struct cw_extent *e, const struct iovec *v, int n_v, bool nowait,
                        struct cw_error *err)
{
    if (!cw_throttle_range(cw_file_path(e->file), e->offset, e->length, nowait))
        return 1;
    return cw_file_readv(e->file, e->offset, v, n_v, nowait, err);
}

int cw_extent_read(const struct cw_extent *e, void *data, bool nowait, struct cw_error *err)
{
    const struct iovec v = {.iov_base = data, .iov_len = e->length};
    return extent_readv(e, &v, 1, nowait, err);
}

int cw_extent_read_in(const struct cw_extent *e, void *scratch, bool nowait, struct cw_error *err)
{
    struct iovec v[CW_EXTENT_MOST / CW_EXTENT_SCRATCH];
    int n = 0;
    if (cw_file_is_remote(e->file)) /* the page cache keeps no bytes of it */
        return 0;
    for (size_t done = 0; done < e->length; done += v[n++].iov_len)
        v[n] = (struct iovec){.iov_base = scratch, .iov_len = CW_MIN(CW_EXTENT_SCRATCH, e->length - done)};
    return extent_readv(e, v, n, nowait, err);
}

int cw_source_chunk_extent(const struct cw_source *s, uint64_t k, struct cw_extent *ret)
{
    struct cw_error err = {0};
    struct cw_extent last;
    uint64_t begin = k ? cw_source_chunk_end(s, k - 1) : 0, end = cw_source_chunk_end(s, k);
    int status = begin < end ? s->ops->locate(s, begin, ret, &err) : CW_E_DATA;
    if (status >= 0)
        status = s->ops->locate(s, end - 1, &last, &err);
    if (status >= 0 && (last.file != ret->file || last.offset < ret->offset))
        return CW_E_DATA;
    ret->length = status >= 0 ? last.offset + last.length - ret->offset : 0;
    return status;
}

uint64_t cw_source_chunk_of(const struct cw_source *s, uint64_t row)
{
    return s->chunk_records ? row / s->chunk_records
                            : CW_FIRST(i, 0, s->n_chunks - 1, row < s->chunk_ends[i]);
}

/* Returns whether a shuffle in the tree s permutes single records; `by_record` false: whether one permutes
 * chunks. */
static bool reads_shuffled(const struct cw_seq *s, bool by_record)
{
    bool any = s->shuffle && (s->shuffle->kind != CW_SHUFFLE_CHUNKS) == by_record;
    for (size_t i = 0; i < s->n_children && !any; i++)
        any = reads_shuffled(s->children[i], by_record);
    return any;
}

static bool reads_located(const struct cw_sequence *s)
{
    bool any = false;
    for (unsigned i = 0; i < s->compiled->n_programs; i++)
        any |= s->sources[i]->ops->locate != NULL;
    return any;
}

bool cw_sequence_reads_randomly(const struct cw_sequence *s)
{
    return reads_located(s) && reads_shuffled(s->root, true);
}

bool cw_sequence_reads_by_chunk(const struct cw_sequence *s)
{
    return reads_located(s) && !reads_shuffled(s->root, true) && reads_shuffled(s->root, false);
}

uint64_t cw_sequence_file_bytes(const struct cw_sequence *s)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < s->compiled->n_programs; i++)
        bytes += s->sources[i]->ops->locate ? s->sources[i]->source_bytes : 0;
    return bytes;
}

bool cw_sequence_fits_in_memory(const struct cw_sequence *s, uint64_t own, uint64_t *ret_room)
{
    uint64_t room = cw_mutated("no_page_cache") ? 0 : cw_memory_available();
    *ret_room = room - CW_MIN(room, own);
    return cw_sequence_file_bytes(s) <= *ret_room;
}
