/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_seals: every checksummed range of a checkpoint's files read and compared, by several
 *              threads.
 *
 * Why:     an import keeps files whole, so damage that the files themselves tell of would become a
 *          version that is believed.
 * Promise: 1   a range that does not match is CAIRN_CORRUPT with the file, the zip entry and a
 *              tensor that lies in it.
 * Limits:  512 KiB a thread.
 * Threads: starts its own and joins them.
 * Next:    formats/assembly/pieces.h.
 */
#pragma once

#include "cli/verb.h"
#include "formats/assembly/assembly.h"

enum cairn_code cairn_cli_check_seals(const struct cairn_cli *cli,
                                      const struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;
