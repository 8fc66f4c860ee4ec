/* The addresses of a worker, which are tried one after the other. The client's links and the worker's
 * connections use it; a caller owns its list. */
#include "remote/addresses.h"

#include <stdio.h>
#include <string.h>

int cw_addresses_init(struct cw_addresses *a, const Cachew__WorkerAddress *m, bool local, bool tcp,
                      struct cw_error *err)
{
    size_t n = (tcp ? m->n_addresses : 0) + local;
    *a = (struct cw_addresses){.list = calloc(n + 1, sizeof(*a->list))};
    for (; a->list && a->n < n; a->n++) {
        bool socket = local && a->n == 0;
        if (asprintf(&a->list[a->n], "%s%s", socket ? "unix:" : "",
                     socket ? m->unix_path : m->addresses[a->n - local]) < 0)
            break;
    }
    if (a->list && a->n == n)
        return 0;
    cw_addresses_deinit(a);
    return cw_error_nomem(err, n * sizeof(*a->list), "the addresses of a worker");
}

void cw_addresses_deinit(struct cw_addresses *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->list[i]);
    free(a->list);
    *a = (struct cw_addresses){0};
}

bool cw_addresses_same(const struct cw_addresses *a, const struct cw_addresses *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; i < a->n && same; i++)
        same = strcmp(a->list[i], b->list[i]) == 0;
    return same;
}

const char *cw_addresses_try(const struct cw_addresses *a, size_t attempt)
{
    return a->n ? a->list[attempt % a->n] : NULL;
}

bool cw_address_is_local(const char *address)
{
    return address && strncmp(address, "unix:", 5) == 0;
}
