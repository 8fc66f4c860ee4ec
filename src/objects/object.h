/*
 * Objects: files that web servers and object storage give by address (http://, https://, s3://, gs://). An
 * object is read by ranges, and only in the version that was found when it was listed. storage/ calls this
 * for every path that is an address. Any thread. docs/object-storage.md says what users see.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/error.h"

/* What identifies the content of an object. */
struct cw_object_stat {
    uint64_t size;
    int64_t
        version; /* hash of the ETag, else of the time of the last change; at least 0; 0: neither is known */
};

/* Returns what does the requests, for people: "libcurl/7.88.1 ..."; NULL: this build reads no objects. */
const char *cw_object_library(void);
/* Returns whether a path is an address of one of the schemes that this folder reads. */
bool cw_object_is_address(const char *path);
/* Returns whether an address may hold wildcards: its server lists objects. */
bool cw_object_is_listed(const char *address);
/* Returns the number of bytes of an address up to the slash that ends the server or the bucket, inclusive. */
size_t cw_object_root_length(const char *address);

/* Asks the server for the status of an object. Returns 0; 1: there is no such object; or an error. */
int cw_object_stat(const char *address, struct cw_object_stat *ret, struct cw_error *err) _must_check_;
/* Sets *ret to what the last listing or status in this process said. False: the address was in none. */
bool cw_object_known(const char *address, struct cw_object_stat *ret);

/* Gets each object of a listing. The address is valid during the call. */
typedef int cw_object_found(void *arg, const char *address, const struct cw_object_stat *st,
                            struct cw_error *err);
/* Calls found for all objects whose address begins with `prefix`, in the order of the server. deep false:
 * only for objects without a further slash behind the prefix. Stops when found returns an error. */
int cw_object_list(const char *prefix, bool deep, cw_object_found *found, void *arg,
                   struct cw_error *err) _must_check_;

struct cw_object;
/* Makes a handle for reading the version `was` of an object; sends nothing. address is borrowed. */
int cw_object_new(const char *address, const struct cw_object_stat *was, struct cw_object **ret,
                  struct cw_error *err) _must_check_;
struct cw_object *cw_object_free(struct cw_object *o);
/* Reads exactly the bytes of v at offset. Failures that may pass are tried again until a deadline. CW_E_DATA:
 * the object has changed or is gone. CW_E_IO: it can't be read. */
int cw_object_readv(struct cw_object *o, uint64_t offset, const struct iovec *v, int n_v,
                    struct cw_error *err) _must_check_;

/* A read in progress. */
struct cw_object_read;
/* Begins to read a range to `to`, which must stay until cw_object_read_end. */
int cw_object_read_begin(struct cw_object *o, uint64_t offset, size_t length, void *to,
                         struct cw_object_read **ret, struct cw_error *err) _must_check_;
/* Waits for the read and frees it. cancel: the bytes are not needed any more, so it waits as short as it can.
 * Accepts NULL. */
int cw_object_read_end(struct cw_object_read *r, bool cancel, struct cw_error *err);
