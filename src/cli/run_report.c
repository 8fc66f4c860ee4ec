/* Counts the batches that `run` receives, and prints the counts: as a progress line, and as the result in
 * text or JSON. */
#include "cli/run_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/machine.h"
#include "remote/remote.h"
#include "session/caching.h"
#include "session/report.h"
#include "session/tuning.h"

#define PROGRESS_NS UINT64_C(200000000)

void cli_counts_add(struct cli_counts *n, const struct cw_batch *b)
{
    n->last_ns = cw_now_ns();
    if (n->n_batches++ == 0)
        n->first_batch_s = cw_process_age();
    n->n_elements += b->flags & CW_RECORD_PADDING ? 0 : b->n;
    for (unsigned k = 0; k < b->n_components; k++)
        n->n_bytes += b->components[k].size;
}

static const char *counts_bottleneck(const json_t *profile)
{
    const char *name = json_string_value(json_object_get(profile, "bottleneck"));
    return name ? name : "unknown";
}

void cli_counts_progress(struct cli_counts *n, const struct cw_local *local, bool end)
{
    uint64_t now = cw_now_ns();
    if (!n->progress || (!end && now - n->progress_ns < PROGRESS_NS))
        return;
    json_auto_t *profile = cw_report_profile(local);
    double rate = n->progress_ns ? (double)(n->n_elements - n->progress_elements) /
                                       ((double)(now - n->progress_ns) * 1e-9)
                                 : 0;
    fprintf(stderr, "\r\033[K%" PRIu64 " batches, %" PRIu64 " elements, %.0f elements/s, bottleneck: %s%s",
            n->n_batches, n->n_elements, rate, counts_bottleneck(profile), end ? "\n" : "");
    n->progress_ns = now;
    n->progress_elements = n->n_elements;
}

static void counts_set_hash(json_t *o, const char *key, struct cw_hash128 hash)
{
    char text[33];
    cw_hash128_print(hash, text);
    json_object_set_new(o, key, json_string(text));
}

json_t *cli_counts_json(const struct cli_counts *n, const struct cli_pipeline *c,
                        const struct cli_outputs *out)
{
    const struct cw_local *local = &c->local;
    double seconds = n->start_ns ? (double)((n->last_ns ? n->last_ns : cw_now_ns()) - n->start_ns) * 1e-9 : 0;
    uint64_t skipped = 0, replaced = 0;
    if (local->iterator)
        cw_iterator_quarantined(local->iterator, &skipped, &replaced);
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:I, s:I, s:I}", "batches", (json_int_t)n->n_batches,
        "elements", (json_int_t)n->n_elements, "bytes", (json_int_t)n->n_bytes, "seconds", seconds,
        "elements_per_s", seconds > 0 ? (double)n->n_elements / seconds : 0.0, "seed", (json_int_t)c->seed,
        "cpu_s", cw_cpu_s(false) + cw_cpu_s(true), "peak_rss_bytes", (json_int_t)cw_peak_rss(), "skipped",
        (json_int_t)skipped, "replaced", (json_int_t)replaced, "threads", (json_int_t)c->threads);
    if (o && n->n_batches)
        json_object_set_new(o, "first_batch_s", json_real(n->first_batch_s));
    if (o && out->digest) {
        counts_set_hash(o, "digest", out->sum);
        counts_set_hash(o, "set_digest", out->set_sum);
    }
    if (o && local->iterator) {
        json_auto_t *profile = cw_report_profile(local);
        json_object_set(o, "operators", json_object_get(profile, "operators"));
        json_object_set(o, "bottleneck", json_object_get(profile, "bottleneck"));
        json_object_set_new(o, "tuning", cw_tuning_json(local));
        if (local->cache)
            json_object_set_new(o, "cache", cw_caching_report(local));
    }
    if (o && local->remote) {
        json_object_set_new(o, "links", cw_remote_links(local->remote));
        json_object_set_new(o, "cut", json_integer(cw_remote_cut(local->remote)));
        json_object_set_new(o, "lost_ranges", json_integer((json_int_t)cw_remote_lost(local->remote)));
    }
    return o;
}

void cli_counts_print(const struct cli_counts *n, const struct cli_pipeline *c, const struct cli_outputs *out)
{
    json_auto_t *o = cli_counts_json(n, c, out);
    printf("%" PRIu64 " batches, %" PRIu64 " elements in %.3f s: %.0f elements/s, bottleneck: %s\n",
           n->n_batches, n->n_elements, json_number_value(json_object_get(o, "seconds")),
           json_number_value(json_object_get(o, "elements_per_s")), counts_bottleneck(o));
    if (out->digest)
        printf("digest %s\nset_digest %s\n", json_string_value(json_object_get(o, "digest")),
               json_string_value(json_object_get(o, "set_digest")));
}
