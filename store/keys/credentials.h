/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials: finds the keys for a store the way AWS's SDKs do, and renews them in time.
 *
 * Why:     on a cluster the keys come from the environment, a profile, a pod's role or the machine
 *          itself, and many of them end after an hour, in the middle of a save.
 * Promise: 1   order: environment, shared files (profile), web identity, container endpoint,
 *              instance metadata (v2 only); a profile that the options name comes before the
 *              environment. The first that is configured wins and stays; one that is configured
 *              and broken is an error and is not passed over.
 *          2   keys that end are renewed from 5 minutes before; of several threads one does it,
 *              the others go on with the old ones while those still hold.
 *          3   keys that a store has refused as ended are asked for anew at once, by one thread;
 *              if the source has no others, that is CAIRN_UNAUTHORIZED and final. A source that
 *              took seconds to fail is not asked again before as many have passed.
 *              Files are read again when they change, before a store has refused anything.
 *          4   what is told about them is their source and their end, never a value. Keys are sent
 *              to the source's own address only, over http only to this machine or the addresses
 *              that AWS reserves for it.
 *          5   a profile's keys are its own, those of a role (by a web identity, by another
 *              profile's keys, or by one of the other sources), or what its program prints. A chain
 *              of profiles that leads in a circle is refused by its names.
 *          6   with profile_alone the keys are those of that profile (promise 5) or none, and no
 *              variable says where STS is: its keys go nowhere that was meant for others.
 * Limits:  1 MiB files; chains of 8 profiles; programs of 60 s and 64 KiB; SSO profiles and roles
 *          that ask for a second factor are CAIRN_UNSUPPORTED. Ends count from receipt, on the
 *          mono clock. A changed file is noticed within a second.
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
    bool profile_alone;        /* promise 6; a profile is named */
    const char *sts_url;       /* with profile_alone: of STS; NULL: AWS's */
    const char *region;        /* for STS; NULL: its global address */
    const char *ca_bundle;     /* NULL: the system's */
    const char *container_url; /* NULL: http://169.254.170.2 */
    bool allow_plain_http;     /* of STS, to other machines than this one */
    bool fips;                 /* STS by the name of its validated endpoint */
    uint32_t process_ms;       /* 0: 60 s; of a profile's program */
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

/* Copies the keys in use into *ret (released first), after renewing them where that is due; may
 * wait for the network. refused_generation: keys that a store called ended, 0 for none. */
enum cairn_code cairn_credentials_get(struct cairn_credentials_provider *provider,
                                      uint64_t refused_generation, struct cairn_credentials *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Are keys of this generation still those to use? Cheap. */
bool cairn_credentials_current(struct cairn_credentials_provider *provider, uint64_t generation);
/* When the keys in use end, by the wall clock of their source; 0: never, or none were needed yet.
 * Waits for nothing. */
int64_t cairn_credentials_until_ms(struct cairn_credentials_provider *provider);
/* Do the keys in use come from a file that others on this machine may read? "FILE has mode 0644" */
#define CAIRN_CREDENTIALS_EXPOSED_BYTES 540
bool cairn_credentials_exposed(struct cairn_credentials_provider *provider,
                               char ret_text[CAIRN_CREDENTIALS_EXPOSED_BYTES]);
/* "environment" or "container endpoint, until 2026-03-02T10:14:07Z". */
void cairn_credentials_describe(const struct cairn_credentials *credentials, char ret_text[224]);

/* ---- one set of keys ---- */

/* Wipes secret and token. */
void cairn_credentials_release(struct cairn_credentials *credentials);

/* NULL when unset or empty. */
const char *cairn_credentials_variable(const char *name);
/* An access key id or a token that could change a header is CAIRN_INVALID. */
enum cairn_code cairn_credentials_set(struct cairn_credentials *ret, const char *access_key,
                                      const char *secret, const char *token,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- names of AWS's own services, by the partition of a region ---- */

struct cairn_aws_switches {
    bool fips, dual_stack; /* AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT */
};
/* "amazonaws.com", of most regions. */
const char *cairn_aws_domain(const char *region);
/* false: the partition of this region has no such names. */
bool cairn_aws_has_dual_stack(const char *region);
