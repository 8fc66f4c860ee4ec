/* What runs measured of a set, kept beside it for those that come later: a small text that the store does not look into. */
#include <stdio.h>
#include <string.h>

#include "cache/internal.h"
#include "storage/file.h"

#define PROFILE "profile.json"
#define PROFILE_BYTES ((size_t)4 << 10)

char *cw_cache_profile(const struct cw_cache *c, struct cw_hash128 key)
{
    _cleanup_free_ char *path = NULL;
    char name[33], *text = NULL;
    cw_hash128_print(key, name);
    if (asprintf(&path, "%s/%s/" PROFILE, c->dir, name) < 0) {
        path = NULL;
        return NULL;
    }
    FILE *f = fopen(path, "re");
    if (f && (text = malloc(PROFILE_BYTES + 1)))
        text[fread(text, 1, PROFILE_BYTES, f)] = '\0';
    if (f)
        fclose(f);
    return text;
}

void cw_cache_set_put_profile(const struct cw_cache_set *s, const char *text)
{
    _cleanup_free_ char *path = NULL;
    struct cw_error ignored = {0};
    if (atomic_load(&s->cache->readers.stuck)) /* nor would it be written */
        return;
    if (asprintf(&path, "%s/" PROFILE, s->dir) < 0) {
        path = NULL;
        return;
    }
    (void)!cw_put(path, text, strlen(text), &ignored); /* a full disk: those that come later measure themselves */
}
