/* Makes the URL of an address. Keeps the regions of buckets that servers have named. Any thread. */
#include "objects/location.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/thread.h"
#include "objects/hub.h"

#define S3_DEFAULT_REGION "us-east-1"
#define GS_ENDPOINT "https://storage.googleapis.com"

/* Regions of buckets, learned from servers: a few buckets are in use at a time, and the oldest is forgotten.
 */
#define MOST_BUCKETS 16

static struct {
    pthread_mutex_t mutex;

    struct {
        char bucket[128], region[64];
    } known[MOST_BUCKETS];

    unsigned next;
} regions = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool cw_location_learn_region(const char *bucket, const char *region)
{
    CW_GUARD(&regions.mutex);
    for (unsigned i = 0; i < MOST_BUCKETS; i++)
        if (strcmp(regions.known[i].bucket, bucket) == 0) {
            bool news = strcmp(regions.known[i].region, region) != 0;
            snprintf(regions.known[i].region, sizeof(regions.known[i].region), "%s", region);
            return news;
        }
    unsigned at = regions.next++ % MOST_BUCKETS;
    snprintf(regions.known[at].bucket, sizeof(regions.known[at].bucket), "%s", bucket);
    snprintf(regions.known[at].region, sizeof(regions.known[at].region), "%s", region);
    return true;
}

static bool location_known_region(const char *bucket, char *ret, size_t size)
{
    CW_GUARD(&regions.mutex);
    for (unsigned i = 0; i < MOST_BUCKETS; i++)
        if (*bucket && strcmp(regions.known[i].bucket, bucket) == 0) {
            snprintf(ret, size, "%s", regions.known[i].region);
            return true;
        }
    return false;
}

void cw_location_encode(struct cw_text *to, const char *text, bool slash)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    while (*text) {
        size_t n = strspn(text, plain);
        if (n > 0)
            cw_text_add(to, "%.*s", (int)n, text);
        else
            cw_text_add(to, slash && *text == '/' ? "/" : "%%%02X", (unsigned char)*text);
        text += n > 0 ? n : 1;
    }
}

void cw_location_deinit(struct cw_location *l)
{
    free(l->url);
    free(l->credentials.token);
    free(l->bearer);
    *l = (struct cw_location){0};
}

/* Reads an environment variable of up to size - 1 bytes; the first that is set counts. */
static bool location_env(const char *const names[2], char *ret, size_t size)
{
    for (unsigned i = 0; i < 2; i++) {
        const char *text = getenv(names[i]);
        if (text && *text)
            return snprintf(ret, size, "%s", text) < (int)size;
    }
    return false;
}

/* Stores the endpoint, without a slash at its end; "" stands for AWS. */
static int location_endpoint(const char *address, struct cw_location *l, struct cw_error *err)
{
    static const char *const endpoints[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"};
    static const char *const areas[] = {"AWS_REGION", "AWS_DEFAULT_REGION"};
    bool gs = strncmp(address, "gs:", 3) == 0;
    if (!location_env(endpoints, l->endpoint, sizeof(l->endpoint)) &&
        !cw_credentials_setting("endpoint_url", l->endpoint, sizeof(l->endpoint)))
        snprintf(l->endpoint, sizeof(l->endpoint), "%s", gs ? GS_ENDPOINT : "");
    if (!location_known_region(l->bucket, l->region, sizeof(l->region)) &&
        !location_env(areas, l->region, sizeof(l->region)) &&
        !cw_credentials_setting("region", l->region, sizeof(l->region)))
        snprintf(l->region, sizeof(l->region), "%s", gs ? "auto" : S3_DEFAULT_REGION);
    size_t n = strlen(l->endpoint);
    while (n > 0 && l->endpoint[n - 1] == '/')
        l->endpoint[--n] = '\0';
    if (n > 0 && strncmp(l->endpoint, "http://", 7) != 0 && strncmp(l->endpoint, "https://", 8) != 0)
        return cw_error_value(err, CW_E_PIPELINE, "AWS_ENDPOINT_URL", l->endpoint, "http:// or https://",
                              "the endpoint \"%.100s\" (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or the "
                              "profile's endpoint_url): expected a URL that begins with http:// or https://",
                              l->endpoint);
    return 0;
}

/* Adds the URL of a key, or of a listing of the bucket. A bucket of AWS is a part of the host's name, unless
 * its own name has a dot, which the server's certificate does not cover. */
static void location_object_url(struct cw_location *l, const char *key, const char *query,
                                struct cw_text *url)
{
    bool own_host = !*l->endpoint && !strchr(l->bucket, '.');
    if (!*l->endpoint)
        snprintf(l->endpoint, sizeof(l->endpoint), "https://s3.%s.amazonaws.com", l->region);
    if (own_host)
        cw_text_add(url, "https://%s.s3.%s.amazonaws.com/", l->bucket, l->region);
    else
        cw_text_add(url, "%s/%s%s", l->endpoint, l->bucket, query ? "" : "/");
    if (query)
        cw_text_add(url, "?%s", query);
    else
        cw_location_encode(url, key, true);
}

int cw_location_find(const char *address, const char *query, struct cw_location *ret, struct cw_error *err)
{
    bool hub = cw_hub_is_address(address);
    struct cw_location l = {.object_storage = !hub && cw_object_is_listed(address)};
    _cleanup_(cw_text_deinit) struct cw_text url = {0};
    int r = 0;
    if (hub) {
        r = cw_hub_location(address, query, &l, &url, err);
    } else if (l.object_storage) {
        const char *bucket = strstr(address, "://") + 3;
        size_t n = strcspn(bucket, "/");
        if (n == 0 || n >= sizeof(l.bucket))
            return cw_error_value(err, CW_E_PIPELINE, NULL, address, "s3://BUCKET/KEY",
                                  "%.300s: expected the name of a bucket, as in s3://BUCKET/KEY", address);
        snprintf(l.bucket, sizeof(l.bucket), "%.*s", (int)n, bucket);
        r = location_endpoint(address, &l, err);
        if (r == 0)
            r = cw_credentials_find(&l.credentials, err);
        if (r == 0)
            location_object_url(&l, bucket + n + (bucket[n] == '/'), query, &url);
    } else {
        cw_text_add(&url, "%.*s", (int)strcspn(address, "#"), address);
    }
    if (r == 0 && (url.failed || !(l.url = strdup(url.data))))
        r = cw_error_nomem(err, url.size, "an address");
    if (r < 0) {
        cw_error_file(err, address);
        cw_location_deinit(&l);
        return r;
    }
    *ret = l;
    return 0;
}
