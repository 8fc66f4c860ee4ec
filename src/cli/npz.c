/* --dump of `run`: writes a batch as an .npz file, an uncompressed zip archive of .npy files. */
#include "cli/npz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "formats/npy.h"

#define MAX_ENTRIES (2 * CW_MAX_COMPONENTS + 4)

struct entry {
    char name[300];
    uint32_t crc, size, offset;
};

struct zip {
    FILE *f;
    struct entry entries[MAX_ENTRIES];
    unsigned n;
    bool too_large;
};

/* Headers of a zip archive: little-endian, without gaps. */
struct __attribute__((packed)) about { /* the fields that both headers of an entry have */
    uint16_t version, flags, method;
    uint32_t date, crc, stored, size;
    uint16_t name, extra;
};

struct __attribute__((packed)) local_header {
    uint32_t magic;
    struct about about;
};

struct __attribute__((packed)) central_header {
    uint32_t magic;
    uint16_t made_by;
    struct about about;
    uint16_t comment, disk, internal;
    uint32_t external, offset;
};

struct __attribute__((packed)) end_header {
    uint32_t magic;
    uint16_t disk, first_disk, here, all;
    uint32_t size, start;
    uint16_t comment;
};

_Static_assert(sizeof(struct local_header) == 30 && sizeof(struct central_header) == 46 &&
                   sizeof(struct end_header) == 22,
               "sizes that the zip format fixes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers are written in the machine's byte order");

static struct about zip_about(const struct entry *e)
{
    return (struct about){
        .version = 20,
        .flags = 0x0800,    /* names are UTF-8 */
        .date = 0x00210000, /* 1980-01-01: the file must not depend on the clock */
        .crc = e->crc,
        .stored = e->size,
        .size = e->size,
        .name = (uint16_t)strlen(e->name),
    };
}

/* Adds an array as a .npy file. descr: NumPy's name of the dtype. */
static void zip_add(struct zip *z, const char *name, const char *descr, const int64_t *dims, int ndim,
                    const void *data, size_t size)
{
    char header[CW_NPY_HEADER];
    size_t total = cw_npy_header(header, descr, dims, ndim);
    long offset = ftell(z->f);
    if (total + size >= UINT32_MAX || offset < 0 || (uint64_t)offset + total + size >= UINT32_MAX ||
        z->n == MAX_ENTRIES) {
        z->too_large = true;
        return;
    }
    struct entry *e = &z->entries[z->n++];
    snprintf(e->name, sizeof(e->name), "%.280s.npy", name);
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)header, (uInt)total);
    e->crc = size ? (uint32_t)crc32(crc, data, (uInt)size) : crc;
    e->size = (uint32_t)(total + size);
    e->offset = (uint32_t)offset;
    fwrite(&(struct local_header){.magic = 0x04034b50, .about = zip_about(e)}, sizeof(struct local_header), 1,
           z->f);
    fputs(e->name, z->f);
    fwrite(header, 1, total, z->f);
    if (size)
        fwrite(data, 1, size, z->f);
}

static void zip_finish(struct zip *z)
{
    long start = ftell(z->f);
    for (unsigned i = 0; i < z->n; i++) {
        const struct entry *e = &z->entries[i];
        const struct central_header h = {
            .magic = 0x02014b50, .made_by = 20, .about = zip_about(e), .offset = e->offset};
        fwrite(&h, sizeof(h), 1, z->f);
        fputs(e->name, z->f);
    }
    const struct end_header h = {.magic = 0x06054b50,
                                 .here = (uint16_t)z->n,
                                 .all = (uint16_t)z->n,
                                 .size = (uint32_t)(ftell(z->f) - start),
                                 .start = (uint32_t)start};
    fwrite(&h, sizeof(h), 1, z->f);
}

static int npz_add_ids(struct zip *z, const struct cw_compiled *c, const struct cw_batch *b,
                       struct cw_error *err)
{
    char id[128], text[16];
    size_t width = 1;
    for (uint32_t i = 0; i < b->n; i++) {
        cw_record_print(&c->programs[b->ids[i].leaf], &b->ids[i], id);
        width = CW_MAX(width, strlen(id));
    }
    _cleanup_free_ char *records = calloc(b->n + 1u, width);
    _cleanup_free_ uint32_t *flags = calloc(b->n + 1u, sizeof(*flags));
    if (!records || !flags)
        return cw_error_nomem(err, b->n * width, "a dump");
    for (uint32_t i = 0; i < b->n; i++) {
        cw_record_print(&c->programs[b->ids[i].leaf], &b->ids[i], id);
        memcpy(records + i * width, id, strlen(id));
        flags[i] = b->ids[i].flags;
    }
    int64_t n = b->n, meta[6] = {(int64_t)b->epoch, (int64_t)b->g, 0, 0, n, b->leading}, six = 6;
    snprintf(text, sizeof(text), "|S%zu", width);
    zip_add(z, "__records__", text, &n, 1, records, b->n * width);
    zip_add(z, "__flags__", "<u4", &n, 1, flags, b->n * sizeof(*flags));
    zip_add(z, "__meta__", "<i8", &six, 1, meta, sizeof(meta));
    return 0;
}

int cli_npz_write(const char *dir, const struct cw_compiled *c, const struct cw_batch *b,
                  struct cw_error *err)
{
    char path[4200], epoch[32] = "", name[300];
    struct zip z = {0};
    if (b->epoch)
        snprintf(epoch, sizeof(epoch), "E%" PRIu64 "-", b->epoch);
    snprintf(path, sizeof(path), "%.4000s/%s%08" PRIu64 ".npz", dir, epoch, b->g);
    z.f = fopen(path, "we");
    if (!z.f)
        return cw_error_errno(err, CW_E_OPTION, errno, "--dump: can't open %s", path);
    for (unsigned k = 0; k < b->n_components; k++) {
        const struct cw_batch_component *o = &b->components[k];
        if (o->dtype == CW_BYTES) {
            int64_t bytes = (int64_t)o->size, n = b->n;
            zip_add(&z, o->name, "|u1", &bytes, 1, o->data, o->size);
            snprintf(name, sizeof(name), "%.280s.lengths", o->name);
            zip_add(&z, name, "<u8", &n, 1, o->lengths, b->n * sizeof(uint64_t));
        } else {
            zip_add(&z, o->name, cw_npy_descr(o->dtype), o->dims, o->ndim, o->data, o->size);
        }
    }
    int r = npz_add_ids(&z, c, b, err);
    zip_finish(&z);
    bool failed = ferror(z.f) != 0;
    failed |= fclose(z.f) != 0;
    if (r >= 0 && z.too_large)
        return cw_error_set(err, CW_E_OPTION,
                            "--dump: a batch is larger than 4 GiB, the most that an .npz file (a zip "
                            "archive) holds: expected smaller batches");
    if (r >= 0 && failed)
        return cw_error_errno(err, CW_E_IO, errno, "--dump: can't write %s", path);
    return r;
}
