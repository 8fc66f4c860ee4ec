/* Objects in a build without libcurl or expat: every address is refused. */
#include <string.h>

#include "base/macro.h"
#include "objects/object.h"

static int none_refuse(const char *address, struct cw_error *err)
{
    return cw_error_at_file(err, CW_E_PIPELINE, address, 0,
                            "%s: this build of Cachew reads local files only, because it was built without "
                            "libcurl or expat: build it with both, or copy the files to this machine",
                            address);
}

const char *cw_object_library(void)
{
    return NULL;
}

int cw_object_stat(const char *address, struct cw_object_stat *ret CW_UNUSED, struct cw_error *err)
{
    return none_refuse(address, err);
}

bool cw_object_known(const char *address CW_UNUSED, struct cw_object_stat *ret CW_UNUSED)
{
    return false;
}

int cw_object_list(const char *prefix, bool deep CW_UNUSED, cw_object_found *found CW_UNUSED,
                   void *arg CW_UNUSED, struct cw_error *err)
{
    return none_refuse(prefix, err);
}

int cw_object_new(const char *address, const struct cw_object_stat *was CW_UNUSED,
                  struct cw_object **ret CW_UNUSED, struct cw_error *err)
{
    return none_refuse(address, err);
}

struct cw_object *cw_object_free(struct cw_object *o CW_UNUSED)
{
    return NULL;
}

int cw_object_readv(struct cw_object *o CW_UNUSED, uint64_t offset CW_UNUSED, const struct iovec *v CW_UNUSED,
                    int n_v CW_UNUSED, struct cw_error *err)
{
    return none_refuse("", err);
}

int cw_object_read_begin(struct cw_object *o CW_UNUSED, uint64_t offset CW_UNUSED, size_t length CW_UNUSED,
                         void *to CW_UNUSED, struct cw_object_read **ret CW_UNUSED, struct cw_error *err)
{
    return none_refuse("", err);
}

int cw_object_read_end(struct cw_object_read *r CW_UNUSED, bool cancel CW_UNUSED,
                       struct cw_error *err CW_UNUSED)
{
    return 0;
}
