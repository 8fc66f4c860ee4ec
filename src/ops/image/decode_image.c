/* decode_image: JPEG, PNG and WebP bytes to an image. */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_role.h"

static const struct cw_image_role role = {.step = CW_IMAGE_DECODE};

static void decode_image_free(void *state)
{
    struct cw_decode_image *d = state;
    if (d && d->next.desc)
        d->next.desc->free_state(d->next.state);
    free(d);
}

/* Returns whether an operator moves components with the image, whose places are those of the whole image. */
static bool decode_image_moves(const struct cw_op *op)
{
    return cw_attr_len(op, "boxes") || cw_attr_len(op, "masks") || cw_attr_len(op, "keypoints");
}

/* If a crop (or where sizes are reduced, a resize) of the same component directly follows, keeps a prepared
 * copy of it in d, to compute which part of each image it will cut, and how much smaller it makes it. */
static int decode_image_find_next(struct cw_decode_image *d, const struct cw_op *op, const struct cw_op *next,
                                  struct cw_error *err)
{
    const struct cw_image_role *then = next ? next->desc->image : NULL;
    if (!then || !(then->crops || (d->reduces && then->resizes)) ||
        strcmp(cw_attr_string(next, "component"), cw_attr_string(op, "component")) != 0)
        return 0;
    if (d->reduces && decode_image_moves(next))
        return cw_attr_error(op, "scale", err,
                             "\"full\", because %s moves boxes, masks or keypoints of the whole image",
                             next->desc->name);
    d->next = (struct cw_op){.desc = next->desc, .attrs = next->attrs, .index = next->index};
    return then->prepare(&d->next, err);
}

static int decode_image_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component");
    struct cw_type type;
    int r = cw_bind_read(b, name, &type, err);
    if (r < 0)
        return r;
    char text[160];
    if (type.dtype != CW_BYTES)
        return cw_attr_error(op, "component", err, "bytes, but \"%s\" is %s", name,
                             cw_type_print(&type, text));
    int64_t channels = cw_attr_int(op, "channels");
    if (channels == 2)
        return cw_attr_error(op, "channels", err, "0 (as stored), 1, 3 or 4");
    enum cw_dtype dtype = cw_attr_dtype(op, "dtype");
    if (dtype != CW_UINT8 && dtype != CW_UINT16)
        return cw_attr_error(op, "dtype", err, "\"uint8\" or \"uint16\"");

    struct cw_decode_image *d = calloc(1, sizeof(*d));
    if (!d)
        return cw_error_nomem(err, sizeof(*d), "decode_image");
    op->state = d;
    d->options = (struct cw_image_options){.channels = (int)channels,
                                           .wide = dtype == CW_UINT16,
                                           .orientation = cw_attr_bool(op, "orientation"),
                                           .max_pixels = (uint64_t)cw_attr_int(op, "max_pixels")};
    d->reduces = strcmp(cw_attr_string(op, "scale"), "auto") == 0;
    r = decode_image_find_next(d, op, cw_bind_next(b), err);
    if (r < 0)
        return r;
    type = (struct cw_type){
        .dtype = dtype, .ndim = 3, .dims = {CW_VARIES, CW_VARIES, channels ? channels : CW_VARIES}};
    return cw_image_bind_write(b, op, &type, err);
}

static const char *const scales[] = {"full", "auto", NULL};

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the encoded image, bytes"},
    {.name = "channels",
     .kind = CW_ATTR_INT,
     .def = "3",
     .min = 0,
     .max = 4,
     .doc = "number of channels: 1 (grey), 3 (RGB), 4 (RGBA), or 0 (as many as the file has)"},
    {.name = "dtype",
     .kind = CW_ATTR_DTYPE,
     .def = "\"uint8\"",
     .doc = "dtype of the image: \"uint8\" or "
            "\"uint16\""},
    {.name = "orientation",
     .kind = CW_ATTR_BOOL,
     .def = "true",
     .doc = "true: turn JPEG images as their EXIF orientation tag says"},
    {.name = "max_pixels",
     .kind = CW_ATTR_INT,
     .def = "268435456",
     .min = 1,
     .max = 0x1p40,
     .doc = "most pixels (width times height); a larger image fails the record"},
    {.name = "scale",
     .kind = CW_ATTR_STRING,
     .def = "\"full\"",
     .choices = scales,
     .doc = "auto: decode a JPEG image at 1/2, 1/4 or 1/8 of its size if resize or random_resized_crop "
            "follows directly and makes what it cuts at least that much smaller. Faster for large images; "
            "pixels differ a little from those of \"full\" (docs/jpeg.md)"},
    {0},
};

const struct cw_op_desc cw_op_decode_image = {
    .name = "decode_image",
    .summary = "decodes JPEG, PNG or WebP bytes to an image [height, width, channels]",
    .doc = "The format is detected from the content. Channels are converted as by Pillow's `convert`; "
           "docs/pixels.md defines the conversions, and says which images count as damaged. If a crop of the "
           "image follows directly, only the rows and columns that the crop needs are decoded. In a JPEG "
           "image, most damage below these rows then does not fail the record; in a PNG or WebP image, any "
           "damage fails it.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = decode_image_bind,
    .run = cw_image_run,
    .free_state = decode_image_free,
    .image = &role,
};
