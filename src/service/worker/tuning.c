/* What is set by itself on a worker: by the runners of its streams, and by its connections to clients. For
 * the log, and for who asks. The loop's thread. */
#include "session/tuning.h"

#include <stdio.h>

#include "service/worker/worker_impl.h"

static void hex(const uint8_t name[16], char ret[33])
{
    for (int i = 0; i < 16; i++)
        snprintf(ret + (size_t)(2 * i), 3, "%02x", name[i]);
}

static void log_one(struct cw_worker *w, const char *stream, const struct cw_tuned *t)
{
    struct cw_text line = {0};
    cw_tuned_line(t, &line);
    if (!line.failed)
        cw_worker_log(w, "stream %s: %s", stream, line.data);
    cw_text_deinit(&line);
}

/* What changes often is told less and less often. */
void cw_tuning_log(struct cw_worker *w)
{
    for (struct worker_stream *s = w->streams; s; s = s->next) {
        struct cw_tuned_log log = {0};
        char stream[33];
        cw_stream_tuned(s->stream, &log);
        hex(s->stream->name, stream);
        for (unsigned i = 0; i < log.n; i++)
            if (log.last[i].n > 2 * s->n_logged[i]) {
                log_one(w, stream, &log.last[i]);
                s->n_logged[i] = log.last[i].n;
            }
    }
}

json_t *cw_tuning_status(const struct cw_worker *w)
{
    json_t *streams = json_array(), *clients = json_array();
    char name[33];
    for (const struct worker_stream *s = w->streams; s; s = s->next) {
        struct cw_tuned_log log = {0};
        cw_stream_tuned(s->stream, &log);
        hex(s->stream->name, name);
        json_array_append_new(streams, json_pack("{s:s, s:o}", "stream", name, "tuning",
                                                 cw_tuned_log_json(&log, w->started_ns)));
    }
    for (const struct client *c = w->clients; c; c = c->next) {
        struct cw_tuned_log log = {0};
        if (!c->conn)
            continue;
        if (cw_conn_tuned(c->conn)->what)
            cw_tuned_put(&log, cw_conn_tuned(c->conn));
        hex(c->incarnation, name);
        json_array_append_new(clients, json_pack("{s:s, s:o}", "client", name, "tuning",
                                                 cw_tuned_log_json(&log, w->started_ns)));
    }
    return json_pack("{s:o, s:o}", "streams", streams, "clients", clients);
}
