/* Signs requests to object storage: AWS Signature Version 4, as its documentation defines it, with the
 * payload unsigned, because requests that read have none. Stateless; any thread. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/macro.h"
#include "base/text.h"
#include "objects/location.h"

#define HASH_BYTES 32
#define SERVICE "s3"

static void sign_hex(const uint8_t *bytes, char ret[2 * HASH_BYTES + 1])
{
    for (size_t i = 0; i < HASH_BYTES; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static bool sign_hash(const char *text, char ret[2 * HASH_BYTES + 1])
{
    uint8_t bytes[EVP_MAX_MD_SIZE];
    if (EVP_Digest(text, strlen(text), bytes, NULL, EVP_sha256(), NULL) != 1)
        return false;
    sign_hex(bytes, ret);
    return true;
}

/* Sets `key`, of n bytes, to the HMAC of a text by that key. */
static bool sign_derive(uint8_t key[EVP_MAX_MD_SIZE], size_t *n, const char *text)
{
    uint8_t out[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (!HMAC(EVP_sha256(), key, (int)*n, (const uint8_t *)text, strlen(text), out, &size))
        return false;
    memcpy(key, out, size);
    *n = size;
    return true;
}

/* Splits a URL into host, path and query, as a request names them. */
static void sign_split(const char *url, char *host, size_t host_size, const char **path, size_t *path_size,
                       const char **query)
{
    const char *begin = strstr(url, "://") + 3, *end = begin + strcspn(begin, "/?");
    size_t n = (size_t)(end - begin);
    if (strncmp(url, "https", 5) == 0 && n > 4 && strncmp(end - 4, ":443", 4) == 0)
        n -= 4;
    else if (strncmp(url, "http:", 5) == 0 && n > 3 && strncmp(end - 3, ":80", 3) == 0)
        n -= 3;
    snprintf(host, host_size, "%.*s", (int)n, begin);
    *path = end;
    *path_size = strcspn(end, "?");
    *query = end[*path_size] ? end + *path_size + 1 : "";
}

int cw_sign(const struct cw_location *l, const char *method, int64_t at_s, struct cw_signature *ret,
            struct cw_error *err)
{
    const struct cw_credentials *c = &l->credentials;
    _cleanup_(cw_text_deinit) struct cw_text canonical = {0}, to_sign = {0};
    char host[300], day[9], hash[2 * HASH_BYTES + 1], signature[2 * HASH_BYTES + 1];
    const char *path, *query, *token = c->token;
    size_t path_size, n = 0;
    time_t t = (time_t)at_s;
    struct tm utc;
    if (!gmtime_r(&t, &utc) || strftime(ret->date, sizeof(ret->date), "%Y%m%dT%H%M%SZ", &utc) == 0)
        return cw_error_set(err, CW_E_BUG, "the time of day can't be printed");
    snprintf(day, sizeof(day), "%.8s", ret->date);
    sign_split(l->url, host, sizeof(host), &path, &path_size, &query);
    const char *names = token ? "host;x-amz-content-sha256;x-amz-date;x-amz-security-token"
                              : "host;x-amz-content-sha256;x-amz-date";
    cw_text_add(&canonical, "%s\n%.*s\n%s\nhost:%s\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:%s\n",
                method, path_size ? (int)path_size : 1, path_size ? path : "/", query, host, ret->date);
    if (token)
        cw_text_add(&canonical, "x-amz-security-token:%s\n", token);
    cw_text_add(&canonical, "\n%s\nUNSIGNED-PAYLOAD", names);
    if (canonical.failed || !sign_hash(canonical.data, hash))
        return cw_error_nomem(err, canonical.size, "a signature");
    cw_text_add(&to_sign, "AWS4-HMAC-SHA256\n%s\n%s/%s/" SERVICE "/aws4_request\n%s", ret->date, day,
                l->region, hash);
    uint8_t key[CW_MAX(EVP_MAX_MD_SIZE, sizeof(c->secret) + 4)];
    n = (size_t)snprintf((char *)key, sizeof(key), "AWS4%s", c->secret);
    bool good = !to_sign.failed && sign_derive(key, &n, day) && sign_derive(key, &n, l->region) &&
                sign_derive(key, &n, SERVICE) && sign_derive(key, &n, "aws4_request") &&
                sign_derive(key, &n, to_sign.data);
    if (!good)
        return cw_error_nomem(err, to_sign.size, "a signature");
    sign_hex(key, signature);
    snprintf(ret->authorization, sizeof(ret->authorization),
             "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s/%s/" SERVICE "/aws4_request, "
             "SignedHeaders=%s, Signature=%s",
             c->key, day, l->region, names, signature);
    return 0;
}
