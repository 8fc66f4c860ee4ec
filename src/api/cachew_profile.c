/* Reports of an iterator: its profile, and the records that were skipped or replaced. */
#include "api/cachew_impl.h"
#include "session/caching.h"
#include "remote/remote.h"
#include "session/report.h"
#include "session/tuning.h"

json_t *cw_api_profile(const struct cw_local *l, size_t held)
{
    json_t *o = cw_report_profile(l);
    if (o)
        json_object_set_new(o, "batches_held", json_integer((json_int_t)held));
    if (o)
        json_object_set_new(o, "tuning", cw_tuning_json(l));
    if (o && l->cache)
        json_object_set_new(o, "cache", cw_caching_report(l));
    if (o && l->remote) {
        json_object_set_new(o, "links", cw_remote_links(l->remote));
        json_object_set_new(o, "lost_ranges", json_integer((json_int_t)cw_remote_lost(l->remote)));
    }
    return o;
}

json_t *cw_api_quarantine(const struct cw_local *l, uint64_t *ret_skipped, uint64_t *ret_replaced)
{
    const struct cw_quarantined *q = cw_iterator_quarantined(l->iterator, ret_skipped, ret_replaced);
    json_t *list = json_array();
    for (; q && list; q = q->next)
        if (json_array_append_new(list, cw_report_quarantined(l->compiled, q)) < 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}
