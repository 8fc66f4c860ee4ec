/*
 * A walk finds the records of a file's stream in one pass; the stream is fed to it piece by piece. "Stream"
 * is the plain file or the decompressed content of a compressed file. This is the part that all formats
 * share: a format has a struct with a struct cw_walk as its first member, and gives its functions in a struct
 * cw_walk_ops.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/macro.h"

struct cw_file;
struct cw_walk;

enum cw_record_format {
    CW_FORMAT_TFRECORD,
    CW_FORMAT_LINES,
    CW_FORMAT_TAR,
    /* CSV, one format for each delimiter, because where a record ends depends on it */
    CW_FORMAT_CSV,
    CW_FORMAT_CSV_TAB,
    CW_FORMAT_CSV_SEMICOLON,
    CW_FORMAT_CSV_PIPE,
    CW_FORMATS
};

/* Returns the delimiter of a CSV format; 0: it is another format. */
static inline char cw_format_delimiter(enum cw_record_format format)
{
    return format < CW_FORMAT_CSV ? 0 : ",\t;|"[format - CW_FORMAT_CSV];
}

/* "TFRecord", "text", "tar", "CSV". */
const char *cw_record_format_name(enum cw_record_format format);

/* The records found, as columns. The walk owns the list until another owner takes it. */
struct cw_record_list {
    size_t n, room[3]; /* number of records; room of each column */
    uint64_t *offsets; /* of the record in the stream, as the format defines it */
    uint64_t *lengths; /* of the record in bytes, as the format defines it */
    uint32_t *crcs; /* TFRecord: the data's masked CRC as stored in the file, not checked; other formats: 0 */
};

int cw_record_list_add(struct cw_record_list *l, uint64_t offset, uint64_t length, uint32_t crc,
                       struct cw_error *err) _must_check_;
void cw_record_list_deinit(struct cw_record_list *l);

struct cw_walk_ops {
    /* Processes the bytes [at, at + size) of the stream; at <= w->wanted. CW_E_DATA names the file, the
     * record and the offset of the damage. */
    int (*feed)(struct cw_walk *w, uint64_t at, const uint8_t *data, size_t size, struct cw_error *err);
    /* Ends the walk; the stream has `size` bytes. CW_E_DATA if it ends inside a record. */
    int (*end)(struct cw_walk *w, uint64_t size, struct cw_error *err);
    /* Returns how many bytes from w->wanted on are best read at once. For formats of which parts need not be
     * read. 0, or stride NULL: fill the buffer. */
    size_t (*stride)(const struct cw_walk *w);
    /* Frees the format's own memory; NULL: it has none. */
    void (*deinit)(struct cw_walk *w);
};

struct cw_walk {
    const struct cw_walk_ops *ops;
    const char *path;     /* for messages; borrowed */
    uint64_t stream_size; /* bytes; UINT64_MAX: not known, because the file is compressed */
    uint64_t wanted;      /* stream offset of the next byte that must be fed */
    uint64_t start;       /* stream offset of the record that is being read */
    XXH3_state_t
        *hash; /* of the bytes that the file key covers (docs/semantics.md, section 1); NULL: TFRecord */
    uint64_t content; /* after `end`: the value of `hash`; TFRecord: 0 */
    struct cw_record_list list;
};

static inline int cw_walk_feed(struct cw_walk *w, uint64_t at, const uint8_t *data, size_t size,
                               struct cw_error *err)
{
    return w->ops->feed(w, at, data, size, err);
}

static inline int cw_walk_end(struct cw_walk *w, uint64_t size, struct cw_error *err)
{
    if (w->hash)
        w->content = XXH3_64bits_digest(w->hash);
    return w->ops->end(w, size, err);
}

/* Initialises a zeroed walk that hashes its content. */
int cw_walk_init(struct cw_walk *w, const struct cw_walk_ops *ops, const char *path, uint64_t stream_size,
                 struct cw_error *err) _must_check_;
/* Frees the walk's memory, the list and the hash included. */
void cw_walk_deinit(struct cw_walk *w);

/* Walks a plain file to its end, reading only the parts that the format needs. cancelled (may be NULL): if it
 * returns true, the walk ends with CW_E_INTERRUPTED. */
int cw_walk_scan(struct cw_walk *w, struct cw_file *file, int (*cancelled)(void *), void *cancel_arg,
                 struct cw_error *err) _must_check_;
