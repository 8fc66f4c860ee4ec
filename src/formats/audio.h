/*
 * Decodes audio files in memory: WAV, FLAC, Ogg (Vorbis, Opus), MP3 and what else the library libsndfile
 * reads. A build without libsndfile has audio_none.c instead of audio.c. Thread-safe: each call has a file of
 * its own.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macro.h"

/* The library that this build lacks, for messages; NULL: audio can be decoded. */
extern const char *const cw_audio_lacks;

struct cw_audio;

struct cw_audio_facts {
    uint64_t frames; /* as the file claims; 0: the file does not say it */
    unsigned channels;
    int rate; /* in Hz */
};

/* Opens an audio file; data must stay until cw_audio_close. CW_E_RECORD: the data are no audio that can be
 * decoded, or are damaged. */
int cw_audio_open(const uint8_t *data, size_t size, struct cw_audio **ret, struct cw_audio_facts *facts,
                  struct cw_error *err) _must_check_;
/* Decodes the next frames, at most n of them, into `to`: channels values in [-1, 1] for each frame. Sets
 * *ret_n to their number; fewer than n: the file has ended. CW_E_RECORD: the file is damaged. */
int cw_audio_read(struct cw_audio *a, float *to, size_t n, size_t *ret_n, struct cw_error *err) _must_check_;
/* Accepts NULL. */
void cw_audio_close(struct cw_audio *a);
