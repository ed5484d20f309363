/* SPDX-License-Identifier: Apache-2.0 */
/*
 * committed: reads a committed version from its stored documents, each proven by the one before.
 *
 * Why:     uploader, server and command read the same documents; a check that one of them left out
 *          would be a hole in all.
 * Promise: 1   committed.json proves manifest.json (SHA-256), which proves checksums.bin and the
 *              layout; the version's id proves run, attempt, step and n of the manifest. Nothing is
 *              returned before it was proven.
 *          S17  a document that does not match is read again, over a new connection, before it
 *              counts as damaged; for a manifest the record is read again, too, since the record
 *              may be the damaged one.
 *          2   a document is read only on request; the layout is needed for tensors only.
 *          3   a listing is NULL only for lack of memory: an alias without an element type has a
 *              null `dtype`.
 * Limits:  64 MiB a manifest and an attempt's record, 1 GiB a layout and checksums.bin.
 * Threads: one owner.
 * Next:    store/whole.h for a store, cli/bucket/source.c for a server; docs/format.md.
 */
#pragma once

#include "api/documents/records.h"
#include "api/table/layout.h"

enum cairn_document {
    CAIRN_DOCUMENT_RECORD,    /* committed.json */
    CAIRN_DOCUMENT_MANIFEST,  /* needs the record, or a digest known to the caller */
    CAIRN_DOCUMENT_CHECKSUMS, /* this and the following need the manifest */
    CAIRN_DOCUMENT_LAYOUT,
    CAIRN_DOCUMENT_ATTEMPT,      /* the record of the attempt that wrote the version */
    CAIRN_DOCUMENT_ATTEMPT_COPY, /* the same bytes; compared with the record if that was read */
    CAIRN_DOCUMENT_COUNT
};
#define CAIRN_DOCUMENT_BIT(name) (1u << CAIRN_DOCUMENT_##name)

struct cairn_document_source {
    /* CAIRN_NOT_FOUND: absent; CAIRN_TOO_LARGE: beyond *ret's limit. again: on a new link. */
    enum cairn_code (*get)(void *owner, enum cairn_document document, const char *key, bool again,
                           struct cairn_buf *ret, struct cairn_error *err);
    /* Called with the first read's error if the second read succeeded; may be NULL. */
    void (*tell_again)(const char *key, const struct cairn_error *why);
    void *owner;
};

/* Zeroed, except for the fields that the caller sets. */
struct cairn_committed {
    struct cairn_version_place place; /* set by the caller */
    bool has_digest; /* set by the caller from a catalog, or by reading the record */
    uint8_t manifest_sha256[32];
    bool has_record;
    bool digest_of_record; /* the record set it */
    struct cairn_record record;
    struct cairn_manifest manifest;
    struct cairn_buf manifest_text, checksums, layout_text, attempt_text;
    struct cairn_layout layout; /* points into layout_text */
    struct cairn_attempt_record attempt;
};
void cairn_committed_release(struct cairn_committed *committed);
void cairn_committed_key(const struct cairn_committed *committed, enum cairn_document document,
                         struct cairn_key *ret);
/* Reads one document. Messages omit its key ("it is missing"). CAIRN_NOT_FOUND: absent;
 * CAIRN_CORRUPT and CAIRN_UNSUPPORTED: present but refused. Without a known digest a manifest is
 * proven by the version's id only. */
enum cairn_code cairn_committed_read(struct cairn_committed *committed,
                                     const struct cairn_document_source *source,
                                     enum cairn_document document,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Reads several (CAIRN_DOCUMENT_BIT), in order; a layout only if the version has one. Messages name
 * the key; a missing document is CAIRN_CORRUPT, a missing record CAIRN_NOT_FOUND. */
enum cairn_code cairn_committed_load(struct cairn_committed *committed,
                                     const struct cairn_document_source *source, unsigned documents,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* For readers of many runs' records. Messages omit the keys. */
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

/* The tensor at `index`; fragments are counted over all ranks that list it. */
json_t *cairn_listing_tensor(const struct cairn_layout *layout, uint32_t index);
/* Content of a shard of a committed version: "tensors", or "opaque" if only name and bytes are
 * known. layout: NULL if the version has none. */
const char *cairn_listing_content(const struct cairn_layout *layout, uint32_t rank,
                                  const char *shard);
/* crc32c, content: NULL if unknown. */
json_t *cairn_listing_shard(const char *name, uint64_t rank, uint64_t size_bytes,
                            const uint32_t *crc32c, const char *state, const char *content);
