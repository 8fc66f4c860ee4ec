/* Helpers to build JSON lists and objects item by item, with one check at the end. */
#pragma once
#include <jansson.h>
#include <string.h>

#include "base/text.h"

/* Appends the item, and takes its reference. If the item is NULL or memory is short, *list becomes NULL, and
 * stays NULL. */
static inline void cw_dp_json_append(json_t **list, json_t *item)
{
    if (json_array_append_new(*list, item) < 0) {
        json_decref(*list);
        *list = NULL;
    }
}

/* The same for a member of an object. */
static inline void cw_dp_json_set(json_t **object, const char *name, json_t *value)
{
    if (json_object_set_new(*object, name, value) < 0) {
        json_decref(*object);
        *object = NULL;
    }
}

/* Returns a text of a peer as JSON, or "(not UTF-8)" if it is not valid UTF-8; NULL counts as "". */
static inline json_t *cw_dp_json_text(const char *t)
{
    return t && cw_text_utf8(t, strlen(t)) ? json_string(t) : json_string(t ? "(not UTF-8)" : "");
}
