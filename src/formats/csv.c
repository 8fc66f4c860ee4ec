/* Finds the records of a CSV file, and the fields of a record. Any thread; only one thread at a time may use
 * a walk. */
#include "formats/csv.h"

#include <inttypes.h>
#include <string.h>

enum csv_state {
    CSV_RECORD, /* before the first byte of a record */
    CSV_FIELD,  /* before the first byte of a field */
    CSV_PLAIN,  /* in a field that is not quoted, or after the closing quote and further text */
    CSV_QUOTED, /* in a quoted field */
    CSV_QUOTE,  /* after a quote in a quoted field: the field ends, or a quote follows and stands for one */
};

static const uint8_t csv_mark[] = {0xef, 0xbb, 0xbf};

/* Goes through the bytes of a record whose fields may be quoted. Returns the line feed that ends the record;
 * NULL: the record goes on after `end`. */
static const uint8_t *csv_find_end(struct cw_csv_walk *w, const uint8_t *p, const uint8_t *end)
{
    for (; p < end; p++) {
        if (w->state == CSV_QUOTED) {
            if (!(p = memchr(p, '"', (size_t)(end - p))))
                return NULL;
            w->state = CSV_QUOTE;
        } else if (*p == '"' && w->state != CSV_PLAIN) {
            w->state = CSV_QUOTED;
        } else if (*p == '\n') {
            return p;
        } else {
            w->state = *p == (uint8_t)w->delimiter ? CSV_FIELD : CSV_PLAIN;
        }
    }
    return NULL;
}

/* Adds the record from base->start to `place`, where its line feed is, unless it is an empty line. */
static int csv_add(struct cw_csv_walk *w, uint64_t place, uint8_t before, struct cw_error *err)
{
    struct cw_walk *base = &w->base;
    uint64_t length = place - base->start, start = base->start;
    length -= length > 0 && before == '\r';
    base->start = place + 1;
    w->state = CSV_RECORD;
    return length ? cw_record_list_add(&base->list, start, length, 0, err) : 0;
}

/* Skips what the piece has of a byte order mark, if the stream begins with one. */
static const uint8_t *csv_skip_mark(struct cw_csv_walk *w, uint64_t place, const uint8_t *p,
                                    const uint8_t *end)
{
    for (; p < end && place < sizeof(csv_mark) && w->mark == place && *p == csv_mark[place]; p++, place++)
        w->mark++;
    if (w->mark == sizeof(csv_mark) && w->base.start == 0)
        w->base.start = w->mark;
    return p;
}

static int csv_feed(struct cw_walk *base, uint64_t at, const uint8_t *data, size_t size, struct cw_error *err)
{
    struct cw_csv_walk *w = (struct cw_csv_walk *)base;
    const uint8_t *p = data + (base->wanted - at), *end = data + size;
    if (p >= end)
        return 0;
    XXH3_64bits_update(base->hash, p, (size_t)(end - p));
    if (base->wanted < sizeof(csv_mark))
        p = csv_skip_mark(w, base->wanted, p, end);
    /* the first quote at or after p; records before it are lines */
    const uint8_t *quote = memchr(p, '"', (size_t)(end - p)), *newline;
    while (p < end) {
        if (quote && quote < p)
            quote = memchr(p, '"', (size_t)(end - p));
        newline = w->state == CSV_RECORD ? memchr(p, '\n', (size_t)((quote ? quote : end) - p)) : NULL;
        if (!newline && !(newline = csv_find_end(w, p, end)))
            break;
        uint64_t place = at + (uint64_t)(newline - data);
        int r = csv_add(w, place, newline > data ? newline[-1] : w->last, err);
        if (r < 0)
            return r;
        p = newline + 1;
    }
    w->last = end[-1];
    base->wanted = at + size;
    return 0;
}

static int csv_end_of_stream(struct cw_walk *base, uint64_t size, struct cw_error *err)
{
    struct cw_csv_walk *w = (struct cw_csv_walk *)base;
    if (w->state == CSV_QUOTED)
        return cw_error_at_file(err, CW_E_DATA, base->path, base->start,
                                "%s: the record that begins at byte %" PRIu64
                                " has a quoted field that is not closed: the file ends inside it",
                                base->path, base->start);
    if (base->start >= size || w->mark == size)
        return 0;
    /* the last record has no line feed; a carriage return at its end belongs to its end nevertheless */
    return csv_add(w, size, w->last, err);
}

int cw_csv_walk_init(struct cw_csv_walk *w, const char *path, uint64_t stream_size, char delimiter,
                     struct cw_error *err)
{
    static const struct cw_walk_ops ops = {.feed = csv_feed, .end = csv_end_of_stream};
    *w = (struct cw_csv_walk){.delimiter = delimiter, .state = CSV_RECORD};
    return cw_walk_init(&w->base, &ops, path, stream_size, err);
}

int cw_csv_next(struct cw_csv_split *s, struct cw_csv_field *ret)
{
    const char *p = s->at, *end = s->end;
    if (!p)
        return 0;
    if (p < end && *p == '"') {
        const char *start = ++p;
        bool escaped = false;
        for (; (p = memchr(p, '"', (size_t)(end - p))) && p + 1 < end && p[1] == '"'; p += 2)
            escaped = true;
        if (!p || (p + 1 < end && p[1] != s->delimiter))
            return -1;
        *ret = (struct cw_csv_field){start, (size_t)(p - start), true, escaped};
        p++;
    } else {
        const char *start = p;
        while (p < end && *p != s->delimiter)
            p++;
        *ret = (struct cw_csv_field){start, (size_t)(p - start), false, false};
    }
    s->at = p < end ? p + 1 : NULL;
    return 1;
}

size_t cw_csv_unescape(const struct cw_csv_field *f, char *out)
{
    char *to = out;
    for (const char *p = f->text, *end = p + f->size; p < end; p++) {
        *to++ = *p;
        p += *p == '"';
    }
    return (size_t)(to - out);
}

bool cw_csv_missing(const struct cw_csv_field *f)
{
    static const char *const words[] = {"NA",  "N/A",  "NaN", "NULL", "None",
                                        "nan", "null", "n/a", "<NA>", "#N/A"};
    if (f->quoted || f->size > 4)
        return false;
    bool found = f->size == 0;
    for (size_t i = 0; !found && i < CW_COUNT_OF(words); i++)
        found = f->size == strlen(words[i]) && memcmp(f->text, words[i], f->size) == 0;
    return found;
}

struct cw_csv_field cw_csv_trim(const struct cw_csv_field *f)
{
    struct cw_csv_field t = *f;
    for (; t.size && (*t.text == ' ' || *t.text == '\t'); t.text++)
        t.size--;
    while (t.size && (t.text[t.size - 1] == ' ' || t.text[t.size - 1] == '\t'))
        t.size--;
    return t;
}
