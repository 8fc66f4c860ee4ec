/* JSON lists and objects that are built item by item, without a check after each. */
#pragma once
#include <jansson.h>
#include <string.h>

#include "base/text.h"

/* Appends the item, which it owns. Without memory for it, or with NULL, *list becomes NULL and stays so. */
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

/* A text of a peer, which may not be UTF-8; NULL is empty. */
static inline json_t *cw_dp_json_text(const char *t)
{
    return t && cw_text_utf8(t, strlen(t)) ? json_string(t) : json_string(t ? "(not UTF-8)" : "");
}
