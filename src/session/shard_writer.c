/* Writes the file of a shard: records through a buffer, its checksum, and its set digest. */
#include "session/shard_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/crash.h"
#include "storage/file.h"

#define WRITE_BYTES ((size_t)1 << 20) /* bytes of a write: calls cost little from here on */

int cw_shard_schema_read(const struct cw_compiled *c, enum cw_shard_format format,
                         struct cw_shard_schema *ret, struct cw_error *err)
{
    unsigned n;
    const struct cw_component *components = cw_delivered(c, &n);
    ret->format = format;
    if (n > CW_SHARD_COMPONENTS)
        return cw_error_set(
            err, CW_E_PIPELINE,
            "elements have %u components: expected at most %d to materialise; drop or join some", n,
            CW_SHARD_COMPONENTS);
    for (; ret->n < n; ret->n++) {
        struct cw_shard_component *to = &ret->components[ret->n];
        to->type = components[ret->n].type;
        if (!(to->name = strdup(components[ret->n].name)))
            return cw_error_nomem(err, 0, "the components");
    }
    return cw_shard_schema_check(ret, err);
}

static int writer_fail(const struct cw_shard_writer *w, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_IO, w->path, errno, "%s: can't be written", w->path);
}

int cw_shard_writer_init(struct cw_shard_writer *w, const struct cw_shard_schema *schema,
                         struct cw_error *err)
{
    *w = (struct cw_shard_writer){.schema = schema, .fd = -1, .hash = XXH3_createState()};
    return w->hash ? 0 : cw_error_nomem(err, 0, "a checksum");
}

int cw_shard_writer_begin(struct cw_shard_writer *w, char *path, struct cw_error *err)
{
    if (!(w->path = path))
        return cw_error_nomem(err, 0, "a path");
    w->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0)
        return writer_fail(w, err);
    w->elements = w->bytes = 0;
    w->set_sum = (struct cw_hash128){0, 0};
    XXH3_128bits_reset(w->hash);
    return 0;
}

/* Writes the buffer to the file. */
static int writer_flush(struct cw_shard_writer *w, struct cw_error *err)
{
    cw_crash_point("materialize-write");
    XXH3_128bits_update(w->hash, w->buffer.data, w->buffer.size);
    bool full = cw_mutated("full-disk");
    if (full)
        errno = ENOSPC;
    if (full || cw_write_all(w->fd, w->buffer.data, w->buffer.size) < 0)
        return writer_fail(w, err);
    w->buffer.size = 0;
    return 0;
}

int cw_shard_writer_add(struct cw_shard_writer *w, const struct cw_batch *b, const struct cw_tensor *values,
                        uint64_t number, struct cw_error *err)
{
    size_t before = w->buffer.size;
    int r = cw_shard_write(w->schema, number, values, &w->buffer, err);
    if (r < 0)
        return r;
    w->elements++;
    w->bytes += w->buffer.size - before;
    w->set_sum = cw_hash128_add(w->set_sum, cw_batch_row_hash(b, values));
    return w->buffer.size >= WRITE_BYTES ? writer_flush(w, err) : 0;
}

int cw_shard_writer_end(struct cw_shard_writer *w, const char *name, json_t **ret, struct cw_error *err)
{
    char checksum[33], digest[33];
    size_t before = w->buffer.size;
    int r = cw_shard_write_end(w->schema, &w->buffer, err);
    w->bytes += w->buffer.size - before;
    if (r == 0)
        r = writer_flush(w, err);
    if (r == 0 && (fsync(w->fd) < 0 || close(w->fd) < 0))
        r = writer_fail(w, err);
    if (r < 0)
        return r;
    w->fd = -1;
    XXH128_hash_t h = XXH3_128bits_digest(w->hash);
    cw_hash128_print((struct cw_hash128){.lo = h.low64, .hi = h.high64}, checksum);
    cw_hash128_print(w->set_sum, digest);
    free(CW_STEAL(w->path));
    *ret = json_pack("{s:s, s:I, s:I, s:s, s:s}", "name", name, "elements", (json_int_t)w->elements, "bytes",
                     (json_int_t)w->bytes, "checksum", checksum, "set_digest", digest);
    return *ret ? 0 : cw_error_nomem(err, 0, "a shard");
}

void cw_shard_writer_discard(struct cw_shard_writer *w)
{
    w->buffer.size = 0;
    if (w->fd >= 0) {
        close(w->fd);
        (void)unlink(w->path);
    }
    free(CW_STEAL(w->path));
    w->fd = -1;
}

void cw_shard_writer_deinit(struct cw_shard_writer *w)
{
    cw_shard_writer_discard(w);
    XXH3_freeState(w->hash);
    free(w->buffer.data);
}
