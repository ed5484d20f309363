/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings: the operator's settings of cairn-server, read once at start.
 *
 * Why:     relations between settings are checked in one place, before anything is opened.
 * Promise: 1   listening beyond loopback without TLS or without tokens is refused, unless
 *              allow-remote says that something in front does both.
 * Limits:  as in server/settings.def.
 * Threads: immutable after load.
 * Next:    server/settings.def, common/config.h.
 */
#pragma once

#include "common/config.h"
#include "server/db/copy.h"

struct srv_settings {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_CONFIG_FIELD_##type(name)
#include "server/settings.def"
#undef CONFIG
};

/* Stands for the run's project in import_folders and export_folders. */
#define SRV_FOLDERS_PROJECT "{project}"

/* The path of public_url, without a trailing slash; "": none. */
const char *srv_public_path(const struct srv_settings *settings);
/* The data_dir of a server that is started with this environment, its configuration file and no
 * flags. CAIRN_INVALID: its catalog is not in a data_dir. */
enum cairn_code srv_settings_data_dir(char ret[SRV_FROM_BYTES],
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Reads flags, environment and file; prints --help, --version, --print-config and --print-docs and
 * sets *ret_done. Release config after the settings' last use. */
enum cairn_code srv_settings_load(int argc, char **argv, struct cairn_config *config,
                                  struct srv_settings *ret, bool *ret_done,
                                  struct cairn_error *err) CAIRN_MUST_USE;
