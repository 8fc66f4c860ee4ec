/* Decodes audio files in memory with libsndfile. Owns the library's file between open and close. */
#include "formats/audio.h"

#include <errno.h>
#include <pthread.h>
#include <sndfile.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"

#define RIFF_HEADER 12u /* bytes before the first chunk of a WAV file */

const char *const cw_audio_lacks;

/* Held while a file is opened: libsndfile writes the reason why it can't open a file to a global text. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

struct cw_audio {
    const uint8_t *data;
    sf_count_t size, at; /* bytes; position of the next read */
    SNDFILE *file;
    uint64_t frames, got; /* claimed; decoded so far */
    unsigned channels;
};

static sf_count_t memory_size(void *user)
{
    return ((const struct cw_audio *)user)->size;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *user)
{
    struct cw_audio *a = user;
    sf_count_t from = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? a->at : a->size, to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0)
        return -1;
    return a->at = to;
}

static sf_count_t memory_read(void *to, sf_count_t n, void *user)
{
    struct cw_audio *a = user;
    sf_count_t left = a->at < a->size ? a->size - a->at : 0, take = n < left ? n : left;
    if (take <= 0)
        return 0;
    memcpy(to, a->data + a->at, (size_t)take);
    a->at += take;
    return take;
}

static sf_count_t memory_tell(void *user)
{
    return ((const struct cw_audio *)user)->at;
}

static uint32_t audio_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Checks that a WAV file has all the bytes of its samples: libsndfile silently reads those that there are. A
 * program that writes to a pipe does not know the size, and writes 0 or a number above 2^31 - 1. */
static int audio_check_wav(const uint8_t *data, size_t size, struct cw_error *err)
{
    if (size < RIFF_HEADER || memcmp(data, "RIFF", 4) != 0 || memcmp(data + 8, "WAVE", 4) != 0)
        return 0;
    for (size_t at = RIFF_HEADER; at + 8 <= size;) {
        uint32_t bytes = audio_le32(data + at + 4);
        size_t left = size - at - 8;
        if (memcmp(data + at, "data", 4) == 0) {
            if (bytes > left && bytes < UINT32_C(0x7fffff00))
                return cw_error_set(err, CW_E_RECORD,
                                    "the audio is cut off: its samples have %u bytes, but only %zu are there",
                                    bytes, left);
            return 0;
        }
        if (bytes > left)
            break;
        at += 8 + (size_t)bytes + (bytes & 1);
    }
    return 0;
}

int cw_audio_open(const uint8_t *data, size_t size, struct cw_audio **ret, struct cw_audio_facts *facts,
                  struct cw_error *err)
{
    static SF_VIRTUAL_IO memory = {
        .get_filelen = memory_size, .seek = memory_seek, .read = memory_read, .tell = memory_tell};
    SF_INFO info = {0};
    int r = audio_check_wav(data, size, err);
    if (r < 0)
        return r;
    struct cw_audio *a = malloc(sizeof(*a));
    if (!a)
        return cw_error_nomem(err, sizeof(*a), "an audio file");
    *a = (struct cw_audio){.data = data, .size = (sf_count_t)size};
    pthread_mutex_lock(&opening);
    a->file = sf_open_virtual(&memory, SFM_READ, &info, a);
    pthread_mutex_unlock(&opening);
    if (!a->file || info.channels < 1 || info.samplerate < 1) {
        cw_audio_close(a);
        return cw_error_set(
            err, CW_E_RECORD,
            "%zu bytes are no audio that libsndfile can decode, or are damaged: expected WAV, "
            "FLAC, Ogg, MP3 or another format of libsndfile",
            size);
    }
    a->frames = info.frames > 0 && info.frames < SF_COUNT_MAX ? (uint64_t)info.frames : 0;
    a->channels = (unsigned)info.channels;
    *facts = (struct cw_audio_facts){.frames = a->frames, .channels = a->channels, .rate = info.samplerate};
    *ret = a;
    return 0;
}

int cw_audio_read(struct cw_audio *a, float *to, size_t n, size_t *ret_n, struct cw_error *err)
{
    sf_count_t got = sf_readf_float(a->file, to, (sf_count_t)n);
    *ret_n = got > 0 ? (size_t)got : 0;
    a->got += *ret_n;
    if (*ret_n < n && (sf_error(a->file) != SF_ERR_NO_ERROR || a->got < a->frames))
        return cw_error_set(err, CW_E_RECORD, "the audio is damaged or cut off after %llu of %llu frames",
                            (unsigned long long)a->got, (unsigned long long)a->frames);
    return 0;
}

void cw_audio_close(struct cw_audio *a)
{
    if (a && a->file)
        sf_close(a->file);
    free(a);
}
