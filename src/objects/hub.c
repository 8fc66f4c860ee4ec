/* Stateless; the environment is read for each request, because tokens change. */
#include "objects/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "objects/transfer.h"

#define ENDPOINT "https://huggingface.co"
#define MOST_TOKEN 1000 /* bytes of a token */

static void hub_add_encoded(struct cw_text *to, const char *text, size_t n, bool slash)
{
    _cleanup_free_ char *part = strndup(text, n);
    if (part)
        cw_location_encode(to, part, slash);
    to->failed |= !part;
}

/* Adds the path of an address below the endpoint: "PREFIX/OWNER/NAME/WHAT/REVISION". */
static void hub_add_path(struct cw_text *to, const char *prefix, const struct cw_hub_parts *p,
                         const char *what)
{
    cw_text_add(to, "%s/", prefix);
    hub_add_encoded(to, p->repository, p->repository_size, true);
    cw_text_add(to, "/%s/", what);
    if (p->revision)
        hub_add_encoded(to, p->revision, p->revision_size, false);
    else
        cw_text_add(to, "main");
}

static const char *env_text(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Copies the token of the environment, or of the file in which the hub's tools keep it; "": there is none. */
static void hub_find_token(char token[MOST_TOKEN], char *source, size_t source_size)
{
    const char *text = env_text("HF_TOKEN"), *home = env_text("HF_HOME"), *cache = env_text("XDG_CACHE_HOME"),
               *user = env_text("HOME");
    char path[250];
    token[0] = '\0';
    if (text) {
        snprintf(token, MOST_TOKEN, "%s", text);
        snprintf(source, source_size, "that of the environment variable HF_TOKEN");
    } else {
        if (home)
            snprintf(path, sizeof(path), "%s/token", home);
        else if (cache)
            snprintf(path, sizeof(path), "%s/huggingface/token", cache);
        else
            snprintf(path, sizeof(path), "%s/.cache/huggingface/token", user ? user : "");
        FILE *f = fopen(path, "re");
        if (f && !fgets(token, MOST_TOKEN, f))
            token[0] = '\0';
        snprintf(source, source_size,
                 *token ? "that of the file %s" : "none: neither HF_TOKEN nor %s has one", path);
        if (f)
            fclose(f);
    }
    size_t begin = strspn(token, " \t\r\n"), n = strcspn(token + begin, " \t\r\n");
    memmove(token, token + begin, n);
    token[n] = '\0';
}

int cw_hub_location(const char *address, const char *page, struct cw_location *l, struct cw_text *url,
                    struct cw_error *err)
{
    struct cw_hub_parts p;
    char token[MOST_TOKEN];
    const char *endpoint = env_text("HF_ENDPOINT");
    if (!cw_hub_parse(address, &p))
        return cw_error_value(err, CW_E_PIPELINE, NULL, address, "hf://datasets/OWNER/NAME/PATH",
                              "%.300s: expected hf://datasets/OWNER/NAME/PATH, or "
                              "hf://datasets/OWNER/NAME@REVISION/PATH",
                              address);
    snprintf(l->endpoint, sizeof(l->endpoint), "%s", endpoint ? endpoint : ENDPOINT);
    size_t n = strlen(l->endpoint);
    while (n > 0 && l->endpoint[n - 1] == '/')
        l->endpoint[--n] = '\0';
    if (strncmp(l->endpoint, "http://", 7) != 0 && strncmp(l->endpoint, "https://", 8) != 0)
        return cw_error_value(
            err, CW_E_PIPELINE, "HF_ENDPOINT", l->endpoint, "http:// or https://",
            "the environment variable HF_ENDPOINT is \"%.100s\": expected a URL that begins "
            "with http:// or https://",
            l->endpoint);
    l->hub = true;
    hub_find_token(token, l->credentials.source, sizeof(l->credentials.source));
    for (const char *c = token; *c; c++)
        if (*c < '!' || *c > '~')
            return cw_error_value(err, CW_E_PIPELINE, "HF_TOKEN", "", "letters and digits",
                                  "the token for %s (%.250s) has characters that no token has", l->endpoint,
                                  l->credentials.source);
    if (*token && !(l->bearer = strdup(token)))
        return cw_error_nomem(err, strlen(token), "a token");
    cw_text_add(url, "%s", l->endpoint);
    if (page) {
        cw_text_add(url, "%s", page);
    } else {
        hub_add_path(url, "/datasets", &p, "resolve");
        cw_text_add(url, "/");
        cw_location_encode(url, p.path, true);
    }
    return 0;
}

void cw_hub_first_page(const char *prefix, bool deep, struct cw_text *page)
{
    struct cw_hub_parts p;
    if (!cw_hub_parse(prefix, &p))
        return; /* cw_hub_location says so */
    const char *slash = strrchr(p.path, '/');
    hub_add_path(page, "/api/datasets", &p, "tree");
    if (slash) {
        cw_text_add(page, "/");
        hub_add_encoded(page, p.path, (size_t)(slash - p.path), true);
    }
    cw_text_add(page, "?recursive=%s", deep ? "true" : "false");
}

static int hub_found(const char *prefix, const json_t *entry, cw_object_found *found, void *arg,
                     struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text address = {0};
    const char *type = json_string_value(json_object_get(entry, "type")),
               *path = json_string_value(json_object_get(entry, "path"));
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *oid = json_string_value(json_object_get(json_is_object(lfs) ? lfs : entry, "oid"));
    json_int_t size = json_integer_value(json_object_get(entry, "size"));
    if (!type || !path || strcmp(type, "file") != 0 || size < 0)
        return 0;
    cw_text_add(&address, "%.*s", (int)cw_hub_root_length(prefix), prefix);
    cw_text_add(&address, "%s%s", prefix[cw_hub_root_length(prefix) - 1] == '/' ? "" : "/", path);
    if (address.failed)
        return cw_error_nomem(err, address.size, "the names of files");
    if (strncmp(address.data, prefix, strlen(prefix)) != 0)
        return 0;
    struct cw_object_stat st = {.size = (uint64_t)size, .version = cw_transfer_version(oid ? oid : "", "")};
    return found(arg, address.data, &st, err);
}

int cw_hub_read_page(const char *prefix, const char *json, size_t size, cw_object_found *found, void *arg,
                     struct cw_error *err)
{
    json_t *list = json_loadb(json ? json : "", size, 0, NULL), *entry;
    size_t i;
    int r = 0;
    if (!json_is_array(list))
        r = cw_error_set(err, CW_E_IO,
                         "%.300s: the server's answer is no listing: expected the hub (does HF_ENDPOINT name "
                         "it?)",
                         prefix);
    json_array_foreach(list, i, entry)
    {
        if (r == 0)
            r = hub_found(prefix, entry, found, arg, err);
    }
    json_decref(list);
    return r;
}

void cw_hub_read_error(const char *json, size_t size, char *ret, size_t room)
{
    json_t *answer = json_loadb(json ? json : "", size, 0, NULL);
    const char *text = json_string_value(json_object_get(answer, "error"));
    ret[0] = '\0';
    if (text)
        cw_text_show(ret, room, text);
    json_decref(answer);
}
