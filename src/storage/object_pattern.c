/* The objects of a server that match a pattern. Keys are compared part by part, as the names of local
 * directories and files are. Any thread. */
#include <fnmatch.h>
#include <string.h>

#include "storage/internal.h"

#define MOST_PART 1024 /* bytes of a part of a key: the most that a key of S3 has */

/* Returns whether a name matches a part of a pattern of n bytes. */
static bool part_matches(const char *mask, size_t mask_size, const char *name, size_t name_size)
{
    char m[2 * MOST_PART + 1], s[MOST_PART + 1];
    if (mask_size >= sizeof(m) || name_size >= sizeof(s))
        return false;
    memcpy(m, mask, mask_size);
    m[mask_size] = '\0';
    memcpy(s, name, name_size);
    s[name_size] = '\0';
    return fnmatch(m, s, FNM_PERIOD) == 0;
}

/* Returns whether a key matches a pattern. "**" stands for any number of parts that do not begin with a dot;
 * at the pattern's end it stands for all that follows. */
static bool key_matches(const char *mask, const char *key)
{
    for (;;) {
        size_t n = strcspn(mask, "/"), k = strcspn(key, "/");
        if (n == 2 && memcmp(mask, "**", 2) == 0) {
            const char *rest = mask[n] ? mask + n + 1 : "*";
            for (;;) {
                if (key_matches(rest, key))
                    return true;
                if (*key == '.' || !key[strcspn(key, "/")])
                    return false;
                key += strcspn(key, "/") + 1;
            }
        }
        if (!part_matches(mask, n, key, k) || !mask[n] != !key[k])
            return false;
        if (!mask[n])
            return true;
        mask += n + 1;
        key += k + 1;
    }
}

struct matching {
    const char *mask; /* the pattern from behind the bucket on */
    size_t root;      /* bytes of an address up to there */
    struct cw_paths *found;
};

static int matching_found(void *arg, const char *address, const struct cw_object_stat *st CW_UNUSED,
                          struct cw_error *err)
{
    const struct matching *m = arg;
    return key_matches(m->mask, address + m->root) ? cw_paths_add(m->found, address, err) : 0;
}

int cw_glob_objects(const char *pattern, const char *literal, bool wild, struct cw_paths *found,
                    struct cw_error *err)
{
    struct cw_object_stat st;
    size_t root = cw_object_root_length(pattern);
    if (wild && !cw_object_is_listed(pattern))
        return cw_error_value(err, CW_E_PIPELINE, NULL, pattern, "addresses, or braces such as {000..127}",
                              "%.300s: a web server does not list its files: expected addresses of single "
                              "files, or braces such as {000..127}",
                              pattern);
    if (strlen(literal) < root || pattern[root - 1] != '/' || !pattern[root])
        return cw_error_value(err, CW_E_PIPELINE, NULL, pattern, "the address of a file, or a pattern",
                              "%.300s names no file: expected the address of a file, or a pattern below a "
                              "bucket, as in s3://BUCKET/DIRECTORY/*.tar, or a data set, as in "
                              "hf://datasets/OWNER/NAME/*.parquet",
                              pattern);
    if (!wild) {
        int r = cw_object_stat(literal, &st, err);
        return r == 0 ? cw_paths_add(found, literal, err) : r < 0 ? r : 0;
    }
    /* Of a pattern with wildcards only behind its last slash, the listing leaves out what lies deeper. */
    struct matching m = {.mask = pattern + root, .root = root, .found = found};
    bool deep = strchr(pattern + strlen(literal), '/') != NULL || strstr(pattern + root, "**") != NULL;
    return cw_object_list(literal, deep, matching_found, &m, err);
}
