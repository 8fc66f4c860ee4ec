/* The files that a source's patterns name, in the order of the data set. */
#pragma once
#include <stddef.h>

#include "pipeline/source.h"

struct cw_source_files {
    char **paths;
    size_t *prefixes; /* bytes of each path before its relative path */
    size_t n, paths_room, prefixes_room;
};

/* Attribute attr (strings): several patterns in the order given, the files of each sorted by bytes. Index
 * files (*.cwx) that a wildcard happens to match are left out. */
int cw_source_files(const struct cw_op *op, const char *attr, const struct cw_source_env *env,
                    struct cw_source_files *ret, struct cw_error *err) _must_check_;
/* Adds the files that a pattern names. Index files among them are left out; index_named: but one that is
 * named without wildcards. */
int cw_source_files_match(struct cw_source_files *f, const char *pattern, bool index_named,
                          const struct cw_source_env *env, struct cw_error *err) _must_check_;
/* Adds one file, which must lie below the environment's roots; takes over path (freed in case of error too).
 */
int cw_source_files_add(struct cw_source_files *f, char *path, size_t prefix, const struct cw_source_env *env,
                        struct cw_error *err) _must_check_;
void cw_source_files_deinit(struct cw_source_files *f);
