/* SPDX-License-Identifier: Apache-2.0 */
/*
 * manifests: what two stored checkpoints say of themselves, held against each other.
 *
 * Why:     whether two versions hold the same bytes, and which shards or tensors came, went or
 *          changed their shape, is known without reading a byte of them.
 * Promise: 1   every shard and every tensor of either side is counted as the same, as different (by
 *              which fields) or as in one alone. Shards are the same where size, checksum, rank
 *              and kind of content are; tensors where type, shape, kind and whose alias they are.
 *          2   a version that is not committed is CAIRN_NOT_COMMITTED: its list is not whole.
 * Limits:  1,000,000 shards and as many tensors a side, in memory.
 * Threads: main thread.
 * Next:    cli/convert/diff.c; cli/convert/compare.h compares values.
 */
#pragma once

#include "cli/shell/ref.h"
#include "cli/shell/verb.h"

/* Prints the difference of the first two arguments, in the form of --output. */
enum cairn_code cairn_cli_manifests_diff(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref sides[2],
                                         struct cairn_error *err) CAIRN_MUST_USE;
