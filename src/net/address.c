/* Parsing, resolving and printing of addresses. */
#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int address_refuse(const char *text, const char *expected, struct cw_error *err)
{
    return cw_error_value(err, CW_E_OPTION, "address", text, expected, "the address \"%.200s\": expected %s",
                          text, expected);
}

static int address_parse_port(const char *text, const char *port, struct cw_address *ret,
                              struct cw_error *err)
{
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || digits > 5 || port[digits] || strtoul(port, NULL, 10) > 65535)
        return address_refuse(text, "a port from 0 to 65535 after the last colon", err);
    snprintf(ret->port, sizeof(ret->port), "%lu", strtoul(port, NULL, 10));
    return 0;
}

int cw_address_parse(const char *text, struct cw_address *ret, struct cw_error *err)
{
    *ret = (struct cw_address){0};
    if (strncmp(text, "unix:", 5) == 0) {
        size_t size = strlen(text + 5);
        if (size == 0 || size >= sizeof(ret->path))
            return address_refuse(text, "a path of 1 to 107 bytes after \"unix:\"", err);
        ret->local = true;
        memcpy(ret->path, text + 5, size + 1);
        return 0;
    }
    const char *host = text, *end = strrchr(text, ':'), *port = end ? end + 1 : NULL;
    if (text[0] == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (!end || end[1] != ':')
            return address_refuse(text, "[IPV6]:PORT", err);
        port = end + 2;
    } else if (!end) {
        return address_refuse(text, "HOST:PORT, [IPV6]:PORT or unix:PATH", err);
    } else if (memchr(host, ':', (size_t)(end - host))) {
        return address_refuse(text, "an IPv6 address in brackets: [IPV6]:PORT", err);
    }
    size_t size = (size_t)(end - host);
    if (size == 0 || size >= sizeof(ret->host))
        return address_refuse(text, "a host of 1 to 255 bytes before the port", err);
    memcpy(ret->host, host, size);
    return address_parse_port(text, port, ret, err);
}

int cw_address_unresolved(const struct cw_address *a, const char *why, struct cw_error *err)
{
    return cw_error_value(err, CW_E_SERVICE, "host", a->host, "a name or an address",
                          "the host \"%s\" can't be resolved: %s", a->host, why);
}

int cw_address_resolve(const struct cw_address *a, int flags, struct addrinfo **ret, struct cw_error *err)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    int r = getaddrinfo(a->host, a->port, &hints, ret);
    if (r == EAI_NONAME && flags & AI_NUMERICHOST)
        return 1;
    if (r == EAI_MEMORY)
        return cw_error_nomem(err, 0, "resolving a host");
    return r ? cw_address_unresolved(a, gai_strerror(r), err) : 0;
}

static bool sockaddr_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    if (a->sa_family != AF_INET6)
        return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

int cw_address_is_loopback(const struct cw_address *a, bool *ret, struct cw_error *err)
{
    struct addrinfo *list;
    bool all = true;
    if (!a->local) {
        int r = cw_address_resolve(a, 0, &list, err);
        if (r < 0)
            return r;
        for (struct addrinfo *i = list; i; i = i->ai_next)
            all = all && sockaddr_is_loopback(i->ai_addr);
        freeaddrinfo(list);
    }
    *ret = all;
    return 0;
}

void cw_address_print(const char *host, unsigned port, char *ret, size_t size)
{
    snprintf(ret, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
}

void cw_address_print_socket(const struct sockaddr *a, socklen_t size, char *ret, size_t ret_size)
{
    char host[INET6_ADDRSTRLEN + 20], port[8]; /* host: with the name of an interface (%eth0) */
    if (getnameinfo(a, size, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(ret, ret_size, "an address of family %d", a->sa_family);
    else
        cw_address_print(host, (unsigned)strtoul(port, NULL, 10), ret, ret_size);
}
