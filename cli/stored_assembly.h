/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stored_assembly: the tensors of a stored version as ranges of its shards.
 *
 * Why:     what libcairn saved, in whatever pieces and by however many ranks, is exported like any
 *          other checkpoint once its tensors are ranges in order.
 * Promise: 1   every name of the layout is in it: sharded and replicated tensors whole, aliases as
 *              aliases. A tensor that several ranks hold as their own is there once for each, as
 *              name@rank-00003.
 *          2   a shard in which no tensor lies is in left_out, and so is, as one name, what begins
 *              with `without`.
 *          3   texts of safetensors files that are kept as they were put are the assembly's.
 * Limits:  as formats/assembly/assembly.h and plan/reads.h.
 * Threads: one owner.
 * Next:    plan/reads.h finds the ranges; cli/shard_inputs.h reads them.
 */
#pragma once

#include "cli/shard_inputs.h"
#include "formats/assembly/assembly.h"

/* The source has its layout. without: the beginning of names that are not wanted, or NULL. */
enum cairn_code cairn_cli_stored_assemble(const struct cairn_cli_source *source,
                                          const struct cairn_cli_shard_inputs *inputs,
                                          const char *without, struct cairn_assembly *assembly,
                                          struct cairn_error *err) CAIRN_MUST_USE;
