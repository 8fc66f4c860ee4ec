/* The dispatcher's HTTP pages: the dashboard, metrics, health, and queries as JSON. */
#pragma once
#include "net/http.h"

/* A cw_http_handler: answers one request. user: the struct cw_dispatcher. Loop thread. */
void cw_dispatcher_page(void *user, const char *path, const char *query, struct cw_http_reply *reply);
