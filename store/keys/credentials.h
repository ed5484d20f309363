/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials: finds a store's credentials the way AWS's SDKs do, and renews them in time.
 *
 * Why:     on a cluster credentials come from the environment, a profile, a pod's role or the
 *          machine itself, and many expire after an hour, in the middle of a save.
 * Promise: 1   order: environment, shared files (profile), web identity, container endpoint,
 *              instance metadata (v2 only); a profile named in the options comes first. The first
 *              configured source wins and stays; a broken one is an error.
 *          2   expiring keys are renewed from 5 minutes before; one thread renews, the others use
 *              the old keys while those are valid.
 *          3   keys that a store refuses as expired are replaced at once, by one thread; if the
 *              source has no others, that is CAIRN_UNAUTHORIZED and final. A source that took
 *              seconds to fail is not called again for as many seconds. Changed files are read
 *              again anyway.
 *          4   only the keys' source and expiry are ever printed. Keys are sent to the source's own
 *              address only, over http only to this machine or addresses that AWS reserves.
 *          5   a profile's keys are its own, those of a role (by a web identity, another profile's
 *              keys or another source), or its program's output. Circular chains are refused by
 *              name.
 *          6   with profile_alone only that profile gives keys (promise 5), and no variable sets
 *              STS's address: no keys leak to another's endpoint.
 * Limits:  1 MiB files; chains of 8 profiles; programs of 60 s and 64 KiB; SSO profiles and roles
 *          with a second factor are CAIRN_UNSUPPORTED. Expiry counts from receipt, on the mono
 *          clock. A changed file is noticed within a second.
 * Threads: any thread; locked by store_credentials.
 * Next:    store/keys/sigv4.h uses them.
 */
#pragma once

#include "common/base.h"
#include "common/buf.h"
#include "common/clock.h"
#include "store/secret.h"

struct cairn_credentials {
    char access_key[256];
    struct cairn_secret secret, token; /* token may be empty */
    int64_t expires_ms;                /* wall clock of the source; 0: never */
    char source[160];                  /* "environment", "profile x", ... */
    uint64_t generation;               /* from 1 */
};

struct cairn_credentials_options {
    const char *profile;       /* NULL, "": AWS_PROFILE, AWS_DEFAULT_PROFILE, "default" */
    bool profile_alone;        /* promise 6; needs `profile` */
    const char *sts_url;       /* with profile_alone: address of STS; NULL: AWS's */
    const char *region;        /* for STS; NULL: its global address */
    const char *ca_bundle;     /* NULL: the system's */
    const char *container_url; /* NULL: http://169.254.170.2 */
    bool allow_plain_http;     /* of STS, to other machines */
    bool fips;                 /* use STS's FIPS endpoint */
    uint32_t process_ms;       /* for a profile's program; 0: 60 s */
    const char *metadata_url;  /* NULL: AWS_EC2_METADATA_SERVICE_ENDPOINT, http://169.254.169.254 */
    const struct cairn_clock *clock; /* NULL: real */
};
struct cairn_credentials_provider;
/* Reads nothing yet. */
enum cairn_code cairn_credentials_provider_new(const struct cairn_credentials_options *options,
                                               struct cairn_credentials_provider **ret,
                                               struct cairn_error *err) CAIRN_MUST_USE;
void cairn_credentials_provider_free(struct cairn_credentials_provider *provider);
CAIRN_DEFINE_AUTO_PTR(credentials_provider);

/* Copies the current keys into *ret (released first), after renewal where due; may wait for the
 * network. refused_generation: keys that a store called expired, 0 for none. */
enum cairn_code cairn_credentials_get(struct cairn_credentials_provider *provider,
                                      uint64_t refused_generation, struct cairn_credentials *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* True if keys of this generation are still current. Cheap. */
bool cairn_credentials_current(struct cairn_credentials_provider *provider, uint64_t generation);
/* Expiry of the keys in use, by their source's wall clock; 0: never, or none yet. Never waits. */
int64_t cairn_credentials_until_ms(struct cairn_credentials_provider *provider);
/* True if others on this machine may read the keys' file: "FILE has mode 0644". */
#define CAIRN_CREDENTIALS_EXPOSED_BYTES 540
bool cairn_credentials_exposed(struct cairn_credentials_provider *provider,
                               char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]);
/* "environment" or "container endpoint, until 2026-03-02T10:14:07Z". */
void cairn_credentials_describe(const struct cairn_credentials *credentials, char ret_text[224]);

/* Wipes secret and token. */
void cairn_credentials_release(struct cairn_credentials *credentials);

/* NULL when unset or empty. */
const char *cairn_credentials_variable(const char *name);
/* CAIRN_INVALID: an access key id or token that could alter a header. */
enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- names of AWS's own services, by the partition of a region ---- */

struct cairn_aws_switches {
    bool fips, dual_stack; /* AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT */
};
/* "amazonaws.com" for most regions. */
const char *cairn_aws_domain(const char *region);
/* False: this region's partition has no such names. */
bool cairn_aws_has_dual_stack(const char *region);
