/* SPDX-License-Identifier: Apache-2.0 */
/*
 * versions: what a bucket keeps of each key: versions, delete markers, and what is locked.
 *
 * Why:     in a bucket with versioning a DELETE frees nothing, and what frees may be refused.
 * Promise: 1   as AWS: a key's newest version is what a GET finds; a DELETE without an id adds a
 *              marker, one with an id removes that version for good, and the one below shows again.
 *          2   a version under legal hold, or younger than the default retention of its time, is
 *              not removed by its id; a marker is never locked.
 *          3   without versioning a key has one version, "null".
 * Limits:  one glob of held keys; retention is never bypassed.
 * Threads: the server's lock.
 * Next:    ops_versions.c lists them.
 */
#pragma once

#include "tests/support/s3fault/state.h"

struct s3f_version {
    char *bucket, *key;
    char id[48];
    struct s3f_object *object; /* NULL: a delete marker */
    int64_t modified_ms, retained_until_ms;
};
/* Takes the object, as the newest version of its key. */
void s3f_object_store(struct s3f_state *state, struct s3f_object *take_object);
/* Nothing of the key is left, as if it had never been there. */
void s3f_object_vanish(struct s3f_state *state, const char *bucket, const char *key);

struct s3f_deleted {
    bool locked; /* nothing was done */
    bool marker; /* one was made, or was what was removed */
    char id[48]; /* of what was made or removed; "": of nothing */
};
/* id NULL: a DELETE without one. */
void s3f_version_delete(struct s3f_state *state, const char *bucket, const char *key,
                        const char *id, struct s3f_deleted *ret);
/* Is or was versioning on? Then ids are told. */
bool s3f_tells_versions(const struct s3f_state *state);
/* The first version at or after (bucket, key). */
size_t s3f_version_place(const struct s3f_state *state, const char *bucket, const char *key);
/* The newest of the key, a marker or not; NULL: there is none. */
const struct s3f_version *s3f_version_newest(const struct s3f_state *state, const char *bucket,
                                             const char *key);
void s3f_versions_clear(struct s3f_state *state);
