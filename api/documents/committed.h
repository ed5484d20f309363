/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committed: a committed version as its stored documents tell it, each proven by the one before.
 *
 * Why:     uploader, server and command read the same documents; what one of the three left
 *          unchecked would be a hole in all.
 * Promise: 1   committed.json proves manifest.json (SHA-256), that proves checksums.bin and the
 *              layout; the version's id proves run, attempt, step and n of the manifest. Nothing is
 *              handed out before it was proven.
 *          S17  what does not match is read once more, over a connection of its own, before it
 *              counts as damage; with a manifest the record that proves it, which may be what
 *              came wrong.
 *          2   a document is read when it is asked for, and only then; the layout is needed for
 *              tensors alone.
 *          3   a listing is NULL only where memory is short: an alias that names no element type
 *              has a null `dtype`.
 * Limits:  64 MiB a manifest and an attempt's record, 1 GiB a layout and checksums.bin.
 * Threads: one owner.
 * Next:    store/whole.h for a store, cli/bucket/source.c for a server; docs/format.md.
 */
#pragma once

#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "common/json.h"

enum cairn_document {
    CAIRN_DOCUMENT_RECORD,    /* committed.json */
    CAIRN_DOCUMENT_MANIFEST,  /* needs the record, or a digest that the caller knows */
    CAIRN_DOCUMENT_CHECKSUMS, /* needs the manifest, as the rest do */
    CAIRN_DOCUMENT_LAYOUT,
    CAIRN_DOCUMENT_ATTEMPT,      /* the record of the attempt that wrote it */
    CAIRN_DOCUMENT_ATTEMPT_COPY, /* the same bytes; where the record is known, compared with it */
    CAIRN_DOCUMENT_COUNT
};
#define CAIRN_DOCUMENT_BIT(name) (1u << CAIRN_DOCUMENT_##name)

/* Where documents are read: a store, or a server. */
struct cairn_document_source {
    /* CAIRN_NOT_FOUND: there is none; CAIRN_TOO_LARGE: more than the limit of *ret. again: over a
     * connection of its own. */
    enum cairn_code (*get)(void *owner, enum cairn_document document, const char *key, bool again,
                           struct cairn_buf *ret, struct cairn_error *err);
    /* Called with what was wrong with the first reading where the second was right; may be NULL. */
    void (*tell_again)(const char *key, const struct cairn_error *why);
    void *owner;
};

/* Zeroed but for what the caller sets. */
struct cairn_committed {
    struct cairn_version_place place; /* the caller's */
    bool has_digest; /* the caller's, who knows it from a catalog; else digest_of_record */
    uint8_t manifest_sha256[32];
    bool has_record;
    bool digest_of_record; /* ours: the record said it */
    struct cairn_record record;
    struct cairn_manifest manifest;
    struct cairn_buf manifest_text, checksums, layout_text, attempt_text;
    struct cairn_layout layout; /* into layout_text */
    struct cairn_attempt_record attempt;
};
void cairn_committed_release(struct cairn_committed *committed);
void cairn_committed_key(const struct cairn_committed *committed, enum cairn_document document,
                         struct cairn_key *ret);
/* One document. The sentence is without its key ("it is missing"). CAIRN_NOT_FOUND: not there;
 * CAIRN_CORRUPT and CAIRN_UNSUPPORTED: it is not this document. A manifest without a known digest
 * is proven by the version's id alone. */
enum cairn_code cairn_committed_read(struct cairn_committed *committed,
                                     const struct cairn_document_source *source,
                                     enum cairn_document document,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Several, by CAIRN_DOCUMENT_BIT, in their order; the layout only of a version that has one. The
 * key is named; what is missing is CAIRN_CORRUPT but for the record, which is CAIRN_NOT_FOUND. */
enum cairn_code cairn_committed_load(struct cairn_committed *committed,
                                     const struct cairn_document_source *source, unsigned documents,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* For readers of many runs' records, without the keys. */
enum cairn_code cairn_record_prove(struct cairn_view text, const struct cairn_version_place *place,
                                   struct cairn_record *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_manifest_prove(struct cairn_view text,
                                     const struct cairn_version_place *place,
                                     struct cairn_manifest *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_attempt_record_prove(struct cairn_view text,
                                           const struct cairn_run_name *name, uint64_t attempt,
                                           struct cairn_attempt_record *ret,
                                           struct cairn_error *err) CAIRN_MUST_USE;

/* ---- shards and tensors of a version, as the API lists them (openapi.yaml: Shard, Tensor) ---- */

/* The tensor of this name; fragments are counted over all ranks that list it. */
json_t *cairn_listing_tensor(const struct cairn_layout *layout, uint32_t index);
/* What lies in a shard of a committed version: "tensors", or "opaque" where only its name and its
 * bytes are known. layout: NULL where the version has none. */
const char *cairn_listing_content(const struct cairn_layout *layout, uint32_t rank,
                                  const char *shard);
/* crc32c, content: NULL while they are not known. */
json_t *cairn_listing_shard(const char *name, uint64_t rank, uint64_t size_bytes,
                            const uint32_t *crc32c, const char *state, const char *content);
