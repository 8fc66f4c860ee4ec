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

bool cw_text_utf8(const char *text, size_t size)
{
    static const struct { unsigned char from, to, low, high, more; } leads[] = { /* first byte, range of the second, bytes after the first */
        {0x00, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2}, {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2},
        {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3}, {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3},
    };
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < size;) {
        size_t k = 0;
        while (k < CW_COUNT_OF(leads) && (s[i] < leads[k].from || s[i] > leads[k].to))
            k++;
        if (k == CW_COUNT_OF(leads) || leads[k].more >= size - i)
            return false;
        if (leads[k].more && (s[i + 1] < leads[k].low || s[i + 1] > leads[k].high))
            return false;
        for (size_t j = 2; j <= leads[k].more; j++)
            if ((s[i + j] & 0xc0) != 0x80)
                return false;
        i += 1 + leads[k].more;
    }
    return true;
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
