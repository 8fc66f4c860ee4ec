/* Addresses of objects: which paths are addresses, and the parts of an address. Any thread. */
#include <string.h>

#include "base/macro.h"
#include "objects/hub.h"
#include "objects/object.h"

#define HUB "hf://"

bool cw_hub_is_address(const char *address)
{
    return strncmp(address, HUB, strlen(HUB)) == 0;
}

/* Revisions of conversions and pull requests have slashes: refs/convert/NAME, refs/pr/NUMBER. */
static size_t hub_revision_size(const char *revision)
{
    size_t n = strcspn(revision, "/");
    bool refs = strncmp(revision, "refs/convert/", 13) == 0 || strncmp(revision, "refs/pr/", 8) == 0;
    for (int k = 0; refs && k < 2 && revision[n] == '/'; k++)
        n += 1 + strcspn(revision + n + 1, "/");
    return n;
}

bool cw_hub_parse(const char *address, struct cw_hub_parts *ret)
{
    static const char kind[] = HUB "datasets/";
    if (strncmp(address, kind, strlen(kind)) != 0)
        return false;
    const char *repository = address + strlen(kind);
    size_t owner = strcspn(repository, "/@"), n = 0;
    if (repository[owner] == '/')
        n = strcspn(repository + owner + 1, "/@");
    const char *end = repository + owner + 1 + n;
    if (owner == 0 || n == 0)
        return false;
    *ret = (struct cw_hub_parts){.repository = repository, .repository_size = owner + 1 + n};
    if (*end == '@') {
        ret->revision = end + 1;
        ret->revision_size = hub_revision_size(end + 1);
        end += 1 + ret->revision_size;
        if (ret->revision_size == 0)
            return false;
    }
    ret->path = end + (*end == '/');
    return true;
}

size_t cw_hub_root_length(const char *address)
{
    struct cw_hub_parts p;
    return cw_hub_parse(address, &p) ? (size_t)(p.path - address) : 0;
}

static const struct {
    const char *scheme;
    bool listed;
} schemes[] = {{"http://", false}, {"https://", false}, {"s3://", true}, {"gs://", true}, {HUB, true}};

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
    size_t hub = cw_hub_is_address(address) ? cw_hub_root_length(address) : 0;
    if (hub > 0)
        return hub;
    size_t i = address_scheme(address), begin = i < CW_COUNT_OF(schemes) ? strlen(schemes[i].scheme) : 0;
    size_t n = begin + strcspn(address + begin, "/");
    return n + (address[n] == '/');
}
