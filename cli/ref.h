/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ref: "project/run@1200" as people type it, and the paths of the API made from it.
 *
 * Why:     every verb names a run, and most a checkpoint of it, in the same way.
 * Promise: 1   what parses here is a valid name for the API; an error shows the wanted form.
 * Limits:  as api/documents/keys.h.
 * Threads: stateless.
 * Next:    api/documents/keys.h.
 */
#pragma once

#include "api/documents/keys.h"

struct cairn_cli_ref {
    struct cairn_run_name name;
    char version[64]; /* "latest", "prod", "1200", "ckpt_..."; "" without an @ */
};
enum cairn_code cairn_cli_ref_parse(const char *text, struct cairn_cli_ref *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* A reference without @, for a verb that takes a whole run. */
enum cairn_code cairn_cli_ref_run(const char *verb, const char *text, struct cairn_cli_ref *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* "/v1/runs/p/r" tail; ref "" leaves out the checkpoint. tail begins with "/" or "?" or is "". */
enum cairn_code cairn_cli_path(const struct cairn_cli_ref *ref, const char *tail,
                               struct cairn_buf *ret, struct cairn_error *err) CAIRN_MUST_USE;
