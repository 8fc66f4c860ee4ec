/*
 * Data sets of the Hugging Face hub: hf://datasets/OWNER/NAME[@REVISION]/PATH. Files are read from the hub's
 * address of a file, which may lead to another server; listings are pages of JSON. Any thread.
 */
#pragma once
#include "objects/location.h"
#include "objects/object.h"

struct cw_hub_parts {       /* of an address */
    const char *repository; /* OWNER/NAME */
    const char *revision;   /* NULL: it has none */
    const char *path;
    size_t repository_size, revision_size;
};

bool cw_hub_is_address(const char *address);
/* Returns whether the address names a data set. */
bool cw_hub_parse(const char *address, struct cw_hub_parts *ret);
/* Returns the number of bytes of an address up to its path; 0: it names no data set. */
size_t cw_hub_root_length(const char *address);
/* Sets endpoint, token and url of a location. page: path and query of a page of a listing; NULL: the address
 * of a file. CW_E_PIPELINE: the address, the endpoint or the token is wrong. */
int cw_hub_location(const char *address, const char *page, struct cw_location *l, struct cw_text *url,
                    struct cw_error *err) _must_check_;
/* Adds path and query of the first page of the listing of the directory that holds what begins with `prefix`.
 * deep: with everything below. */
void cw_hub_first_page(const char *prefix, bool deep, struct cw_text *page);
/* Calls found for each file of a page whose address begins with `prefix`. CW_E_IO: it is no such page. */
int cw_hub_read_page(const char *prefix, const char *json, size_t size, cw_object_found *found, void *arg,
                     struct cw_error *err) _must_check_;
/* Reads the message of an answer that reports an error; "": there is none. */
void cw_hub_read_error(const char *json, size_t size, char *ret, size_t room);
