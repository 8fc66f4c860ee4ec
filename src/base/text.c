#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_CHARS 63

unsigned cw_edit_distance(const char *a, const char *b)
{
    size_t n = strnlen(a, NAME_MAX_CHARS), m = strnlen(b, NAME_MAX_CHARS);
    unsigned rows[3][NAME_MAX_CHARS + 1];
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];

    for (size_t j = 0; j <= m; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = CW_MIN(d, last[j] + 1);
            d = CW_MIN(d, now[j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = CW_MIN(d, before[j - 2] + 1);
            now[j] = d;
        }
        unsigned *t = before;
        before = last;
        last = now;
        now = t;
    }
    return last[m];
}

const char *cw_nearest(const char *name, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    unsigned limit = (unsigned)CW_MAX(strlen(name) / 3, 1), best_distance = limit + 1;
    for (size_t i = 0; i < n; i++) {
        unsigned d = cw_edit_distance(name, candidates[i]);
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}

void cw_text_add(struct cw_text *t, const char *fmt, ...)
{
    for (;;) {
        va_list ap;
        va_start(ap, fmt);
        size_t room = t->capacity - t->size;
        int n = vsnprintf(room ? t->data + t->size : NULL, room, fmt, ap);
        va_end(ap);
        if (n < 0) {
            t->failed = 1;
            return;
        }
        if ((size_t)n < room) {
            t->size += (size_t)n;
            return;
        }
        size_t capacity = (t->size + (size_t)n + 1) * 2;
        char *data = realloc(t->data, capacity);
        if (!data) {
            t->failed = 1;
            return;
        }
        t->data = data;
        t->capacity = capacity;
    }
}

void cw_text_deinit(struct cw_text *t)
{
    free(t->data);
    *t = (struct cw_text){0};
}
