/* Reading a file from front to back, with requests for the next blocks of an object. */
#include "storage/ahead.h"

#include <string.h>

#include "objects/object.h"
#include "storage/internal.h"

void cw_ahead_init(struct cw_ahead *a, struct cw_file *file)
{
    *a = (struct cw_ahead){.file = file, .depth = 1};
}

static struct cw_ahead_block *ahead_block(struct cw_ahead *a, unsigned i)
{
    return &a->blocks[(a->first + i) % CW_AHEAD_BLOCKS];
}

static void ahead_drop_first(struct cw_ahead *a)
{
    struct cw_ahead_block *b = ahead_block(a, 0);
    (void)cw_object_read_end(CW_STEAL(b->read), true, NULL);
    free(CW_STEAL(b->data));
    a->first++;
    a->n--;
}

void cw_ahead_deinit(struct cw_ahead *a)
{
    while (a->n > 0)
        ahead_drop_first(a);
}

/* Requests the block behind the last one, or at offset if there is none. */
static int ahead_request(struct cw_ahead *a, uint64_t offset, struct cw_error *err)
{
    struct cw_ahead_block *b = ahead_block(a, a->n);
    if (a->n > 0)
        offset = ahead_block(a, a->n - 1)->offset + ahead_block(a, a->n - 1)->size;
    size_t size = (size_t)CW_MIN(a->file->was.size - offset, (uint64_t)CW_AHEAD_BLOCK);
    uint8_t *data = malloc(size);
    if (!data)
        return cw_error_nomem(err, size, "a read buffer");
    *b = (struct cw_ahead_block){.offset = offset, .size = size, .data = data};
    int r = cw_object_read_begin(a->file->object, offset, size, data, &b->read, err);
    if (r < 0) {
        free(CW_STEAL(b->data));
        return r;
    }
    a->n++;
    return 0;
}

static uint64_t ahead_end(struct cw_ahead *a)
{
    return a->n ? ahead_block(a, a->n - 1)->offset + ahead_block(a, a->n - 1)->size : 0;
}

/* Makes the first block the one that holds the byte at offset, with its data there. The file is longer. */
static int ahead_move(struct cw_ahead *a, uint64_t offset, struct cw_error *err)
{
    int r = 0;
    bool in_order = offset < ahead_end(a) + CW_AHEAD_BLOCK; /* else the caller leaves much of the file out */
    unsigned n = a->n;
    while (a->n > 0 && ahead_block(a, 0)->offset + ahead_block(a, 0)->size <= offset)
        ahead_drop_first(a);
    if (a->n < n)
        a->depth = in_order ? CW_MIN(2 * a->depth, (unsigned)CW_AHEAD_BLOCKS) : 1;
    do {
        r = a->n < a->depth && (a->n == 0 || ahead_end(a) < a->file->was.size) ? ahead_request(a, offset, err)
                                                                               : 1;
    } while (r == 0);
    return r < 0 ? r : cw_object_read_end(CW_STEAL(ahead_block(a, 0)->read), false, err);
}

int cw_ahead_read(struct cw_ahead *a, uint64_t offset, void *to, size_t n, struct cw_error *err)
{
    bool before = a->n > 0 && offset < ahead_block(a, 0)->offset;
    if (!a->file->object || before || offset + n > a->file->was.size) /* or an error, which that reports */
        return cw_file_read(a->file, offset, to, n, false, err);
    for (uint8_t *at = to; n > 0;) {
        int r = ahead_move(a, offset, err);
        if (r < 0)
            return r;
        const struct cw_ahead_block *b = ahead_block(a, 0);
        size_t skip = (size_t)(offset - b->offset), part = CW_MIN(n, b->size - skip);
        memcpy(at, b->data + skip, part);
        at += part;
        offset += part;
        n -= part;
    }
    return 0;
}
