/* The table of pipelines: texts with reference counts, shared by streams. */
#include "service/dispatcher/pipelines.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "net/limits.h"
#include "service/dispatcher/map_each.h"
#include "service/dispatcher/state.h"

int cw_dp_pipeline_get(struct cw_dispatcher *d, const uint8_t fingerprint[16], const char *json,
                       struct pipeline **ret, struct cw_error *err)
{
    uint64_t hash = cw_hash64(fingerprint, 16);
    size_t size = strlen(json);
    DP_MAP_EACH(known, struct pipeline, node, &d->pipelines.by_fingerprint, hash)
    {
        if (memcmp(known->fingerprint, fingerprint, 16) == 0) {
            known->refs++;
            *ret = known;
            return 0;
        }
    }
    if (size > CW_PIPELINE_BYTES || d->pipelines.bytes + size > DP_PIPELINES)
        return cw_error_set(err, CW_E_SERVICE,
                            "the pipeline has %zu bytes: expected at most %zu bytes, and at most %zu bytes "
                            "for all pipelines of the dispatcher together",
                            size, CW_PIPELINE_BYTES, DP_PIPELINES);
    struct pipeline *p = malloc(sizeof(*p));
    char *copy = strdup(json);
    if (p)
        *p = (struct pipeline){.json = copy, .size = size, .refs = 1};
    if (!p || !copy || cw_map_add(&d->pipelines.by_fingerprint, &p->node, hash) < 0) {
        free(p);
        free(copy);
        return cw_error_nomem(err, size, "a pipeline");
    }
    memcpy(p->fingerprint, fingerprint, 16);
    d->pipelines.bytes += size;
    *ret = p;
    return 0;
}

void cw_dp_pipeline_unref(struct cw_dispatcher *d, struct pipeline *p)
{
    if (!p || --p->refs > 0)
        return;
    if (p->journalled)
        cw_dp_journal_tried(d, cw_dp_journal_gone(d, JOURNAL_PIPELINE, p->fingerprint, 16, NULL));
    cw_map_remove(&d->pipelines.by_fingerprint, &p->node);
    d->pipelines.bytes -= p->size;
    free(p->json);
    free(p);
}

void cw_dp_pipelines_loaded(struct cw_dispatcher *d)
{
    for (size_t i = 0; i < d->pipelines.by_fingerprint.n_slots; i++)
        for (struct cw_map_node *at = d->pipelines.by_fingerprint.slots[i], *next; at; at = next) {
            next = at->next;
            cw_dp_pipeline_unref(d, CW_CONTAINER(at, struct pipeline, node));
        }
}
