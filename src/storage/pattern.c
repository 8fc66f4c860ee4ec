/* Patterns of file names: ~, braces, wildcards and **. Any thread. */
#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/internal.h"

#include "base/array.h"

#define MOST_BRACES 64        /* one inside or after another: the depth of the recursion */
#define MOST_PATTERNS 1000000 /* that the braces of one pattern stand for */
#define MOST_DIRECTORIES 64   /* levels that ** descends */
#define DESCEND "**"

static bool pattern_has_wildcard(const char *pattern, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("*?[", pattern[i]))
            return true;
        i += pattern[i] == '\\';
    }
    return false;
}

/* Returns the length of a pattern's leading directories without wildcards, with the last slash. */
static size_t pattern_prefix(const char *pattern)
{
    size_t prefix = 0;
    for (size_t n; pattern[prefix + (n = strcspn(pattern + prefix, "/"))] &&
                   !pattern_has_wildcard(pattern + prefix, n);)
        prefix += n + 1;
    return prefix;
}

/* Returns dir followed by n bytes of name. unquote: backslashes that quote a character are left out. The
 * caller frees the string; NULL: out of memory. */
static char *path_join(const char *dir, const char *name, size_t n, bool unquote)
{
    size_t at = strlen(dir);
    char *path = malloc(at + n + 1);
    if (!path)
        return NULL;
    memcpy(path, dir, at);
    for (size_t i = 0; i < n; i++) {
        if (unquote && name[i] == '\\' && i + 1 < n)
            i++;
        path[at++] = name[i];
    }
    path[at] = 0;
    return path;
}

/* Returns a pattern that means only the file of the name `path`, followed by the pattern `rest`. The caller
 * frees the string; NULL: out of memory. */
static char *path_quote(const char *path, const char *rest)
{
    char *pattern = malloc(2 * strlen(path) + strlen(rest) + 1), *to = pattern;
    if (!pattern)
        return NULL;
    for (; *path; *to++ = *path++)
        if (strchr("*?[\\{", *path))
            *to++ = '\\';
    memcpy(to, rest, strlen(rest) + 1);
    return pattern;
}

/* Returns the directory that a pattern is relative to: base_dir with a slash at its end, or "". The caller
 * frees it; NULL: out of memory. */
static char *pattern_base(const char *base_dir, const char *pattern)
{
    bool below = base_dir && *base_dir && pattern[0] != '/' && !cw_object_is_address(pattern);
    return path_join(below ? base_dir : "", "/", below && base_dir[strlen(base_dir) - 1] != '/', false);
}

/* ---- one pattern becomes several ---- */

/* Returns 1 if something of exactly this name exists, 0 if not, CW_E_MEMORY. */
static int path_exists(const char *base_dir, const char *name, struct cw_error *err)
{
    struct stat s;
    _cleanup_free_ char *base = pattern_base(base_dir, name);
    _cleanup_free_ char *path = base ? path_join(base, name, strlen(name), false) : NULL;
    return path ? stat(path, &s) == 0 : cw_error_nomem(err, strlen(name), "a path");
}

/* Stores the home directory of the n bytes of a user's name in home; n = 0: of this user. False: it is not
 * known. */
static bool home_find(const char *user, size_t n, char home[4096])
{
    char name[256], room[4096];
    struct passwd entry, *found = NULL;
    const char *own = n == 0 ? getenv("HOME") : NULL;
    if (own && *own)
        return snprintf(home, 4096, "%s", own) < 4096;
    if (n >= sizeof(name))
        return false;
    memcpy(name, user, n);
    name[n] = '\0';
    if (n > 0)
        (void)getpwnam_r(name, &entry, room, sizeof(room), &found);
    else
        (void)getpwuid_r(getuid(), &entry, room, sizeof(room), &found);
    return found && snprintf(home, 4096, "%s", found->pw_dir) < 4096;
}

int cw_path_home(const char *base_dir, const char *path, bool quote, char **ret, struct cw_error *err)
{
    char home[4096];
    const char *rest = path + strcspn(path, "/");
    int r = path[0] == '~' ? path_exists(base_dir, path, err) : 1;
    if (r < 0)
        return r;
    if (r == 1 || !home_find(path + 1, (size_t)(rest - path - 1), home))
        *ret = strdup(path);
    else
        *ret = quote ? path_quote(home, rest) : path_join(home, rest, strlen(rest), false);
    return *ret ? 0 : cw_error_nomem(err, strlen(path), "a path");
}

/* A list or a range in braces: text[at] is "{", text[end] is "}". */
struct brace {
    size_t at, end;
    bool range;
    long long from, to;
    int width; /* of a range: digits with leading zeros; 0: none */
};

/* Reads a number that ends before `end`. False: the text is no number of at most 18 digits. */
static bool brace_number(const char *text, const char *end, long long *ret)
{
    char *after;
    if (end - text < 1 || end - text > 18 || !strchr("-0123456789", *text))
        return false;
    *ret = strtoll(text, &after, 10);
    return after == end;
}

static int brace_digits(const char *text, const char *end)
{
    const char *digits = text + (*text == '-');
    return digits[0] == '0' && end - digits > 1 ? (int)(end - text) : 0;
}

/* Reads "FROM..TO". */
static bool brace_parse_range(const char *text, struct brace *b)
{
    const char *begin = text + b->at + 1, *end = text + b->end, *dots = strstr(begin, "..");
    if (!dots || dots >= end || !brace_number(begin, dots, &b->from) || !brace_number(dots + 2, end, &b->to))
        return false;
    if (brace_digits(begin, dots) || brace_digits(dots + 2, end))
        b->width = (int)CW_MAX(dots - begin, end - dots - 2);
    return b->range = true;
}

/* Finds the first braces that hold a list or a range. */
static bool brace_find(const char *text, struct brace *ret)
{
    for (size_t at = 0; text[at]; at++) {
        if (text[at] == '\\' && text[at + 1])
            at++;
        else if (text[at] == '{') {
            bool list = false;
            size_t depth = 1, end = at + 1;
            for (; text[end] && depth > 0; end++) {
                if (text[end] == '\\' && text[end + 1]) {
                    end++;
                    continue;
                }
                depth += (text[end] == '{') - (size_t)(text[end] == '}');
                list |= depth == 1 && text[end] == ',';
            }
            *ret = (struct brace){.at = at, .end = end - 1};
            if (depth == 0 && (list || brace_parse_range(text, ret)))
                return true;
        }
    }
    return false;
}

static int brace_expand(const char *pattern, unsigned depth, struct cw_paths *ret, struct cw_error *err);

/* Expands the pattern in which the n bytes of `choice` replace the braces. */
static int brace_choose(const char *pattern, const struct brace *b, const char *choice, size_t n,
                        unsigned depth, struct cw_paths *ret, struct cw_error *err)
{
    char *one = NULL;
    if (asprintf(&one, "%.*s%.*s%s", (int)b->at, pattern, (int)n, choice, pattern + b->end + 1) < 0)
        return cw_error_nomem(err, strlen(pattern), "a pattern");
    int r = brace_expand(one, depth + 1, ret, err);
    free(one);
    return r;
}

static int brace_expand_range(const char *pattern, const struct brace *b, unsigned depth,
                              struct cw_paths *ret, struct cw_error *err)
{
    char number[32];
    long long step = b->from <= b->to ? 1 : -1;
    for (long long i = b->from;; i += step) {
        int n = snprintf(number, sizeof(number), "%0*lld", b->width, i);
        int r = brace_choose(pattern, b, number, (size_t)n, depth, ret, err);
        if (r < 0 || i == b->to)
            return r;
    }
}

/* Adds the patterns without braces that a pattern stands for, in their order. CW_E_PIPELINE, without a
 * message: there are too many. */
static int brace_expand(const char *pattern, unsigned depth, struct cw_paths *ret, struct cw_error *err)
{
    struct brace b;
    if (!brace_find(pattern, &b))
        return ret->n < MOST_PATTERNS ? cw_paths_add(ret, pattern, err) : CW_E_PIPELINE;
    if (depth == MOST_BRACES)
        return CW_E_PIPELINE;
    if (b.range)
        return brace_expand_range(pattern, &b, depth, ret, err);
    int r = 0;
    for (size_t begin = b.at + 1, end; begin <= b.end && r >= 0; begin = end + 1) {
        unsigned nested = 0;
        for (end = begin; end < b.end && (nested > 0 || pattern[end] != ','); end++) {
            nested += (pattern[end] == '{') - (unsigned)(pattern[end] == '}');
            end += pattern[end] == '\\' && end + 1 < b.end;
        }
        r = brace_choose(pattern, &b, pattern + begin, end - begin, depth, ret, err);
    }
    return r;
}

int cw_patterns(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
                struct cw_error *err)
{
    struct brace b;
    struct cw_paths found = {0};
    _cleanup_free_ char *home = NULL, *literal = NULL;
    *ret_prefix = SIZE_MAX;
    int r = strpbrk(pattern, "*?[{") && !cw_object_is_address(pattern) ? path_exists(base_dir, pattern, err)
                                                                       : 0;
    if (r == 1) {
        literal = path_quote(pattern, "");
        r = literal ? cw_paths_add(&found, literal, err) : cw_error_nomem(err, strlen(pattern), "a pattern");
    } else if (r == 0 && (r = cw_path_home(base_dir, pattern, true, &home, err)) == 0) {
        if (brace_find(home, &b)) {
            _cleanup_free_ char *base = pattern_base(base_dir, home);
            size_t prefix = pattern_prefix(home);
            while (prefix > b.at || (prefix > 0 && home[prefix - 1] != '/'))
                prefix--;
            _cleanup_free_ char *plain = path_join("", home, prefix, true);
            if (!base || !plain)
                return cw_error_nomem(err, strlen(home), "a pattern");
            *ret_prefix = strlen(base) + strlen(plain);
        }
        r = brace_expand(home, 0, &found, err);
        if (r == CW_E_PIPELINE)
            r = cw_error_set(err, r,
                             "%.200s: the braces stand for more than %d names, or there are more than %d "
                             "braces: expected fewer",
                             pattern, MOST_PATTERNS, MOST_BRACES);
    }
    if (r < 0) {
        cw_error_file(err, pattern);
        cw_paths_deinit(&found);
        return r;
    }
    *ret = found;
    return 0;
}

/* ---- the files of a pattern ---- */

/* Reads the status of a path. Returns 0; 1: the path does not exist. A link that leads nowhere is an error,
 * because otherwise its file would be missing from the data set without notice. */
static int path_stat(const char *path, struct stat *ret, struct cw_error *err)
{
    if (stat(path, ret) == 0)
        return 0;
    int e = errno;
    struct stat link;
    if ((e == ENOENT || e == ENOTDIR) && lstat(path, &link) < 0)
        return 1;
    return cw_error_at_file(err, CW_E_IO, path, e, "%s%s", path,
                            e == ENOENT ? ": the link leads nowhere" : "");
}

static int pattern_expand(const char *dir, const char *pattern, bool wild, unsigned depth,
                          struct cw_paths *found, struct cw_error *err);

/* Adds a path that matches a whole pattern (wild: the pattern has wildcards). A directory that a wildcard
 * matches is left out. A path that is not a regular file otherwise is an error. */
static int pattern_add_file(const char *path, bool wild, struct cw_paths *found, struct cw_error *err)
{
    struct stat s;
    int r = path_stat(path, &s, err);
    if (r != 0)
        return r < 0 ? r : 0;
    if (!S_ISREG(s.st_mode) && wild && S_ISDIR(s.st_mode))
        return 0;
    if (!S_ISREG(s.st_mode))
        return cw_error_at_file(err, CW_E_PIPELINE, path, 0, "%s is %s: expected a file", path,
                                cw_mode_name(s.st_mode));
    return cw_paths_add(found, path, err);
}

/* For each entry of the directory base that matches mask (one component of the pattern), adds the files that
 * match the rest of the pattern. base ends with a slash, or is empty. */
static int pattern_expand_matches(const char *base, const char *mask, const char *rest, unsigned depth,
                                  struct cw_paths *found, struct cw_error *err)
{
    struct stat s;
    const char *listed = *base ? base : ".";
    int r = path_stat(listed, &s, err);
    if (r != 0 || !S_ISDIR(s.st_mode))
        return r < 0 ? r : 0;
    struct cw_paths entries = {0};
    r = cw_list(listed, &entries, err);
    for (size_t i = 0; r == 0 && i < entries.n; i++) {
        if (fnmatch(mask, entries.paths[i], FNM_PERIOD) != 0)
            continue;
        _cleanup_free_ char *path = path_join(base, entries.paths[i], strlen(entries.paths[i]), false);
        if (!path)
            r = cw_error_nomem(err, strlen(rest), "the names of files");
        else if (!*rest)
            r = pattern_add_file(path, true, found, err);
        else if ((r = path_stat(path, &s, err)) == 0)
            r = pattern_expand(path, rest, true, depth, found, err);
        r = r < 0 ? r : 0;
    }
    cw_paths_deinit(&entries);
    return r;
}

/* Adds the files below the directory base, at any depth, that match the rest of a pattern (without slashes at
 * its begin; "": all files). Hidden directories and links to directories are not entered: links could lead
 * back up. */
static int pattern_descend(const char *base, const char *rest, unsigned depth, struct cw_paths *found,
                           struct cw_error *err)
{
    struct stat s;
    const char *listed = *base ? base : ".";
    int r = path_stat(listed, &s, err);
    if (r != 0 || !S_ISDIR(s.st_mode))
        return r < 0 ? r : 0;
    if (depth == MOST_DIRECTORIES)
        return cw_error_at_file(err, CW_E_PIPELINE, base, 0,
                                "%s lies more than %d directories below a \"**\": expected a pattern that "
                                "names more directories",
                                base, MOST_DIRECTORIES);
    r = pattern_expand(base, *rest ? rest : "*", true, depth + 1, found, err);
    struct cw_paths entries = {0};
    if (r >= 0)
        r = cw_list(listed, &entries, err);
    for (size_t i = 0; r >= 0 && i < entries.n; i++) {
        _cleanup_free_ char *below = path_join(base, entries.paths[i], strlen(entries.paths[i]), false);
        _cleanup_free_ char *next = below ? path_join(below, "/", 1, false) : NULL;
        if (!next)
            r = cw_error_nomem(err, strlen(base), "the names of files");
        else if (entries.paths[i][0] != '.' && lstat(below, &s) == 0 && S_ISDIR(s.st_mode))
            r = pattern_descend(next, rest, depth + 1, found, err);
    }
    cw_paths_deinit(&entries);
    return r;
}

/* Adds the files below dir that match a pattern. dir ends with a slash, or is empty, or the pattern begins
 * with a slash. depth: of directories below a "**". glob(3) is not used because it frees memory twice when
 * memory runs out. */
static int pattern_expand(const char *dir, const char *pattern, bool wild, unsigned depth,
                          struct cw_paths *found, struct cw_error *err)
{
    size_t slashes = strspn(pattern, "/"), n = strcspn(pattern + slashes, "/");
    const char *component = pattern + slashes, *rest = component + n;
    _cleanup_free_ char *base = path_join(dir, pattern, slashes, false);
    if (!base)
        return cw_error_nomem(err, slashes, "the names of files");
    if (n == strlen(DESCEND) && memcmp(component, DESCEND, n) == 0)
        return pattern_descend(base, rest + strspn(rest, "/"), depth, found, err);
    bool mask = pattern_has_wildcard(component, n);
    _cleanup_free_ char *next = mask ? path_join("", component, n, false)
                                     : path_join(base, component, n, true);
    if (!next)
        return cw_error_nomem(err, n, "the names of files");
    if (mask)
        return pattern_expand_matches(base, next, rest, depth, found, err);
    return *rest ? pattern_expand(next, rest, wild, depth, found, err)
                 : pattern_add_file(next, wild, found, err);
}

/* Removes all but one of equal paths, which a pattern with several "**" gives; the paths are sorted. */
static void paths_unique(struct cw_paths *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (n > 0 && strcmp(p->paths[n - 1], p->paths[i]) == 0)
            free(p->paths[i]);
        else
            p->paths[n++] = p->paths[i];
    p->n = n;
}

/* Returns the number of bytes of a pattern up to its first wildcard. Of a web server, "?" begins a query. */
static size_t pattern_literal(const char *pattern)
{
    size_t n = 0;
    bool query = cw_object_is_address(pattern) && !cw_object_is_listed(pattern);
    for (; pattern[n] && !strchr(query ? "*[" : "*?[", pattern[n]); n++)
        n += pattern[n] == '\\' && pattern[n + 1];
    return n;
}

static int pattern_expand_address(const char *pattern, struct cw_paths *found, struct cw_error *err)
{
    size_t n = pattern_literal(pattern);
    _cleanup_free_ char *literal = path_join("", pattern, n, cw_object_is_listed(pattern));
    return literal ? cw_glob_objects(pattern, literal, pattern[n] != '\0', found, err)
                   : cw_error_nomem(err, n, "a pattern");
}

int cw_glob(const char *base_dir, const char *pattern, struct cw_paths *ret, size_t *ret_prefix,
            struct cw_error *err)
{
    _cleanup_free_ char *base = pattern_base(base_dir, pattern);
    size_t prefix = pattern_prefix(pattern);
    _cleanup_free_ char *plain = path_join("", pattern, prefix, true);
    if (!base || !plain)
        return cw_error_nomem(err, strlen(pattern), "a pattern");
    struct cw_paths found = {0};
    int r = cw_object_is_address(pattern)
                ? pattern_expand_address(pattern, &found, err)
                : pattern_expand(base, pattern, pattern_has_wildcard(pattern, strlen(pattern)), 0, &found,
                                 err);
    if (r == 0 && found.n == 0) {
        r = cw_error_at_file(err, CW_E_PIPELINE, pattern, 0, "no file matches %s%s", base, pattern);
        cw_error_errnum(err, ENOENT);
    }
    if (r < 0) {
        cw_paths_deinit(&found);
        return r;
    }
    cw_paths_sort(&found);
    paths_unique(&found);
    *ret = found;
    *ret_prefix = strlen(base) + strlen(plain);
    return 0;
}

char *cw_glob_dir(const char *base_dir, const char *pattern)
{
    _cleanup_free_ char *base = pattern_base(base_dir, pattern);
    _cleanup_free_ char *dir = base ? path_join(base, pattern, pattern_prefix(pattern), true) : NULL;
    return dir && !*dir ? strdup(".") : CW_STEAL(dir);
}
