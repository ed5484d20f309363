/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start: what a person may say about S3, turned into options; how a daemon comes to its store, and
 * what it says of it in its log.
 *
 * Why:     server, uploader and command must understand the same words in the same way, and an
 *          operator who reads the log of one daemon must find the same events, in the same words,
 *          in that of the other.
 * Promise: 1   a word that means nothing, a key id without encryption by key, or a list of
 *              interfaces with an empty name is refused at start with its name and value.
 *          2   cairn_store_start opens the store, asks for its keys, tests it where the settings
 *              say so, and logs what was found: keys, exposed keys, where the profile is known
 *              from, its note.
 *          3   with must_work a store whose keys or test fail ends the start; without it that is
 *              logged, and the daemon goes on with what is safe to assume.
 *          4   what the store turns out not to do is logged once, and corrected in profile.json.
 * Limits:  16 interfaces; the rest as in store/s3/settings.def. Of all files of store/ only this
 *          one logs more than a store that fails: it is part of the daemons' start.
 * Threads: one owner, before other threads use the store; the watch has one owner.
 * Next:    store/s3/settings.def, which a program's settings.def includes; store/s3/probe.c;
 *          server/main.c, uploader/daemon.c.
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
/* For a program's copy: with this as CONFIG, and `own` its struct, the .def is an initializer. */
#define CAIRN_STORE_S3_SETTING_OF(own, type, name)                                                 \
    .CAIRN_CONFIG_MEMBER_##type(name) = (own)->CAIRN_CONFIG_MEMBER_##type(name),

/* options point into the settings and into this: neither may move while they are used. */
struct cairn_store_s3_choice {
    struct cairn_store_s3_options options;
    char interfaces_text[513];
    const char *interfaces[CAIRN_S3_INTERFACES_MAX];
};

/* For programs without settings of their own: every CAIRN_<NAME> of the table, else the default.
 * Releases with cairn_store_s3_environment_release. */
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
    const char *file_mode; /* of a folder's files, as cairn_file_mode_parse takes it */
    const char *by;        /* "server", "uploader" */
    bool may_list;         /* its keys should be able to list */
    bool must_work;
    uint32_t probe_ms; /* of each request of a test; 0 = 30 s */
};
enum cairn_code cairn_store_start(const struct cairn_store_start *start, struct cairn_store **ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* Writes profile.json where it says anything else, for those who may find out less, or come later.
 * Without it they find out for themselves. */
void cairn_store_start_keep(struct cairn_store *store);

struct cairn_store_watch {
    bool logged;
};
/* To be called now and then. keeps: profile.json is corrected. */
void cairn_store_watch_look(struct cairn_store_watch *watch, struct cairn_store *store, bool keeps);
