/* Elements as the samples of a tar archive (WebDataset): the format tar of shards. */
#include <inttypes.h>
#include <stdio.h>

#include "formats/npy.h"
#include "formats/shard_format.h"
#include "formats/tar.h"

#define NAME_MOST 100                 /* bytes of a name in a header of the format ustar */
#define KEY_DIGITS 10                 /* at least, so that names sort like numbers */
#define KEY_MOST 20                   /* digits of any number */
#define FILE_MOST (UINT64_C(1) << 33) /* bytes of a file: 11 octal digits */

static bool shard_tar_is_npy(const struct cw_shard_component *c)
{
    return c->type.dtype != CW_BYTES;
}

/* Writes the extension of a component's file. */
static void shard_tar_extension(const struct cw_shard_component *c, char out[NAME_MOST + 8])
{
    snprintf(out, NAME_MOST + 8, "%.*s%s", NAME_MOST, c->name, shard_tar_is_npy(c) ? ".npy" : "");
}

static int shard_tar_check(const struct cw_shard_schema *s, struct cw_error *err)
{
    char a[NAME_MOST + 8], b[NAME_MOST + 8];
    for (unsigned i = 0; i < s->n; i++) {
        const char *name = s->components[i].name;
        shard_tar_extension(&s->components[i], a);
        if (strchr(name, '/') || strlen(name) > NAME_MOST - KEY_MOST - 1 - strlen(".npy"))
            return cw_error_value(
                err, CW_E_OPTION, "format", "tar", "cachew or tfrecord, or other names",
                "format tar can't hold component \"%.80s\": a name must have no \"/\" and at "
                "most %zu bytes, because it becomes part of a file's name; rename it",
                name, NAME_MOST - KEY_MOST - 1 - strlen(".npy"));
        for (unsigned k = 0; k < i; k++) {
            shard_tar_extension(&s->components[k], b);
            if (strcmp(a, b) == 0)
                return cw_error_value(
                    err, CW_E_OPTION, "format", "tar", "cachew or tfrecord, or other names",
                    "format tar would write the components \"%.60s\" and \"%.60s\" to files of "
                    "the same name: rename one of them",
                    s->components[k].name, name);
        }
    }
    return 0;
}

/* Fills in the header block of a regular file. */
static void shard_tar_header(uint8_t *block, uint64_t number, const char *extension, uint64_t size)
{
    unsigned sum = 0;
    char name[KEY_MOST + NAME_MOST + 16];
    int n = snprintf(name, sizeof(name), "%0*" PRIu64 ".%s", KEY_DIGITS, number, extension);
    memset(block, 0, CW_TAR_BLOCK);
    memcpy(block, name, (size_t)CW_MIN(n, NAME_MOST));
    memcpy(block + 100, "0000644", 8);                      /* mode */
    memcpy(block + 108, "0000000", 8);                      /* user */
    memcpy(block + 116, "0000000", 8);                      /* group */
    snprintf((char *)block + 124, 12, "%011" PRIo64, size); /* size */
    memcpy(block + 136, "00000000000", 12);                 /* time: a shard depends on no clock */
    memset(block + 148, ' ', 8);                            /* checksum, while it is computed */
    block[156] = '0';                                       /* a regular file */
    memcpy(block + 257, "ustar\00000", 8);                  /* magic and version */
    for (size_t i = 0; i < CW_TAR_BLOCK; i++)
        sum += block[i];
    snprintf((char *)block + 148, 8, "%06o", sum);
}

static int shard_tar_write(const struct cw_shard_schema *s, uint64_t number, const struct cw_tensor *values,
                           struct cw_shard_bytes *to, struct cw_error *err)
{
    for (unsigned i = 0; i < s->n; i++) {
        const struct cw_shard_component *c = &s->components[i];
        const struct cw_tensor *v = &values[i];
        char extension[NAME_MOST + 8], header[CW_NPY_HEADER];
        size_t n = shard_tar_is_npy(c) ? cw_npy_header(header, cw_npy_descr(c->type.dtype), v->dims, v->ndim)
                                       : 0;
        size_t size = n + v->size, room = CW_ALIGN_UP(size, CW_TAR_BLOCK);
        if (size >= FILE_MOST)
            return cw_error_set(err, CW_E_DATA,
                                "component \"%.60s\" of element %" PRIu64
                                " has %zu bytes: a file in a tar archive "
                                "must be smaller than 8 GiB; use format cachew",
                                c->name, number, size);
        uint8_t *at = cw_shard_room(to, CW_TAR_BLOCK + room, err);
        if (!at)
            return err ? err->status : CW_E_MEMORY;
        shard_tar_extension(c, extension);
        shard_tar_header(at, number, extension, size);
        at += CW_TAR_BLOCK;
        memcpy(at, header, n);
        if (v->size)
            memcpy(at + n, v->data, v->size);
        memset(at + size, 0, room - size);
        to->size += CW_TAR_BLOCK + room;
    }
    return 0;
}

/* Sets *v from the file of a component. */
static bool shard_tar_take(const struct cw_shard_component *c, const struct cw_tar_file *file,
                           struct cw_shard_value *v, char why[CW_SHARD_WHY])
{
    struct cw_npy npy;
    char reason[CW_NPY_WHY];
    *v = (struct cw_shard_value){.data = file->data, .size = file->size};
    if (!shard_tar_is_npy(c))
        return true;
    if (!cw_npy_parse(file->data, file->size, &npy, reason))
        return cw_shard_wrong(why, "the file of component \"%.60s\" is %s", c->name, reason);
    if (npy.dtype != c->type.dtype)
        return cw_shard_wrong(why, "component \"%.60s\" is %s, expected %s", c->name,
                              cw_dtype_name(npy.dtype), cw_dtype_name(c->type.dtype));
    v->data = npy.data;
    return cw_shard_set_dims(c, npy.dims, npy.ndim, v, why);
}

static bool shard_tar_read(const struct cw_shard_schema *s, const uint8_t *data, size_t size,
                           struct cw_shard_value *values, char why[CW_SHARD_WHY])
{
    struct cw_tar_files files;
    struct cw_tar_file file;
    char extension[NAME_MOST + 8], reason[CW_TAR_WHY];
    unsigned i = 0;
    int r = 0;
    cw_tar_files_init(&files, data, size);
    for (; i < s->n && (r = cw_tar_next(&files, &file, reason)) > 0; i++) {
        shard_tar_extension(&s->components[i], extension);
        if (file.name.extension_size != strlen(extension) ||
            memcmp(file.name.extension, extension, file.name.extension_size) != 0)
            return cw_shard_wrong(why, "its file number %u has the extension \"%.*s\", expected \"%s\"", i,
                                  (int)CW_MIN(file.name.extension_size, (size_t)60), file.name.extension,
                                  extension);
        if (!shard_tar_take(&s->components[i], &file, &values[i], why))
            return false;
    }
    if (r < 0)
        return cw_shard_wrong(why, "%.*s", CW_SHARD_WHY - 1, reason);
    return i == s->n || cw_shard_wrong(why, "it has no file for component \"%.60s\"", s->components[i].name);
}

const struct cw_shard_ops cw_shard_tar = {.check = shard_tar_check,
                                          .write = shard_tar_write,
                                          .end_zeros = (size_t)2 * CW_TAR_BLOCK,
                                          .read = shard_tar_read};
