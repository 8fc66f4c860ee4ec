/* Reads and hashes files on whose content results depend. Called when a pipeline is parsed and bound. */
#include "pipeline/content.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "storage/file.h"

static void content_member(const char *name, char member[80])
{
    snprintf(member, 80, "%.60s.content", name);
}

const char *cw_content_hash(const json_t *attrs, const char *name)
{
    char member[80];
    content_member(name, member);
    return json_string_value(json_object_get(attrs, member));
}

static char *content_path(const struct cw_pipeline *p, const char *path)
{
    _cleanup_free_ char *home = NULL;
    char *whole = NULL;
    if (cw_path_home(p->base_dir, path, false, &home, NULL) < 0)
        return NULL;
    if (*home == '/')
        return CW_STEAL(home);
    return asprintf(&whole, "%s/%s", p->base_dir, home) < 0 ? NULL : whole;
}

static int content_error(const struct cw_op_desc *desc, const char *name, const char *value, const char *why,
                         struct cw_error *err)
{
    cw_error_op(err, desc->name);
    cw_error_file(err, value);
    return cw_error_value(err, CW_E_PIPELINE, name, value, "the path of a file that can be read",
                          "%s: %s is \"%.200s\": expected the path of a file that can be read: %s",
                          desc->name, name, value, why);
}

static int content_load(const struct cw_pipeline *p, const struct cw_op_desc *desc, const char *name,
                        const char *value, char **ret, size_t *ret_size, char hash[33], struct cw_error *err)
{
    struct cw_error why = {0};
    struct stat st;
    _cleanup_free_ char *path = content_path(p, value);
    if (!path)
        return cw_error_nomem(err, 0, "a path");
    int r = cw_path_check(path, p->data_roots, p->n_data_roots, err);
    if (r < 0)
        return r;
    if (stat(path, &st) < 0)
        return content_error(desc, name, value, strerror(errno), err);
    if (!S_ISREG(st.st_mode)) /* reading a pipe could wait for ever */
        return content_error(desc, name, value, "it is not a regular file", err);
    r = cw_read_file(path, CW_CONTENT_MOST, ret, ret_size, &why);
    if (r < 0)
        return r == CW_E_MEMORY ? cw_error_copy(err, &why)
                                : content_error(desc, name, value, why.message, err);
    XXH128_hash_t h = XXH3_128bits(*ret, *ret_size);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    return 0;
}

int cw_content_note(const struct cw_pipeline *p, const struct cw_op_desc *desc, const char *name,
                    json_t *attrs, struct cw_error *err)
{
    const char *value = json_string_value(json_object_get(attrs, name));
    _cleanup_free_ char *content = NULL;
    char hash[33], member[80];
    size_t size;
    int r = content_load(p, desc, name, value, &content, &size, hash, err);
    if (r < 0)
        return r;
    content_member(name, member);
    return json_object_set_new(attrs, member, json_string(hash)) < 0 ? cw_error_nomem(err, 0, "attributes")
                                                                     : 0;
}

int cw_content_read(const struct cw_pipeline *p, const struct cw_op *op, const char *name, char **ret,
                    size_t *ret_size, struct cw_error *err)
{
    const char *value = cw_attr_string(op, name);
    _cleanup_free_ char *content = NULL;
    char hash[33];
    int r = content_load(p, op->desc, name, value, &content, ret_size, hash, err);
    if (r >= 0 && strcmp(hash, cw_content_hash(op->attrs, name)) != 0)
        r = content_error(op->desc, name, value, "it has changed since the pipeline was made", err);
    if (r >= 0)
        *ret = CW_STEAL(content);
    return r < 0 ? r : 0;
}
