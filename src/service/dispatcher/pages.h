/* What a dispatcher answers over HTTP: the dashboard, metrics, health, and queries as JSON. */
#pragma once
#include "net/http.h"

/* A cw_http_handler. user is the struct cw_dispatcher. */
void cw_dispatcher_page(void *user, const char *path, const char *query, struct cw_http_reply *reply);
