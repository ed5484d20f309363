/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replicas: do the ranks that each hold the whole of a tensor hold the same?
 *
 * Why:     replicated tensors that differ are silent corruption, found for free by comparing the
 *          checksums that the seals carry.
 * Promise: 1   each tensor whose checksum differs between ranks is reported once, with the first
 *              rank and the first that differs from it; the commit goes on.
 * Limits:  100 reports a version; the rest is counted.
 * Threads: one owner.
 * Next:    server/commit/commit.c.
 */
#pragma once

#include "common/json.h"

struct cairn_srv_replicas;
enum cairn_code cairn_srv_replicas_new(struct cairn_srv_replicas **ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
void cairn_srv_replicas_free(struct cairn_srv_replicas *replicas); /* NULL is fine */
/* text: JSON [{name, crc32c}] of one rank; ranks come in rising order. */
enum cairn_code cairn_srv_replicas_add(struct cairn_srv_replicas *replicas, uint32_t rank,
                                       const char *text, struct cairn_error *err) CAIRN_MUST_USE;
/* JSON array of sentences; owned by the caller, NULL when memory is short. */
char *cairn_srv_replicas_warnings(const struct cairn_srv_replicas *replicas);
void cairn_srv_replicas_log(const struct cairn_srv_replicas *replicas, const char *version_id);
