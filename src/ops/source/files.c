/* files: whole files as bytes. */
#include <string.h>

#include "ops/source/record_files.h"

static void files_free(struct cw_source *s)
{
    cw_record_files_deinit((struct cw_record_files *)s);
    free(s);
}

static int files_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                         struct cw_error *err)
{
    int r = cw_record_files_produce_data(b, &op->out[0], err);
    return r < 0 ? r : cw_record_files_produce_paths((const struct cw_record_files *)s, b, &op->out[1], err);
}

static const struct cw_source_ops files_ops = {
    .free = files_free,
    .ids = cw_record_files_ids,
    .locate = cw_record_files_locate,
    .produce = files_produce,
    .file = cw_record_files_file,
    .path = cw_record_files_path,
};

static int files_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                      struct cw_error *err)
{
    struct cw_record_files *f = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "a source");
    f->base.ops = &files_ops;
    _cleanup_(cw_source_files_deinit) struct cw_source_files found = {0};
    _cleanup_free_ char *name = cw_record_files_identity(op, env);
    int r = name ? cw_source_files(op, "files", env, &found, err) : cw_error_nomem(err, 0, "a source");
    if (r == 0)
        r = cw_record_files_init(f, &found, "files", name, NULL, env, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        files_free(&f->base);
        return r;
    }
    *ret = &f->base;
    return 0;
}

static const struct cw_output_def outputs[] = {{"data", CW_BYTES}, {"path", CW_BYTES}, {0}};

static const struct cw_attr_def attrs[] = {
    {.name = "files",
     .kind = CW_ATTR_STRINGS,
     .len_min = 1,
     .scalar_too = true,
     .path = true,
     .doc = CW_SOURCE_FILES_DOC},
    {0},
};

const struct cw_op_desc cw_op_files = {
    .name = "files",
    .summary = "whole files",
    .doc = "Gives `data`, the bytes of each file, and `path`, its path relative to the directory of its "
           "pattern (the part before the first wildcard). Files come in the order of the patterns; the files "
           "of one pattern are sorted by the bytes of their paths.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .open = files_open,
};
