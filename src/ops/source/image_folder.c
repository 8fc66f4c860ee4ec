/* image_folder: images in one directory per class. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "ops/source/record_files.h"
#include "storage/file.h"

struct image_folder {
    struct cw_record_files common;
    uint64_t *class_ends; /* n_classes values: for each class, the row after its last one */
    size_t n_classes;
};

static void image_folder_free(struct cw_source *s)
{
    struct image_folder *f = (struct image_folder *)s;
    cw_record_files_deinit(&f->common);
    free(f->class_ends);
    free(f);
}

static int64_t image_folder_class_of(const struct image_folder *f, uint64_t row)
{
    return (int64_t)CW_FIRST(i, 0, f->n_classes - 1, f->class_ends[i] > row);
}

static int image_folder_produce(const struct cw_source *s, const struct cw_op *op, struct cw_block *b,
                                struct cw_error *err)
{
    const struct image_folder *f = (const struct image_folder *)s;
    const struct cw_port *label = &op->out[1];
    int r = cw_record_files_produce_data(b, &op->out[0], err);
    if (r == 0 && label->live) {
        r = cw_block_dense(b, label->value, &label->type, err);
        for (size_t i = 0; r == 0 && i < b->n; i++)
            ((int64_t *)(void *)b->columns[label->value].data)[i] = image_folder_class_of(f, b->rows[i]);
    }
    return r < 0 ? r : cw_record_files_produce_paths(&f->common, b, &op->out[2], err);
}

static const struct cw_source_ops image_folder_ops = {
    .free = image_folder_free,
    .ids = cw_record_files_ids,
    .locate = cw_record_files_locate,
    .produce = image_folder_produce,
    .file = cw_record_files_file,
    .path = cw_record_files_path,
};

static bool image_folder_is_image(const char *name)
{
    static const char *const extensions[] = {"jpg", "jpeg", "png", "webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && dot != name && i < CW_COUNT_OF(extensions); i++)
        if (strcasecmp(dot + 1, extensions[i]) == 0)
            return true;
    return false;
}

static char *image_folder_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    char *path = NULL;
    return asprintf(&path, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name) < 0 ? NULL : path;
}

/* Adds the images of a class. Returns 1 if this entry of root is not a directory. */
static int image_folder_add_class(const char *root, const char *name, size_t prefix,
                                  const struct cw_source_env *env, struct cw_source_files *files,
                                  struct cw_error *err)
{
    struct cw_stat st;
    _cleanup_(cw_paths_deinit) struct cw_paths entries = {0};
    _cleanup_free_ char *dir = image_folder_join(root, name);
    if (!dir)
        return cw_error_nomem(err, 0, "the names of files");
    int r = cw_stat(dir, &st, err);
    if (r == 0 && !st.is_dir)
        return 1;
    if (r == 0)
        r = cw_path_check(dir, env->data_roots, env->n_data_roots, err);
    if (r == 0)
        r = cw_list(dir, &entries, err);
    for (size_t i = 0; r == 0 && i < entries.n; i++) {
        if (!image_folder_is_image(entries.paths[i]))
            continue;
        char *path = image_folder_join(dir, entries.paths[i]);
        if (path && cw_stat(path, &st, NULL) == 0 && st.is_dir)
            free(path);
        else
            r = cw_source_files_add(files, path, prefix, env, err);
    }
    return r;
}

static int image_folder_bad_root(const char *root, const char *what, struct cw_error *err)
{
    cw_error_file(err, root);
    return cw_error_value(err, CW_E_PIPELINE, "root", root, "a directory of directories of images",
                          "image_folder: %s %s", root, what);
}

static int image_folder_scan(struct image_folder *f, const char *root, const struct cw_source_env *env,
                             struct cw_source_files *files, struct cw_error *err)
{
    struct cw_stat st;
    _cleanup_(cw_paths_deinit) struct cw_paths entries = {0};
    size_t n = strlen(root), prefix = n + (n && root[n - 1] != '/');
    int r = cw_path_check(root, env->data_roots, env->n_data_roots, err);
    if (r < 0)
        return r;
    int e = cw_stat(root, &st, NULL) < 0 ? errno : st.is_dir ? 0 : ENOTDIR;
    cw_error_errnum(err, e);
    r = e ? image_folder_bad_root(root, "is no directory", err) : cw_list(root, &entries, err);
    if (r < 0)
        return r;
    f->class_ends = malloc((entries.n + 1) * sizeof(*f->class_ends));
    if (!f->class_ends)
        r = cw_error_nomem(err, entries.n * sizeof(*f->class_ends), "a source");
    XXH3_state_t classes; /* part of the source's identity, because labels depend on the set of classes */
    XXH3_64bits_reset(&classes);
    for (size_t i = 0; r >= 0 && i < entries.n; i++) {
        r = image_folder_add_class(root, entries.paths[i], prefix, env, files, err);
        if (r == 0) {
            f->class_ends[f->n_classes++] = files->n;
            (void)XXH3_64bits_update(&classes, entries.paths[i], strlen(entries.paths[i]) + 1);
        }
    }
    f->common.base.context = XXH3_64bits_digest(&classes);
    if (r < 0)
        return r;
    if (f->n_classes == 0)
        return image_folder_bad_root(root, "holds no directory: expected one per class", err);
    if (files->n == 0)
        return image_folder_bad_root(root, "holds no image (jpg, jpeg, png, webp) in any of its directories",
                                     err);
    return 0;
}

static int image_folder_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                             struct cw_error *err)
{
    struct image_folder *f = calloc(1, sizeof(*f));
    if (!f)
        return cw_error_nomem(err, sizeof(*f), "a source");
    f->common.base.ops = &image_folder_ops;
    _cleanup_free_ char *given = NULL, *root = NULL, *sidecar = NULL;
    _cleanup_(cw_source_files_deinit) struct cw_source_files files = {0};
    int r = cw_path_home(env->base_dir, cw_attr_string(op, "root"), false, &given, err);
    if (r == 0) {
        root = given[0] == '/' || !env->base_dir || !*env->base_dir ? strdup(given)
                                                                    : image_folder_join(env->base_dir, given);
        r = root ? 0 : cw_error_nomem(err, 0, "a source");
    }
    for (size_t n = root ? strlen(root) : 0; n > 1 && root[n - 1] == '/'; n--)
        root[n - 1] = 0;
    if (r == 0)
        r = image_folder_scan(f, root, env, &files, err);
    if (r == 0 && asprintf(&sidecar, "%s.cwx", root) < 0) {
        sidecar = NULL;
        r = cw_error_nomem(err, 0, "a source");
    }
    if (r == 0)
        r = cw_record_files_init(&f->common, &files, "image_folder", root, sidecar, env, err);
    if (r < 0) {
        cw_error_op(err, op->desc->name);
        image_folder_free(&f->common.base);
        return r;
    }
    *ret = &f->common.base;
    return 0;
}

static const struct cw_output_def outputs[] = {
    {"image", CW_BYTES}, {"label", CW_INT64}, {"path", CW_BYTES}, {0}};

static const struct cw_attr_def attrs[] = {
    {.name = "root",
     .kind = CW_ATTR_STRING,
     .path = true,
     .doc = "path of the directory with one subdirectory per class"},
    {0},
};

const struct cw_op_desc cw_op_image_folder = {
    .name = "image_folder",
    .summary = "image files in one directory per class",
    .doc = "Gives `image` (the file's bytes), `label` (int64: the number of the class, with the class "
           "directories sorted by the bytes of their names) and `path` (relative to `root`). In each class "
           "directory it reads the files whose names end in jpg, jpeg, png or webp, in upper or lower case; "
           "subdirectories are not read.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .outputs = outputs,
    .open = image_folder_open,
};
