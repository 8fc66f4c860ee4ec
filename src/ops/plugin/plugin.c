/* Loads plug-ins. The list of loaded files, and the files themselves, stay until the process ends. */
#include "ops/plugin/plugin_impl.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/thread.h"
#include "ops/table.h"

#define ENTRY "cachew_plugin"
#define TEXT_OF_(x) #x
#define TEXT_OF(x) TEXT_OF_(x)

struct loaded {
    struct loaded *next;
    void *handle;
};
static struct loaded *all; /* guarded by the mutex `loading` */
/* Not held during dlopen, which runs the plug-in's constructors. */
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static int plugin_refuse(const char *path, struct cw_error *err, const char *expected, const char *fmt, ...)
    _printf_(4, 5);

static int plugin_refuse(const char *path, struct cw_error *err, const char *expected, const char *fmt, ...)
{
    char what[300];
    CW_FORMAT(what, fmt);
    cw_plugin_clean(what);
    cw_error_file(err, path);
    return cw_error_value(err, CW_E_OPTION, "plugin", path, expected, "plug-in %.200s %s: expected %s", path,
                          what, expected);
}

/* Makes the identity: path "/a/b/negative.so.1" and version "2" give "negative 2". The version has no spaces,
 * so the identity can be split again. */
static int plugin_make_identity(const struct cachew_plugin *plugin, const char *path, char **ret,
                                struct cw_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *end = strstr(name, ".so");
    size_t length = end && end > name ? (size_t)(end - name) : strlen(name);
    if (!plugin->version || !plugin->version[0] || strlen(plugin->version) > CW_PLUGIN_MAX_NAME ||
        plugin->version[strspn(plugin->version,
                               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")])
        return plugin_refuse(path, err, "1 to 48 letters, digits and . _ + -", "has the version \"%.60s\"",
                             plugin->version ? plugin->version : "");
    if (!cw_text_utf8(name, length))
        return plugin_refuse(path, err, "a name in UTF-8", "has a name that is not UTF-8");
    if (asprintf(ret, "%.*s %s", (int)length, name, plugin->version) < 0) {
        *ret = NULL;
        return cw_error_nomem(err, 0, "a plug-in");
    }
    return 0;
}

int cw_plugin_add(const struct cachew_plugin *plugin, const char *path, struct cw_error *err)
{
    _cleanup_free_ char *identity = NULL;
    struct cw_plugin_ops o = {0};
    if (plugin->abi != CACHEW_PLUGIN_ABI) /* before any other field is read */
        return plugin_refuse(
            path, err,
            "version " TEXT_OF(CACHEW_PLUGIN_ABI) ": compile it against this installation's cachew/plugin.h",
            "has ABI version %u", plugin->abi);
    int r = plugin_make_identity(plugin, path, &identity, err);
    if (r >= 0)
        r = cw_plugin_check(plugin, path, identity, &o, err);
    if (r < 0)
        return r;
    const struct cw_op_desc **list = malloc(o.n * sizeof(*list));
    for (size_t i = 0; list && i < o.n; i++)
        list[i] = &o.ops[i].desc;
    r = list ? cw_ops_add(list, o.n, err) : cw_error_nomem(err, 0, "a plug-in");
    free(list);
    if (r < 0) {
        cw_error_file(err, path);
        cw_plugin_ops_deinit(&o);
        return r;
    }
    (void)CW_STEAL(identity); /* the operators point to it, and are never freed */
    return 0;
}

/* Adds the operators of a loaded object, unless it is in the list already: two threads may load the same file
 * at once. *ret_new: whether it was added. The caller holds the mutex `loading`. */
static int plugin_add_object(void *handle, const struct cachew_plugin *plugin, const char *path,
                             bool *ret_new, struct cw_error *err)
{
    *ret_new = false;
    for (const struct loaded *l = all; l; l = l->next)
        if (l->handle == handle)
            return 0;
    struct loaded *l = malloc(sizeof(*l));
    int r = l ? cw_plugin_add(plugin, path, err) : cw_error_nomem(err, sizeof(*l), "a plug-in");
    if (r < 0) {
        free(l);
        return r;
    }
    *l = (struct loaded){.next = all, .handle = handle};
    all = l;
    *ret_new = true;
    return 0;
}

/* Whether the file, of `size` bytes, contains all segments that its ELF headers describe. dlopen does not
 * check that: it ends the process on a file that was copied only in part. dlopen reports all other faults
 * itself, so true is returned for files that are not ELF or can't be opened. */
static bool plugin_is_whole(const char *path, uint64_t size)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) part;
    bool whole = true;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    if (pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
        memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_phentsize == sizeof(part))
        for (unsigned i = 0; i < header.e_phnum && whole; i++)
            whole =
                pread(fd, &part, sizeof(part), (off_t)(header.e_phoff + i * sizeof(part))) == sizeof(part) &&
                (part.p_type != PT_LOAD || (part.p_filesz <= size && part.p_offset <= size - part.p_filesz));
    close(fd);
    return whole;
}

int cw_plugin_load(const char *path, struct cw_error *err)
{
    struct stat st;
    /* an absolute path, because dlopen searches directories for a name without a slash */
    _cleanup_free_ char *real = realpath(path, NULL);
    if (!real || stat(real, &st) < 0) {
        cw_error_errnum(err, errno);
        return errno == ENOMEM
                   ? cw_error_nomem(err, 0, "a plug-in")
                   : plugin_refuse(path, err, "a shared object", "can't be opened: %s", strerror(errno));
    }
    if (!S_ISREG(st.st_mode))
        return plugin_refuse(path, err, "a shared object", "is not a file");
    if (!plugin_is_whole(real, (uint64_t)st.st_size))
        return plugin_refuse(path, err, "a shared object",
                             "is cut off: its headers describe more than its %lld bytes",
                             (long long)st.st_size);
    void *handle = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return plugin_refuse(path, err,
                             "a shared object that was built for this machine and has no undefined symbols",
                             "can't be loaded: %s", why ? why : "no reason given");
    }
    int r;
    bool new = false;
    const struct cachew_plugin *plugin = dlsym(handle, ENTRY);
    if (plugin) {
        CW_WITH (&loading)
            r = plugin_add_object(handle, plugin, real, &new, err);
    } else {
        r = plugin_refuse(path, err,
                          "a plug-in, which defines `const struct cachew_plugin " ENTRY "` (docs/plugins.md)",
                          "has no symbol " ENTRY);
    }
    if (!new)
        dlclose(handle); /* dlopen counts: an object that was loaded before stays loaded */
    return r;
}
