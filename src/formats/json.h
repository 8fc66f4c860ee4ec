/*
 * JSON objects, read in place: no allocation, values that the caller does not request are checked and passed
 * over. Strict (RFC 8259, strings in UTF-8) but for NaN, Infinity and -Infinity, which many writers put where
 * a number stands. jansson reads what people write (pipelines); this is for what is read a million times.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CW_JSON_DEPTH 512 /* arrays and objects inside one another */

enum cw_json_kind {
    CW_JSON_NULL,
    CW_JSON_FALSE,
    CW_JSON_TRUE,
    CW_JSON_NUMBER,
    CW_JSON_STRING,
    CW_JSON_ARRAY,
    CW_JSON_OBJECT
};

/* "null", "false", "true", "a number", "a string", "an array", "an object". */
const char *cw_json_kind_name(enum cw_json_kind kind);

struct cw_json_value { /* points into the text; known to be good */
    enum cw_json_kind kind;
    bool escaped;     /* a string with escapes in it */
    const char *text; /* a string without its quotes, else all of it */
    size_t size;
};

struct cw_json_walk {
    const char *start, *at, *end;
    bool any;        /* a member was given */
    const char *why; /* after -1: what is wrong */
    size_t where;    /* and at which byte */
};

/* A text that must be one object. 0 or -1. */
int cw_json_open(struct cw_json_walk *w, const void *text, size_t size);
/* Its next member: 1, or 0 at the end (which was checked too), or -1. A key may come several times. */
int cw_json_member(struct cw_json_walk *w, struct cw_json_value *key, struct cw_json_value *value);

/* The items of an array, one after the other. */
struct cw_json_items {
    const char *at, *end;
};
struct cw_json_items cw_json_items(const struct cw_json_value *array);
bool cw_json_item(struct cw_json_items *items, struct cw_json_value *ret);

/* A string's bytes, without escapes: at most its size many. How many they are. */
size_t cw_json_unescape(const struct cw_json_value *string, char *out);
bool cw_json_string_is(const struct cw_json_value *string, const char *text, size_t size);
