/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizes: bytes as a person who runs the command wants to read them.
 *
 * Why:     who compares with a bill of the store reads powers of ten, who computes reads bytes.
 * Promise: 1   every size in a table or a line of text is in the form that was asked for:
 *              "1.5 GiB", with --si "1.6 GB", with --bytes "1610612736". JSON has bytes always.
 * Limits:  none.
 * Threads: set once before anything is printed; then any thread.
 * Next:    cli/shell/options.c, common/text.h.
 */
#pragma once

#include "cli/shell/verb.h"

void cairn_cli_sizes_as(const struct cairn_cli *cli);
void cairn_cli_size(uint64_t bytes, char ret_text[24]);
