/* The files of the dashboard, src/service/dispatcher/web/: they are in the program (tools/embed.py), and need
 * no other at run time. */
#pragma once
#include <stddef.h>

struct cw_web_file {
    const char *path, *type; /* path: "/" is index.html. type: of the content */
    const unsigned char *data;
    size_t size;
};
extern const struct cw_web_file cw_web_files[];
extern const size_t cw_n_web_files;
