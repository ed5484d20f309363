/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile: reads the shared files of AWS's tools (~/.aws/config, ~/.aws/credentials).
 *
 * Why:     keys, region and endpoint of a profile must be found as botocore finds them.
 * Promise: 1   absent files count as empty; a profile named by the user must be in one of them.
 *          2   sections of other kinds (services, sso-session) are never taken for a profile.
 * Limits:  1 MiB a file.
 * Threads: one owner; stateless otherwise.
 * Next:    store/keys/credentials.h, store/s3/config.h.
 */
#pragma once

#include "common/error.h"
#include "store/keys/credentials.h"

struct cairn_profile_value {
    /* Nested names read "s3.addressing_style", those of the services section "services.s3.x". */
    char *name, *value;
    bool secret_file; /* from the credentials file, which wins */
};
struct cairn_profile {
    char name[128];
    bool asked_for; /* named by the caller or the environment */
    bool found;
    bool services_found; /* the profile's services section exists */
    char credentials_path[512], config_path[512];
    struct cairn_profile_value *values;
    size_t count, capacity;
};
void cairn_profile_release(struct cairn_profile *profile);
/* Absent files count as empty. name NULL or "": the environment's profile, else "default". */
enum cairn_code cairn_profile_load(const char *name, struct cairn_profile *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* Fails if a profile named by the user is in neither file. */
enum cairn_code cairn_profile_require(const struct cairn_profile *profile,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* NULL: not set. */
const char *cairn_profile_get(const struct cairn_profile *profile, const char *name);

/* Changes when one of the shared files is changed, made or removed; never 0. */
uint64_t cairn_profile_stamp(void);
/* True if others may read a file with this profile's keys; names the file and its mode. */
bool cairn_profile_exposed(const char *name, char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]);
