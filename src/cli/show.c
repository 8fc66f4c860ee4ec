/* cachew show: the first elements of a pipeline, as text with thumbnails, or as a page with pictures. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/picture.h"
#include "cli/pipeline.h"
#include "cli/print.h"
#include "cli/show_value.h"
#include "cli/verb.h"
#include "formats/image_write.h"
#include "host/host.h"
#include "storage/file.h"

#define TERMINAL_SIDE 48 /* pixels of a thumbnail in a terminal, of which a character has two */
#define PAGE_SIDE 160    /* of one in a page */

struct show_run {
    struct cli_pipeline common;
    uint64_t n_wanted, n; /* elements */
    bool pictures;
    const char *html;
    struct cw_text page;
    json_t *elements;
    uint32_t longest; /* name of a component, in bytes */
};

/* ---- pictures ---- */

/* Makes a thumbnail of a value that is an image. Returns 1; 0: it is none. */
static int show_thumbnail(const struct cli_value *v, size_t side, uint8_t **ret, size_t *ret_h, size_t *ret_w,
                          struct cw_error *err)
{
    struct cli_picture p;
    if (!cli_picture_find(&p, v->dtype, v->ndim, v->dims, v->data) || p.h * p.w == 1)
        return 0;
    cli_picture_stretch(&p, 1);
    int r = cli_picture_thumbnail(&p, side, ret, ret_h, ret_w, err);
    return r < 0 ? r : 1;
}

/* Prints a picture with 24-bit colours: each character is an upper half block, two pixels. */
static int show_print_picture(const struct cli_value *v, unsigned indent, struct cw_error *err)
{
    _cleanup_free_ uint8_t *rgb = NULL;
    size_t h, w;
    int r = show_thumbnail(v, TERMINAL_SIDE, &rgb, &h, &w, err);
    for (size_t y = 0; r > 0 && y < h; y += 2) {
        printf("%*s", (int)indent, "");
        for (size_t x = 0; x < w; x++) {
            const uint8_t *above = rgb + (y * w + x) * 3, *below = above + w * 3;
            printf("\033[38;2;%u;%u;%um", above[0], above[1], above[2]);
            if (y + 1 < h)
                printf("\033[48;2;%u;%u;%um", below[0], below[1], below[2]);
            printf("▀");
        }
        puts("\033[0m");
    }
    return CW_MIN(r, 0);
}

static void show_add_base64(struct cw_text *t, const uint8_t *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++)
            three = three << 8 | (i + k < size ? data[i + k] : 0);
        char four[5] = {digits[three >> 18], digits[three >> 12 & 63], digits[three >> 6 & 63],
                        digits[three & 63]};
        for (size_t k = size - i; k < 3; k++)
            four[k + 1] = '=';
        cw_text_add(t, "%s", four);
    }
}

/* The type by which a browser shows these bytes; NULL: they are no image that it knows. */
static const char *show_encoded_type(const struct cli_value *v)
{
    static const struct {
        const char *magic, *type;
    } types[] = {{"\xff\xd8\xff", "image/jpeg"}, {"\x89PNG\r\n", "image/png"}, {"GIF8", "image/gif"}};

    for (size_t i = 0; v->dtype == CW_BYTES && i < CW_COUNT_OF(types); i++)
        if (v->size > strlen(types[i].magic) && memcmp(v->data, types[i].magic, strlen(types[i].magic)) == 0)
            return types[i].type;
    bool webp = v->dtype == CW_BYTES && v->size > 12 && memcmp(v->data, "RIFF", 4) == 0 &&
                memcmp(v->data + 8, "WEBP", 4) == 0;
    return webp ? "image/webp" : NULL;
}

static int show_add_picture(struct cw_text *page, const struct cli_value *v, struct cw_error *err)
{
    _cleanup_free_ uint8_t *rgb = NULL, *png = NULL;
    const char *type = show_encoded_type(v);
    const uint8_t *data = v->data;
    size_t size = v->size, h, w;
    int r = type ? 1 : show_thumbnail(v, PAGE_SIDE, &rgb, &h, &w, err);
    if (r > 0 && !type) {
        r = cw_png_encode(h, w, 3, rgb, &png, &size, err);
        type = "image/png";
        data = png;
    }
    if (r < 0 || !type)
        return CW_MIN(r, 0);
    cw_text_add(page, "<img alt=\"\" src=\"data:%s;base64,", type);
    show_add_base64(page, data, size);
    cw_text_add(page, "\"><br>");
    return 0;
}

/* ---- elements ---- */

static void show_add_html(struct cw_text *page, const char *text)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            cw_text_add(page, "&#%d;", *text);
        else
            cw_text_add(page, "%c", *text);
}

/* The parts of a value's text. The caller frees them. */
struct show_texts {
    struct cw_text type, content, peaks;
};

static void show_texts_deinit(struct show_texts *t)
{
    cw_text_deinit(&t->type);
    cw_text_deinit(&t->content);
    cw_text_deinit(&t->peaks);
}

static int show_value(struct show_run *x, const struct cli_value *v, json_t *values, struct cw_error *err)
{
    _cleanup_(show_texts_deinit) struct show_texts t = {0};
    cli_value_add_type(v, &t.type);
    cli_value_add_content(v, &t.content);
    cli_value_add_peaks(v, &t.peaks);
    cw_text_add(&t.content, "%s", "");
    cw_text_add(&t.peaks, "%s", "");
    if (t.type.failed || t.content.failed || t.peaks.failed)
        return cw_error_nomem(err, 0, "the text of a value");
    if (x->common.json) {
        json_object_set_new(values, v->name,
                            json_pack("{s:s, s:s}", "type", t.type.data, "value", t.content.data));
        return 0;
    }
    if (x->html) {
        cw_text_add(&x->page, "<td>");
        int r = show_add_picture(&x->page, v, err);
        show_add_html(&x->page, t.content.data);
        cw_text_add(&x->page, "<br>%s<small>%s</small></td>", t.peaks.data, t.type.data);
        return r;
    }
    unsigned indent = x->longest + 4;
    printf("  %-*s  %s  %s\n", (int)x->longest, v->name, t.type.data, t.content.data);
    if (t.peaks.size)
        printf("%*s%s\n", (int)indent, "", t.peaks.data);
    return x->pictures ? show_print_picture(v, indent, err) : 0;
}

static int show_element(struct show_run *x, const struct cw_batch *b, uint32_t row, size_t *offsets,
                        struct cw_error *err)
{
    char raw[128], record[256];
    json_t *values = json_object();
    cw_record_print(&x->common.local.compiled->programs[b->ids[row].leaf], &b->ids[row], raw);
    cw_text_show(record, sizeof(record), raw);
    if (x->html) {
        cw_text_add(&x->page, "<tr><td>%llu<br><small>", (unsigned long long)x->n);
        show_add_html(&x->page, record);
        cw_text_add(&x->page, "</small></td>");
    } else if (!x->common.json) {
        printf("%selement %llu  %s\n", x->n ? "\n" : "", (unsigned long long)x->n, record);
    }
    int r = 0;
    for (unsigned k = 0; k < b->n_components && r == 0; k++) {
        struct cli_value v;
        cli_value_of(&v, b, &b->components[k], row, &offsets[k]);
        r = show_value(x, &v, values, err);
    }
    cw_text_add(&x->page, "</tr>\n");
    json_array_append_new(x->elements, json_pack("{s:s, s:o}", "record", record, "components", values));
    x->n++;
    return r;
}

static int show_batch(struct show_run *x, const struct cw_batch *b, struct cw_error *err)
{
    _cleanup_free_ size_t *offsets = calloc(b->n_components + 1, sizeof(*offsets));
    int r = offsets ? 0 : cw_error_nomem(err, 0, "a batch");
    for (uint32_t i = 0; r == 0 && i < b->n && x->n < x->n_wanted; i++)
        r = show_element(x, b, i, offsets, err);
    return r;
}

/* ---- the run ---- */

static int show_begin(struct show_run *x, struct cw_error *err)
{
    int r = cli_pipeline_load(&x->common, err);
    if (r >= 0 && x->html)
        r = cw_put_check(x->html, err);
    if (r >= 0)
        r = cli_pipeline_open(&x->common, err);
    if (r < 0)
        return r;
    unsigned n;
    const struct cw_component *c = cw_delivered(x->common.local.compiled, &n);
    cw_text_add(&x->page,
                "<!doctype html><meta charset=\"utf-8\"><title>cachew show</title>\n"
                "<style>body{font:14px system-ui;color-scheme:light dark}td,th{text-align:left;"
                "vertical-align:top;padding:.4em .8em;border-bottom:1px solid #8888}"
                "img{max-width:%dpx}small{opacity:.7}</style>\n<table><tr><th>element</th>",
                PAGE_SIDE);
    for (unsigned k = 0; k < n; k++) {
        x->longest = CW_MAX(x->longest, (uint32_t)strlen(c[k].name));
        cw_text_add(&x->page, "<th>");
        show_add_html(&x->page, c[k].name);
        cw_text_add(&x->page, "</th>");
    }
    cw_text_add(&x->page, "</tr>\n");
    const struct cw_iterator_options o = cli_pipeline_options(&x->common);
    return cw_local_iterate(&x->common.local, &o, NULL, err);
}

static int show_execute(struct show_run *x, struct cw_error *err)
{
    uint64_t wait_ns = (uint64_t)(x->common.wait_s * 1e9);
    int r = show_begin(x, err);
    while (r == 0 && x->n < x->n_wanted) {
        struct cw_batch *b;
        r = cw_local_next(&x->common.local, wait_ns, &b, err);
        if (r != 0)
            break;
        r = show_batch(x, b, err);
        cw_iterator_release(x->common.local.iterator, b);
    }
    if (r >= 0 && x->n == 0)
        return cw_error_set(err, CW_E_DATA, "the pipeline gives no element: expected at least one");
    cw_text_add(&x->page, "</table>\n");
    if (r >= 0 && x->html && x->page.failed)
        return cw_error_nomem(err, x->page.capacity, "the page");
    if (r >= 0 && x->html)
        r = cw_put(x->html, x->page.data, x->page.size, err);
    return CW_MIN(r, 0);
}

static int show_main(int argc, char **argv, struct cw_error *err)
{
    struct show_run x = {.n_wanted = 4, .elements = json_array()};
    const struct cli_option options[] = {
        {"elements", CLI_COUNT, &x.n_wanted, "N", "show the first N elements (default 4)", .min = 1,
         .max = 10000},
        {"html", CLI_TEXT, &x.html, "FILE", "write a page with pictures to FILE"},
        {"pictures", CLI_FLAG, &x.pictures, NULL,
         "draw images in 24-bit colours also where stdout is no terminal"},
        CLI_PIPELINE_OPTIONS(&x.common, "run N compute threads"),
        {0},
    };
    int r = cli_pipeline_parse(&x.common, &cli_verb_show, options, argc, argv, err);
    if (r > 0)
        return r;
    x.pictures |= isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    if (r == 0)
        r = show_execute(&x, err);
    int code = r < 0 ? cli_fail(err, x.common.json, NULL) : 0;
    if (r >= 0 && x.common.json)
        code = cli_print(json_pack("{s:O}", "elements", x.elements));
    json_decref(x.elements);
    cw_text_deinit(&x.page);
    cw_host_shutdown();
    cli_pipeline_deinit(&x.common);
    return code;
}

const struct cli_verb cli_verb_show = {
    .name = "show",
    .arguments = "PIPELINE ",
    .min_args = 1,
    .max_args = 1,
    .summary = "show the first elements of a pipeline, images as thumbnails",
    .details = "Computes the first elements of epoch 0. In a terminal images, and planes of floats such as\n"
               "spectrograms, are drawn; of long series such as audio the peaks are shown.",
    .run = show_main,
};
