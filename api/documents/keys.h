/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keys: names, version ids and object keys, as pure functions.
 *
 * Why:     uploader and server each derive every key from the grant, the version id and the shard
 *          name; no message carries a key, so none can name an object of another version.
 * Promise: Q1  the same (project, run, attempt, nonce, step, n) gives the same version id on every
 *              machine; another nonce gives another id.
 *          1   distinct (run, version, shard) never share a key; no key leaves its run's folder.
 * Limits:  the _MAX constants; keys are relative to the store's prefix.
 * Threads: stateless.
 * Next:    docs/format.md, "Keys".
 */
#pragma once

#include "common/buf.h"
#include "common/trace.h"

#define CAIRN_NAME_BYTES_MAX 128       /* project and run names */
#define CAIRN_SHARD_NAME_BYTES_MAX 512 /* components at most 200 */
#define CAIRN_SHARDS_MAX 65536         /* of one rank's save */
#define CAIRN_VERSION_ID_BYTES 42      /* "ckpt_" + UUID text + NUL */
#define CAIRN_NONCE_TEXT_BYTES 33      /* 32 hex digits + NUL */
#define CAIRN_STORE_NAME_BYTES 33      /* name of a further store, with NUL */
#define CAIRN_STEP_MAX UINT64_C(999999999999)
#define CAIRN_KEY_BYTES_MAX 1024

struct cairn_run_name {
    char project[CAIRN_NAME_BYTES_MAX + 1];
    char run[CAIRN_NAME_BYTES_MAX + 1];
};
static inline bool cairn_run_name_same(const struct cairn_run_name *one,
                                       const struct cairn_run_name *other) {
    return !strcmp(one->run, other->run) && !strcmp(one->project, other->project);
}
/* The parts of which a version id is the hash. */
struct cairn_version_origin {
    struct cairn_run_name name;
    uint64_t attempt;
    char nonce[CAIRN_NONCE_TEXT_BYTES];
    uint64_t step;
    uint32_t n; /* number of times this attempt began the step, from 1 */
};
struct cairn_version_id {
    char text[CAIRN_VERSION_ID_BYTES];
};
/* Identifies the folder of a version's objects. */
struct cairn_version_place {
    struct cairn_run_name name;
    uint64_t step;
    struct cairn_version_id id;
};

/* [A-Za-z0-9][A-Za-z0-9._-]{0,127}, no ".." */
bool cairn_name_valid(struct cairn_view name);
/* "project/run" */
enum cairn_code cairn_run_name_parse(const char *text, struct cairn_run_name *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* UTF-8, no empty, "." or ".." component, no control byte, no backslash; names the fault. */
enum cairn_code cairn_shard_name_check(struct cairn_view name,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Name of a further store: a small letter, then small letters, digits and '-'. */
enum cairn_code cairn_store_name_check(struct cairn_view name,
                                       struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_version_id_valid(struct cairn_view text);
/* SHA-256 of "cairn-version-1\n" project "\n" run "\n" attempt "\n" nonce "\n" step "\n" n "\n"
 * (decimal numbers), its first 16 bytes as a version 8 UUID. */

/* Each function writes at most CAIRN_KEY_BYTES_MAX bytes and the NUL. Inputs must be valid. */
struct cairn_key {
    char text[CAIRN_KEY_BYTES_MAX + 1];
};
void cairn_key_store_json(struct cairn_key *ret); /* .cairn/store.json */
void cairn_key_health(struct cairn_key *ret);     /* .cairn/health.json */
/* .cairn/generations/<20 digits>; creating the key takes the number */
void cairn_key_generation(uint64_t number, struct cairn_key *ret);
void cairn_key_catalog(uint64_t number, struct cairn_key *ret); /* .cairn/catalog/<20>.json */
/* .cairn/catalog/versions/<sha256>.json */
void cairn_key_catalog_piece(const char *sha256, struct cairn_key *ret);
void cairn_key_revoked(const char *token, struct cairn_key *ret); /* .cairn/revoked/<id>.json */
void cairn_key_attempt(const struct cairn_run_name *name, uint64_t attempt, struct cairn_key *ret);
/* A second object with the same bytes, so that losing one object loses no attempt. */
void cairn_key_attempt_copy(const struct cairn_run_name *name, uint64_t attempt,
                            struct cairn_key *ret);
void cairn_key_layout(const struct cairn_run_name *name, const uint8_t digest[32],
                      const struct cairn_version_id *writer, struct cairn_key *ret);
void cairn_key_version_prefix(const struct cairn_version_place *place,
                              struct cairn_key *ret); /* ends with '/' */
/* What all keys of shards begin with; ends with '/'. */
void cairn_key_shards(const struct cairn_version_place *place, struct cairn_key *ret);
void cairn_key_shard(const struct cairn_version_place *place, struct cairn_view shard,
                     struct cairn_key *ret);
void cairn_key_manifest(const struct cairn_version_place *place, struct cairn_key *ret);
void cairn_key_checksums(const struct cairn_version_place *place, struct cairn_key *ret);
void cairn_key_committed(const struct cairn_version_place *place, struct cairn_key *ret);
/* Marks beside committed.json; only their existence counts. */
void cairn_key_trashed(const struct cairn_version_place *place, struct cairn_key *ret);
void cairn_key_superseded(const struct cairn_version_place *place, uint64_t attempt,
                          struct cairn_key *ret);

/* Kinds of keys in a run; a key that Cairn never writes is OTHER. */
enum cairn_key_kind {
    CAIRN_KEY_OTHER,
    CAIRN_KEY_ATTEMPT, /* number */
    CAIRN_KEY_ATTEMPT_COPY,
    CAIRN_KEY_COMMITTED, /* and the following: with step and id of the version */
    CAIRN_KEY_MANIFEST,
    CAIRN_KEY_TRASHED,
    CAIRN_KEY_SUPERSEDED, /* number: of the superseding attempt */
    CAIRN_KEY_CONTENT,    /* any other key of a version */
};
struct cairn_key_parts {
    enum cairn_key_kind kind;
    uint64_t number, step;
    struct cairn_version_id id;
};
/* rest: the key without its "project/run/". */
void cairn_key_read(const char *rest, struct cairn_key_parts *ret);
/* Splits "project/run/" off; false: the key is in no run. *ret_rest points into key. */
bool cairn_key_run(const char *key, struct cairn_run_name *ret, const char **ret_rest);
bool cairn_key_is_mark(const char *key);
