/* Distances of names, UTF-8, escapes, strings that grow. */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"

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

enum { CHARACTER_BAD = 0, CHARACTER_CUT = -1 };

/* Returns the size of the character that a text of size > 0 begins with, and its code point. CHARACTER_CUT:
 * the text, or its valid part, ends within the character. */
static int text_character(const char *text, size_t size, uint32_t *ret)
{
    static const struct {
        unsigned char from, to, low, high;
        int more;
    } leads[] = {
        /* first byte, range of the second, bytes after the first */
        {0x00, 0x7f, 0, 0, 0},       {0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
        {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2}, {0xee, 0xef, 0x80, 0xbf, 2},
        {0xf0, 0xf0, 0x90, 0xbf, 3}, {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3},
    };

    const unsigned char *s = (const unsigned char *)text;
    size_t k = 0;
    while (k < CW_COUNT_OF(leads) && (s[0] < leads[k].from || s[0] > leads[k].to))
        k++;
    if (k == CW_COUNT_OF(leads))
        return CHARACTER_BAD;
    *ret = leads[k].more > 0 ? s[0] & (0x3fu >> leads[k].more) : s[0];
    for (int i = 1; i <= leads[k].more; i++) {
        if ((size_t)i >= size || (s[i] & 0xc0) != 0x80)
            return CHARACTER_CUT;
        if (i == 1 && (s[1] < leads[k].low || s[1] > leads[k].high))
            return CHARACTER_BAD;
        *ret = *ret << 6 | (s[i] & 0x3f);
    }
    return 1 + leads[k].more;
}

bool cw_text_utf8(const char *text, size_t size)
{
    uint32_t c;
    for (int n; size > 0; text += n, size -= (size_t)n)
        if ((n = text_character(text, size, &c)) <= 0)
            return false;
    return true;
}

/* Returns whether a character is a control character, has no width, changes the direction, ends a line, or is
 * a tag. */
static bool text_is_hidden(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } hidden[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
        {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };

    for (size_t i = 0; i < CW_COUNT_OF(hidden); i++)
        if (c >= hidden[i].from && c <= hidden[i].to)
            return true;
    return false;
}

static size_t text_escape(char to[16], uint32_t c)
{
    const char *letter = c == '\n' ? "n" : c == '\t' ? "t" : c == '\r' ? "r" : NULL;
    return (size_t)(letter ? snprintf(to, 16, "\\%s", letter)
                           : snprintf(to, 16, c > 0xffff ? "\\U%08x" : "\\u%04x", c));
}

void cw_text_show(char *to, size_t size, const char *text)
{
    size_t left = strlen(text), at = 0;
    while (left > 0) {
        char shown[16];
        uint32_t c;
        int n = text_character(text, left, &c);
        size_t used = n > 0 ? (size_t)n : 1, length = used;
        if (n == CHARACTER_CUT) {
            length = 0;
            while (used < left && ((unsigned char)text[used] & 0xc0) == 0x80)
                used++;
        } else if (n == CHARACTER_BAD) {
            length = (size_t)snprintf(shown, sizeof(shown), "\\x%02x", (unsigned char)*text);
        } else if (text_is_hidden(c)) {
            length = text_escape(shown, c);
        } else {
            memcpy(shown, text, used);
        }
        if (at + length >= size)
            break;
        memcpy(to + at, shown, length);
        at += length;
        text += used;
        left -= used;
    }
    to[at] = '\0';
}

char *cw_text_clean(char *text, size_t size)
{
    char copy[CW_TEXT_SHOWN];
    const char *c = text;
    while (*c >= 0x20 && *c < 0x7f)
        c++;
    if (*c) {
        snprintf(copy, sizeof(copy), "%s", text);
        cw_text_show(text, size, copy);
    }
    return text;
}

size_t cw_text_whole(const char *text, size_t most)
{
    size_t n = strnlen(text, most);
    uint32_t c;
    for (size_t back = 1; back <= 3 && back <= n; back++)
        if (text_character(text + n - back, back, &c) == CHARACTER_CUT)
            return n - back;
    return n;
}

char *cw_text_dup(const char *text, size_t most)
{
    return strndup(text, cw_text_whole(text, most));
}

void cw_text_add(struct cw_text *t, const char *fmt, ...)
{
    for (;;) {
        va_list ap;
        va_start(ap, fmt);
        size_t room = t->capacity - t->size;
        int n = vsnprintf(room ? t->data + t->size : NULL, room, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < room) {
            t->size += (size_t)n;
            return;
        }
        if (n < 0 || CW_ARRAY_ROOM(t->data, t->capacity, t->size + (size_t)n + 1, "text", NULL) < 0) {
            t->failed = 1;
            return;
        }
    }
}

void cw_text_deinit(struct cw_text *t)
{
    free(t->data);
    *t = (struct cw_text){0};
}

static const char text_digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";

void cw_text_add_base36(struct cw_text *t, uint64_t value)
{
    char digits[14]; /* 36^13 > 2^64 */
    char *at = digits + sizeof(digits) - 1;
    *at = 0;
    do
        *--at = text_digits[value % 36];
    while (value /= 36);
    cw_text_add(t, "%s", at);
}

bool cw_text_base36(const char **at, uint64_t *ret)
{
    const char *begin = *at, *digit;
    for (*ret = 0; **at && (digit = strchr(text_digits, **at)); ++*at)
        if (__builtin_mul_overflow(*ret, 36, ret) ||
            __builtin_add_overflow(*ret, (uint64_t)(digit - text_digits), ret))
            return false;
    return *at > begin;
}

const char *cw_text_bytes(double bytes, char buf[32])
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
    unsigned unit = 0;
    for (; bytes >= (unit ? 999.5 : 1000) && unit + 1 < CW_COUNT_OF(units); unit++)
        bytes /= 1000;
    snprintf(buf, 32, "%.*f %s", unit > 0 && bytes < 99.95, bytes, units[unit]);
    return buf;
}
