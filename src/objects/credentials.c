/*
 * Credentials and settings for object storage, from the environment and from the files of a profile
 * (~/.aws/credentials, ~/.aws/config). The files are read again once they are READ_AGAIN_NS old, because
 * sessions end. Any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "objects/location.h"

#define READ_AGAIN_NS UINT64_C(10000000000)

/* What the files say about the profile. */
static struct profile {
    char name[128];
    char key[160], secret[256], region[64], endpoint[256], endpoint_s3[256];
    char token[4096];
    char file[200];   /* that has the key */
    bool exists;      /* a file has the profile */
    uint64_t read_ns; /* when the files were read; 0: never */
} profile;

static pthread_mutex_t profile_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards `profile` */

static const char *env_text(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Cuts white space at both ends. */
static char *text_trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        text[--n] = '\0';
    return text;
}

static void profile_set(struct profile *p, const char *name, const char *value, const char *file)
{
    const struct {
        const char *name;
        char *to;
        size_t size;
    } fields[] = {
        {"aws_access_key_id", p->key, sizeof(p->key)},
        {"aws_secret_access_key", p->secret, sizeof(p->secret)},
        {"aws_session_token", p->token, sizeof(p->token)},
        {"region", p->region, sizeof(p->region)},
        {"endpoint_url", p->endpoint, sizeof(p->endpoint)},
    };

    for (size_t i = 0; i < CW_COUNT_OF(fields); i++)
        if (strcmp(fields[i].name, name) == 0 && !*fields[i].to && strlen(value) < fields[i].size)
            snprintf(fields[i].to, fields[i].size, "%s", value);
    if (strcmp(name, "aws_access_key_id") == 0 && !*p->file)
        snprintf(p->file, sizeof(p->file), "%s", file);
}

/* Reads what a file says about the profile. Values that an earlier file gave stay. A nested line ("s3 =" and
 * lines that begin with white space behind it) may have an endpoint_url. */
static void profile_read_file(struct profile *p, const char *path, bool config)
{
    char line[4600], section[160];
    bool mine = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (config && strcmp(p->name, "default") != 0)
        snprintf(section, sizeof(section), "profile %s", p->name);
    else
        snprintf(section, sizeof(section), "%s", p->name);
    while (fgets(line, sizeof(line), f)) {
        bool nested = line[0] == ' ' || line[0] == '\t';
        char *text = text_trim(line), *equals;
        if (*text == '#' || *text == ';' || !*text)
            continue;
        if (*text == '[') {
            char *end = strchr(text, ']');
            if (end)
                *end = '\0';
            mine = strcmp(text_trim(text + 1), section) == 0;
            p->exists |= mine;
        } else if (mine && (equals = strchr(text, '='))) {
            *equals = '\0';
            char *name = text_trim(text), *value = text_trim(equals + 1);
            if (nested && strcmp(name, "endpoint_url") == 0 && strlen(value) < sizeof(p->endpoint_s3))
                snprintf(p->endpoint_s3, sizeof(p->endpoint_s3), "%s", value);
            else if (!nested)
                profile_set(p, name, value, path);
        }
    }
    fclose(f);
}

/* Reads the files again if they are old. The caller holds profile_mutex. */
static void profile_refresh(void)
{
    const char *name = env_text("AWS_PROFILE"), *home = getenv("HOME");
    const char *credentials = env_text("AWS_SHARED_CREDENTIALS_FILE"), *config = env_text("AWS_CONFIG_FILE");
    char path[4096];
    name = name ? name : "default";
    if (profile.read_ns && cw_now_ns() - profile.read_ns < READ_AGAIN_NS && strcmp(profile.name, name) == 0)
        return;
    profile = (struct profile){.read_ns = cw_now_ns()};
    snprintf(profile.name, sizeof(profile.name), "%s", name);
    snprintf(path, sizeof(path), "%s/.aws/credentials", home ? home : "");
    profile_read_file(&profile, credentials ? credentials : path, false);
    snprintf(path, sizeof(path), "%s/.aws/config", home ? home : "");
    profile_read_file(&profile, config ? config : path, true);
}

bool cw_credentials_setting(const char *name, char *ret, size_t size)
{
    CW_GUARD(&profile_mutex);
    profile_refresh();
    const char *value = strcmp(name, "region") == 0 ? profile.region
                        : *profile.endpoint_s3      ? profile.endpoint_s3
                                                    : profile.endpoint;
    return *value && snprintf(ret, size, "%s", value) < (int)size;
}

static bool credentials_are_anonymous(void)
{
    const char *text = env_text("AWS_NO_SIGN_REQUEST");
    return text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0 || strcmp(text, "1") == 0);
}

static int credentials_wrong(const char *variable, const char *expected, struct cw_error *err)
{
    return cw_error_value(err, CW_E_PIPELINE, variable, "", expected,
                          "the environment variable %s: expected %s", variable, expected);
}

/* Takes key and secret of the environment or of a profile. */
static int credentials_set(struct cw_credentials *c, const char *key, const char *secret, const char *token,
                           struct cw_error *err)
{
    snprintf(c->secret, sizeof(c->secret), "%s", secret);
    c->token = token && *token ? strdup(token) : NULL;
    if (token && *token && !c->token)
        return cw_error_nomem(err, strlen(token), "credentials");
    snprintf(c->key, sizeof(c->key), "%s", key);
    return 0;
}

int cw_credentials_find(struct cw_credentials *ret, struct cw_error *err)
{
    const char *key = env_text("AWS_ACCESS_KEY_ID"), *secret = env_text("AWS_SECRET_ACCESS_KEY");
    *ret = (struct cw_credentials){0};
    if (credentials_are_anonymous()) {
        snprintf(ret->source, sizeof(ret->source), "none, because AWS_NO_SIGN_REQUEST is set");
        return 0;
    }
    if (key && !secret)
        return credentials_wrong("AWS_SECRET_ACCESS_KEY", "the secret that belongs to AWS_ACCESS_KEY_ID",
                                 err);
    if (key && (strlen(key) >= sizeof(ret->key) || strlen(secret) >= sizeof(ret->secret)))
        return credentials_wrong("AWS_ACCESS_KEY_ID",
                                 "a key of at most 159 bytes, with a secret of at most "
                                 "255 bytes",
                                 err);
    if (key) {
        snprintf(ret->source, sizeof(ret->source), "those of the environment variable AWS_ACCESS_KEY_ID");
        return credentials_set(ret, key, secret, env_text("AWS_SESSION_TOKEN"), err);
    }
    CW_GUARD(&profile_mutex);
    profile_refresh();
    if (*profile.key && *profile.secret) {
        snprintf(ret->source, sizeof(ret->source), "those of the profile %.60s in %s", profile.name,
                 profile.file);
        return credentials_set(ret, profile.key, profile.secret, profile.token, err);
    }
    if (env_text("AWS_PROFILE") && !profile.exists)
        return cw_error_value(err, CW_E_PIPELINE, "AWS_PROFILE", profile.name,
                              "the name of a profile in ~/.aws/credentials or ~/.aws/config",
                              "the environment variable AWS_PROFILE is \"%.100s\": expected the name of a "
                              "profile in ~/.aws/credentials or ~/.aws/config",
                              profile.name);
    snprintf(ret->source, sizeof(ret->source),
             "none: neither AWS_ACCESS_KEY_ID nor a profile in ~/.aws/credentials has any");
    return 0;
}
