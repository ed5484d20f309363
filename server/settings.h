/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings: what an operator can say to cairn-server, read once at start.
 *
 * Why:     relations between settings are checked in one place, before anything is opened.
 * Promise: 1   listening beyond loopback without TLS or without tokens is refused, where
 *              allow-remote does not say that something else does both.
 * Limits:  as server/settings.def says.
 * Threads: immutable after load.
 * Next:    server/settings.def, common/config.h.
 */
#pragma once

#include "common/config.h"

struct cairn_srv_settings {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_CONFIG_FIELD_##type(name)
#include "server/settings.def"
#undef CONFIG
};

/* Flags, environment and file; --help, --version, --print-config and --print-docs are answered on
 * standard output and set *ret_done. config is to be released after the settings' last use. */
/* In import_folders and export_folders: the project of the run. */
#define CAIRN_SRV_FOLDERS_PROJECT "{project}"

/* The path of public_url, without a slash at its end; "": it has none. */
const char *cairn_srv_public_path(const struct cairn_srv_settings *settings);
enum cairn_code cairn_srv_settings_load(int argc, char **argv, struct cairn_config *config,
                                        struct cairn_srv_settings *ret, bool *ret_done,
                                        struct cairn_error *err) CAIRN_MUST_USE;
