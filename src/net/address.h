/* Addresses as users write them: "HOST:PORT", "[IPV6]:PORT", "unix:PATH". */
#pragma once
#include <netdb.h>
#include <sys/un.h>

#include "base/error.h"

struct cw_address {
    bool local;     /* a Unix socket */
    char host[256]; /* a name or a number, without brackets */
    char port[8];
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
};

int cw_address_parse(const char *text, struct cw_address *ret, struct cw_error *err) _must_check_;
/* Resolves host and port. flags: those of getaddrinfo. May query the network and take long, except with
 * AI_NUMERICHOST: then a result of 1 means that the host is a name. The caller frees *ret by freeaddrinfo.
 * Not for Unix sockets. */
int cw_address_resolve(const struct cw_address *a, int flags, struct addrinfo **ret,
                       struct cw_error *err) _must_check_;
/* Fills err for a host that could not be resolved. why: as getaddrinfo explains it. */
int cw_address_unresolved(const struct cw_address *a, const char *why, struct cw_error *err);
/* Sets *ret to whether only this machine can connect to the address: it is a Unix socket, or the host has
 * only loopback addresses. < 0: the host can't be resolved. */
int cw_address_is_loopback(const struct cw_address *a, bool *ret, struct cw_error *err) _must_check_;
/* Writes "HOST:PORT" or "[IPV6]:PORT". */
void cw_address_print(const char *host, unsigned port, char *ret, size_t size);
/* Writes a socket's address in this form, with a numeric host. */
void cw_address_print_socket(const struct sockaddr *a, socklen_t size, char *ret, size_t ret_size);
