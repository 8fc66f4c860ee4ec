/*
 * Attributes that name a file on whose content results depend (cw_attr_def.content), for example a tokenizer.
 * When a pipeline is parsed, the content is hashed, and the hash is kept beside the path, in the member
 * "NAME.content" of the attributes. Fingerprints and identities of caches contain the hash, not the path.
 */
#pragma once
#include "pipeline/pipeline.h"

#define CW_CONTENT_MOST ((size_t)1 << 28) /* bytes of such a file; tokenizers have up to about 40 MB */

/* Adds the hash of the attribute's file to attrs. CW_E_PIPELINE: the file can't be read. */
int cw_content_note(const struct cw_pipeline *p, const struct cw_op_desc *desc, const char *name,
                    json_t *attrs, struct cw_error *err) _must_check_;
/* Returns the hash as hexadecimal digits, owned by attrs. */
const char *cw_content_hash(const json_t *attrs, const char *name);
/* Reads the attribute's file; the caller frees *ret, which ends with a zero byte. CW_E_PIPELINE: it can't be
 * read, or it has changed since the pipeline was parsed. */
int cw_content_read(const struct cw_pipeline *p, const struct cw_op *op, const char *name, char **ret,
                    size_t *ret_size, struct cw_error *err) _must_check_;
