/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings: what a person may say about S3, turned into options of the store.
 *
 * Why:     server, uploader and command must understand the same words in the same way.
 * Promise: 1   a word that means nothing, a key id without encryption by key, or a list of
 *              interfaces with an empty name is refused at start with its name and value.
 * Limits:  16 interfaces; the rest as in store/s3/settings.def.
 * Threads: values.
 * Next:    store/s3/settings.def; a program's settings.def includes it.
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
enum cairn_code cairn_store_s3_choose(const struct cairn_store_s3_settings *settings,
                                      struct cairn_store_s3_choice *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;

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
