/* The addresses at which a worker is tried, one after the other. Links (link.c) and the origin of a stream
 * (service/worker/origin.c) have one of these for each worker. */
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
/* Accepts zeros, and leaves zeros. */
void cw_addresses_deinit(struct cw_addresses *a);
bool cw_addresses_same(const struct cw_addresses *a, const struct cw_addresses *b);
/* Returns the address of an attempt; NULL: the worker has none. */
const char *cw_addresses_try(const struct cw_addresses *a, size_t attempt);
bool cw_address_is_local(const char *address); /* a Unix socket. May be NULL */
