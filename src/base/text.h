/* Text for people: nearest names, cleaned texts, strings that grow. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/macro.h"

/* Prints the variable arguments of a function into a char array. fmt: the last named argument of the
 * function. */
#define CW_FORMAT(array, fmt) \
    do { \
        va_list args_; \
        va_start(args_, fmt); \
        (void)vsnprintf(array, sizeof(array), fmt, args_); \
        va_end(args_); \
    } while (0)

/* Returns the edit distance (insert, delete, replace, swap of neighbours). Names longer than 63 bytes are
 * cut. */
unsigned cw_edit_distance(const char *a, const char *b);
/* Returns the candidate nearest to name, if it is near enough that it may be meant (a distance of at most a
 * third of its length, or 1); else NULL. */
const char *cw_nearest(const char *name, const char *const *candidates, size_t n);

/*
 * Copies a text from outside the program so that it can be shown safely. Characters that move the cursor,
 * change the direction of text or have no width become escapes (\\n, \\u202e), bytes that are not UTF-8
 * become \\xff, and a cut character is left out. Text that does not fit is cut between characters.
 */
void cw_text_show(char *to, size_t size, const char *text);
/* As cw_text_show, in place, in a buffer of `size` bytes. Text beyond CW_TEXT_SHOWN - 1 bytes is cut. */
#define CW_TEXT_SHOWN 2048
char *cw_text_clean(char *text, size_t size);
/* Returns how many of the first `most` bytes of a text are whole characters. */
size_t cw_text_whole(const char *text, size_t most);
/* Returns a copy of at most `most` bytes, cut between characters. NULL: out of memory. */
char *cw_text_dup(const char *text, size_t most);

/* Returns whether these bytes are UTF-8 as JSON requires it: no overlong forms, surrogates, or code points
 * past U+10FFFF. */
bool cw_text_utf8(const char *text, size_t size);

/* Prints a number of bytes for people, in decimal units with three or more digits: "900 bytes", "65.9 kB",
 * "446 MB". Returns buf. */
const char *cw_text_bytes(double bytes, char buf[32]);

/* A string that grows. If an allocation fails, `failed` is set and the text stays as it was. */
struct cw_text {
    char *data;
    size_t size, capacity;
    int failed;
};

void cw_text_add(struct cw_text *t, const char *fmt, ...) _printf_(2, 3);
void cw_text_deinit(struct cw_text *t);

/* Adds a number in base 36, with the digits 0-9a-z. */
void cw_text_add_base36(struct cw_text *t, uint64_t value);
/* Reads a number in base 36 and moves *at past it. False: there is none, or it has more than 64 bits. */
bool cw_text_base36(const char **at, uint64_t *ret);
