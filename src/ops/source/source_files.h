/* Finds the files that a source's patterns name, in the order of the data set. */
#pragma once
#include <stddef.h>

#include "pipeline/source.h"

/* Describes an attribute that cw_source_files reads. */
#define CW_SOURCE_FILES_DOC \
    "names of files, addresses (`s3://bucket/key*`, `gs://`, `hf://datasets/OWNER/NAME/path*`, `https://`, " \
    "`http://`), or patterns: `*`, " \
    "`?`, `[...]`, `**` for directories at any depth, `{a,b}`, " \
    "`{000..127}`, `~` for a home directory"

struct cw_source_files {
    char **paths;
    size_t *prefixes; /* for each path, the number of bytes before the part that is its relative path */
    size_t n, paths_room, prefixes_room;
};

/* Finds the files of the attribute attr (strings): patterns in their order, the files of each sorted by the
 * bytes of their paths. Index files (*.cwx) that a wildcard matches are left out. */
int cw_source_files(const struct cw_op *op, const char *attr, const struct cw_source_env *env,
                    struct cw_source_files *ret, struct cw_error *err) _must_check_;
/* Adds the files that a pattern names. Index files (*.cwx) among them are left out, except if index_named is
 * true and the pattern has no wildcard. */
int cw_source_files_match(struct cw_source_files *f, const char *pattern, bool index_named,
                          const struct cw_source_env *env, struct cw_error *err) _must_check_;
/* Adds one file, which must lie below one of env->data_roots. Takes over path, also after an error; path
 * NULL: out of memory. prefix: as in cw_source_files.prefixes.
 */
int cw_source_files_add(struct cw_source_files *f, char *path, size_t prefix, const struct cw_source_env *env,
                        struct cw_error *err) _must_check_;
void cw_source_files_deinit(struct cw_source_files *f);
