/* tokenize: texts to token ids, by the Python package tokenizers, in host processes. */
#include <string.h>

#include "base/hash.h"
#include "ops/python/function.h"
#include "pipeline/content.h"
#include "pipeline/pipeline.h"

#define TIMEOUT_NS UINT64_C(300000000000) /* for the texts of one call; a hang is a defect of the package */

/* Makes the spec (docs/hosts.md). It has the tokenizer itself, so that all hosts have the same one, even if
 * the file changes. */
static int tokenize_make_spec(const struct cw_bind *b, const struct cw_op *op, struct cw_function *f,
                              struct cw_error *err)
{
    const json_t *truncation = cw_attr_json(op, "truncation");
    _cleanup_free_ char *content = NULL;
    size_t size;
    int r = cw_content_read(cw_bind_pipeline(b), op, "tokenizer", &content, &size, err);
    if (r < 0)
        return r;
    json_t *text = json_stringn(content, size);
    if (!text)
        return cw_attr_error(op, "tokenizer", err,
                             "a file tokenizer.json, which is JSON, but the file is not valid UTF-8");
    json_auto_t *spec = json_pack(
        "{s:s, s:s, s:o, s:b, s:o, s:[{s:s, s:s, s:[]}]}", "kind", "tokenize", "name", f->name, "tokenizer",
        text, "add_special_tokens", cw_attr_bool(op, "add_special_tokens"), "truncation",
        cw_attr_len(op, "truncation") == 0
            ? json_null()
            : json_incref(json_is_array(truncation) ? json_array_get(truncation, 0) : (json_t *)truncation),
        "inputs", "name", cw_attr_string(op, "component"), "dtype", "bytes", "shape");
    f->host.spec = spec ? json_dumps(spec, JSON_COMPACT) : NULL;
    if (!f->host.spec)
        return cw_error_nomem(err, 0, "a tokenizer");
    const char *hash = cw_content_hash(op->attrs, "tokenizer");
    f->host.id = cw_hash64(f->host.spec, strlen(f->host.spec));
    f->host.identity = cw_hash64(hash, strlen(hash));
    return 0;
}

static int tokenize_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *component = cw_attr_string(op, "component"), *path = cw_attr_string(op, "tokenizer");
    const char *slash = strrchr(path, '/');
    struct cw_type type;
    char shown[160];
    int r = cw_bind_read(b, component, &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "texts (bytes), but \"%s\" is %s", component,
                             cw_type_print(&type, shown));
    struct cw_function *f = op->state = calloc(1, sizeof(*f)); /* the caller frees it, also after an error */
    if (!f || !(f->in = calloc(1, sizeof(*f->in))))
        return cw_error_nomem(err, sizeof(*f), "tokenize");
    f->name = slash ? slash + 1 : path;
    f->host = (struct cw_host_function){.noun = "tokenizer",
                                        .name = f->name,
                                        .timeout_ns = TIMEOUT_NS,
                                        .pipeline = cw_bind_pipeline(b)->functions,
                                        .n_pipeline = cw_bind_pipeline(b)->n_functions};
    f->n_in = 1;
    f->in[0] = (struct cw_exchange_column){.type = &op->in[0].type, .value = op->in[0].value};
    type = (struct cw_type){.dtype = CW_INT32, .ndim = 1, .dims = {CW_VARIES}};
    r = cw_bind_write(b, component, &type, err);
    return r < 0 ? r : tokenize_make_spec(b, op, f, err);
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the text: bytes, in UTF-8"},
    {.name = "tokenizer",
     .kind = CW_ATTR_STRING,
     .path = true,
     .content = true,
     .doc = "path of a file tokenizer.json, as `save` and `save_pretrained` of Hugging Face's packages write "
            "it"},
    {.name = "add_special_tokens",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: add the tokens that the tokenizer puts around a text, such as [CLS] and [SEP]"},
    {.name = "truncation",
     .kind = CW_ATTR_INTS,
     .def = "[]",
     .min = 1,
     .max = 0x1p31 - 1,
     .len_min = 0,
     .len_max = 1,
     .scalar_too = true,
     .doc = "most tokens of a text, special tokens included; the rest is cut off at the end; []: no limit"},
    {0},
};

const struct cw_op_desc cw_op_tokenize = {
    .name = "tokenize",
    .summary = "replaces a text by its token ids, by a tokenizer of Hugging Face",
    .doc = "The ids are int32 [n], exactly those of the Python package `tokenizers`, which must be installed "
           "for the Python that runs functions (docs/hosts.md). Only a change of the file's content makes "
           "another pipeline, not a change of its path. The file's own settings for padding and truncation "
           "are ignored. A text that is not valid UTF-8 fails the record.",
    .kind = CW_OP_MAP,
    .function = true,
    .attrs = attrs,
    .bind = tokenize_bind,
    .run = cw_function_map_run,
    .free_state = cw_function_free,
};
