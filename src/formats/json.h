/*
 * Reads JSON objects in place, without allocation. Values that the caller does not use are checked and
 * skipped. The syntax is strict (RFC 8259, strings in UTF-8), except that NaN, Infinity and -Infinity are
 * numbers, because many programs write them. This reader is for records, of which there may be millions;
 * pipelines are read with jansson.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CW_JSON_DEPTH 512 /* arrays and objects may be nested this deep */

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

struct cw_json_value { /* points into the text; its syntax was checked */
    enum cw_json_kind kind;
    bool escaped;     /* a string that contains escapes */
    const char *text; /* the value's text; of a string, without the quotes */
    size_t size;      /* bytes of text */
};

struct cw_json_walk {
    const char *start, *at, *end;
    bool any;        /* a member was returned already */
    const char *why; /* after an error: what is wrong; static */
    size_t where;    /* after an error: at which byte of the text */
};

/* Begins to read a text that must be one object. Returns 0, or -1 and sets w->why and w->where. */
int cw_json_open(struct cw_json_walk *w, const void *text, size_t size);
/* Reads the next member of the object. Returns 1; 0 at the end of a valid text; -1 and sets w->why and
 * w->where. The same key may occur several times. */
int cw_json_member(struct cw_json_walk *w, struct cw_json_value *key, struct cw_json_value *value);

/* An iteration over the items of an array. */
struct cw_json_items {
    const char *at, *end;
};
struct cw_json_items cw_json_items(const struct cw_json_value *array);
/* Stores the next item in *ret; false: there is none. */
bool cw_json_item(struct cw_json_items *items, struct cw_json_value *ret);

/* Writes a string with its escapes replaced to out, which needs room for string->size bytes. Returns the
 * number of bytes written. */
size_t cw_json_unescape(const struct cw_json_value *string, char *out);
/* Returns whether a string, with its escapes replaced, equals `size` bytes of text. */
bool cw_json_string_is(const struct cw_json_value *string, const char *text, size_t size);
