/* grayscale: colour images to grey ones, of 1 or 3 channels. */
#include <stdlib.h>

#include "ops/image/image_color.h"

static int grayscale_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    struct cw_type type;
    int64_t channels = cw_attr_int(op, "num_output_channels");
    int r = cw_color_bind_read(b, op, true, &type, err);
    if (r < 0)
        return r;
    if (type.ndim != 3)
        return cw_attr_error(op, "component", err,
                             "an image [height, width, channels], but \"%s\" has no channels",
                             cw_attr_string(op, "component"));
    if (channels == 2)
        return cw_attr_error(op, "num_output_channels", err, "1 or 3");
    type.dims[2] = channels;
    struct cw_color_step step = {.kind = CW_COLOR_GRAYSCALE, .value = (double)channels};
    return cw_color_bind_to(b, op, &step, 1, &type, err);
}

static const struct cw_attr_def attrs[] = {
    CW_COLOR_ATTR_COMPONENT,
    {.name = "num_output_channels",
     .kind = CW_ATTR_INT,
     .def = "1",
     .min = 1,
     .max = 3,
     .doc = "number of channels of the result: 1, or 3 that are equal"},
    {0},
};

const struct cw_op_desc cw_op_grayscale = {
    .name = "grayscale",
    .summary = "makes images grey, with 1 or 3 channels",
    .doc = "Images are [height, width, channels]; an image of one channel counts as grey.",
    .kind = CW_OP_MAP,
    .effects.action = CW_ACTS_PIXEL,
    .attrs = attrs,
    .bind = grayscale_bind,
    .run = cw_color_run,
    .free_state = free,
};
