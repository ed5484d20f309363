/* SPDX-License-Identifier: Apache-2.0 */
/*
 * documents: what the readers and writers of stored JSON documents share.
 *
 * Why:     four kinds of documents begin with the same kind of version number, and their digests,
 *          checksums and ids are written the same way.
 * Promise: 1   the first field says kind and major version; another version is CAIRN_UNSUPPORTED
 *              with its number, another kind is CAIRN_CORRUPT.
 *          2   what only a later release can have written (a higher number, an element type that is
 *              not known) is CAIRN_UNSUPPORTED and says so; it is never taken for damage.
 * Limits:  -
 * Threads: stateless.
 * Next:    api/manifest.h, docs/format.md.
 */
#pragma once

#include "api/manifest.h"

#define DOCUMENT_MAJOR 1
#define DOCUMENT_BYTES_MAX CAIRN_MIB /* of committed.json and store.json */

/* kind: "cairn_manifest", "cairn_committed", ...: the field that holds the major version. */
enum cairn_code cairn_document_parse(struct cairn_view text, const char *kind,
                                     struct cairn_json_limits limits, json_t **ret_json,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Dumps and drops take_json; NULL (a failed build of it) is CAIRN_NO_MEMORY. */
enum cairn_code cairn_document_dump(json_t *take_json, struct cairn_buf *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* CAIRN_UNSUPPORTED: "written by a newer release, needs one that knows ...". Whatever is stored and
 * not known says it in these words. */
CAIRN_PRINTF(2, 3)
enum cairn_code cairn_newer(struct cairn_error *err, const char *format, ...);
/* Anything that a stored document got wrong is CAIRN_CORRUPT, whatever the finder called it. */
enum cairn_code cairn_document_bad(struct cairn_error *err, enum cairn_code code, const char *kind);

json_t *cairn_document_hex(const uint8_t *data, size_t size);
enum cairn_code cairn_document_digest(const char *text, uint8_t ret_digest[32],
                                      struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_id(const char *text, struct cairn_version_id *ret,
                                  struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_run(const char *project, const char *run, struct cairn_run_name *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_document_nonce(const char *text, char ret[CAIRN_NONCE_TEXT_BYTES],
                                     struct cairn_error *err) CAIRN_MUST_USE;
