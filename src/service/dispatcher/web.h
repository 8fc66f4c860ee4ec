/* The files of the dashboard (src/service/dispatcher/web/), which tools/embed.py builds into the program. */
#pragma once
#include <stddef.h>

struct cw_web_file {
    const char *path, *type; /* path: of the URL; "/" is index.html. type: MIME type */
    const unsigned char *data;
    size_t size;
};
extern const struct cw_web_file cw_web_files[];
extern const size_t cw_n_web_files;
