/*
 * CSV files (RFC 4180): each record is a line of fields. A field may be quoted with `"`, and may then hold
 * delimiters, line breaks and quotes (as `""`). A record ends with "\n" or "\r\n"; the last one may end with
 * the file. Empty lines between records and a byte order mark before the first are left out. The offsets and
 * lengths in a walk's list are those of the records without their ends.
 */
#pragma once
#include "formats/walk.h"

struct cw_csv_walk {
    struct cw_walk base; /* its content is the XXH3_64 of the stream */
    char delimiter;
    uint8_t state; /* enum csv_state of csv.c, before base.wanted */
    uint8_t last;  /* the byte of the stream before base.wanted */
    uint8_t mark;  /* bytes of a byte order mark that the stream begins with */
};

int cw_csv_walk_init(struct cw_csv_walk *w, const char *path, uint64_t stream_size, char delimiter,
                     struct cw_error *err) _must_check_;

struct cw_csv_field {
    const char *text; /* without the quotes around it */
    size_t size;
    bool quoted;  /* it is quoted, so it is never a missing value */
    bool escaped; /* it holds `""`, which stands for a quote (cw_csv_unescape) */
};

/* Reads the fields of a record one after the other. */
struct cw_csv_split {
    const char *at, *end; /* the bytes that are left; at NULL: there are no more fields */
    char delimiter;
};

static inline struct cw_csv_split cw_csv_split(const void *record, size_t size, char delimiter)
{
    const char *text = record;
    return (struct cw_csv_split){.at = text, .end = text + size, .delimiter = delimiter};
}

/* Returns 1: *ret is the next field; 0: there are no more; -1: text follows the closing quote of the field.
 */
int cw_csv_next(struct cw_csv_split *s, struct cw_csv_field *ret);
/* Writes the text of an escaped field to out, which has room for f->size bytes. Returns its size. */
size_t cw_csv_unescape(const struct cw_csv_field *f, char *out);
/* Returns whether a field stands for a missing value: it is empty, NA, N/A, NaN, NULL, None, nan, null, n/a,
 * <NA> or #N/A, and not quoted. */
bool cw_csv_missing(const struct cw_csv_field *f);
/* Returns the field without spaces and tabs around it, for numbers. */
struct cw_csv_field cw_csv_trim(const struct cw_csv_field *f);
