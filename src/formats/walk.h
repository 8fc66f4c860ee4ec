/*
 * Finding the records of a file's stream from its pieces, in one pass: what the formats share. "Stream" is
 * the plain file or what is inside a compressed one. A format embeds a struct cw_walk as its first member,
 * and gives its functions in a struct cw_walk_ops.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/macro.h"

struct cw_file;
struct cw_walk;

enum cw_record_format { CW_FORMAT_TFRECORD, CW_FORMAT_LINES, CW_FORMAT_TAR };

/* "TFRecord", "text", "tar". */
const char *cw_record_format_name(enum cw_record_format format);

/* Columns of the records found; owned by the walk until stolen. */
struct cw_record_list {
    size_t n, room[3]; /* of the columns */
    uint64_t *offsets; /* in the stream; where exactly a record begins is the format's affair */
    uint64_t *lengths; /* and how it ends */
    uint32_t *crcs;    /* TFRecord: the data's CRC as it stands in the file, not checked; others: 0 */
};

int cw_record_list_add(struct cw_record_list *l, uint64_t offset, uint64_t length, uint32_t crc,
                       struct cw_error *err) _must_check_;
void cw_record_list_deinit(struct cw_record_list *l);

struct cw_walk_ops {
    /* Takes the bytes [at, at + size) of the stream, at <= wanted. CW_E_DATA names file, record and offset of
     * what is damaged. */
    int (*feed)(struct cw_walk *w, uint64_t at, const uint8_t *data, size_t size, struct cw_error *err);
    /* The stream ended at size: an error if that is inside a record. */
    int (*end)(struct cw_walk *w, uint64_t size, struct cw_error *err);
    /* How many bytes from `wanted` on are best read at once, where a format can leave out parts of a plain
     * file; NULL, or 0: a buffer full. */
    size_t (*stride)(const struct cw_walk *w);
    /* Frees what the format keeps beside these; NULL: nothing. */
    void (*deinit)(struct cw_walk *w);
};

struct cw_walk {
    const struct cw_walk_ops *ops;
    const char *path;     /* for messages; borrowed */
    uint64_t stream_size; /* where known (a plain file), else UINT64_MAX */
    uint64_t wanted;      /* stream offset of the next byte that must be fed */
    uint64_t start;       /* where the record begins that is not yet in the list */
    XXH3_state_t *hash;   /* of what identifies the content (docs/semantics.md section 1); NULL: TFRecord */
    uint64_t content;     /* after `end`: the hash; TFRecord: 0 */
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

/* Initialises a walk of zeros that hashes its content. */
int cw_walk_init(struct cw_walk *w, const struct cw_walk_ops *ops, const char *path, uint64_t stream_size,
                 struct cw_error *err) _must_check_;
/* Frees the list and the hash too. */
void cw_walk_deinit(struct cw_walk *w);

/* Walks a plain file to its end, reading no more than the format wants. cancelled may be NULL. */
int cw_walk_scan(struct cw_walk *w, struct cw_file *file, int (*cancelled)(void *), void *cancel_arg,
                 struct cw_error *err) _must_check_;
