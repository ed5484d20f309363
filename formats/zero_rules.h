/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_rules: how the ranks of a tensor parallel model cut each parameter, as the checkpoint says.
 *
 * Why:     the files hold slices under one name; only the lists of patterns that go with them
 *          (universal_checkpoint_info) tell rows from columns and from copies.
 * Promise: 1   a name gets the rule that DeepSpeed's converter to universal checkpoints follows;
 *              a rule that this reader does not follow is CAIRN_UNSUPPORTED, with its name.
 *          2   a pattern is matched from the first byte of the name on, as Python's re.match does.
 *              What POSIX expressions lack (groups with `?`, lazy repeats) is CAIRN_UNSUPPORTED.
 * Limits:  4,096 patterns of 1,024 bytes.
 * Threads: one owner while it is built; immutable after that.
 * Next:    formats/zero_parallel.c.
 */
#pragma once

#include "formats/zero_inside.h"
#include "formats/zero_told.h"

struct cairn_zero_rules;
/* *ret: NULL where the files say nothing about it. */
enum cairn_code cairn_zero_rules_read(const struct cairn_zero *zero, struct cairn_zero_rules **ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_zero_rules_free(struct cairn_zero_rules *rules);
enum cairn_code cairn_zero_rules_find(const struct cairn_zero_rules *rules, const char *name,
                                      struct cairn_zero_cut *ret,
                                      struct cairn_error *err) CAIRN_MUST_USE;
