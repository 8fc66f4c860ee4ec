/* Tuning records: values that a worker adjusts by itself, in the runners of its streams and on its
 * connections to clients. The loop's thread only. */
#include "service/worker/tuning.h"

#include <stdio.h>

#include "service/worker/worker_impl.h"
#include "session/tuning.h"

static void tuning_hex(const uint8_t name[16], char ret[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(ret + (size_t)(2 * i), 3, "%02x", name[i]);
}

static void tuning_log_one(const struct cw_worker_common *c, const char *stream, const struct cw_tuned *t)
{
    struct cw_text line = {0};
    cw_tuned_line(t, &line);
    if (!line.failed)
        cw_common_log(c, "stream %s (a pipeline with its data): %s", stream, line.data);
    cw_text_deinit(&line);
}

void cw_tuning_log(struct cw_worker *w)
{
    for (struct cw_worker_stream *s = w->streams.list; s; s = s->next) {
        struct cw_tuned_log log = {0};
        char stream[33];
        cw_stream_tuned(s->stream, &log);
        tuning_hex(s->stream->name, stream);
        for (unsigned i = 0; i < log.n; i++)
            if (log.last[i].n > 2 * s->n_logged[i]) {
                tuning_log_one(&w->common, stream, &log.last[i]);
                s->n_logged[i] = log.last[i].n;
            }
    }
}

/* Appends {KEY: name, "tuning": log} to a list. */
static void tuning_append(const struct cw_worker *w, json_t *list, const char *key, const uint8_t name[16],
                          const struct cw_tuned_log *log)
{
    char hex[33];
    tuning_hex(name, hex);
    json_array_append_new(
        list, json_pack("{s:s, s:o}", key, hex, "tuning", cw_tuned_log_json(log, w->common.started_ns)));
}

json_t *cw_tuning_status(const struct cw_worker *w)
{
    json_t *streams = json_array(), *clients = json_array();
    for (const struct cw_worker_stream *s = w->streams.list; s; s = s->next) {
        struct cw_tuned_log log = {0};
        cw_stream_tuned(s->stream, &log);
        tuning_append(w, streams, "stream", s->stream->name, &log);
    }
    for (const struct cw_client *c = w->clients.list; c; c = c->next) {
        struct cw_tuned_log log = {0};
        if (cw_conn_tuned(c->conn)->what)
            cw_tuned_add(&log, cw_conn_tuned(c->conn));
        tuning_append(w, clients, "client", c->incarnation, &log);
    }
    return json_pack("{s:o, s:o}", "streams", streams, "clients", clients);
}
