/* Reads manifests of materialised data sets. */
#include "dataset/manifest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "storage/file.h"

void cw_manifest_deinit(struct cw_manifest *m)
{
    cw_shard_schema_deinit(&m->schema);
    free(m->shards);
    json_decref(m->root);
    *m = (struct cw_manifest){0};
}

char *cw_manifest_path(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    char *path = NULL;
    return asprintf(&path, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name) < 0 ? NULL : path;
}

json_t *cw_manifest_components(const struct cw_shard_schema *s)
{
    json_t *list = json_array();
    for (unsigned i = 0; list && i < s->n; i++) {
        const struct cw_shard_component *c = &s->components[i];
        json_t *shape = c->type.ndim < 0 ? json_null() : json_array();
        for (int d = 0; d < c->type.ndim; d++) {
            bool varies = c->type.dims[d] == CW_VARIES;
            json_array_append_new(shape, varies ? json_null() : json_integer(c->type.dims[d]));
        }
        json_t *o = json_pack("{s:s, s:s, s:o}", "name", c->name, "dtype", cw_dtype_name(c->type.dtype),
                              "shape", shape);
        if (!o || json_array_append_new(list, o) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* ---- reading ---- */

/* Reports what is wrong with the manifest at `path`. */
static int manifest_wrong(const char *path, const char *what, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_DATA, path, 0, "%s is not a manifest of cachew materialize: %s", path,
                            what);
}

static bool manifest_read_shape(const json_t *shape, struct cw_type *type)
{
    type->ndim = json_is_null(shape) ? -1 : (int)json_array_size(shape);
    bool good = json_is_null(shape) || (json_is_array(shape) && json_array_size(shape) <= CW_MAX_NDIM);
    for (int d = 0; good && d < type->ndim; d++) {
        const json_t *dim = json_array_get(shape, (size_t)d);
        type->dims[d] = json_is_null(dim) ? CW_VARIES : json_integer_value(dim);
        good = json_is_null(dim) || (json_is_integer(dim) && json_integer_value(dim) >= 0);
    }
    return good && (type->dtype == CW_BYTES ? type->ndim == 0
                                            : !cw_type_fixed(type) || cw_type_bytes(type) != SIZE_MAX);
}

static int manifest_read_components(const char *path, struct cw_manifest *m, struct cw_error *err)
{
    const json_t *list = json_object_get(m->root, "components"), *o;
    struct cw_shard_schema *s = &m->schema;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > CW_SHARD_COMPONENTS)
        return manifest_wrong(path, "\"components\" is not a list of 1 to 64 components", err);
    json_array_foreach(list, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "name"));
        const char *dtype = json_string_value(json_object_get(o, "dtype"));
        struct cw_shard_component *c = &s->components[i];
        if (!name || !dtype || cw_dtype_parse(dtype, &c->type.dtype) < 0 ||
            !manifest_read_shape(json_object_get(o, "shape"), &c->type) ||
            (i > 0 && strcmp(s->components[i - 1].name, name) >= 0))
            return manifest_wrong(path, "a component's name, dtype or shape is wrong or out of order", err);
        if (!(c->name = strdup(name)))
            return cw_error_nomem(err, 0, "a manifest");
        s->n++;
    }
    return 0;
}

static int manifest_read_shards(const char *path, struct cw_manifest *m, struct cw_error *err)
{
    const json_t *list = json_object_get(m->root, "shards"), *o;
    size_t i;
    if (!json_is_array(list))
        return manifest_wrong(path, "it has no list \"shards\"", err);
    if (!(m->shards = calloc(json_array_size(list) + 1, sizeof(*m->shards))))
        return cw_error_nomem(err, json_array_size(list) * sizeof(*m->shards), "a manifest");
    json_array_foreach(list, i, o)
    {
        const json_t *elements = json_object_get(o, "elements"), *bytes = json_object_get(o, "bytes");
        struct cw_manifest_shard *s = &m->shards[m->n_shards];
        s->name = json_string_value(json_object_get(o, "name"));
        if (!s->name || !*s->name || *s->name == '.' || strchr(s->name, '/') ||
            json_integer_value(elements) <= 0 || json_integer_value(bytes) <= 0 ||
            !cw_hash128_parse(json_string_value(json_object_get(o, "checksum")), &s->checksum))
            return manifest_wrong(path, "the name, elements, bytes or checksum of a shard is wrong", err);
        s->elements = (uint64_t)json_integer_value(elements);
        s->bytes = (uint64_t)json_integer_value(bytes);
        m->elements += s->elements;
        m->bytes += s->bytes;
        m->n_shards++;
    }
    return 0;
}

/* Reads format, components and shards of m->root. */
static int manifest_read_root(const char *path, struct cw_manifest *m, struct cw_error *err)
{
    const char *format = json_string_value(json_object_get(m->root, "format"));
    for (m->schema.format = 0; m->schema.format < CW_N_SHARD_FORMATS; m->schema.format++)
        if (format && strcmp(format, cw_shard_formats[m->schema.format]) == 0)
            break;
    if (m->schema.format == CW_N_SHARD_FORMATS)
        return manifest_wrong(path, "\"format\" is none of cachew, tfrecord, tar", err);
    int r = manifest_read_components(path, m, err);
    return r < 0 ? r : manifest_read_shards(path, m, err);
}

static int manifest_parse(const char *path, const char *text, size_t size, struct cw_manifest *m,
                          struct cw_error *err)
{
    json_error_t je;
    m->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!m->root)
        return manifest_wrong(path, je.text, err);
    if (json_integer_value(json_object_get(m->root, "materialized")) != CW_MANIFEST_VERSION)
        return manifest_wrong(path, "\"materialized\" is not 1, the version that this Cachew reads", err);
    return manifest_read_root(path, m, err);
}

/* Reads the complete lines of a journal. */
static int manifest_parse_journal(const char *path, const char *text, size_t size, struct cw_manifest *m,
                                  struct cw_error *err)
{
    const char *end;
    for (size_t at = 0; at < size && (end = memchr(text + at, '\n', size - at));
         at = (size_t)(end - text) + 1) {
        json_auto_t *line = json_loadb(text + at, (size_t)(end - text) - at, 0, NULL);
        if (m->root
                ? json_array_append(json_object_get(m->root, "shards"), json_object_get(line, "shard")) < 0
                : json_object_set_new(line, "shards", json_array()) < 0)
            return manifest_wrong(path, m->root ? "a line names no shard" : "its first line is wrong", err);
        if (!m->root)
            m->root = json_incref(line);
    }
    return m->root ? manifest_read_root(path, m, err) : manifest_wrong(path, "it has no line", err);
}

/* Reads a file of the directory. 1: it does not exist; err names what was expected. */
static int manifest_read_file(const char *dir, const char *name, struct cw_manifest *ret,
                              int (*parse)(const char *path, const char *text, size_t size,
                                           struct cw_manifest *m, struct cw_error *err),
                              size_t limit, const char *run_has, struct cw_error *err)
{
    _cleanup_free_ char *path = cw_manifest_path(dir, name), *text = NULL;
    size_t size;
    *ret = (struct cw_manifest){0};
    if (!path)
        return cw_error_nomem(err, 0, "a path");
    if (access(path, F_OK) < 0) {
        int e = errno;
        (void)cw_error_at_file(err, CW_E_OPTION, path, e,
                               "%s can't be read: expected a directory that cachew materialize has %s", path,
                               run_has);
        return e == ENOENT ? 1 : CW_E_OPTION;
    }
    int r = cw_read_file(path, limit, &text, &size, err);
    return r < 0 ? r : parse(path, text, size, ret, err);
}

int cw_manifest_read(const char *dir, struct cw_manifest *ret, struct cw_error *err)
{
    int r = manifest_read_file(dir, CW_MANIFEST_NAME, ret, manifest_parse, CW_MANIFEST_BYTES, "finished",
                               err);
    return r == 1 ? CW_E_OPTION : r;
}

int cw_manifest_read_begun(const char *dir, struct cw_manifest *ret, bool *ret_complete, struct cw_error *err)
{
    for (int tries = 0;; tries++) {
        int r = manifest_read_file(dir, CW_MANIFEST_NAME, ret, manifest_parse, CW_MANIFEST_BYTES, "begun",
                                   err);
        *ret_complete = r == 0;
        if (r == 1) {
            cw_manifest_deinit(ret);
            r = manifest_read_file(dir, CW_JOURNAL_NAME, ret, manifest_parse_journal, CW_JOURNAL_BYTES,
                                   "begun", err);
        }
        if (r != 1 || tries > 0) /* else the run may have finished in between */
            return r == 1 ? CW_E_OPTION : r;
    }
}
