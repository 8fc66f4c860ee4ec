/* Reads the XML of object storage, with expat. */
#include "objects/listing.h"

#include <expat.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "objects/transfer.h"

#define DEEPEST 16

struct reading {
    XML_Parser parser;
    struct cw_listing_page *page; /* NULL: an error is read */
    struct cw_listing_error *error;
    struct cw_text text; /* of the innermost element */
    unsigned depth;
    bool in_contents, is_listing;
    struct cw_text key;
    char etag[CW_ETAG_SIZE];
    uint64_t size;
    int status;
    struct cw_error *err;
};

static void reading_begin(void *arg, const char *name, const char **attributes)
{
    struct reading *r = arg;
    cw_text_deinit(&r->text);
    if (++r->depth > DEEPEST)
        XML_StopParser(r->parser, XML_FALSE);
    r->is_listing |= r->depth == 1 && strcmp(name, "ListBucketResult") == 0;
    if (r->depth == 2 && strcmp(name, "Contents") == 0) {
        r->in_contents = true;
        cw_text_deinit(&r->key);
        r->etag[0] = '\0';
        r->size = 0;
    }
}

static void reading_text(void *arg, const char *text, int n)
{
    struct reading *r = arg;
    cw_text_add(&r->text, "%.*s", n, text);
}

static void reading_object(struct reading *r)
{
    _cleanup_(cw_text_deinit) struct cw_text address = {0};
    struct cw_object_stat st = {.size = r->size, .version = cw_transfer_version(r->etag, "")};
    const char *key = r->key.data ? r->key.data : "";
    size_t n = strlen(key);
    r->page->n_objects++;
    if (n == 0 || key[n - 1] == '/') /* stands for a directory */
        return;
    cw_text_add(&address, "%s%s", r->page->root, key);
    if (address.failed || r->key.failed)
        r->status = cw_error_nomem(r->err, n, "the names of files");
    else
        r->status = r->page->found(r->page->arg, address.data, &st, r->err);
    if (r->status < 0)
        XML_StopParser(r->parser, XML_FALSE);
}

static void reading_end(void *arg, const char *name)
{
    struct reading *r = arg;
    const char *text = r->text.data ? r->text.data : "";
    if (r->error && strcmp(name, "Code") == 0)
        snprintf(r->error->code, sizeof(r->error->code), "%s", text);
    else if (r->error && strcmp(name, "Message") == 0)
        cw_text_show(r->error->message, sizeof(r->error->message), text);
    else if (r->error && strcmp(name, "Region") == 0)
        snprintf(r->error->region, sizeof(r->error->region), "%s", text);
    else if (r->page && r->in_contents && r->depth == 3 && strcmp(name, "Key") == 0)
        cw_text_add(&r->key, "%s", text);
    else if (r->page && r->in_contents && r->depth == 3 && strcmp(name, "Size") == 0)
        r->size = strtoull(text, NULL, 10);
    else if (r->page && r->in_contents && r->depth == 3 && strcmp(name, "ETag") == 0)
        snprintf(r->etag, sizeof(r->etag), "%s", text);
    else if (r->page && r->depth == 2 && strcmp(name, "IsTruncated") == 0)
        r->page->more = strcmp(text, "true") == 0;
    else if (r->page && r->depth == 2 && strcmp(name, "NextContinuationToken") == 0)
        snprintf(r->page->token, sizeof(r->page->token), "%s", text);
    else if (r->page && r->depth == 2 && strcmp(name, "Contents") == 0) {
        r->in_contents = false;
        reading_object(r);
    }
    cw_text_deinit(&r->text);
    r->depth--;
}

/* Returns whether the text is well-formed XML. */
static bool reading_run(struct reading *r, const char *xml, size_t size)
{
    r->parser = XML_ParserCreate(NULL);
    if (!r->parser)
        return false;
    XML_SetUserData(r->parser, r);
    XML_SetElementHandler(r->parser, reading_begin, reading_end);
    XML_SetCharacterDataHandler(r->parser, reading_text);
    bool good = XML_Parse(r->parser, xml, (int)size, XML_TRUE) == XML_STATUS_OK;
    XML_ParserFree(r->parser);
    cw_text_deinit(&r->text);
    cw_text_deinit(&r->key);
    return good;
}

int cw_listing_read(const char *xml, size_t size, struct cw_listing_page *page, struct cw_error *err)
{
    struct reading r = {.page = page, .err = err};
    page->more = false;
    page->token[0] = '\0';
    page->n_objects = 0;
    bool good = reading_run(&r, xml ? xml : "", size);
    if (r.status < 0)
        return r.status;
    if (!good || !r.is_listing || (page->more && !*page->token))
        return cw_error_set(err, CW_E_IO,
                            "%s: the server's answer is no listing: expected an S3-compatible server (does "
                            "AWS_ENDPOINT_URL name one?)",
                            page->root);
    return 0;
}

void cw_listing_read_error(const char *xml, size_t size, struct cw_listing_error *ret)
{
    struct reading r = {.error = ret};
    *ret = (struct cw_listing_error){0};
    (void)reading_run(&r, xml ? xml : "", size);
}
