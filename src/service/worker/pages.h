/* Pages of a worker over HTTP: metrics, health, status, tuning. The loop's thread; called by worker.c. */
#pragma once
#include "net/http.h"

/* A cw_http_handler; user is the struct cw_worker. */
void cw_worker_page(void *user, const char *path, const char *query, struct cw_http_reply *reply);
