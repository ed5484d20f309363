/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings: the settings of one uploader, and what follows from several of them together.
 *
 * Why:     uploader/settings.def has the settings; here are their struct and their relations.
 * Promise: 1   a value that cannot work (no store, a name that is no file name, a core that this
 *              machine does not have) is refused at start with its name and its value.
 * Limits:  as in uploader/settings.def; cores 0 to CPU_SETSIZE - 1.
 * Threads: immutable after load; cores_apply runs before other threads start, which inherit it.
 * Next:    common/config.h; docs/config.md is made from the table.
 */
#pragma once

#include <sched.h>
#include <sys/types.h>

#include "common/config.h"
#include "common/log.h"

struct cairn_up_settings {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_CONFIG_FIELD_##type(name)
#include "uploader/settings.def"
#undef CONFIG
};

#define CAIRN_UP_UIDS_MAX 64
/* Values derived from the settings and the machine. */
struct cairn_up_places {
    char node[65]; /* [A-Za-z0-9][A-Za-z0-9._-]* */
    char host[65]; /* for messages: the machine's or container's name; "": none */
    char socket_path[108];
    char journal_path[4200];
    uint64_t budget_bytes;
    enum cairn_log_level log_level;
    enum cairn_log_format log_format;
    bool any_uid;
    uid_t uids[CAIRN_UP_UIDS_MAX];
    size_t uid_count;
};

extern const struct cairn_config_row cairn_up_settings_rows[];
extern const size_t cairn_up_settings_row_count;
enum cairn_code cairn_up_settings_derive(const struct cairn_up_settings *settings,
                                         struct cairn_up_places *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* "0-3,8" */
enum cairn_code cairn_up_cores_parse(const char *text, cpu_set_t *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* The count of cores shared with trainers; UINT32_MAX where cpu_list separates them. */
uint32_t cairn_up_cores_shared(const struct cairn_up_settings *settings);
enum cairn_code cairn_up_cores_apply(const struct cairn_up_settings *settings,
                                     struct cairn_error *err) CAIRN_MUST_USE;
