/* Addresses of objects: which paths are addresses, and the parts of an address. Any thread. */
#include <string.h>

#include "base/macro.h"
#include "objects/object.h"

static const struct {
    const char *scheme;
    bool listed;
} schemes[] = {{"http://", false}, {"https://", false}, {"s3://", true}, {"gs://", true}};

/* Returns the number of the address's scheme; CW_COUNT_OF(schemes): it has none of them. */
static size_t address_scheme(const char *path)
{
    size_t i = 0;
    while (i < CW_COUNT_OF(schemes) && strncmp(path, schemes[i].scheme, strlen(schemes[i].scheme)) != 0)
        i++;
    return i;
}

bool cw_object_is_address(const char *path)
{
    return address_scheme(path) < CW_COUNT_OF(schemes);
}

bool cw_object_is_listed(const char *address)
{
    size_t i = address_scheme(address);
    return i < CW_COUNT_OF(schemes) && schemes[i].listed;
}

size_t cw_object_root_length(const char *address)
{
    size_t i = address_scheme(address), begin = i < CW_COUNT_OF(schemes) ? strlen(schemes[i].scheme) : 0;
    size_t n = begin + strcspn(address + begin, "/");
    return n + (address[n] == '/');
}
