/*
 * tar: samples of tar shards (WebDataset) to components. A record's bytes (block->raw) are the files of the
 * sample with their tar headers. Only files that a later operator or the batch needs are used. Bytes are not
 * copied; they point into the record.
 */
#include "formats/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "formats/npy.h"
#include "formats/number.h"
#include "ops/element/feature_spec.h"
#include "ops/source/record_streams.h"

#define KEY "__key__" /* in place of an extension: the sample's key */

struct found {           /* the file of a component */
    const uint8_t *data; /* NULL: the sample has no such file */
    size_t size;
    unsigned alternative; /* number of its extension in `key` */
    bool npy;
    bool twice; /* the sample has two such files */
};

struct row { /* the sample that is being read */
    const struct cw_op *op;
    struct cw_block *b;
    size_t row;
    const char *key; /* of the sample; in the block's memory */
    size_t key_size;
};

/* Marks the row as failed, with a message that names its sample. Returns false. */
#define fail(x, fmt, ...) \
    cw_block_fail((x)->b, (x)->row, (x)->op->desc->name, "sample \"%.*s\": " fmt, \
                  (int)CW_MIN((x)->key_size, (size_t)60), (x)->key ? (x)->key : "", __VA_ARGS__)

static int tar_spec_size(const struct cw_feature_spec *f)
{
    return (int)CW_MIN(f->key_size, (size_t)60);
}

static bool tar_is_key(const struct cw_feature_spec *f)
{
    return f->key_size == strlen(KEY) && memcmp(f->key, KEY, f->key_size) == 0;
}

/* Returns the number of an extension in the list "jpg;jpeg;png", in any case; -1: it is not in the list. */
static int tar_alternative_of(const struct cw_feature_spec *f, const struct cw_tar_name *name)
{
    const char *p = f->key, *end = p + f->key_size;
    for (int i = 0; p <= end; i++) {
        const char *stop = memchr(p, ';', (size_t)(end - p));
        size_t n = (size_t)((stop ? stop : end) - p);
        if (n == name->extension_size && strncasecmp(p, name->extension, n) == 0)
            return i;
        p += n + 1;
    }
    return -1;
}

static bool tar_is_npy(const struct cw_tar_name *name)
{
    const char *end = name->extension + name->extension_size;
    return name->extension_size >= 3 && strncasecmp(end - 3, "npy", 3) == 0 &&
           (name->extension_size == 3 || end[-4] == '.');
}

/* Takes a file of the sample for each component whose `key` lists its extension, unless the component has a
 * file whose extension comes earlier in the list. */
static void tar_take_file(const struct cw_op *op, const struct cw_feature_specs *specs,
                          const struct cw_tar_file *file, struct found *found)
{
    for (unsigned i = 0; i < specs->n; i++) {
        const struct cw_feature_spec *f = &specs->items[i];
        int which = op->out[f->port].live && !tar_is_key(f) ? tar_alternative_of(f, &file->name) : -1;
        if (which < 0 || (found[i].data && found[i].alternative < (unsigned)which))
            continue;
        bool twice = found[i].data && found[i].alternative == (unsigned)which;
        found[i] = (struct found){.data = file->data,
                                  .size = file->size,
                                  .alternative = (unsigned)which,
                                  .npy = tar_is_npy(&file->name),
                                  .twice = twice};
    }
}

/* Finds the files of the sample and its key. Returns 1 if the row failed. */
static int tar_find_files(struct row *x, const struct cw_feature_specs *specs, struct found *found,
                          struct cw_error *err)
{
    struct cw_tar_files files;
    struct cw_tar_file file;
    char why[CW_TAR_WHY];
    int r;
    memset(found, 0, specs->n * sizeof(*found));
    cw_tar_files_init(&files, x->b->raw[x->row].data, x->b->raw[x->row].size);
    while ((r = cw_tar_next(&files, &file, why)) > 0) {
        if (!x->key) {
            char *copy = cw_block_alloc(x->b, file.name.key_size, err);
            if (!copy)
                return err ? err->status : CW_E_MEMORY;
            x->key = memcpy(copy, file.name.key, file.name.key_size);
            x->key_size = file.name.key_size;
        }
        tar_take_file(x->op, specs, &file, found);
    }
    if (r == 0 && x->key)
        return 0;
    return !fail(x, "%s", r < 0 ? why : "the archive has changed: this sample has no files any more");
}

/* ---- values ---- */

static int tar_put_npy(const struct row *x, const struct cw_feature_spec *f, const struct found *found,
                       const struct cw_port *port, struct cw_error *err)
{
    struct cw_npy npy;
    char why[CW_NPY_WHY], is[160], wanted[160];
    if (!cw_npy_parse(found->data, found->size, &npy, why))
        return fail(x, "\"%.*s\" is %s", tar_spec_size(f), f->key, why);
    struct cw_type type = {.dtype = npy.dtype, .ndim = npy.ndim};
    memcpy(type.dims, npy.dims, sizeof(type.dims));
    bool fits = npy.dtype == f->dtype && npy.ndim == port->type.ndim;
    for (int d = 0; fits && d < npy.ndim; d++)
        fits = port->type.dims[d] == CW_VARIES || port->type.dims[d] == npy.dims[d];
    if (!fits)
        return fail(x, "\"%.*s\" is %s, expected %s", tar_spec_size(f), f->key, cw_type_print(&type, is),
                    cw_type_print(&port->type, wanted));
    void *out = cw_feature_row(f, port, x->b, x->row, (int64_t)(npy.size / cw_dtype_size(npy.dtype)), err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    if (npy.size)
        memcpy(out, npy.data, npy.size);
    return 0;
}

static bool tar_is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Finds the next word of a text, from *at on, and advances *at. False: there is none. */
static bool tar_next_word(const struct found *text, size_t *at, const char **ret, size_t *ret_size)
{
    while (*at < text->size && tar_is_space(text->data[*at]))
        (*at)++;
    *ret = (const char *)text->data + *at;
    size_t start = *at;
    while (*at < text->size && !tar_is_space(text->data[*at]))
        (*at)++;
    *ret_size = *at - start;
    return *ret_size > 0;
}

/* Reads numbers from text with white space between them. */
static int tar_put_text(const struct row *x, const struct cw_feature_spec *f, const struct found *text,
                        const struct cw_port *port, struct cw_error *err)
{
    const char *word;
    size_t size, at = 0, item = cw_dtype_size(f->dtype);
    int64_t n = 0;
    while (tar_next_word(text, &at, &word, &size))
        n++;
    if (f->variable ? n % f->n_values != 0 : n != f->n_values)
        return fail(x, "\"%.*s\" holds %" PRId64 " numbers, expected %s%" PRId64, tar_spec_size(f), f->key, n,
                    f->variable ? "a multiple of " : "", f->n_values);
    uint8_t *out = cw_feature_row(f, port, x->b, x->row, n, err);
    if (!out)
        return err ? err->status : CW_E_MEMORY;
    for (at = 0; tar_next_word(text, &at, &word, &size); out += item) {
        enum cw_number r = cw_number_parse(word, size, f->dtype, out);
        if (r != CW_NUMBER_OK)
            return fail(x, "\"%.*s\" holds \"%.*s\", which %s for %s", tar_spec_size(f), f->key,
                        (int)CW_MIN(size, (size_t)40), word, cw_number_why(r), cw_dtype_name(f->dtype));
    }
    return 0;
}

static int tar_put_component(const struct row *x, const struct cw_feature_spec *f, const struct found *found,
                             struct cw_error *err)
{
    const struct cw_port *port = &x->op->out[f->port];
    if (tar_is_key(f)) {
        cw_feature_bytes_row(port, x->b, x->row, x->key, x->key_size);
        return 0;
    }
    if (!found->data)
        return f->has_default || f->variable
                   ? cw_feature_default(f, port, x->b, x->row, err)
                   : fail(x, "it has no file \"%.*s\", and there is no default", tar_spec_size(f), f->key);
    if (found->twice)
        return fail(x, "it has two files \"%.*s\"", tar_spec_size(f), f->key);
    if (f->dtype == CW_BYTES) {
        cw_feature_bytes_row(port, x->b, x->row, found->data, found->size);
        return 0;
    }
    return found->npy ? tar_put_npy(x, f, found, port, err) : tar_put_text(x, f, found, port, err);
}

static int tar_produce(const struct cw_source *s CW_UNUSED, const struct cw_op *op, struct cw_block *b,
                       struct cw_error *err)
{
    const struct cw_feature_specs *specs = op->state;
    struct found found[CW_OP_MAX_PORTS];
    if (!op->live)
        return 0;
    int r = cw_feature_columns(specs, op, b, err);
    CW_ROWS_OK(row, b, r == 0)
    {
        struct row x = {.op = op, .b = b, .row = row};
        int failed = tar_find_files(&x, specs, found, err);
        if (failed < 0)
            return failed;
        for (unsigned i = 0; r == 0 && i < specs->n && b->status[row] == CW_ROW_OK; i++)
            if (op->out[specs->items[i].port].live)
                r = tar_put_component(&x, &specs->items[i], &found[i], err);
    }
    return r;
}

static int tar_open(const struct cw_op *op, const struct cw_source_env *env, struct cw_source **ret,
                    struct cw_error *err)
{
    static const struct cw_record_streams_options options = {
        .format = CW_FORMAT_TAR,
        .produce = tar_produce,
        .partial_keys = true}; /* the file key covers only the first block of each member's data */
    return cw_record_streams_open(op, env, &options, ret, err);
}

static int tar_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    static const struct cw_feature_words words = {
        .attr = "components", .noun = "component", .dtypes = CW_FEATURE_ALL};
    int r = cw_feature_specs_bind(&words, b, op, err);
    const struct cw_feature_specs *specs = op->state;
    for (unsigned i = 0; r == 0 && i < specs->n; i++)
        if (tar_is_key(&specs->items[i]) && specs->items[i].dtype != CW_BYTES)
            r = cw_attr_error(op, "components", err,
                              "\"bytes\" as dtype of \"" KEY "\", the key of a sample");
    return r;
}

static const struct cw_attr_def attrs[] = {
    CW_RECORD_STREAM_ATTRS,
    {.name = "components",
     .kind = CW_ATTR_OBJECT,
     .doc = "the components to read: {extension: \"bytes\"|\"int64\"|...}, or {name: {key, dtype, shape, "
            "variable, default}}; key: one or more extensions, as in \"jpg;jpeg;png\""},
    {0},
};

const struct cw_op_desc cw_op_tar = {
    .name = "tar",
    .summary = "samples of tar shards (WebDataset)",
    .doc = "A record is a sample: consecutive files of an archive that have the same key. The key of a file "
           "is its path up to the first dot of the base name; the rest after that dot is its extension. A "
           "component is the file with the extension `key` (default: the component's name). If `key` lists "
           "several extensions (\"jpg;jpeg;png\"), the first one that the sample has is taken. Upper and "
           "lower case of extensions are the same. With dtype `bytes` the component is the content of the "
           "file. With any other dtype it is the numbers in the file: text with white space between the "
           "numbers, or NumPy's format if the extension ends with npy (dtype and shape must be those of the "
           "component). `shape`, `variable` and `default` (for a sample without such a file) are as in "
           "`parse_example`. The key \"__key__\" gives the sample's key. Directories, links and files "
           "without an extension are skipped. Headers may be v7, ustar, GNU or pax. A damaged archive is an "
           "error, and so is an archive with sparse files, devices, or names that lead out of the archive's "
           "directory.",
    .kind = CW_OP_SOURCE,
    .effects.count = CW_COUNT_KNOWN,
    .attrs = attrs,
    .bind = tar_bind,
    .open = tar_open,
    .free_state = cw_feature_specs_free,
};
