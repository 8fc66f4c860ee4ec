/* A source whose records are whole files, for image_folder and files; fixed_length cuts the
 * files into records. */
#pragma once
#include "ops/source/source_files.h"
#include "dataset/file_index.h"
#include "pipeline/source.h"

struct cw_record_files {
    /* the caller sets ops and context; cw_record_files_init sets the rest */
    struct cw_source base;
    struct cw_file_index index;
    struct cw_file **files; /* index.n files, by row */
};

/* Opens the files and their index. identity: an absolute path, or patterns, that distinguishes this data set
 * from others in the index directory. sidecar: path of an index file beside the data; may be NULL. */
int cw_record_files_init(struct cw_record_files *f, const struct cw_source_files *files, const char *kind,
                         const char *identity, const char *sidecar, const struct cw_source_env *env,
                         struct cw_error *err) _must_check_;
/* Returns an identity of the attribute `files`, "DIRECTORY:PATTERNS": the directory that the patterns are
 * relative to, and the patterns as JSON. The caller frees it. NULL: out of memory, or there is no such
 * directory. */
char *cw_record_files_identity(const struct cw_op *op, const struct cw_source_env *env);
void cw_record_files_deinit(struct cw_record_files *f);

/* Members of struct cw_source_ops, for sources whose struct starts with a struct cw_record_files. */
void cw_record_files_ids(const struct cw_source *s, const uint64_t *rows, size_t n, struct cw_record_id *out);
int cw_record_files_locate(const struct cw_source *s, uint64_t row, struct cw_extent *ret,
                           struct cw_error *err);
struct cw_file *cw_record_files_file(const struct cw_source *s, uint64_t row, bool *ret_partial);
const char *cw_record_files_path(const struct cw_source *s, uint64_t row);
/* Make the column of the files' bytes, and that of their relative paths, if the port is live. */
int cw_record_files_produce_data(struct cw_block *b, const struct cw_port *port,
                                 struct cw_error *err) _must_check_;
int cw_record_files_produce_paths(const struct cw_record_files *f, struct cw_block *b,
                                  const struct cw_port *port, struct cw_error *err) _must_check_;
