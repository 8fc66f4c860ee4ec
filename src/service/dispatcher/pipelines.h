/* Pipelines: JSON texts with reference counts, shared by the streams that run them. Their bytes are limited.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "service/dispatcher/types.h"

struct pipeline {
    struct cw_map_node node;
    uint8_t fingerprint[16];
    char *json;
    size_t size; /* bytes of json */
    unsigned refs;
    bool journalled;
};

struct pipeline_table {
    struct cw_map by_fingerprint;
    size_t bytes; /* of all texts */
};

/* ret: the pipeline with this fingerprint; it is added with this text if it is not known. The caller owns a
 * reference. CW_E_SERVICE: the pipeline, or all pipelines together, would have too many bytes. */
int cw_dp_pipeline_get(struct cw_dispatcher *d, const uint8_t fingerprint[16], const char *json,
                       struct pipeline **ret, struct cw_error *err) _must_check_;
/* Drops a reference; the last one frees the pipeline and deletes its journal entry. Accepts NULL. */
void cw_dp_pipeline_unref(struct cw_dispatcher *d, struct pipeline *p);
/* Call when the journal is read: drops the references that reading took, so that pipelines of no stream are
 * freed. */
void cw_dp_pipelines_loaded(struct cw_dispatcher *d);
