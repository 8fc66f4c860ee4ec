/* Values as text, for `show`. */
#include "cli/show_value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/convert.h"

#define NUMBERS 8  /* an array of at most this many numbers is shown whole */
#define LETTERS 72 /* bytes of a text that are shown */
#define BYTES 8    /* of bytes that are no text */
#define BARS 64
#define SERIES_LEAST 256 /* samples of a series */
#define CHANNELS_MAX 8   /* of a series [samples, channels] */

void cli_value_of(struct cli_value *ret, const struct cw_batch *b, const struct cw_batch_component *c,
                  uint32_t row, size_t *offset)
{
    *ret = (struct cli_value){.name = c->name, .dtype = c->dtype, .ndim = c->ndim - b->leading};
    memcpy(ret->dims, c->dims + b->leading, (size_t)ret->ndim * sizeof(*ret->dims));
    if (c->dtype == CW_BYTES) {
        ret->data = (const uint8_t *)c->data + *offset;
        ret->size = c->lengths[row];
        *offset += ret->size;
        return;
    }
    ret->size = c->size / b->n;
    ret->data = (const uint8_t *)c->data + row * ret->size;
}

void cli_value_add_type(const struct cli_value *v, struct cw_text *t)
{
    if (v->dtype == CW_BYTES) {
        cw_text_add(t, "bytes, %zu", v->size);
        return;
    }
    cw_text_add(t, "%s", cw_dtype_name(v->dtype));
    for (int i = 0; i < v->ndim; i++)
        cw_text_add(t, "%s%lld%s", i ? ", " : "[", (long long)v->dims[i], i + 1 == v->ndim ? "]" : "");
}

/* ---- content ---- */

static void value_add_bytes(const struct cli_value *v, struct cw_text *t)
{
    char text[LETTERS + 1], shown[4 * LETTERS + 1];
    size_t n = v->size <= LETTERS ? v->size : cw_text_whole((const char *)v->data, LETTERS);
    memcpy(text, v->data, n);
    text[n] = 0;
    if (strlen(text) == n && cw_text_utf8(text, n)) {
        cw_text_show(shown, sizeof(shown), text);
        cw_text_add(t, "%s%s", shown, n < v->size ? "..." : "");
        return;
    }
    n = CW_MIN(v->size, (size_t)BYTES);
    for (size_t i = 0; i < n; i++)
        cw_text_add(t, "%s%02x", i ? " " : "", v->data[i]);
    cw_text_add(t, "%s", n < v->size ? " ..." : "");
}

static void value_add_number(const struct cli_value *v, size_t i, struct cw_text *t)
{
    const uint8_t *at = v->data + i * cw_dtype_size(v->dtype);
    double real;
    int64_t whole;
    uint64_t large;
    if (v->dtype == CW_BOOL) {
        cw_text_add(t, *at ? "true" : "false");
    } else if (v->dtype == CW_UINT64) {
        memcpy(&large, at, sizeof(large));
        cw_text_add(t, "%" PRIu64, large);
    } else if (cw_dtype_is_integer(v->dtype)) {
        cw_convert(v->dtype, CW_INT64, &whole, at, 1);
        cw_text_add(t, "%" PRId64, whole);
    } else {
        cw_convert(v->dtype, CW_FLOAT64, &real, at, 1);
        cw_text_add(t, "%.6g", real);
    }
}

static double value_number(const struct cli_value *v, size_t i)
{
    double ret;
    cw_convert(v->dtype, CW_FLOAT64, &ret, v->data + i * cw_dtype_size(v->dtype), 1);
    return ret;
}

/* The indices of the smallest and the largest number; NaNs count only if there is nothing else. */
static void value_add_range(const struct cli_value *v, size_t n, struct cw_text *t)
{
    size_t low = 0, high = 0;
    for (size_t i = 1; i < n; i++) {
        double number = value_number(v, i);
        if (!(value_number(v, low) <= number))
            low = number == number ? i : low;
        if (!(value_number(v, high) >= number))
            high = number == number ? i : high;
    }
    value_add_number(v, low, t);
    cw_text_add(t, " .. ");
    value_add_number(v, high, t);
}

void cli_value_add_content(const struct cli_value *v, struct cw_text *t)
{
    if (v->dtype == CW_BYTES) {
        value_add_bytes(v, t);
        return;
    }
    size_t n = v->size / cw_dtype_size(v->dtype);
    bool few = n <= NUMBERS, series = v->ndim == 1 && cw_dtype_is_integer(v->dtype);
    for (size_t i = 0; (few || series) && i < CW_MIN(n, (size_t)NUMBERS); i++) {
        cw_text_add(t, i ? " " : "");
        value_add_number(v, i, t);
    }
    if (few)
        return;
    cw_text_add(t, series ? " ...  " : "");
    value_add_range(v, n, t);
}

void cli_value_add_peaks(const struct cli_value *v, struct cw_text *t)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double peaks[BARS] = {0}, most = 0;
    bool flat = v->ndim == 1 || (v->ndim == 2 && v->dims[1] <= CHANNELS_MAX);
    if (!cw_dtype_is_float(v->dtype) || !flat || v->dims[0] < SERIES_LEAST)
        return;
    size_t n = v->size / cw_dtype_size(v->dtype);
    for (size_t i = 0; i < n; i++) {
        double *peak = &peaks[i * BARS / n];
        *peak = fmax(*peak, fabs(value_number(v, i)));
        most = fmax(most, *peak);
    }
    for (size_t i = 0; i < BARS && most < INFINITY; i++)
        cw_text_add(t, "%s", bars[(size_t)(most > 0 ? peaks[i] / most * 7.999 : 0)]);
}
