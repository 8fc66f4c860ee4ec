/* The addresses of a worker, which are tried one after the other. Connections to workers have one of these
 * each: links (link.c), and the connection to a stream's origin (service/worker/origin.c). */
#pragma once
#include <stdbool.h>

#include "base/error.h"
#include "proto/cachew.pb-c.h"

struct cw_addresses {
    char **list;
    size_t n;
};

/* Lists the addresses of a worker: its Unix socket (if local), then those over TCP (if tcp). */
int cw_addresses_init(struct cw_addresses *a, const Cachew__WorkerAddress *m, bool local, bool tcp,
                      struct cw_error *err) _must_check_;
/* Frees the list, and sets *a to all zeros. Accepts all zeros. */
void cw_addresses_deinit(struct cw_addresses *a);
bool cw_addresses_same(const struct cw_addresses *a, const struct cw_addresses *b);
/* Returns the address for attempt number `attempt`, which goes round the list; NULL: the worker has no
 * address. */
const char *cw_addresses_try(const struct cw_addresses *a, size_t attempt);
bool cw_address_is_local(const char *address); /* whether it is a Unix socket. May be NULL */
