/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml: a JSON value as YAML, in blocks, for eyes and for what reads YAML.
 *
 * Why:     --output yaml.
 * Promise: 1   a reader of YAML 1.1 or 1.2 gets the value back: a text that could be taken for a
 *              number, a truth, a date or a mark is quoted.
 * Limits:  as deep as JSON that was parsed.
 * Threads: stateless.
 * Next:    cli/shell/output.c.
 */
#pragma once

#include "common/json.h"

enum cairn_code cairn_cli_yaml(const json_t *json, struct cairn_buf *ret,
                               struct cairn_error *err) CAIRN_MUST_USE;
