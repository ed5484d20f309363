/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shard_inputs: the shards of a stored version as files that are read by range.
 *
 * Why:     a tensor of a version lies in pieces in its shards, and who writes it elsewhere
 *          (cli/convert/export.h) reads ranges by several threads, from a server or from the store.
 * Promise: P3  every byte that is handed out lies in a block that was compared with its checksum.
 *          1   a range is widened to whole blocks; short ranges that follow each other read their
 *              blocks once.
 *          2   memory is one chunk for each thread that reads at a time.
 * Limits:  as cli/bucket/source.h.
 * Threads: an input may be read by several threads; each has a connection of its own meanwhile.
 * Next:    cli/bucket/source.h, formats/input.h.
 */
#pragma once

#include "cli/bucket/source.h"
#include "formats/input.h"

#define CAIRN_CLI_CHUNK_BYTES (4 * CAIRN_MIB)

struct cairn_cli_shard_inputs;
/* source must outlive it. */
enum cairn_code cairn_cli_shard_inputs_new(const struct cairn_cli_source *source,
                                           struct cairn_cli_shard_inputs **ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;
void cairn_cli_shard_inputs_free(struct cairn_cli_shard_inputs *inputs);
/* By the shard's place in the manifest; good as long as the inputs are. */
const struct cairn_input *cairn_cli_shard_inputs_at(const struct cairn_cli_shard_inputs *inputs,
                                                    uint32_t shard);
