/* Tar archives for tests. Include after data_files.h. */
#pragma once

/* Writes the checksum of the header block at b->data + at. */
static inline void tar_seal(struct bytes *b, size_t at)
{
    unsigned sum = 0;
    memset(b->data + at + 148, ' ', 8);
    for (size_t i = 0; i < 512; i++)
        sum += b->data[at + i];
    snprintf((char *)b->data + at + 148, 8, "%06o", sum);
}

/* A ustar header; where it lies. */
static inline size_t tar_header(struct bytes *b, const char *name, size_t size, char type)
{
    static const uint8_t zeros[512];
    size_t at = b->size;
    bytes_add(b, zeros, 512);
    memcpy(b->data + at, name, strlen(name) < 100 ? strlen(name) : 100);
    snprintf((char *)b->data + at + 100, 8, "%07o", 0644);
    snprintf((char *)b->data + at + 124, 12, "%011o", (unsigned)size);
    snprintf((char *)b->data + at + 136, 12, "%011o", 0);
    b->data[at + 156] = (uint8_t)type;
    memcpy(b->data + at + 257,
           "ustar\0"
           "00",
           8);
    tar_seal(b, at);
    return at;
}

static inline size_t tar_member(struct bytes *b, const char *name, const void *data, size_t size, char type)
{
    static const uint8_t zeros[512];
    size_t at = tar_header(b, name, size, type);
    bytes_add(b, data, size);
    bytes_add(b, zeros, (512 - size % 512) % 512);
    return at;
}

static inline void tar_file(struct bytes *b, const char *name, const char *text)
{
    tar_member(b, name, text, strlen(text), '0');
}

static inline void tar_end(struct bytes *b)
{
    static const uint8_t zeros[1024];
    bytes_add(b, zeros, 1024);
}
