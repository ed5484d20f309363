/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: turns a user's S3 settings into options; opens a daemon's store and logs its state.
 *
 * Why:     server, uploader and command must understand the same words alike, and an operator must
 *          find the same events, in the same words, in either daemon's log.
 * Promise: 1   an unknown word, a key id without encryption by key, or a list of interfaces with an
 *              empty name is refused at start with its name and value.
 *          2   cairn_store_start opens the store, gets its keys, tests it if the settings say so,
 *              and logs the findings: keys, exposed keys, the profile's origin and note.
 *          3   with must_work a store whose keys or test fail ends the start; otherwise the daemon
 *              logs that and goes on with safe assumptions.
 *          4   a shortcoming found while running is logged once, and corrected in profile.json.
 * Limits:  16 interfaces; the rest as in store/s3/settings.def. Of all files of store/ only this
 *          one logs more than a failing store: it is part of the daemons' start.
 * Threads: one owner, before other threads use the store; the watch has one owner.
 * Next:    store/s3/settings.def, store/s3/probe.c; server/main.c, uploader/daemon.c.
 */
#pragma once

#include "common/config.h"
#include "store/s3/s3.h"

#define CAIRN_S3_INTERFACES_MAX 16

struct cairn_store_s3_settings {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_CONFIG_FIELD_##type(name)
#include "store/s3/settings.def"
#undef CONFIG
};
/* As CONFIG, with `own` a program's settings, it makes the .def an initializer. */
#define CAIRN_STORE_S3_SETTING_OF(own, type, name)                                                 \
    .CAIRN_CONFIG_MEMBER_##type(name) = (own)->CAIRN_CONFIG_MEMBER_##type(name),

/* options point into the settings and into this struct: neither may move while in use. */
struct cairn_store_s3_choice {
    struct cairn_store_s3_options options;
    char interfaces_text[513];
    const char *interfaces[CAIRN_S3_INTERFACES_MAX];
};

/* For programs without settings of their own: each CAIRN_<NAME> of the table, else the default.
 * Release with cairn_store_s3_environment_release. */
struct cairn_store_s3_environment {
    struct cairn_store_s3_settings settings;
    struct cairn_store_s3_choice choice;
    struct cairn_config config;
};
enum cairn_code cairn_store_s3_environment_load(struct cairn_store_s3_environment *ret,
                                                struct cairn_error *err) CAIRN_MUST_USE;
void cairn_store_s3_environment_release(struct cairn_store_s3_environment *environment);

/* ---- a daemon's store ---- */

struct cairn_store_start {
    const char *url;
    const struct cairn_store_s3_settings *s3;
    const char *file_mode; /* of a folder's files, in cairn_file_mode_parse's form */
    const char *by;        /* "server", "uploader" */
    bool may_list;         /* its credentials should be able to list */
    bool must_work;
    uint32_t probe_ms; /* per test request; 0 = 30 s */
};
enum cairn_code cairn_store_start(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Updates profile.json, for processes with fewer permissions or a later start. */
void cairn_store_start_keep(struct cairn_store *store);

struct cairn_store_watch {
    bool logged;
};
/* Call now and then. keeps: correct profile.json. */
void cairn_store_watch_look(struct cairn_store_watch *watch, struct cairn_store *store, bool keeps);
