/*
 * The manifest of a materialised data set: DIR/manifest.json, which names the shards in their order and the
 * components of their elements. session/materialize.c writes it; the operator `materialized` reads it.
 * docs/materialize.md describes the file.
 */
#pragma once
#include <jansson.h>

#include "base/hash.h"
#include "formats/shard.h"

#define CW_MANIFEST_NAME "manifest.json"
#define CW_MANIFEST_VERSION 1
/* The journal of a run that has not finished (session/shard_dir.h). It also has the format and the components
 * in its first line, and the finished shards in the others. */
#define CW_JOURNAL_NAME "journal.jsonl"
#define CW_JOURNAL_BYTES ((size_t)4 << 30)  /* limit of a journal */
#define CW_MANIFEST_BYTES ((size_t)1 << 30) /* limit of a manifest */

struct cw_manifest_shard {
    const char *name; /* of the file in the directory; owned by the manifest's root */
    uint64_t elements, bytes;
    struct cw_hash128 checksum; /* XXH3 of the file */
};

struct cw_manifest {
    json_t *root; /* the file; of a journal: its first line, with the shards */
    struct cw_shard_schema schema;
    struct cw_manifest_shard *shards;
    size_t n_shards;
    uint64_t elements, bytes; /* of all shards */
};

/* Reads the manifest of a directory. CW_E_DATA or CW_E_OPTION: it is missing or wrong; the message says how.
 * The caller deinits *ret, also after an error. */
int cw_manifest_read(const char *dir, struct cw_manifest *ret, struct cw_error *err) _must_check_;
/* As cw_manifest_read, also while a run writes the data: then the shards are those finished so far, and
 * *ret_complete is false. */
int cw_manifest_read_begun(const char *dir, struct cw_manifest *ret, bool *ret_complete,
                           struct cw_error *err) _must_check_;
void cw_manifest_deinit(struct cw_manifest *m);
/* Returns the components as the manifest has them: [{name, dtype, shape}]. New reference; NULL: out of
 * memory. */
json_t *cw_manifest_components(const struct cw_shard_schema *s);
/* Returns DIR/NAME, new; NULL: out of memory. */
char *cw_manifest_path(const char *dir, const char *name);
