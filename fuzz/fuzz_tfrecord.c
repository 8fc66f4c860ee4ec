/* Fuzzes TFRecord files, uncompressed and compressed: indexes the bytes, then reads every record back through
 * the index. The first byte chooses the compression. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/tfrecord.h"
#include "dataset/segment.h"
#include "storage/file.h"

/* of decompressed records read back; a small input may inflate a thousandfold */
#define MAX_TOTAL ((uint64_t)16 << 20)
#define MOST_MEMORY ((size_t)8 << 20) /* bytes that decompression may take */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_back(const struct cw_segment *s, struct cw_file *file)
{
    uint8_t *into[64];
    uint64_t records[64], total = 0;
    size_t n = 0;
    char why[160];
    for (uint64_t i = 0; i < s->n_records && n < 64 && total < MAX_TOTAL; i += 1 + s->n_records / 64) {
        total += s->lengths[i];
        records[n] = i;
        into[n++] = malloc(s->lengths[i] + CW_TFRECORD_FRAME);
    }
    struct cw_decompress *z = NULL;
    if (cw_segment_read(s, file, records, n, into, &z, NULL) < 0)
        abort(); /* every indexed record must be readable */
    cw_decompress_free(z);
    for (size_t i = 0; i < n; i++) {
        (void)cw_tfrecord_check(into[i], s->lengths[records[i]] + CW_TFRECORD_FRAME, why);
        if (!cw_tfrecord_is_header(into[i], CW_TFRECORD_HEADER))
            abort();
        free(into[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct cw_stat st;
    struct cw_segment s, again;
    struct cw_error err = {0};
    struct cw_file *file;
    if (cw_stat(path, &st, NULL) < 0)
        abort();
    struct cw_segment_input in = {
        .path = path,
        .relative_path = "fuzz",
        .file = st,
        .codec = (enum cw_codec)(data[0] % CW_CODECS),
        .memory = MOST_MEMORY,
    };
    if (cw_segment_build(&in, &s, &err) == 0) {
        if (cw_segment_attach(s.base, s.size, &again) < 0 || cw_file_new(path, &st, &file, NULL) < 0)
            abort();
        read_back(&s, file);
        cw_file_free(file);
        cw_segment_deinit(&s);
    } else if ((err.status != CW_E_DATA && err.status != CW_E_BUDGET) || !err.message[0]) {
        abort(); /* a bad file must be CW_E_DATA or CW_E_BUDGET with a message */
    }
    close(fd);
    return 0;
}
