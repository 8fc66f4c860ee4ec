/*
 * A plug-in with two operators: negative turns bright pixels into their negatives, random_negative does so
 * for randomly chosen images.
 *
 *     make
 *     cachew ops negative --plugin ./negative.so
 *     cachew run negative.json --plugin ./negative.so --digest
 */
#include <cachew/plugin.h>
#include <stdlib.h>

struct negative {
    unsigned threshold; /* pixels of this value and above are inverted */
    double probability; /* for random_negative: the probability that an image becomes a negative */
};

/* Binds both operators: they read a uint8 component of any shape, and write it with the same type. */
static int negative_bind(struct cachew_bind *b, void **state)
{
    const char *component = cachew_attr_string(b, "component");
    struct cachew_type type;
    struct negative *s = calloc(1, sizeof(*s));
    if (!s)
        return CACHEW_E_MEMORY;
    *state = s;
    s->threshold = (unsigned)cachew_attr_int(b, "threshold");
    cachew_bind_read(b, component, &type); /* input 0 */
    if (type.dtype != CACHEW_UINT8)
        return cachew_bind_fail(b, "component", "a uint8 component, but \"%s\" is %s", component,
                                cachew_dtype_text(type.dtype));
    return cachew_bind_write(b, component, &type); /* output 0 */
}

static int random_negative_bind(struct cachew_bind *b, void **state)
{
    int r = negative_bind(b, state);
    if (r >= 0)
        ((struct negative *)*state)->probability = cachew_attr_float(b, "probability");
    return r;
}

/* Writes the image with all pixels of at least `threshold` inverted; 256: none is inverted. */
static int write_image(struct cachew_row *row, unsigned threshold)
{
    const struct cachew_tensor *in = &row->in[0];
    const uint8_t *from = in->data;
    uint8_t *to = cachew_row_output(row, 0, in->dims, in->ndim);
    if (!to)
        return CACHEW_E_MEMORY;
    for (size_t i = 0; i < in->size; i++)
        to[i] = from[i] < threshold ? from[i] : (uint8_t)(255 - from[i]);
    return CACHEW_OK;
}

static int negative_run(const void *state, struct cachew_row *row)
{
    const struct negative *s = state;
    return write_image(row, s->threshold);
}

static int random_negative_run(const void *state, struct cachew_row *row)
{
    const struct negative *s = state;
    uint32_t words[4];
    cachew_row_draw(row, 0, words);
    return write_image(row, cachew_uniform(words[0]) < s->probability ? s->threshold : 256);
}

#define COMPONENT {.name = "component", .kind = CACHEW_ATTR_COMPONENT, .doc = "the uint8 component"}
#define THRESHOLD \
    {.name = "threshold", \
     .kind = CACHEW_ATTR_INT, \
     .def = "128", \
     .min = 0, \
     .max = 256, \
     .doc = "values from here on are inverted"}

static const struct cachew_attr negative_attrs[] = {COMPONENT, THRESHOLD, {0}};
static const struct cachew_attr random_negative_attrs[] = {
    COMPONENT,
    THRESHOLD,
    {.name = "probability",
     .kind = CACHEW_ATTR_FLOAT,
     .def = "0.5",
     .min = 0,
     .max = 1,
     .doc = "that an image becomes a negative"},
    {0},
};

static const struct cachew_operator negative = {
    .name = "negative",
    .summary = "bright values inverted: x < threshold ? x : 255 - x",
    .doc = "The shape may be anything, and may differ from element to element.",
    .kind = CACHEW_MAP,
    .attrs = negative_attrs,
    .bind = negative_bind,
    .run = negative_run,
    .free_state = free,
};

static const struct cachew_operator random_negative = {
    .name = "random_negative",
    .summary = "bright values inverted, at random",
    .doc = "An element becomes a negative as a whole, if uniform(word 0) < probability.",
    .kind = CACHEW_MAP,
    .random = 1,
    .attrs = random_negative_attrs,
    .bind = random_negative_bind,
    .run = random_negative_run,
    .free_state = free,
};

static const struct cachew_operator *const operators[] = {&negative, &random_negative, NULL};

CACHEW_API const struct cachew_plugin cachew_plugin = {
    .abi = CACHEW_PLUGIN_ABI, .version = "1", .operators = operators};
