/* Plug-ins: operators from shared objects. include/cachew/plugin.h is what they see, docs/plugins.md the
 * contract. */
#pragma once
#include "base/error.h"

/* Loads a shared object and adds its operators to cw_ops(). A file that is loaded already is left as it is,
 * result 0. The path is one, also without a slash: no directories are searched. CW_E_OPTION: no such file, no
 * plug-in, another ABI, a descriptor that is wrong, a name that is taken; nothing is added then. What is
 * loaded stays until the process ends. From any thread. */
int cw_plugin_load(const char *path, struct cw_error *err) _must_check_;

struct cachew_plugin;
/* What cw_plugin_load does once it has the descriptor: checks it, and adds the operators under the identity
 * of a file of this name. */
int cw_plugin_add(const struct cachew_plugin *plugin, const char *path, struct cw_error *err) _must_check_;
