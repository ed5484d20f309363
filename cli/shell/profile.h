/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: servers by name, in a file of the user, and which of them a command speaks to.
 *
 * Why:     people work with several servers and retype neither addresses nor token files.
 * Promise: 1   a value comes from the flag, else from the profile that --profile names, else from
 *              the variable, else from the profile of CAIRN_PROFILE or `profile use`, else it is
 *              the default.
 *          2   token and certificates of a profile are shown to its own server alone: where the
 *              address comes from elsewhere, they are not used.
 *          3   the file holds no token, only the path of one; it is written whole, mode 0600, and
 *              not read where others could have written or can read it.
 * Limits:  64 profiles; names as those of runs, at most 63 bytes; values of 1,023 bytes in a line.
 * Threads: main thread.
 * Next:    cli/verbs/profile.c.
 *
 * The file, CAIRN_PROFILES or cairn/profiles in the user's folder for settings:
 *     use = lab
 *     [lab]
 *     server = https://cairn.lab:7420
 *     token_file = /etc/cairn/lab.token
 */
#pragma once

#include "cli/shell/verb.h"

#define CAIRN_CLI_PROFILES_MAX 64
#define CAIRN_CLI_PROFILE_NAME_BYTES 64
#define CAIRN_CLI_PROFILE_VALUE_BYTES 1024

/* A value that is not there is "". */
struct cairn_cli_profile {
    char name[CAIRN_CLI_PROFILE_NAME_BYTES];
    char server[CAIRN_CLI_PROFILE_VALUE_BYTES], token_file[CAIRN_CLI_PROFILE_VALUE_BYTES],
        ca_file[CAIRN_CLI_PROFILE_VALUE_BYTES], socket[CAIRN_CLI_PROFILE_VALUE_BYTES];
};
struct cairn_cli_profiles {
    char path[CAIRN_CLI_PROFILE_VALUE_BYTES]; /* "": the user has no folder for it */
    char use[CAIRN_CLI_PROFILE_NAME_BYTES];   /* "": none */
    struct cairn_cli_profile items[CAIRN_CLI_PROFILES_MAX]; /* by name */
    size_t count;
};
bool cairn_cli_profile_name_valid(const char *name);
/* A file that is not there holds none. */
enum cairn_code cairn_cli_profiles_load(struct cairn_cli_profiles *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_cli_profiles_save(const struct cairn_cli_profiles *profiles,
                                        struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_cli_profile *cairn_cli_profiles_find(struct cairn_cli_profiles *profiles,
                                                  const char *name);
/* That of --profile, CAIRN_PROFILE or `profile use`, into cli; there may be none. */
enum cairn_code cairn_cli_profile_choose(struct cairn_cli *cli,
                                         struct cairn_error *err) CAIRN_MUST_USE;

/* Where a command goes, and what it shows there; NULL: nothing. */
struct cairn_cli_server {
    const char *url, *token, *token_file, *ca_file, *socket;
};
void cairn_cli_server_of(const struct cairn_cli *cli, struct cairn_cli_server *ret);
