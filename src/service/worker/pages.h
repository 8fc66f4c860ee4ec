/* What a worker answers over HTTP: metrics, health, status. */
#pragma once
#include "net/http.h"

/* A cw_http_handler; user is the struct cw_worker. The loop's thread. */
void cw_worker_page(void *user, const char *path, const char *query, struct cw_http_reply *reply);
