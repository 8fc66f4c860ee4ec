/* Checking that a file lies below certain directories, after all links and dots are resolved. Any thread. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "storage/file.h"

static bool root_contains(const char *path, const char *root)
{
    char real[PATH_MAX];
    if (!realpath(root, real))
        return false;
    size_t n = strlen(real);
    n -= n > 0 && real[n - 1] == '/'; /* "/" itself */
    return strncmp(path, real, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* Resolves a path, or the part of it that exists. */
static bool root_resolve(const char *path, char real[PATH_MAX])
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n >= sizeof(part))
        return false;
    memcpy(part, path, n + 1);
    while (!realpath(part, real)) {
        char *slash = strrchr(part, '/');
        if (!slash)
            return realpath(".", real) != NULL;
        slash[slash == part] = '\0';
        if (slash == part)
            return realpath(part, real) != NULL;
    }
    return true;
}

int cw_path_check(const char *path, const char *const *roots, size_t n_roots, struct cw_error *err)
{
    char real[PATH_MAX], list[300] = "";
    bool may = n_roots == 0, there = !may && root_resolve(path, real);
    for (size_t i = 0; i < n_roots && there && !may; i++)
        may = root_contains(real, roots[i]);
    if (may)
        return 0;
    for (size_t i = 0, at = 0; i < n_roots && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", roots[i]);
    return cw_error_at_file(
        err, CW_E_PIPELINE, path, 0,
        "%s lies outside the directories that pipelines may read (--data-root): expected a file below %s",
        path, list);
}
