/* The pages of a worker's HTTP server: metrics (docs/metrics.md lists them), health, readiness, status and
 * tuning. Owns nothing; reads the worker's state on the loop's thread. The HTTP server calls cw_worker_page.
 */
#include "service/worker/pages.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/cache.h"
#include "net/metrics.h"
#include "service/worker/status.h"
#include "service/worker/tuning.h"
#include "service/worker/worker_impl.h"

/* ---- metrics ---- */

static void page_add_work(const struct cw_worker *w, struct cw_metrics *m)
{
    struct cw_work work = {0};
    cw_work_add_all(&work, &w->streams.work);
    for (const struct cw_worker_stream *s = w->streams.list; s; s = s->next)
        cw_stream_add_work(s->stream, &work);
    cw_metrics_family(m, CW_METRIC_COUNTER, "worker_operator", "seconds",
                      "Computing time by operator, summed over threads.");
    for (size_t i = 0; i < work.n; i++)
        cw_metrics_add(m, (double)work.ops[i].ns / 1e9, "operator", work.ops[i].name, NULL);
    cw_metrics_family(m, CW_METRIC_COUNTER, "worker_operator_elements", NULL,
                      "Elements that entered an operator.");
    for (size_t i = 0; i < work.n; i++)
        cw_metrics_add(m, (double)work.ops[i].rows, "operator", work.ops[i].name, NULL);
    cw_metrics_list(
        m, (const struct cw_metric_row[]){
               {CW_METRIC_COUNTER, "worker_read", "seconds", (double)work.read_ns / 1e9,
                "Time spent reading files, summed over threads."},
               {CW_METRIC_COUNTER, "worker_read", "bytes", (double)work.read_bytes, "Bytes read from files."},
               {0},
           });
    cw_work_deinit(&work);
}

/* Adds the metrics of the cache. Without a cache all values are 0. */
static void page_add_cache(const struct cw_worker *w, struct cw_metrics *m)
{
    struct cw_cache_facts f = {0};
    if (w->cache)
        cw_cache_facts(w->cache, &f);
    cw_metrics_list(
        m,
        (const struct cw_metric_row[]){
            {CW_METRIC_GAUGE, "worker_cache_used", "bytes", (double)f.used,
             "Size of all files in the cache directory when the worker opened it or last needed room."},
            {CW_METRIC_GAUGE, "worker_cache_limit", "bytes", w->cache ? (double)cw_cache_quota(w->cache) : 0,
             "Size limit of the cache directory; 0 without a cache."},
            {CW_METRIC_COUNTER, "worker_cache_hits", NULL, (double)f.hits, "Elements read from the cache."},
            {CW_METRIC_COUNTER, "worker_cache_misses", NULL, (double)f.misses,
             "Elements that were not in the cache, and were computed instead."},
            {CW_METRIC_COUNTER, "worker_cache_bad", NULL, (double)(f.bad + f.gone),
             "Cache entries that were damaged or missing when they were read."},
            {CW_METRIC_COUNTER, "worker_cache_late", NULL, (double)f.late,
             "Cached elements that were computed instead of read, because storage was too slow."},
            {CW_METRIC_COUNTER, "worker_cache_refused", NULL, (double)f.refused,
             "Elements not written to the cache, because it had no room or the disk failed."},
            {CW_METRIC_COUNTER, "worker_cache_skipped", NULL, (double)f.skipped,
             "Elements not written to the cache, because the disk was too slow."},
            {CW_METRIC_COUNTER, "worker_cache_read", "bytes", (double)f.bytes_read,
             "Bytes read from the cache."},
            {CW_METRIC_COUNTER, "worker_cache_written", "bytes", (double)f.bytes_written,
             "Bytes written to the cache."},
            {0},
        });
}

static void page_metrics(struct cw_worker *w, struct cw_text *text)
{
    struct cw_metrics m = {.text = text};
    const struct cw_worker_status *s = &w->status;
    cw_status_update(w); /* the memory in use changes with every block that is computed */
    cw_metrics_list(
        &m,
        (const struct cw_metric_row[]){
            {CW_METRIC_GAUGE, "worker_uptime", "seconds", (double)(cw_now_ns() - w->common.started_ns) / 1e9,
             "Time since the worker started."},
            {CW_METRIC_GAUGE, "worker_registered", NULL, s->registered,
             "1: the worker is registered with its dispatcher; 0: it is trying to connect."},
            {CW_METRIC_GAUGE, "worker_draining", NULL, s->draining,
             "1: the worker is draining and accepts no more ranges."},
            {CW_METRIC_GAUGE, "worker_streams", NULL, (double)s->n_streams,
             "Streams that the worker has open."},
            {CW_METRIC_GAUGE, "worker_leases", NULL, (double)s->n_leases,
             "Ranges that are leased to the worker, finished or not."},
            {CW_METRIC_GAUGE, "worker_clients", NULL, (double)s->n_clients, "Connections of clients."},
            {CW_METRIC_GAUGE, "worker_batches_out", NULL, (double)s->n_out,
             "Batches on their way to clients, or in shared memory that clients use."},
            {CW_METRIC_GAUGE, "worker_completions_unacknowledged", NULL, (double)s->n_reports,
             "Finished ranges that the dispatcher has not acknowledged yet."},
            {CW_METRIC_GAUGE, "worker_memory_used", "bytes", (double)s->memory_used,
             "Memory of batches, including batches that clients hold in shared memory, and memory used to "
             "compute them."},
            {CW_METRIC_GAUGE, "worker_memory_limit", "bytes", (double)w->common.options.memory,
             "Limit of the worker's memory for batches (--memory)."},
            {CW_METRIC_COUNTER, "worker_sent_batches", NULL, (double)s->n_batches,
             "Batches, or parts of batches, given to clients."},
            {CW_METRIC_COUNTER, "worker_sent", "bytes", (double)s->n_bytes,
             "Uncompressed bytes of batches given to clients, over connections or in shared memory."},
            {CW_METRIC_COUNTER, "worker_wire", "bytes", (double)cw_clients_wire_bytes(&w->clients),
             "Bytes of payloads sent over connections; less than the bytes of batches if shared memory or "
             "compression is used."},
            {0},
        });
    cw_metrics_family(&m, CW_METRIC_COUNTER, "worker_quarantined_records", NULL,
                      "Records that were skipped or replaced in batches given to clients, because they "
                      "could not be read or computed.");
    cw_metrics_add(&m, (double)w->clients.stats.n_skipped, "action", "skipped", NULL);
    cw_metrics_add(&m, (double)w->clients.stats.n_replaced, "action", "replaced", NULL);
    cw_metrics_list(
        &m, (const struct cw_metric_row[]){
                {CW_METRIC_COUNTER, "worker_cpu", "seconds", (double)cw_status_cpu_ns() / 1e9,
                 "CPU time, user and system, of the process and its host processes of Python functions."},
                {CW_METRIC_GAUGE, "worker_threads", NULL, w->common.options.threads,
                 "Compute threads of each stream."},
                {0},
            });
    page_add_work(w, &m);
    page_add_cache(w, &m);
}

/* ---- pages ---- */

/* Writes a JSON value as the reply, and drops its reference. o NULL: out of memory, status 503. */
static void page_put_json(struct cw_http_reply *reply, json_t *o)
{
    _cleanup_free_ char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) {
        reply->status = 503;
        return;
    }
    reply->type = "application/json";
    cw_text_add(&reply->body, "%s\n", text);
}

static void page_status(struct cw_worker *w, struct cw_http_reply *reply)
{
    const struct cw_worker_status *s = &w->status; /* only this thread, the loop's, writes it */
    cw_status_update(w);
    json_t *o = json_pack(
        "{s:s, s:s, s:i, s:I, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "role",
        "worker", "software", "cachew " CACHEW_VERSION, "pid", (int)getpid(), "id", (json_int_t)s->id,
        "registered", s->registered, "draining", s->draining, "streams", (json_int_t)s->n_streams, "leases",
        (json_int_t)s->n_leases, "clients", (json_int_t)s->n_clients, "batches_out", (json_int_t)s->n_out,
        "completions_unacknowledged", (json_int_t)s->n_reports, "memory_in_use", (json_int_t)s->memory_used,
        "memory", (json_int_t)w->common.options.memory, "batches", (json_int_t)s->n_batches, "bytes",
        (json_int_t)s->n_bytes, "cpu_s", (double)cw_status_cpu_ns() / 1e9, "uptime_s",
        (double)(cw_now_ns() - w->common.started_ns) / 1e9);
    page_put_json(reply, o);
}

void cw_worker_page(void *user, const char *path, const char *query CW_UNUSED, struct cw_http_reply *reply)
{
    struct cw_worker *w = user;
    if (strcmp(path, "/metrics") == 0) {
        reply->type = CW_METRICS_TYPE;
        page_metrics(w, &reply->body);
    } else if (strcmp(path, "/healthz") == 0) { /* a worker that answers is healthy */
        cw_text_add(&reply->body, "ok\n");
    } else if (strcmp(path, "/readyz") == 0) {
        if (w->uplink.state != CW_UPLINK_REGISTERED || w->common.draining)
            reply->status = 503;
        cw_text_add(&reply->body, "%s\n",
                    w->common.draining                        ? "draining"
                    : w->uplink.state == CW_UPLINK_REGISTERED ? "ready"
                                                              : "the dispatcher has not answered");
    } else if (strcmp(path, "/api/v1/status") == 0) {
        page_status(w, reply);
    } else if (strcmp(path, "/api/v1/tuning") == 0) {
        page_put_json(reply, cw_tuning_status(w));
    } else {
        reply->status = 404;
        cw_text_add(&reply->body, "expected /metrics, /healthz, /readyz, /api/v1/status or /api/v1/tuning\n");
    }
}
