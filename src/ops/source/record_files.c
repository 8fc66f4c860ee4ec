/* Sources whose records are whole files: opens the index of the files, and finds the records in it. */
#include "ops/source/record_files.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "dataset/index.h"
#include "storage/file.h"

void cw_record_files_deinit(struct cw_record_files *f)
{
    for (size_t i = 0; f->files && i < f->index.n; i++)
        cw_file_free(f->files[i]);
    free(f->files);
    cw_file_index_deinit(&f->index);
}

int cw_record_files_init(struct cw_record_files *f, const struct cw_source_files *files, const char *kind,
                         const char *identity, const char *sidecar, const struct cw_source_env *env,
                         struct cw_error *err)
{
    _cleanup_free_ char *index_path = env->index_dir ? cw_index_path(env->index_dir, kind, identity, "")
                                                     : NULL;
    struct cw_file_index_options options = {
        .index_path = index_path,
        .index_dir = env->index_dir,
        .sidecar = sidecar,
        .threads = env->threads,
        .cancelled = env->cancelled,
        .cancel_arg = env->cancel_arg,
    };
    int r = cw_file_index_open(files->paths, files->prefixes, files->n, &options, &f->index, err);
    if (r < 0)
        return r;
    size_t n = f->index.n;
    f->files = calloc(n + 1, sizeof(*f->files));
    if (!f->files)
        return cw_error_nomem(err, n * sizeof(*f->files), "a source");
    for (size_t i = 0; r == 0 && i < n; i++) {
        struct cw_stat was = cw_file_index_stat(&f->index, i);
        r = cw_file_new(cw_file_index_path(&f->index, i), &was, &f->files[i], err);
        if (r == 0)
            cw_file_compare_by(f->files[i], cw_file_index_same, &f->index, i);
    }
    if (r < 0)
        return r;
    XXH3_state_t snapshot;
    XXH3_64bits_reset(&snapshot);
    for (size_t i = 0; i < n; i++) {
        struct cw_key k = {0};
        cw_key_u64(&k, f->index.keys[i]);
        cw_key_u64(&k, 1);
        XXH3_64bits_update(&snapshot, k.bytes, k.size);
    }
    f->base = (struct cw_source){
        .ops = f->base.ops,
        .context = f->base.context,
        .n_records = n,
        .source_bytes = f->index.total_bytes,
        .random_access = true,
        .one_file_per_record = true,
        .n_chunks = n,
        .chunk_records = 1,
        .snapshot = XXH3_64bits_digest(&snapshot),
    };
    return 0;
}

char *cw_record_files_identity(const struct cw_op *op, const struct cw_source_env *env)
{
    char *ret = NULL;
    _cleanup_free_ char *directory = realpath(env->base_dir && *env->base_dir ? env->base_dir : ".", NULL);
    _cleanup_free_ char *patterns = json_dumps(cw_attr_json(op, "files"), JSON_COMPACT | JSON_ENCODE_ANY);
    if (directory && patterns && asprintf(&ret, "%s:%s", directory, patterns) < 0)
        ret = NULL;
    return ret;
}

void cw_record_files_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out)
{
    const struct cw_record_files *f = (const struct cw_record_files *)s;
    for (size_t i = 0; i < n; i++) {
        out[i].file_key = f->index.keys[rows[i]];
        out[i].row = 0;
    }
}

int cw_record_files_locate(const struct cw_source *s, uint64_t row, struct cw_extent *ret,
                           struct cw_error *err CW_UNUSED)
{
    const struct cw_record_files *f = (const struct cw_record_files *)s;
    *ret = (struct cw_extent){.file = f->files[row], .length = f->index.sizes[row]};
    return 0;
}

struct cw_file *cw_record_files_file(const struct cw_source *s, uint64_t row, bool *ret_partial)
{
    const struct cw_record_files *f = (const struct cw_record_files *)s;
    *ret_partial = f->index.sizes[row] > 2 * CW_KEY_EDGE_BYTES;
    return f->files[row];
}

const char *cw_record_files_path(const struct cw_source *s, uint64_t row)
{
    return cw_file_index_path(&((const struct cw_record_files *)s)->index, row);
}

int cw_record_files_produce_data(struct cw_block *b, const struct cw_port *port, struct cw_error *err)
{
    if (!port->live)
        return 0;
    int r = cw_block_ragged(b, port->value, err);
    for (size_t i = 0; r == 0 && i < b->n; i++)
        b->columns[port->value].rows[i] = (struct cw_tensor){.data = b->raw[i].data, .size = b->raw[i].size};
    return r;
}

int cw_record_files_produce_paths(const struct cw_record_files *f, struct cw_block *b,
                                  const struct cw_port *port, struct cw_error *err)
{
    if (!port->live)
        return 0;
    int r = cw_block_ragged(b, port->value, err);
    for (size_t i = 0; r == 0 && i < b->n; i++) {
        const char *path = cw_file_index_relative(&f->index, b->rows[i]);
        b->columns[port->value].rows[i] = (struct cw_tensor){.data = (void *)path, .size = strlen(path)};
    }
    return r;
}
