/*
 * Fuzzes tar archives. The first byte chooses the compression, and whether blocks that look like headers get
 * correct checksums. The rest is indexed, and each sample is read back through the index and split into its
 * files: every file that is listed must be readable. Each file's content is also parsed as .npy.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/npy.h"
#include "formats/tar.h"
#include "dataset/segment.h"
#include "storage/file.h"

#define MAX_TOTAL ((uint64_t)4 << 20) /* of decompressed samples read back */
#define MOST_MEMORY ((size_t)8 << 20) /* bytes that decompression may take */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* keeps the compiler from removing the reads */

static void use_npy(const uint8_t *data, size_t size)
{
    struct cw_npy npy;
    char why[CW_NPY_WHY] = "";
    uint8_t *exact = malloc(size); /* a heap block, so that ASan finds reads past its end */
    memcpy(exact, data, size);
    if (!cw_npy_parse(exact, size, &npy, why)) {
        if (!why[0])
            abort();
    } else if (npy.data < exact || npy.data + npy.size != exact + size) {
        abort();
    }
    free(exact);
}

static void use_sample(const uint8_t *data, size_t size)
{
    struct cw_tar_files files;
    struct cw_tar_file file;
    char why[CW_TAR_WHY];
    int r, n = 0;
    cw_tar_files_init(&files, data, size);
    for (; (r = cw_tar_next(&files, &file, why)) > 0; n++) {
        if (file.data < data || file.data + file.size > data + size || file.name.key_size == 0 ||
            file.name.extension_size == 0 || file.name.key[0] == '/')
            abort();
        sink += (uint64_t)file.name.key[file.name.key_size - 1] +
                (uint64_t)file.name.extension[file.name.extension_size - 1];
        use_npy(file.data, file.size);
    }
    if (r < 0 || n == 0)
        abort(); /* the index has listed this sample */
}

static void read_back(const struct cw_segment *s, struct cw_file *file)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < s->n_records && total < MAX_TOTAL; i++) {
        struct cw_span span = cw_segment_span(s, i);
        uint8_t *sample = malloc(span.size);
        struct cw_decompress *z = NULL;
        if (cw_segment_read(s, file, &i, 1, &sample, &z, NULL) < 0)
            abort(); /* every indexed record must be readable */
        cw_decompress_free(z);
        use_sample(sample, span.size);
        total += span.size;
        free(sample);
    }
}

/* Gives each block that has ustar's magic a correct checksum. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned sum = 0;
        if (memcmp(data + at + 257, "ustar", 5) != 0)
            continue;
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += data[at + i];
        snprintf((char *)data + at + 148, 8, "%06o", sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    if (data[0] & 8)
        mend(copy + 1, size - 1);
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, copy + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct cw_stat st;
    struct cw_segment s, again;
    struct cw_error err = {0};
    struct cw_file *file;
    if (cw_stat(path, &st, NULL) < 0)
        abort();
    struct cw_segment_input in = {
        .format = CW_FORMAT_TAR,
        .path = path,
        .relative_path = "fuzz",
        .file = st,
        .codec = (enum cw_codec)((data[0] & 7) % CW_CODECS),
        .memory = MOST_MEMORY,
    };
    if (cw_segment_build(&in, &s, &err) == 0) {
        if (cw_segment_attach(s.base, s.size, &again) < 0 || cw_file_new(path, &st, &file, NULL) < 0)
            abort();
        read_back(&s, file);
        cw_file_free(file);
        cw_segment_deinit(&s);
    } else if ((err.status != CW_E_DATA && err.status != CW_E_BUDGET) || !err.message[0]) {
        abort(); /* a bad archive must be CW_E_DATA or CW_E_BUDGET with a message */
    }
    use_npy(copy + 1, size - 1);
    free(copy);
    close(fd);
    return 0;
}
