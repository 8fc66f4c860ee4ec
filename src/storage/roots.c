/* Checking that a file lies below certain directories, after all links and dots are resolved. Any thread. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "objects/object.h"
#include "storage/file.h"

/* Returns whether a server could take a part of an address for a step to another directory. */
static bool address_steps_up(const char *address)
{
    for (const char *part = address; (part = strchr(part, '/'));) {
        size_t n = strcspn(++part, "/?");
        if ((n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return true;
    }
    return strcasestr(address, "%2e") || strchr(address, '\\');
}

/* Returns whether an address names a file below a root, which is an address too. */
static bool root_contains_address(const char *address, const char *root)
{
    size_t n = strlen(root);
    while (n > 0 && root[n - 1] == '/')
        n--;
    return strncmp(address, root, n) == 0 && (address[n] == '/' || address[n] == '\0') &&
           !address_steps_up(address);
}

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
    bool remote = cw_object_is_address(path);
    bool may = n_roots == 0, there = !may && !remote && root_resolve(path, real);
    for (size_t i = 0; i < n_roots && !may; i++)
        may = cw_object_is_address(roots[i]) ? remote && root_contains_address(path, roots[i])
                                             : there && root_contains(real, roots[i]);
    if (may)
        return 0;
    for (size_t i = 0, at = 0; i < n_roots && at < sizeof(list); i++)
        at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? ", " : "", roots[i]);
    return cw_error_at_file(
        err, CW_E_PIPELINE, path, 0,
        "%s lies outside the directories that pipelines may read (--data-root): expected a file below %s",
        path, list);
}
