/*
 * Where a request goes: the URL of an address, and the credentials that sign requests to it. s3:// and gs://
 * take endpoint, region and credentials from the environment and from ~/.aws (docs/object-storage.md). Any
 * thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cw_credentials {
    char key[160], secret[256]; /* key "": requests are not signed */
    char *token;                /* of a session; NULL: none. Owned. */
    char source[320];           /* where they were found, for messages */
};

struct cw_location {
    char *url;
    bool object_storage; /* an S3-compatible server */
    bool hub;            /* the Hugging Face hub */
    char *bearer;        /* the token that requests carry; NULL: none. Owned. Not sent to other hosts */
    char region[64];     /* for signing */
    char endpoint[256];  /* for messages */
    char bucket[128];    /* "": not in object storage */
    struct cw_credentials credentials;
};

/* Finds the location of an address. query: of a listing, already encoded and sorted; the URL is then that of
 * the bucket; of the hub, path and query of a page. NULL: none. CW_E_PIPELINE: the address or a variable of
 * the environment is wrong. The caller deinits *ret. */
int cw_location_find(const char *address, const char *query, struct cw_location *ret,
                     struct cw_error *err) _must_check_;
void cw_location_deinit(struct cw_location *l);
/* Remembers that a bucket lies in this region. Returns whether that is news. */
bool cw_location_learn_region(const char *bucket, const char *region);
/* Adds a text with all bytes percent-encoded that are not letters, digits or -_.~ (or /, if slash). */
struct cw_text;
void cw_location_encode(struct cw_text *to, const char *text, bool slash);

/* Stores the credentials for object storage in *ret: of the environment, else of the profile AWS_PROFILE;
 * none if requests are to be anonymous. ret->token is the caller's. */
int cw_credentials_find(struct cw_credentials *ret, struct cw_error *err) _must_check_;
/* Copies a setting of the profile (such as "region") to ret. False: it is not set. */
bool cw_credentials_setting(const char *name, char *ret, size_t size);

/* The headers that sign a request (AWS Signature Version 4, service s3, unsigned payload). */
struct cw_signature {
    char date[32], authorization[600];
};

/* Signs a request at a time of day, in seconds since 1970. method: "GET" or "HEAD". */
int cw_sign(const struct cw_location *l, const char *method, int64_t at_s, struct cw_signature *ret,
            struct cw_error *err) _must_check_;
