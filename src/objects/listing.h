/* The XML of object storage: pages of listings, and errors. Stateless; any thread. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "objects/object.h"

struct cw_listing_page {
    const char *root; /* what an address begins with: "s3://BUCKET/" */
    cw_object_found *found;
    void *arg;
    bool more;          /* another page follows */
    char token[2048];   /* that requests it */
    uint64_t n_objects; /* of this page */
};

/* Calls page->found for each object of a page (the answer to ListObjectsV2). CW_E_IO: it is no such answer.
 */
int cw_listing_read(const char *xml, size_t size, struct cw_listing_page *page,
                    struct cw_error *err) _must_check_;

struct cw_listing_error {
    char code[64], message[300], region[64];
};

/* Reads an answer that reports an error; fields that it lacks are "". */
void cw_listing_read_error(const char *xml, size_t size, struct cw_listing_error *ret);
