/* Reads JSON in place. Pure functions of the caller's text; those that return a pointer return the address
 * after the item that they read, or NULL after an error, which scan_wrong records. */
#include "formats/json.h"

#include <stdint.h>
#include <string.h>

#include "base/macro.h"
#include "base/text.h"

const char *cw_json_kind_name(enum cw_json_kind kind)
{
    static const char *const names[] = {"null",     "false",    "true",     "a number",
                                        "a string", "an array", "an object"};
    return names[kind];
}

/* Records what is wrong, and where. Returns NULL. */
static const char *scan_wrong(struct cw_json_walk *w, const char *at, const char *why)
{
    w->why = why;
    w->where = (size_t)(at - w->start);
    return NULL;
}

static const char *scan_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* ---- strings ---- */

/* Returns the value of the four hexadecimal digits at p, or -1. */
static int scan_hex4(const char *p, const char *end)
{
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Returns the character of the \u escape(s) whose digits start at *p, and moves *p past them; -1: malformed.
 */
static int32_t scan_unicode_escape(const char **p, const char *end)
{
    int high = scan_hex4(*p, end), low;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return -1;
    *p += 4;
    if (high < 0xd800 || high >= 0xe000)
        return high;
    if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u' || (low = scan_hex4(*p + 2, end)) < 0xdc00 ||
        low >= 0xe000)
        return -1;
    *p += 6;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* Reads a string; p points after the opening quote, the result after the closing quote. */
static const char *scan_string(const char *p, const char *end, struct cw_json_value *v,
                               struct cw_json_walk *w)
{
    *v = (struct cw_json_value){.kind = CW_JSON_STRING, .text = p};
    while (p < end) {
        unsigned char c = (unsigned char)*p;
        if (c == '"') {
            v->size = (size_t)(p - v->text);
            return p + 1;
        }
        if (c < 0x20)
            return scan_wrong(w, p, "a control character in a string");
        if (c >= 0x80) {
            size_t n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4; /* bytes of a UTF-8 character with this first byte */
            if (n > (size_t)(end - p) || !cw_text_utf8(p, n))
                return scan_wrong(w, p, "a string that is not UTF-8");
            p += n;
        } else if (c == '\\') {
            v->escaped = true;
            const char *at = p;
            if (end - p < 2 || !strchr("\"\\/bfnrtu", p[1]) || p[1] == 0)
                return scan_wrong(w, p, "an unknown escape in a string");
            p += 2;
            if (at[1] == 'u' && scan_unicode_escape(&p, end) < 0)
                return scan_wrong(w, at, "a malformed \\u escape, or half of a surrogate pair");
        } else {
            p++;
        }
    }
    return scan_wrong(w, v->text - 1, "a string without end");
}

static size_t text_put_utf8(char *out, int32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const int lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    return n;
}

/* Stores the bytes (up to four) of the next character or escape of a valid string in out. Returns their
 * number. */
static size_t text_next_bytes(const char **p, const char *end, char out[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (**p != '\\') {
        out[0] = *(*p)++;
        return 1;
    }
    char kind = (*p)[1];
    *p += 2;
    if (kind == 'u')
        return text_put_utf8(out, scan_unicode_escape(p, end));
    out[0] = to[strchr(from, kind) - from];
    return 1;
}

size_t cw_json_unescape(const struct cw_json_value *string, char *out)
{
    const char *p = string->text, *end = p + string->size;
    char *start = out, bytes[4];
    while (p < end) {
        size_t n = text_next_bytes(&p, end, bytes);
        memcpy(out, bytes, n);
        out += n;
    }
    return (size_t)(out - start);
}

bool cw_json_string_is(const struct cw_json_value *string, const char *text, size_t size)
{
    const char *p = string->text, *end = p + string->size, *stop = text + size;
    char bytes[4];
    if (!string->escaped)
        return string->size == size && memcmp(string->text, text, size) == 0;
    while (p < end) {
        size_t n = text_next_bytes(&p, end, bytes);
        if (n > (size_t)(stop - text) || memcmp(text, bytes, n) != 0)
            return false;
        text += n;
    }
    return text == stop;
}

/* ---- values ---- */

static const char *scan_digits(const char *p, const char *end)
{
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

static bool scan_word_at(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - p) >= n && memcmp(p, word, n) == 0;
}

static const char *scan_number(const char *p, const char *end, struct cw_json_walk *w)
{
    const char *start = p, *digits;
    p += *p == '-';
    if (scan_word_at(p, end, "Infinity"))
        return p + 8;
    digits = p;
    p = scan_digits(p, end);
    if (p == digits || (*digits == '0' && p > digits + 1))
        return scan_wrong(w, start, p == digits ? "expected a value" : "a number that begins with 0");
    if (p < end && *p == '.') {
        digits = ++p;
        p = scan_digits(p, end);
        if (p == digits)
            return scan_wrong(w, start, "a number without digits after its point");
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '-' || *p == '+');
        digits = p;
        p = scan_digits(p, end);
        if (p == digits)
            return scan_wrong(w, start, "a number without digits in its exponent");
    }
    return p;
}

/* Reads a value that is neither array nor object. */
static const char *scan_scalar(const char *p, const char *end, struct cw_json_value *v,
                               struct cw_json_walk *w)
{
    static const struct {
        const char *word;
        enum cw_json_kind kind;
    } words[] = {
        {"null", CW_JSON_NULL},
        {"true", CW_JSON_TRUE},
        {"false", CW_JSON_FALSE},
        {"NaN", CW_JSON_NUMBER},
    };

    if (*p == '"')
        return scan_string(p + 1, end, v, w);
    *v = (struct cw_json_value){.kind = CW_JSON_NUMBER, .text = p};
    const char *after = NULL;
    for (size_t i = 0; i < CW_COUNT_OF(words) && !after; i++)
        if (scan_word_at(p, end, words[i].word)) {
            v->kind = words[i].kind;
            after = p + strlen(words[i].word);
        }
    after = after ? after : scan_number(p, end, w);
    v->size = after ? (size_t)(after - p) : 0;
    return after;
}

/* Reads the key of a member and the colon after it. */
static const char *scan_key(const char *p, const char *end, struct cw_json_value *key, struct cw_json_walk *w)
{
    p = scan_space(p, end);
    if (p == end || *p != '"')
        return scan_wrong(w, p, "expected a key in quotes");
    p = scan_string(p + 1, end, key, w);
    if (!p)
        return NULL;
    p = scan_space(p, end);
    return p < end && *p == ':' ? p + 1 : scan_wrong(w, p, "expected \":\" after a key");
}

/* Reads one value with all values inside it, without recursion. */
static const char *scan_value(const char *p, const char *end, struct cw_json_value *v, struct cw_json_walk *w)
{
    uint64_t objects[CW_JSON_DEPTH / 64]; /* bit d: the open value at depth d is an object; else an array */
    unsigned depth = 0;
    struct cw_json_value inner;
    p = scan_space(p, end);
    const char *start = p;
    enum cw_json_kind kind = p < end && *p == '{' ? CW_JSON_OBJECT : CW_JSON_ARRAY;
    do {
        p = scan_space(p, end);
        if (p == end)
            return scan_wrong(w, p, "expected a value");
        bool open = *p == '{' || *p == '[', object = *p == '{';
        if (!open) {
            p = scan_scalar(p, end, depth ? &inner : v, w);
            if (!p || depth == 0)
                return p;
        } else {
            if (depth == CW_JSON_DEPTH)
                return scan_wrong(w, p, "arrays or objects nested too deeply");
            objects[depth / 64] = (objects[depth / 64] & ~(UINT64_C(1) << depth % 64)) | (uint64_t)object
                                                                                             << depth % 64;
            depth++;
            p = scan_space(p + 1, end);
        }
        /* close the arrays and objects that end here */
        bool more = false;
        while (depth && !more) {
            object = objects[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
            p = scan_space(p, end);
            if (p < end && *p == (object ? '}' : ']')) {
                p++;
                depth--;
                open = false;
            } else if (open || (p < end && *p == ',')) {
                p += !open;
                p = object ? scan_key(p, end, &inner, w) : p;
                if (!p)
                    return NULL;
                more = true;
            } else {
                return scan_wrong(w, p, object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
            }
        }
    } while (depth);
    *v = (struct cw_json_value){.kind = kind, .text = start, .size = (size_t)(p - start)};
    return p;
}

/* ---- walks ---- */

int cw_json_open(struct cw_json_walk *w, const void *text, size_t size)
{
    *w = (struct cw_json_walk){.start = text, .at = text, .end = (const char *)text + size};
    w->at = scan_space(w->at, w->end);
    if (w->at < w->end && *w->at == '{') {
        w->at++;
        return 0;
    }
    scan_wrong(w, w->at,
               w->at == w->end ? "expected an object, but the text is empty" : "expected an object");
    return -1;
}

int cw_json_member(struct cw_json_walk *w, struct cw_json_value *key, struct cw_json_value *value)
{
    const char *p = scan_space(w->at, w->end);
    if (p < w->end && *p == '}') {
        p = scan_space(p + 1, w->end);
        if (p == w->end)
            return 0;
        p = scan_wrong(w, p, "other text after the object");
    } else if (w->any && (p == w->end || *p != ',')) {
        p = scan_wrong(w, p, "expected \",\" or \"}\"");
    }
    p = p ? scan_key(p + w->any, w->end, key, w) : NULL;
    p = p ? scan_value(p, w->end, value, w) : NULL;
    if (!p)
        return -1;
    w->at = p;
    w->any = true;
    return 1;
}

struct cw_json_items cw_json_items(const struct cw_json_value *array)
{
    return (struct cw_json_items){.at = array->text + 1, .end = array->text + array->size - 1};
}

bool cw_json_item(struct cw_json_items *items, struct cw_json_value *ret)
{
    struct cw_json_walk unused = {.start = items->at};
    items->at = scan_space(items->at, items->end);
    if (items->at == items->end)
        return false;
    /* the array was checked before, so no error can occur */
    items->at = scan_space(scan_value(items->at, items->end, ret, &unused), items->end);
    items->at += items->at < items->end; /* the comma */
    return true;
}
