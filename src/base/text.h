/* Text for people: nearest names, growing strings. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

/* Edit distance (insert, delete, replace, swap of neighbours); names longer than 63 bytes are cut. */
unsigned cw_edit_distance(const char *a, const char *b);
/* The candidate nearest to name if it is near enough to be meant (a third of its length, at least 1), else NULL. */
const char *cw_nearest(const char *name, const char *const *candidates, size_t n);

/* Whether these bytes are UTF-8: no overlong forms, surrogates, or code points past U+10FFFF; JSON takes no others. */
bool cw_text_utf8(const char *text, size_t size);

/* A string that grows; failed allocations are remembered in `failed` and leave the text as it is. */
struct cw_text {
    char *data;
    size_t size, capacity;
    int failed;
};
void cw_text_add(struct cw_text *t, const char *fmt, ...) _printf_(2, 3);
void cw_text_deinit(struct cw_text *t);
