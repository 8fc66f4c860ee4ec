/* Answers HTTP requests: files of the dashboard, metrics, health, and queries. */
#include "service/dispatcher/pages.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "service/dispatcher/core.h"
#include "service/dispatcher/web.h"
#include "net/metrics.h"

/* Only histories have a query, their range; that of other pages is ignored. */
static void page_query(struct cw_dispatcher *d, const char *path, const char *query,
                       struct cw_http_reply *reply)
{
    struct cw_error err = {0};
    _cleanup_free_ char *json = NULL, *what = NULL;
    const char *last = strrchr(path, '/');
    bool ranged = *query && last && strcmp(last, "/history") == 0;
    int r = asprintf(&what, "%s%s%s", path, ranged ? "?" : "", ranged ? query : "");
    if (r < 0) {
        what = NULL;
        r = cw_error_nomem(&err, 0, "a query");
    } else {
        r = cw_dispatcher_query(d, what, cw_now_ns(), &json, &err);
    }
    if (r < 0) {
        reply->status = r == CW_E_OPTION ? 404 : 503;
        cw_text_add(&reply->body, "%s\n", err.message);
        return;
    }
    reply->type = "application/json";
    cw_text_add(&reply->body, "%s\n", json);
}

/* Returns a file of the dashboard. NULL: the dashboard has no file with this path. */
static const struct cw_web_file *page_find_file(const char *path)
{
    for (size_t i = 0; i < cw_n_web_files; i++)
        if (strcmp(cw_web_files[i].path, path) == 0)
            return &cw_web_files[i];
    return NULL;
}

void cw_dispatcher_page(void *user, const char *path, const char *query, struct cw_http_reply *reply)
{
    static const char prefix[] = "/api/v1/";
    struct cw_dispatcher *d = user;
    struct cw_error why = {0};
    const struct cw_web_file *file = page_find_file(path);
    if (file) {
        reply->type = file->type;
        cw_text_add(&reply->body, "%.*s", (int)file->size, (const char *)file->data);
    } else if (strcmp(path, "/metrics") == 0) {
        reply->type = CW_METRICS_TYPE;
        cw_dispatcher_metrics(d, cw_now_ns(), &reply->body);
    } else if (strcmp(path, "/healthz") == 0) { /* a dispatcher that answers works */
        cw_text_add(&reply->body, "ok\n");
    } else if (strcmp(path, "/readyz") == 0) {
        if (cw_dispatcher_ready(d, &why) < 0)
            reply->status = 503;
        cw_text_add(&reply->body, "%s\n", why.status ? why.message : "ready");
    } else if (strncmp(path, prefix, strlen(prefix)) == 0) {
        page_query(d, path + strlen(prefix), query, reply);
    } else {
        reply->status = 404;
        cw_text_add(&reply->body, "expected / (the dashboard), /metrics, /healthz, /readyz, /api/v1/status, "
                                  "/api/v1/jobs, /api/v1/jobs/NAME/decisions, /api/v1/jobs/NAME/history, "
                                  "/api/v1/workers, /api/v1/workers/ID/history, /api/v1/streams, "
                                  "/api/v1/pools or /api/v1/targets\n");
    }
}
