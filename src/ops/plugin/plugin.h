/* Loads plug-ins: shared objects with operators. They include only include/cachew/plugin.h; docs/plugins.md
 * is the contract. */
#pragma once
#include "base/error.h"

/* Loads a shared object and adds its operators to cw_ops(). If the file is loaded already, does nothing and
 * returns 0. `path` is a path even without a slash: no directories are searched. CW_E_OPTION: there is no
 * such file, it is not a plug-in, it has another ABI version, a descriptor is wrong, or a name is taken; no
 * operator is added then. A plug-in stays loaded until the process ends. From any thread. */
int cw_plugin_load(const char *path, struct cw_error *err) _must_check_;

struct cachew_plugin;
/* The second half of cw_plugin_load: checks the descriptor and adds the operators. The plug-in's identity is
 * made from the name of `path` and the plug-in's version. */
int cw_plugin_add(const struct cachew_plugin *plugin, const char *path, struct cw_error *err) _must_check_;
