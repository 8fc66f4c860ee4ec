/* Checks materialised data: the files of a directory, and the elements that are read back from them. */
#include "session/materialize_impl.h"

#include <inttypes.h>
#include <string.h>

#include "dataset/manifest.h"
#include "storage/file.h"

#define READ_BYTES ((size_t)1 << 20) /* bytes of a read: calls cost little from here on */

/* Compares a file with its entry in the manifest. */
static int verify_shard(const char *dir, const struct cw_manifest_shard *s, struct cw_shard_bytes *buffer,
                        XXH3_state_t *hash, struct cw_error *err)
{
    _cleanup_free_ char *path = cw_manifest_path(dir, s->name);
    struct cw_file *file = NULL;
    struct cw_stat stat;
    char found[33], wanted[33];
    int r = path ? cw_stat(path, &stat, err) : cw_error_nomem(err, 0, "a path");
    if (r == 0 && stat.size != s->bytes)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s has %" PRIu64 " bytes, expected %" PRIu64, path,
                                stat.size, s->bytes);
    if (r == 0)
        r = cw_file_new(path, &stat, &file, err);
    XXH3_128bits_reset(hash);
    for (uint64_t at = 0; r == 0 && at < s->bytes; at += READ_BYTES) {
        size_t n = (size_t)CW_MIN(s->bytes - at, (uint64_t)READ_BYTES);
        r = cw_file_read(file, at, buffer->data, n, false, err);
        if (r == 0)
            XXH3_128bits_update(hash, buffer->data, n);
    }
    cw_file_free(file);
    if (r < 0)
        return r;
    XXH128_hash_t h = XXH3_128bits_digest(hash);
    cw_hash128_print((struct cw_hash128){.lo = h.low64, .hi = h.high64}, found);
    cw_hash128_print(s->checksum, wanted);
    if (strcmp(found, wanted) != 0)
        return cw_error_at_file(err, CW_E_DATA, path, 0, "%s has the checksum %s, expected %s: it is damaged",
                                path, found, wanted);
    return 0;
}

/* Compares the files of a directory with its manifest. */
static int verify_files(const char *dir, const struct cw_manifest *m, struct cw_error *err)
{
    _cleanup_free_ char *other = NULL;
    struct cw_shard_bytes buffer = {.data = malloc(READ_BYTES)};
    XXH3_state_t *hash = XXH3_createState();
    int r = buffer.data && hash ? cw_shard_dir_stranger(dir, json_object_get(m->root, "shards"), &other, err)
                                : cw_error_nomem(err, READ_BYTES, "a buffer");
    if (r == 0 && other)
        r = cw_error_at_file(err, CW_E_DATA, dir, 0, "%s holds %.80s, which its manifest does not name", dir,
                             other);
    for (size_t i = 0; r == 0 && i < m->n_shards; i++)
        r = verify_shard(dir, &m->shards[i], &buffer, hash, err);
    free(buffer.data);
    XXH3_freeState(hash);
    return r;
}

struct verified { /* what was read back */
    struct cw_hash128 sum;
    uint64_t elements, bytes;
};

static int verify_batch(void *arg, const struct cw_batch *b, struct cw_error *err CW_UNUSED)
{
    struct verified *v = arg;
    v->sum = cw_hash128_add(v->sum, cw_batch_set_hash(b));
    v->elements += b->n;
    for (unsigned i = 0; i < b->n_components; i++)
        v->bytes += b->components[i].size;
    return 0;
}

/* Reads the elements back, and compares them with the manifest. */
static int verify_elements(const char *dir, struct cw_local *l, const struct cw_materialize_options *o,
                           const struct cw_manifest *m, struct cw_error *err)
{
    struct cw_iterator_options iterate = o->iterate;
    struct verified v = {0};
    char found[33];
    _cleanup_free_ char *path = cw_absolute(dir);
    json_auto_t *root = json_pack("{s:i, s:[{s:s, s:s}]}", "cachew", 1, "pipeline", "op", "materialized",
                                  "path", path ? path : "");
    int r = path && root ? cw_local_compile(l, root, ".", err) : cw_error_nomem(err, 0, "a pipeline");
    iterate.epochs = iterate.world_size = 1;
    if (r == 0)
        r = cw_materialize_open(l, o, err);
    if (r == 0)
        r = cw_local_iterate(l, &iterate, NULL, err);
    if (r == 0)
        r = cw_materialize_each(l, o, verify_batch, &v, &v.elements, &v.bytes, err);
    if (r < 0)
        return r;
    const char *wanted = json_string_value(json_object_get(m->root, "set_digest"));
    cw_hash128_print(v.sum, found);
    if (!wanted || strcmp(wanted, found) != 0 || m->elements != v.elements)
        return cw_error_at_file(err, CW_E_DATA, dir, 0,
                                "%s holds %" PRIu64 " elements with set_digest %s, expected %" PRIu64
                                " with %s",
                                dir, v.elements, found, m->elements, wanted ? wanted : "none");
    return 0;
}

int cw_materialize_verify(const char *dir, struct cw_local *l, const struct cw_materialize_options *o,
                          json_t **ret, struct cw_error *err)
{
    struct cw_manifest m;
    int r = cw_manifest_read(dir, &m, err);
    if (r == 0)
        r = verify_files(dir, &m, err);
    if (r == 0 && m.n_shards > 0)
        r = verify_elements(dir, l, o, &m, err);
    if (r == 0 && !(*ret = cw_materialize_result(m.root)))
        r = cw_error_nomem(err, 0, "the result");
    cw_manifest_deinit(&m);
    return r;
}
