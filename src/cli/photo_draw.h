/* Draws landscapes that stand in for photographs: cli/photo_set.c cuts pictures out of them where no
 * photographs are given. */
#pragma once
#include <stdint.h>

#include "base/error.h"

enum { PHOTO_DRAW_WIDTH = 1500, PHOTO_DRAW_HEIGHT = 1125 };

/* Draws landscape `number` into rgb, PHOTO_DRAW_HEIGHT rows of PHOTO_DRAW_WIDTH * 3 bytes. The pixels depend
 * on seed and number alone. Each number has its own colours. */
int photo_draw(uint64_t seed, unsigned number, uint8_t *rgb, struct cw_error *err) _must_check_;

/* SplitMix64 (Steele, Lea, Flood 2014): returns the next number of the sequence, and advances the state. */
static inline uint64_t photo_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a number from 0 to limit - 1. */
static inline int photo_random_below(uint64_t *state, int limit)
{
    return (int)((photo_random(state) >> 32) * (uint64_t)limit >> 32);
}
