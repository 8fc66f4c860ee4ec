/*
 * Draws landscapes: a sky with clouds above rough ground. Both are fractal surfaces, whose detail falls with
 * its size as that of photographs does, so that their JPEGs are about as large, and as slow to decode. All
 * arithmetic is in integers: the pixels are the same on every machine.
 */
#include "cli/photo_draw.h"

#include <stdlib.h>

#include "base/macro.h"

enum {
    COARSE = 256, /* distance of the first points of a surface; a power of two */
    FIELD_WIDTH = CW_ALIGN_UP(PHOTO_DRAW_WIDTH + 1, COARSE),
    FIELD_HEIGHT = CW_ALIGN_UP(PHOTO_DRAW_HEIGHT + 1, COARSE),
    HEIGHT = 6000, /* the first points of a surface lie between -HEIGHT and HEIGHT */
    CLOUD = 60,    /* surface units that brighten the sky by 1 */
};

struct colour {
    int rgb[3];
};

/* A fast generator for the noise of a surface (xorshift32); returns -most to most. */
static inline int noise(uint32_t *state, int most)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    *state = x;
    return (int)((uint64_t)x * (uint32_t)(2 * most + 1) >> 32) - most;
}

/* Fills a surface by midpoint displacement: each pass puts a point between two points, at their mean height
 * plus noise, and the next pass has `rough` hundredths of that noise. The surface's ends meet. */
static void field_fill(int16_t *f, uint64_t seed, int rough)
{
    uint32_t state = (uint32_t)photo_random(&seed) | 1;
    int most = HEIGHT;
    for (int y = 0; y < FIELD_HEIGHT; y += COARSE)
        for (int x = 0; x < FIELD_WIDTH; x += COARSE)
            f[y * FIELD_WIDTH + x] = (int16_t)noise(&state, most);
    for (int step = COARSE, half; (half = step / 2) > 0; step = half) {
        most = most * rough / 100;
        for (int y = 0; y < FIELD_HEIGHT; y += step) {
            int16_t *row = f + y * FIELD_WIDTH;
            for (int x = 0; x < FIELD_WIDTH; x += step)
                row[x + half] = (int16_t)((row[x] + row[(x + step) % FIELD_WIDTH]) / 2 + noise(&state, most));
        }
        for (int y = 0; y < FIELD_HEIGHT; y += step) {
            const int16_t *above = f + y * FIELD_WIDTH, *below = f + (y + step) % FIELD_HEIGHT * FIELD_WIDTH;
            int16_t *row = f + (y + half) * FIELD_WIDTH;
            for (int x = 0; x < FIELD_WIDTH; x += half)
                row[x] = (int16_t)((above[x] + below[x]) / 2 + noise(&state, most));
        }
    }
}

/* A colour of this hue (0 to 1535, six parts of 256), mixed with grey of the same brightness. */
static struct colour colour_make(int hue, int brightness, int saturation)
{
    struct colour c;
    for (int k = 0; k < 3; k++) {
        int at = (hue + 512 * k) % 1536, ramp = at < 768 ? at : 1536 - at; /* 0 to 768 */
        int full = CW_MIN(CW_MAX(ramp - 256, 0), 256);
        c.rgb[k] = brightness * (256 + (full - 128) * saturation / 100) / 256;
    }
    return c;
}

static uint8_t pixel(int value)
{
    return (uint8_t)CW_MIN(CW_MAX(value, 0), 255);
}

/* far: colour of the part of the picture that is `part` of 256 away; near: of the rest. */
static int blend(int near, int far, int part)
{
    return near + (far - near) * part / 256;
}

int photo_draw(uint64_t seed, unsigned number, uint8_t *rgb, struct cw_error *err)
{
    const size_t bytes = sizeof(int16_t) * FIELD_WIDTH * FIELD_HEIGHT;
    _cleanup_free_ int16_t *clouds = malloc(bytes), *ground = malloc(bytes);
    if (!clouds || !ground)
        return cw_error_nomem(err, 2 * bytes, "a landscape");
    uint64_t state = seed;
    state = photo_random(&state) ^ number;
    field_fill(clouds, photo_random(&state), 62);
    field_fill(ground, photo_random(&state), 64);
    const int hue = (int)(number * 590 % 1536); /* far from the hues of the last numbers */
    const struct colour zenith = colour_make(hue + 700, 120, 55), haze = colour_make(hue + 620, 190, 25),
                        low = colour_make(hue, 70, 80), high = colour_make(hue + 150, 165, 60);
    const int middle = PHOTO_DRAW_HEIGHT * (20 + photo_random_below(&state, 30)) / 100;
    for (int y = 0; y < PHOTO_DRAW_HEIGHT; y++)
        for (int x = 0; x < PHOTO_DRAW_WIDTH; x++, rgb += 3) {
            const int at = y * FIELD_WIDTH + x, horizon = middle + ground[x] / 40;
            if (y < horizon) {
                const int part = CW_MIN(256 * y / horizon, 256), cloud = clouds[at] / CLOUD;
                for (int k = 0; k < 3; k++)
                    rgb[k] = pixel(blend(zenith.rgb[k], haze.rgb[k], part) + cloud);
                continue;
            }
            /* lit from the left: bright where the ground rises to the right */
            const int light = (ground[at + 1] - ground[at]) / 5 + clouds[at] / 120;
            const int tall = CW_MIN(CW_MAX((ground[at] + HEIGHT) * 256 / (2 * HEIGHT), 0), 256);
            const int far = 200 * (PHOTO_DRAW_HEIGHT - y) / (PHOTO_DRAW_HEIGHT - horizon);
            for (int k = 0; k < 3; k++)
                rgb[k] = pixel(
                    blend(blend(low.rgb[k], high.rgb[k], tall) + light, haze.rgb[k], far * far / 256));
        }
    return 0;
}
