/* Finds the files of a source from its patterns. Called when a source is opened. */
#include "ops/source/source_files.h"

#include <string.h>

#include "base/array.h"
#include "storage/file.h"

void cw_source_files_deinit(struct cw_source_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->paths[i]);
    free(f->paths);
    free(f->prefixes);
    *f = (struct cw_source_files){0};
}

int cw_source_files_add(struct cw_source_files *f, char *path, size_t prefix, const struct cw_source_env *env,
                        struct cw_error *err)
{
    static const char what[] = "the names of files";
    int r = path ? cw_path_check(path, env->data_roots, env->n_data_roots, err)
                 : cw_error_nomem(err, 0, what);
    if (r >= 0)
        r = CW_ARRAY_ROOM(f->paths, f->paths_room, f->n + 1, what, err);
    if (r >= 0)
        r = CW_ARRAY_ROOM(f->prefixes, f->prefixes_room, f->n + 1, what, err);
    if (r < 0) {
        free(path);
        return r;
    }
    f->paths[f->n] = path;
    f->prefixes[f->n++] = prefix;
    return 0;
}

static bool source_files_is_index(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".cwx") == 0;
}

/* Adds the files of a pattern without braces. most: the largest prefix that a path may have. */
static int source_files_glob(struct cw_source_files *f, const char *pattern, size_t most, bool index_named,
                             const struct cw_source_env *env, struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths found = {0};
    size_t prefix, before = f->n;
    _cleanup_free_ char *dir = cw_glob_dir(env->base_dir, pattern);
    /* a directory outside the roots is not even listed */
    int r = dir ? cw_path_check(dir, env->data_roots, env->n_data_roots, err)
                : cw_error_nomem(err, 0, "a pattern");
    if (r == 0)
        r = cw_glob(env->base_dir, pattern, &found, &prefix, err);
    bool all = index_named && !strpbrk(pattern, "*?[");
    for (size_t i = 0; r == 0 && i < found.n; i++)
        if (all || !source_files_is_index(found.paths[i]))
            r = cw_source_files_add(f, CW_STEAL(found.paths[i]), CW_MIN(prefix, most), env, err);
    if (r == 0 && f->n == before) {
        cw_error_file(err, pattern);
        r = cw_error_set(err, CW_E_PIPELINE, "only index files (*.cwx) match %s: expected data files",
                         pattern);
    }
    return r;
}

int cw_source_files_match(struct cw_source_files *f, const char *pattern, bool index_named,
                          const struct cw_source_env *env, struct cw_error *err)
{
    _cleanup_(cw_paths_deinit) struct cw_paths patterns = {0};
    size_t most;
    int r = cw_patterns(env->base_dir, pattern, &patterns, &most, err);
    for (size_t i = 0; r == 0 && i < patterns.n; i++)
        r = source_files_glob(f, patterns.paths[i], most, index_named, env, err);
    return r;
}

int cw_source_files(const struct cw_op *op, const char *attr, const struct cw_source_env *env,
                    struct cw_source_files *ret, struct cw_error *err)
{
    struct cw_source_files f = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < cw_attr_len(op, attr); i++)
        r = cw_source_files_match(&f, cw_attr_string_at(op, attr, i), true, env, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        cw_source_files_deinit(&f);
        return r;
    }
    *ret = f;
    return 0;
}
