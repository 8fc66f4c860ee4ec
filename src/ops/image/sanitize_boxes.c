/* sanitize_boxes: drops the boxes that are too small, and the rows of other components that belong to them.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/image/image_annotations.h"

struct sanitize_boxes {
    double min_size, min_area;
};

/* false if a side or the area is too small, or a number is not finite. */
static bool sanitize_keeps(const struct sanitize_boxes *s, const float box[4])
{
    double w = (double)box[2] - (double)box[0], h = (double)box[3] - (double)box[1];
    return w >= s->min_size && h >= s->min_size && w * h >= s->min_area && w * h - w * h == 0;
}

static int sanitize_bind_labels(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    for (size_t i = 0; i < cw_attr_len(op, "labels"); i++) {
        const char *name = cw_attr_string_at(op, "labels", i);
        struct cw_type type;
        char text[160];
        int r = cw_annotations_read(b, op, "labels", name, &type, err);
        if (r < 0)
            return r;
        if (type.dtype == CW_BYTES || type.ndim < 1)
            return cw_attr_error(op, "labels", err, "components with a row for each box, but \"%s\" is %s",
                                 name, cw_type_print(&type, text));
        type.dims[0] = CW_VARIES;
        r = cw_bind_write(b, name, &type, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int sanitize_boxes_bind(struct cw_bind *b, struct cw_op *op, struct cw_error *err)
{
    const char *name = cw_attr_string(op, "component");
    struct cw_type type;
    char text[160];
    int r = cw_bind_read(b, name, &type, err);
    if (r < 0)
        return r;
    if (type.dtype != CW_FLOAT32 || type.ndim != 2 || (type.dims[1] != 4 && type.dims[1] != CW_VARIES))
        return cw_attr_error(op, "component", err, "boxes, float32[?,4], but \"%s\" is %s", name,
                             cw_type_print(&type, text));
    struct sanitize_boxes *s = op->state = calloc(1, sizeof(*s));
    if (!s)
        return cw_error_nomem(err, sizeof(*s), "sanitize_boxes");
    s->min_size = cw_attr_float(op, "min_size");
    s->min_area = cw_attr_float(op, "min_area");
    type.dims[0] = CW_VARIES;
    type.dims[1] = 4;
    r = cw_bind_write(b, name, &type, err);
    return r < 0 ? r : sanitize_bind_labels(b, op, err);
}

/* Copies the rows of a component whose box is kept. */
static int sanitize_rows(const struct cw_op *op, struct cw_block *b, size_t row, unsigned port,
                         const bool *keep, int64_t n_kept, struct cw_error *err)
{
    struct cw_tensor in = cw_in(op, b, port, row);
    int64_t n = in.dims[0];
    in.dims[0] = n_kept;
    uint8_t *dst = cw_block_row_out(b, op->out[port].value, &op->out[port].type, row, in.dims, in.ndim, err);
    if (!dst)
        return err->status;
    size_t bytes = n ? in.size / (size_t)n : 0;
    for (int64_t i = 0; i < n; i++)
        if (keep[i]) {
            memcpy(dst, (const uint8_t *)in.data + (size_t)i * bytes, bytes);
            dst += bytes;
        }
    return 0;
}

static int sanitize_one(const struct cw_op *op, struct cw_block *b, size_t row, struct cw_error *err)
{
    struct cw_tensor boxes = cw_in(op, b, 0, row);
    int64_t n = boxes.dims[0], n_kept = 0;
    if (boxes.dims[1] != 4) {
        cw_block_fail(b, row, op->desc->name, "\"%s\" is [%lld, %lld]: expected [n, 4]",
                      cw_attr_string(op, "component"), (long long)n, (long long)boxes.dims[1]);
        return 0;
    }
    for (unsigned p = 1; p < op->n_in; p++) {
        struct cw_tensor label = cw_in(op, b, p, row);
        if (op->out[p].live && label.dims[0] != n) {
            cw_block_fail(b, row, op->desc->name, "\"%s\" has %lld rows, but \"%s\" has %lld boxes",
                          cw_attr_string_at(op, "labels", p - 1), (long long)label.dims[0],
                          cw_attr_string(op, "component"), (long long)n);
            return 0;
        }
    }
    bool *keep = cw_block_alloc(b, (size_t)n, err);
    if (!keep)
        return err->status;
    for (int64_t i = 0; i < n; i++)
        n_kept += keep[i] = sanitize_keeps(op->state, (const float *)boxes.data + 4 * i);
    int r = 0;
    for (unsigned p = 0; p < op->n_out && r >= 0; p++)
        if (op->out[p].live)
            r = sanitize_rows(op, b, row, p, keep, n_kept, err);
    return r;
}

static int sanitize_boxes_run(const struct cw_op *op, struct cw_block *b, struct cw_error *err)
{
    int r = 0;
    for (unsigned p = 0; p < op->n_out && r >= 0; p++)
        if (op->out[p].live)
            r = cw_block_ragged(b, op->out[p].value, err);
    CW_ROWS_OK(row, b, r >= 0)
    r = sanitize_one(op, b, row, err);
    return r;
}

static const struct cw_attr_def attrs[] = {
    {.name = "component", .kind = CW_ATTR_COMPONENT, .doc = "the boxes: float32 [n, 4], x0 y0 x1 y1"},
    {.name = "labels",
     .kind = CW_ATTR_STRINGS,
     .def = "[]",
     .scalar_too = true,
     .doc = "components with a row for each box, such as its class or its mask; the rows of boxes that are "
            "dropped are dropped too"},
    {.name = "min_size",
     .kind = CW_ATTR_FLOAT,
     .def = "1",
     .min = 0,
     .max = 1e9,
     .doc = "smallest width and smallest height of a box that is kept, in pixels"},
    {.name = "min_area",
     .kind = CW_ATTR_FLOAT,
     .def = "1",
     .min = 0,
     .max = 1e18,
     .doc = "smallest area of a box that is kept, in pixels"},
    {0},
};

const struct cw_op_desc cw_op_sanitize_boxes = {
    .name = "sanitize_boxes",
    .summary = "drops boxes that are too small, together with their labels",
    .doc =
        "Image operators keep every box of the attribute `boxes`: a box that left the image has no area "
        "any more. `sanitize_boxes` drops such boxes, as torchvision's SanitizeBoundingBoxes does. It also "
        "drops boxes with numbers that are not finite.",
    .kind = CW_OP_MAP,
    .attrs = attrs,
    .bind = sanitize_boxes_bind,
    .run = sanitize_boxes_run,
    .free_state = free,
};
