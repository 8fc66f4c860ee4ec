/* Status, listings and reads of objects, as requests, and what their failures mean. Owns the table of what
 * listings said. Any thread. */
#include "objects/object.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/map.h"
#include "base/patience.h"
#include "base/thread.h"
#include "objects/hub.h"
#include "objects/listing.h"
#include "objects/transfer.h"

/* A read may take 1 s longer for this many bytes: the least rate at which reading is of use. */
#define SLOW_BYTES_PER_S 100000
#define PAGE_KEYS "1000" /* of a listing: the most that servers allow */
#define REGION_TRIES 2

/* ---- what listings said ---- */

struct known {
    struct cw_map_node node; /* by the first half of the hash of the address */
    uint64_t hash;           /* the second half */
    struct cw_object_stat st;
};

static struct {
    pthread_mutex_t mutex;
    struct cw_map map; /* of struct known; guarded by mutex */
} known = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* The mutex is held. */
static struct known *known_find(XXH128_hash_t h)
{
    struct cw_map_node *at = NULL;
    while ((at = cw_map_find(&known.map, h.low64, at)))
        if (((struct known *)(void *)at)->hash == h.high64)
            return (struct known *)(void *)at;
    return NULL;
}

static int known_put(const char *address, const struct cw_object_stat *st, struct cw_error *err)
{
    XXH128_hash_t h = XXH3_128bits(address, strlen(address));
    CW_GUARD(&known.mutex);
    struct known *k = known_find(h);
    if (k) {
        k->st = *st;
        return 0;
    }
    k = malloc(sizeof(*k));
    if (!k)
        return cw_error_nomem(err, sizeof(*k), "a listing");
    *k = (struct known){.hash = h.high64, .st = *st};
    if (cw_map_add(&known.map, &k->node, h.low64) == 0)
        return 0;
    free(k);
    return cw_error_nomem(err, 0, "a listing");
}

bool cw_object_known(const char *address, struct cw_object_stat *ret)
{
    XXH128_hash_t h = XXH3_128bits(address, strlen(address));
    CW_GUARD(&known.mutex);
    const struct known *k = known_find(h);
    if (k)
        *ret = k->st;
    return k != NULL;
}

/* ---- failures ---- */

/* What to do about an error code of S3; NULL: not known. */
static const char *refusal_advice(const char *code)
{
    static const struct {
        const char *code, *advice;
    } all[] = {
        {"InvalidAccessKeyId", "the server does not know this access key: expected valid credentials"},
        {"SignatureDoesNotMatch", "the secret does not belong to the access key: expected valid credentials"},
        {"ExpiredToken", "the session of these credentials has ended: expected new credentials"},
        {"InvalidToken", "the session token does not belong to the access key: expected valid credentials"},
        {"RequestTimeTooSkewed", "this machine's clock differs from the server's: set the clock"},
        {"NoSuchBucket", "there is no such bucket: expected the name of a bucket at this endpoint"},
        {"AccessDenied", "these credentials may not read it: expected credentials with the rights to read "
                         "objects and to list the bucket"},
        {"PermanentRedirect", "the bucket is in another region: expected AWS_REGION to name it"},
        {"AuthorizationHeaderMalformed", "the bucket is in another region: expected AWS_REGION to name it"},
    };

    for (size_t i = 0; i < CW_COUNT_OF(all); i++)
        if (strcmp(all[i].code, code) == 0)
            return all[i].advice;
    return NULL;
}

static const char *status_advice(const struct cw_transfer *t)
{
    bool storage = t->at.object_storage;
    return t->status == 401 || t->status == 403
               ? (t->at.hub
                      ? "the hub denies access: expected the name of a public data set, or a token that "
                        "may read it"
                  : storage ? "access is denied: expected credentials with the rights to read objects and to "
                              "list the bucket"
                            : "the server denies access: expected an address that needs no login, or one "
                              "that is still valid")
           : t->status == 404 || t->status == 410 ? "there is no such file"
           : t->status == 301 || t->status == 307 ? "the bucket is in another region: expected AWS_REGION "
                                                    "to name it"
           : t->status >= 500                     ? "the server failed each time that it was asked"
                                                  : "the server refused the request";
}

static int object_refused(const char *address, const struct cw_transfer *t, struct cw_error *err)
{
    struct cw_listing_error e = {0};
    char with[700] = "", code[80] = "";
    if (t->at.object_storage) {
        cw_listing_read_error(t->body.data, t->body.size, &e);
        snprintf(with, sizeof(with), "; credentials: %s; endpoint: %s", t->at.credentials.source,
                 t->at.endpoint);
    }
    if (*e.code)
        snprintf(code, sizeof(code), " %s", e.code);
    if (t->at.hub) {
        cw_hub_read_error(t->body.data, t->body.size, e.message, sizeof(e.message));
        snprintf(e.code, sizeof(e.code), "%s", t->hub.code);
        snprintf(with, sizeof(with), "; token: %s; endpoint: %s", t->at.credentials.source, t->at.endpoint);
    }
    if (t->at.hub && *e.code)
        snprintf(code, sizeof(code), " %s", e.code);
    const char *advice = refusal_advice(e.code);
    return cw_error_at_file(err, CW_E_IO, address, 0, "%.200s: HTTP status %ld%s: %s%s%s", address, t->status,
                            code,
                            advice       ? advice
                            : *e.message ? e.message
                                         : status_advice(t),
                            t->n_tries > 1 ? " (tried several times)" : "", with);
}

/* Reports a request that was not done. */
static int object_failed(const char *address, const struct cw_transfer *t, struct cw_error *err)
{
    switch (t->outcome) {
    case CW_TRANSFER_CHANGED:
        return cw_error_at_file(err, CW_E_DATA, address, 0,
                                "%s: changed since it was indexed: its server has another version of it now "
                                "(ETag %.80s)",
                                address, *t->etag ? t->etag : "not stated");
    case CW_TRANSFER_NO_RANGES:
        return cw_error_at_file(
            err, CW_E_IO, address, 0,
            "%s: the server does not send parts of files (HTTP range requests): expected a "
            "server that does, or a copy of the file on this machine",
            address);
    case CW_TRANSFER_CANCELLED:
        return cw_error_at_file(err, CW_E_INTERRUPTED, address, 0, "%s: interrupted", address);
    case CW_TRANSFER_REFUSED:
        return object_refused(address, t, err);
    default:
        return cw_error_at_file(err, CW_E_IO, address, 0, "%s: no answer after %u tries: %s", address,
                                t->n_tries, t->why);
    }
}

/* ---- status ---- */

static int object_request(struct cw_transfer *t, struct cw_error *err)
{
    int r = cw_transfer_begin(t, err);
    if (r == 0)
        cw_transfer_end(t, false);
    return r;
}

/* Learns from an answer in which region a bucket is. Returns whether to ask again. */
static bool object_learn_region(struct cw_transfer *t)
{
    struct cw_listing_error e;
    if (!t->at.object_storage ||
        (t->status != 301 && t->status != 307 && t->status != 400 && t->status != 403))
        return false;
    cw_listing_read_error(t->body.data, t->body.size, &e);
    const char *region = *t->region ? t->region : e.region;
    return *region && strcmp(region, t->at.region) != 0 && cw_location_learn_region(t->at.bucket, region);
}

/* Sends a request for an address until the region of its bucket is right. t->kind and its parameters are set.
 * query: as in cw_location_find. The caller calls cw_transfer_deinit if this returns 0. */
static int object_ask(const char *address, const char *query, struct cw_transfer *t, struct cw_error *err)
{
    const struct cw_transfer plain = *t;
    for (unsigned tries = 1;; tries++) {
        *t = plain;
        t->patience_ns = cw_patience_storage_ns();
        int r = cw_location_find(address, query, &t->at, err);
        if (r == 0)
            r = object_request(t, err);
        if (r < 0)
            return r;
        if (tries == REGION_TRIES || t->outcome != CW_TRANSFER_REFUSED || !object_learn_region(t))
            return 0;
        cw_transfer_deinit(t);
    }
}

int cw_object_stat(const char *address, struct cw_object_stat *ret, struct cw_error *err)
{
    struct cw_transfer t = {.kind = CW_TRANSFER_HEAD};
    uint8_t first;
    const struct iovec v = {.iov_base = &first, .iov_len = 1};
    int r = object_ask(address, NULL, &t, err);
    if (r == 0 && t.outcome == CW_TRANSFER_REFUSED && (t.status != 404 || t.at.object_storage)) {
        /* Asks for the first byte instead: some servers refuse HEAD, and an answer to HEAD does not say why.
         */
        cw_transfer_deinit(&t);
        t = (struct cw_transfer){
            .kind = CW_TRANSFER_RANGE, .length = 1, .v = &v, .n_v = 1, .version = -1, .was_size = UINT64_MAX};
        r = object_ask(address, NULL, &t, err);
    }
    if (r < 0)
        return r;
    struct cw_listing_error e = {0};
    cw_listing_read_error(t.body.data, t.body.size, &e);
    if (t.outcome == CW_TRANSFER_REFUSED && t.status == 404 && strcmp(e.code, "NoSuchBucket") != 0 &&
        (!*t.hub.code || strcmp(t.hub.code, "EntryNotFound") == 0))
        r = 1;
    else if (t.outcome != CW_TRANSFER_DONE)
        r = object_failed(address, &t, err);
    else if (t.size == UINT64_MAX)
        r = cw_error_at_file(err, CW_E_IO, address, 0,
                             "%s: the server does not say how large the file is (Content-Length): expected a "
                             "file, not a page that a program makes",
                             address);
    *ret = (struct cw_object_stat){.size = t.size, .version = cw_transfer_version(t.etag, t.modified)};
    if (r == 0)
        r = known_put(address, ret, err);
    cw_transfer_deinit(&t);
    return r;
}

/* ---- listings ---- */

struct listing {
    cw_object_found *found;
    void *arg;
};

static int listing_found(void *arg, const char *address, const struct cw_object_stat *st,
                         struct cw_error *err)
{
    const struct listing *l = arg;
    int r = known_put(address, st, err);
    return r < 0 ? r : l->found(l->arg, address, st, err);
}

static int listing_page(const char *prefix, bool deep, struct cw_listing_page *page, struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text query = {0};
    struct cw_transfer t = {.kind = CW_TRANSFER_TEXT};
    if (*page->token) { /* the parameters are sorted, as signing requires */
        cw_text_add(&query, "continuation-token=");
        cw_location_encode(&query, page->token, false);
        cw_text_add(&query, "&");
    }
    cw_text_add(&query, "%slist-type=2&max-keys=" PAGE_KEYS "&prefix=", deep ? "" : "delimiter=%2F&");
    cw_location_encode(&query, prefix + cw_object_root_length(prefix), false);
    if (query.failed)
        return cw_error_nomem(err, query.size, "a listing");
    int r = object_ask(prefix, query.data, &t, err);
    if (r < 0)
        return r;
    if (t.outcome != CW_TRANSFER_DONE)
        r = object_failed(prefix, &t, err);
    else
        r = cw_listing_read(t.body.data, t.body.size, page, err);
    cw_transfer_deinit(&t);
    return r;
}

/* Lists the files of a data set of the hub, of which a directory need not exist. */
static int listing_hub(const char *prefix, bool deep, struct listing *l, struct cw_error *err)
{
    _cleanup_(cw_text_deinit) struct cw_text page = {0};
    int r = 0;
    cw_hub_first_page(prefix, deep, &page);
    for (bool more = true; r == 0 && more;) {
        struct cw_transfer t = {.kind = CW_TRANSFER_TEXT};
        if (page.failed)
            return cw_error_nomem(err, page.size, "a listing");
        r = object_ask(prefix, page.data ? page.data : "", &t, err);
        if (r < 0)
            return r;
        more = t.outcome == CW_TRANSFER_DONE && *t.hub.link;
        if (t.outcome == CW_TRANSFER_DONE)
            r = cw_hub_read_page(prefix, t.body.data, t.body.size, listing_found, l, err);
        else if (t.outcome != CW_TRANSFER_REFUSED || strcmp(t.hub.code, "EntryNotFound") != 0)
            r = object_failed(prefix, &t, err);
        cw_text_deinit(&page);
        cw_text_add(&page, "%s", t.hub.link);
        cw_transfer_deinit(&t);
    }
    return r;
}

int cw_object_list(const char *prefix, bool deep, cw_object_found *found, void *arg, struct cw_error *err)
{
    struct listing l = {.found = found, .arg = arg};
    char root[256];
    if (cw_hub_is_address(prefix))
        return listing_hub(prefix, deep, &l, err);
    snprintf(root, sizeof(root), "%.*s", (int)cw_object_root_length(prefix), prefix);
    if (root[strlen(root) - 1] != '/' && strlen(root) + 1 < sizeof(root))
        root[strlen(root) + 1] = '\0', root[strlen(root)] = '/';
    struct cw_listing_page page = {.root = root, .found = listing_found, .arg = &l};
    int r;
    do {
        r = listing_page(prefix, deep, &page, err);
    } while (r == 0 && page.more);
    return r;
}

/* ---- reads ---- */

struct cw_object {
    const char *address; /* borrowed */
    struct cw_object_stat was;
    pthread_mutex_t mutex;
    char etag[CW_ETAG_SIZE]; /* of this version; "": not known, or weak; guarded by mutex */
};

struct cw_object_read {
    struct cw_transfer t;
    struct cw_object *o;
    struct iovec v;
};

int cw_object_new(const char *address, const struct cw_object_stat *was, struct cw_object **ret,
                  struct cw_error *err)
{
    struct cw_object *o = calloc(1, sizeof(*o));
    if (!o)
        return cw_error_nomem(err, sizeof(*o), "a file");
    o->address = address;
    o->was = *was;
    pthread_mutex_init(&o->mutex, NULL);
    *ret = o;
    return 0;
}

struct cw_object *cw_object_free(struct cw_object *o)
{
    if (o)
        pthread_mutex_destroy(&o->mutex);
    free(o);
    return NULL;
}

static int read_begin(struct cw_object *o, uint64_t offset, size_t length, const struct iovec *v, int n_v,
                      struct cw_transfer *t, struct cw_error *err)
{
    *t = (struct cw_transfer){
        .kind = CW_TRANSFER_RANGE,
        .first = offset,
        .length = length,
        .v = v,
        .n_v = n_v,
        .version = o->was.version,
        .was_size = o->was.size,
        .patience_ns = cw_patience_storage_ns() + (uint64_t)length * (1000000000u / SLOW_BYTES_PER_S),
    };
    CW_WITH (&o->mutex)
        memcpy(t->if_match, o->etag, sizeof(t->if_match));
    int r = cw_location_find(o->address, NULL, &t->at, err);
    return r < 0 ? r : cw_transfer_begin(t, err);
}

static int read_end(struct cw_object *o, struct cw_transfer *t, struct cw_error *err)
{
    int r = 0;
    if (t->outcome == CW_TRANSFER_REFUSED && (t->status == 404 || t->status == 410))
        r = cw_error_at_file(err, CW_E_DATA, o->address, 0, "%s: was deleted since it was indexed",
                             o->address);
    else if (t->outcome != CW_TRANSFER_DONE)
        r = object_failed(o->address, t, err);
    else if (*t->if_match)
        CW_WITH (&o->mutex)
            memcpy(o->etag, t->if_match, sizeof(o->etag));
    cw_transfer_deinit(t);
    return r;
}

int cw_object_readv(struct cw_object *o, uint64_t offset, const struct iovec *v, int n_v,
                    struct cw_error *err)
{
    struct cw_transfer t;
    size_t length = 0;
    for (int i = 0; i < n_v; i++)
        length += v[i].iov_len;
    if (length == 0)
        return 0;
    int r = read_begin(o, offset, length, v, n_v, &t, err);
    if (r < 0)
        return r;
    cw_transfer_end(&t, false);
    return read_end(o, &t, err);
}

int cw_object_read_begin(struct cw_object *o, uint64_t offset, size_t length, void *to,
                         struct cw_object_read **ret, struct cw_error *err)
{
    struct cw_object_read *r = malloc(sizeof(*r));
    if (!r)
        return cw_error_nomem(err, sizeof(*r), "a read");
    r->o = o;
    r->v = (struct iovec){.iov_base = to, .iov_len = length};
    int status = read_begin(o, offset, length, &r->v, 1, &r->t, err);
    if (status < 0)
        free(r);
    else
        *ret = r;
    return status;
}

int cw_object_read_end(struct cw_object_read *r, bool cancel, struct cw_error *err)
{
    if (!r)
        return 0;
    cw_transfer_end(&r->t, cancel);
    int status = read_end(r->o, &r->t, err);
    free(r);
    return status;
}
