/* One request and its answer: sets up libcurl's handle, takes the headers and bytes of the answer, and
 * decides what the answer means. */
#include "objects/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

#define CONNECT_MS 10000L /* a connection takes less than a second, even across the world */
/* A request that gets fewer than SLOW_BYTES per second for STALL_S seconds is repeated, with another
 * connection. */
#define SLOW_BYTES 1L
#define STALL_S 20L
#define MOST_REDIRECTS 5L
#define TEXT_MOST ((size_t)16 << 20) /* an answer of a listing has at most 1,000 keys of 1 KiB, and XML */
#define ERROR_MOST ((size_t)16 << 10)
#define BUFFER_BYTES (256L << 10)

int64_t cw_transfer_version(const char *etag, const char *modified)
{
    const char *text = *etag ? etag : modified;
    size_t n = strlen(text);
    if (strncmp(text, "W/", 2) == 0)
        text += 2, n -= 2;
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"')
        text++, n -= 2;
    return n ? (int64_t)(cw_hash64(text, n) >> 2) + 1 : 0;
}

/* ---- the answer ---- */

static bool header_is(const char *line, size_t n, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    if (n <= length || line[length] != ':' || strncasecmp(line, name, length) != 0)
        return false;
    const char *begin = line + length + 1, *end = line + n;
    while (begin < end && strchr(" \t", *begin))
        begin++;
    while (end > begin && strchr(" \t\r\n", end[-1]))
        end--;
    snprintf(value, size, "%.*s", (int)(end - begin), begin);
    return true;
}

static void exchange_forget_answer(struct cw_exchange *x)
{
    struct cw_transfer *t = x->t;
    t->status = 0;
    t->size = x->range_size = UINT64_MAX;
    t->modified[0] = t->region[0] = t->hub.code[0] = t->hub.link[0] = '\0';
    memcpy(t->etag, x->linked_etag, sizeof(t->etag));
    x->range_first = 0;
    x->retry_after_s = 0;
    cw_text_deinit(&t->body);
}

/* Keeps path and query of the link to the next page: `<https://HOST/PATH?QUERY>; rel="next"`. */
static void exchange_next_page(struct cw_transfer *t, const char *value)
{
    const char *begin = strstr(value, "://"), *end = strchr(value, '>');
    const char *path = begin ? strchr(begin + 3, '/') : NULL;
    if (path && end && path < end && strstr(end, "rel=\"next\"") && end - path < (int)sizeof(t->hub.link))
        snprintf(t->hub.link, sizeof(t->hub.link), "%.*s", (int)(end - path), path);
}

static size_t exchange_header(char *line, size_t size, size_t n, void *arg)
{
    struct cw_exchange *x = arg;
    struct cw_transfer *t = x->t;
    char value[2300];
    n *= size;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) { /* the answer of a proxy, or before a redirect, is over */
        exchange_forget_answer(x);
        const char *space = memchr(line, ' ', n);
        t->status = space ? strtol(space, NULL, 10) : 0;
    } else if (t->at.hub && header_is(line, n, "X-Linked-ETag", value, sizeof(value))) {
        snprintf(x->linked_etag, sizeof(x->linked_etag), "%.*s", (int)sizeof(x->linked_etag) - 1, value);
        memcpy(t->etag, x->linked_etag, sizeof(t->etag));
    } else if (t->at.hub && header_is(line, n, "X-Error-Code", value, sizeof(value))) {
        snprintf(t->hub.code, sizeof(t->hub.code), "%.*s", (int)sizeof(t->hub.code) - 1, value);
    } else if (t->at.hub && header_is(line, n, "Link", value, sizeof(value))) {
        exchange_next_page(t, value);
    } else if (header_is(line, n, "ETag", value, sizeof(value))) {
        if (!*x->linked_etag)
            snprintf(t->etag, sizeof(t->etag), "%.*s", (int)sizeof(t->etag) - 1, value);
    } else if (header_is(line, n, "Last-Modified", value, sizeof(value))) {
        snprintf(t->modified, sizeof(t->modified), "%.*s", (int)sizeof(t->modified) - 1, value);
    } else if (header_is(line, n, "x-amz-bucket-region", value, sizeof(value))) {
        snprintf(t->region, sizeof(t->region), "%.*s", (int)sizeof(t->region) - 1, value);
    } else if (header_is(line, n, "Content-Length", value, sizeof(value))) {
        t->size = strtoull(value, NULL, 10);
    } else if (header_is(line, n, "Retry-After", value, sizeof(value))) {
        x->retry_after_s = strtod(value, NULL);
    } else if (header_is(line, n, "Content-Range", value, sizeof(value))) {
        uint64_t last;
        if (sscanf(value, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &x->range_first, &last, &x->range_size) !=
            3)
            x->range_size = UINT64_MAX;
    }
    return n;
}

/* Checks that an answer with bytes of a range is of the right version and place. */
static enum cw_transfer_outcome exchange_check_range(struct cw_exchange *x)
{
    struct cw_transfer *t = x->t;
    int64_t version = cw_transfer_version(t->etag, t->modified);
    if (t->status == 206 && x->range_size != UINT64_MAX)
        t->size = x->range_size;
    if (t->version > 0 && version > 0 && version != t->version)
        return CW_TRANSFER_CHANGED;
    if (t->was_size != UINT64_MAX && t->size != UINT64_MAX && t->size != t->was_size &&
        (t->status == 200 || x->range_size != UINT64_MAX))
        return CW_TRANSFER_CHANGED;
    if (t->status == 200) {
        t->got = 0; /* the whole object, from its first byte on */
        return t->first == 0 ? CW_TRANSFER_DONE : CW_TRANSFER_NO_RANGES;
    }
    if (x->range_size != UINT64_MAX && x->range_first != t->first + t->got)
        return CW_TRANSFER_NO_RANGES;
    if (t->etag[0] == '"' && !*t->if_match &&
        !t->at.hub) /* a strong ETag: further requests of this transfer name it */
        memcpy(t->if_match, t->etag, sizeof(t->if_match));
    return CW_TRANSFER_DONE;
}

/* Copies bytes to the pieces of memory behind those that arrived before. */
static void transfer_store(struct cw_transfer *t, const char *data, size_t n)
{
    size_t skip = t->got;
    t->got += n;
    for (const struct iovec *v = t->v; n > 0; v++) {
        if (skip >= v->iov_len) {
            skip -= v->iov_len;
            continue;
        }
        size_t part = CW_MIN(n, v->iov_len - skip);
        memcpy((char *)v->iov_base + skip, data, part);
        data += part;
        n -= part;
        skip = 0;
    }
}

static size_t exchange_body(char *data, size_t size, size_t n, void *arg)
{
    struct cw_exchange *x = arg;
    struct cw_transfer *t = x->t;
    bool good = t->status == 200 || t->status == 206;
    n *= size;
    if (t->kind == CW_TRANSFER_RANGE && good) {
        if (!x->checked && (x->stopped = exchange_check_range(x)) != CW_TRANSFER_DONE)
            return 0;
        x->checked = true;
        size_t part = CW_MIN(n, t->length - t->got);
        transfer_store(t, data, part);
        return part; /* fewer than n: the server sends more than the range, and the rest is not needed */
    }
    size_t most = good ? TEXT_MOST : ERROR_MOST;
    if (t->body.size + n <= most)
        cw_text_add(&t->body, "%.*s", (int)n, data);
    else if (good)
        return 0;
    return n;
}

/* ---- the request ---- */

static bool exchange_add_header(struct cw_exchange *x, const char *name, const char *value)
{
    char line[4400];
    snprintf(line, sizeof(line), "%s: %s", name, value);
    struct curl_slist *longer = curl_slist_append(x->headers, line);
    x->headers = longer ? longer : x->headers;
    return longer != NULL;
}

static bool exchange_sign(struct cw_exchange *x)
{
    struct cw_transfer *t = x->t;
    struct cw_signature s;
    struct cw_error ignored = {0};
    const char *token = t->at.credentials.token, *method = t->kind == CW_TRANSFER_HEAD ? "HEAD" : "GET";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (cw_sign(&t->at, method, now.tv_sec, &s, &ignored) < 0)
        return false;
    struct curl_slist *longer = curl_slist_append(x->headers, s.authorization);
    x->headers = longer ? longer : x->headers;
    return longer && exchange_add_header(x, "x-amz-date", s.date) &&
           exchange_add_header(x, "x-amz-content-sha256", "UNSIGNED-PAYLOAD") &&
           (!token || exchange_add_header(x, "x-amz-security-token", token));
}

/* Returns the file with the certificates of authorities: one that the environment names, or the system's.
 * NULL: libcurl's own default. */
static const char *exchange_authorities(void)
{
    static const char *const variables[] = {"CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "SSL_CERT_FILE"};
    /* Debian and its like; Fedora, RHEL; openSUSE; Alpine */
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
                                        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                        "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < CW_COUNT_OF(variables); i++) {
        const char *file = getenv(variables[i]);
        if (file && *file)
            return file;
    }
    for (size_t i = 0; i < CW_COUNT_OF(files); i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
}

static void exchange_protocols(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static bool exchange_set_up(struct cw_exchange *x, uint64_t now_ns)
{
    struct cw_transfer *t = x->t;
    CURL *easy = x->easy;
    const char *authorities = exchange_authorities();
    char range[64];
    bool good = true;
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, x->why);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); /* a key may have a part ".." */
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "cachew/" CACHEW_VERSION);
    /* one connection for each request in flight: ranges are large, and share no connection's window */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, t->at.object_storage ? 0L : 1L);
    curl_easy_setopt(easy, CURLOPT_MAXREDIRS, MOST_REDIRECTS);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, STALL_S);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)((t->deadline_ns - now_ns) / 1000000 + 1));
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, exchange_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, exchange_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
    exchange_protocols(easy);
    if (authorities)
        curl_easy_setopt(easy, CURLOPT_CAINFO, authorities);
    if (t->kind == CW_TRANSFER_HEAD)
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    if (t->kind == CW_TRANSFER_RANGE) {
        snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, t->first + t->got, t->first + t->length - 1);
        curl_easy_setopt(easy, CURLOPT_RANGE, range);
        good = !*t->if_match || exchange_add_header(x, "If-Match", t->if_match);
    }
    if (t->at.bearer) { /* libcurl sends this header to no other host that the answer leads to */
        char text[1100];
        snprintf(text, sizeof(text), "Bearer %s", t->at.bearer);
        good = good && exchange_add_header(x, "Authorization", text);
    }
    if (*t->at.credentials.key)
        good = good && exchange_sign(x);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, x->headers);
    return curl_easy_setopt(easy, CURLOPT_URL, t->at.url) == CURLE_OK && good;
}

bool cw_exchange_begin(struct cw_transfer *t, CURL *easy, uint64_t now_ns)
{
    struct cw_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return false;
    x->easy = easy;
    x->t = t;
    t->exchange = x;
    t->n_tries++;
    t->got_before = t->got;
    exchange_forget_answer(x);
    t->why[0] = '\0';
    if (exchange_set_up(x, now_ns))
        return true;
    (void)cw_exchange_free(t);
    return false;
}

CURL *cw_exchange_free(struct cw_transfer *t)
{
    struct cw_exchange *x = t->exchange;
    CURL *easy = x->easy;
    curl_slist_free_all(x->headers);
    free(x);
    t->exchange = NULL;
    return easy;
}

/* ---- what it came to ---- */

static bool status_may_pass(long status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

static bool code_may_pass(CURLcode code)
{
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT || code == CURLE_PARTIAL_FILE ||
           code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR ||
           code == CURLE_SSL_CONNECT_ERROR || code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_HTTP2 ||
           code == CURLE_HTTP2_STREAM;
}

static bool code_is_unreached(CURLcode code)
{
    return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
           code == CURLE_COULDNT_CONNECT;
}

enum cw_exchange_next cw_exchange_end(struct cw_transfer *t, CURLcode code, double *ret_wait_s)
{
    struct cw_exchange *x = t->exchange;
    bool good = t->status == 200 || t->status == 206, range = t->kind == CW_TRANSFER_RANGE;
    *ret_wait_s = x->retry_after_s;
    snprintf(t->why, sizeof(t->why), "%s", *x->why ? x->why : code ? curl_easy_strerror(code) : "");
    if (x->stopped != CW_TRANSFER_DONE) {
        t->outcome = x->stopped;
        return CW_EXCHANGE_OVER;
    }
    if (range && good && x->checked && t->got == t->length) {
        t->outcome = CW_TRANSFER_DONE;
        return CW_EXCHANGE_OVER;
    }
    if (code != CURLE_OK) {
        t->outcome = CW_TRANSFER_FAILED;
        return !code_may_pass(code)      ? CW_EXCHANGE_OVER
               : code_is_unreached(code) ? CW_EXCHANGE_AGAIN_SOON
                                         : CW_EXCHANGE_AGAIN;
    }
    if (range && good) {
        t->outcome = CW_TRANSFER_FAILED;
        snprintf(t->why, sizeof(t->why), "the answer ended after %zu of %zu bytes", t->got, t->length);
        return CW_EXCHANGE_AGAIN;
    }
    t->outcome = good                                              ? CW_TRANSFER_DONE
                 : range && (t->status == 412 || t->status == 416) ? CW_TRANSFER_CHANGED
                                                                   : CW_TRANSFER_REFUSED;
    return status_may_pass(t->status) ? CW_EXCHANGE_AGAIN : CW_EXCHANGE_OVER;
}
