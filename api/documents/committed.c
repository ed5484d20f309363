/* SPDX-License-Identifier: Apache-2.0 */
/* The record proves the manifest; the manifest proves checksums and layout. */
#include "api/documents/committed.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "api/wire/messages.h"
#include "common/text.h"

#define RECORD_BYTES_MAX CAIRN_MIB
#define CHECKSUMS_BYTES_MAX CAIRN_GIB

void cairn_committed_release(struct cairn_committed *committed) {
    cairn_manifest_release(&committed->manifest);
    cairn_layout_release(&committed->layout);
    cairn_attempt_record_release(&committed->attempt);
    cairn_buf_release(&committed->manifest_text);
    cairn_buf_release(&committed->checksums);
    cairn_buf_release(&committed->layout_text);
    cairn_buf_release(&committed->attempt_text);
    *committed = (struct cairn_committed){.place = committed->place};
}

void cairn_committed_key(const struct cairn_committed *committed, enum cairn_document document,
                         struct cairn_key *ret) {
    const struct cairn_manifest *manifest = &committed->manifest;
    switch (document) {
    case CAIRN_DOCUMENT_RECORD:
        cairn_key_committed(&committed->place, ret);
        break;
    case CAIRN_DOCUMENT_MANIFEST:
        cairn_key_manifest(&committed->place, ret);
        break;
    case CAIRN_DOCUMENT_CHECKSUMS:
        cairn_key_checksums(&committed->place, ret);
        break;
    case CAIRN_DOCUMENT_LAYOUT:
        cairn_key_layout(&committed->place.name, manifest->layout_digest, &manifest->layout_writer,
                         ret);
        break;
    case CAIRN_DOCUMENT_ATTEMPT:
        cairn_key_attempt(&committed->place.name, manifest->origin.attempt, ret);
        break;
    case CAIRN_DOCUMENT_ATTEMPT_COPY:
        cairn_key_attempt_copy(&committed->place.name, manifest->origin.attempt, ret);
        break;
    case CAIRN_DOCUMENT_COUNT:
        CAIRN_ASSERT(false);
    }
}

/* ---- proofs ---- */

static enum cairn_code prove_digest(struct cairn_view bytes, const uint8_t expected[32],
                                    struct cairn_error *err) {
    uint8_t found[CAIRN_SHA256_BYTES];
    char expected_text[65], found_text[65];
    cairn_sha256_of(bytes, found);
    if (!memcmp(found, expected, sizeof found)) return CAIRN_OK;
    cairn_hex_encode(expected, 32, expected_text);
    cairn_hex_encode(found, 32, found_text);
    return cairn_fail(err, CAIRN_CORRUPT, "SHA-256 is %.16s..., expected %.16s...", found_text,
                      expected_text);
}

enum cairn_code cairn_record_prove(struct cairn_view text, const struct cairn_version_place *place,
                                   struct cairn_record *ret, struct cairn_error *err) {
    struct cairn_record record;
    CAIRN_TRY(cairn_record_decode(text, &record, err));
    if (strcmp(record.id.text, place->id.text) || record.step != place->step)
        return cairn_fail(err, CAIRN_CORRUPT, "it is of another version");
    *ret = record;
    return CAIRN_OK;
}

/* The id is a hash of the version's origin: run, attempt, nonce, step and n. */
enum cairn_code cairn_manifest_prove(struct cairn_view text,
                                     const struct cairn_version_place *place,
                                     struct cairn_manifest *ret, struct cairn_error *err) {
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_version_id id;
    CAIRN_TRY(cairn_manifest_decode(text, &manifest, err));
    cairn_version_id_make(&manifest.origin, &id);
    if (strcmp(id.text, place->id.text) || strcmp(manifest.id.text, place->id.text) ||
        manifest.origin.step != place->step)
        return cairn_fail(err, CAIRN_CORRUPT, "it is of another version");
    *ret = manifest;
    manifest = (struct cairn_manifest){0};
    return CAIRN_OK;
}

enum cairn_code cairn_attempt_record_prove(struct cairn_view text,
                                           const struct cairn_run_name *name, uint64_t attempt,
                                           struct cairn_attempt_record *ret,
                                           struct cairn_error *err) {
    CAIRN_AUTO(attempt_record) record = {0};
    CAIRN_TRY(cairn_attempt_record_decode(text, &record, err));
    if (record.attempt != attempt || !cairn_run_name_same(&record.name, name))
        return cairn_fail(err, CAIRN_CORRUPT, "it is of attempt %llu of %s/%s",
                          (unsigned long long)record.attempt, record.name.project, record.name.run);
    *ret = record;
    record = (struct cairn_attempt_record){0};
    return CAIRN_OK;
}

static enum cairn_code take_record(struct cairn_committed *committed, struct cairn_buf *text,
                                   struct cairn_error *err) {
    CAIRN_TRY(cairn_record_prove(cairn_buf_view(text), &committed->place, &committed->record, err));
    if (committed->has_digest &&
        memcmp(committed->record.manifest_sha256, committed->manifest_sha256, 32) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "it names another manifest");
    if (!committed->has_digest) committed->digest_of_record = true;
    committed->has_record = true;
    committed->has_digest = true;
    memcpy(committed->manifest_sha256, committed->record.manifest_sha256, 32);
    return CAIRN_OK;
}

static enum cairn_code take_manifest(struct cairn_committed *committed, struct cairn_buf *text,
                                     struct cairn_error *err) {
    CAIRN_AUTO(manifest) manifest = {0};
    if (committed->has_digest)
        CAIRN_TRY(prove_digest(cairn_buf_view(text), committed->manifest_sha256, err));
    CAIRN_TRY(cairn_manifest_prove(cairn_buf_view(text), &committed->place, &manifest, err));
    if (committed->has_record && (committed->record.attempt != manifest.origin.attempt ||
                                  committed->record.n != manifest.origin.n))
        return cairn_fail(err, CAIRN_CORRUPT, "it is of attempt %llu, the record of attempt %llu",
                          (unsigned long long)manifest.origin.attempt,
                          (unsigned long long)committed->record.attempt);
    cairn_manifest_release(&committed->manifest);
    cairn_buf_release(&committed->manifest_text);
    committed->manifest = manifest;
    manifest = (struct cairn_manifest){0};
    committed->manifest_text = *text;
    *text = (struct cairn_buf){0};
    return CAIRN_OK;
}

static enum cairn_code take_checksums(struct cairn_committed *committed, struct cairn_buf *text,
                                      struct cairn_error *err) {
    uint64_t expected = 4 * committed->manifest.block_count;
    if (text->size != expected)
        return cairn_fail(err, CAIRN_CORRUPT, "it has %zu bytes, expected %llu", text->size,
                          (unsigned long long)expected);
    CAIRN_TRY(prove_digest(cairn_buf_view(text), committed->manifest.checksums_sha256, err));
    cairn_buf_release(&committed->checksums);
    committed->checksums = *text;
    *text = (struct cairn_buf){0};
    return CAIRN_OK;
}

/* A layout's digest covers its tables. It is computed from the directory and the tables, so that it
 * also works for a layout that a newer release has written. */
static enum cairn_code prove_layout(struct cairn_view bytes, const uint8_t wanted[32],
                                    struct cairn_error *err) {
    size_t count = 0, room = 0;
    uint32_t rank;
    struct cairn_view table;
    while (cairn_layout_directory_at(bytes, (uint32_t)room, &rank, &table)) room++;
    CAIRN_AUTO_HEAP uint32_t *ranks = calloc(room + 1, sizeof *ranks);
    CAIRN_AUTO_HEAP uint8_t(*digests)[32] = calloc(room + 1, sizeof *digests);
    uint8_t found[CAIRN_SHA256_BYTES];
    if (!ranks || !digests) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a layout");
    for (; count < room; count++) {
        (void)cairn_layout_directory_at(bytes, (uint32_t)count, &ranks[count], &table);
        if (count && ranks[count - 1] >= ranks[count]) break; /* they are in their order */
        cairn_table_digest(table, digests[count]);
    }
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, count, found);
    if (count == room && !memcmp(found, wanted, sizeof found)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "it is another layout than the manifest's");
}

/* For a layout with unsupported content. If its digest is the manifest's, a newer release wrote it,
 * unless exactly one bit of the version differs: then it is damaged. A layout of another version
 * cannot be proven. */
static enum cairn_code judge_newer(struct cairn_view bytes, const uint8_t wanted[32],
                                   const struct cairn_error *newer, struct cairn_error *err) {
    struct cairn_error why = {0};
    unsigned differs = (unsigned)(cairn_layout_version(bytes) ^ CAIRN_LAYOUT_VERSION);
    enum cairn_code code = prove_layout(bytes, wanted, &why);
    if (code == CAIRN_NO_MEMORY || (code && !differs)) {
        if (err) *err = why;
        return code;
    }
    if (!code && differs && !(differs & (differs - 1)))
        return cairn_fail(err, CAIRN_CORRUPT, "a bit of its version is wrong");
    if (err) *err = *newer;
    return newer->code;
}

static enum cairn_code take_layout(struct cairn_committed *committed, struct cairn_buf *text,
                                   struct cairn_error *err) {
    struct cairn_layout layout = {0};
    struct cairn_error why = {0};
    struct cairn_view bytes = cairn_buf_view(text);
    const uint8_t *wanted = committed->manifest.layout_digest;
    enum cairn_code code = cairn_layout_open(bytes, &layout, &why);
    if (code == CAIRN_UNSUPPORTED) return judge_newer(bytes, wanted, &why, err);
    if (code && err) *err = why;
    if (code && code != CAIRN_NO_MEMORY) return cairn_within(err, CAIRN_CORRUPT, "it is no layout");
    if (!code) code = prove_layout(bytes, wanted, err);
    if (code) {
        cairn_layout_release(&layout);
        return code;
    }
    cairn_layout_release(&committed->layout);
    cairn_buf_release(&committed->layout_text);
    committed->layout = layout;
    committed->layout_text = *text;
    *text = (struct cairn_buf){0};
    return CAIRN_OK;
}

static enum cairn_code prove_attempt(const struct cairn_committed *committed,
                                     const struct cairn_buf *text, struct cairn_attempt_record *ret,
                                     struct cairn_error *err) {
    const struct cairn_version_origin *origin = &committed->manifest.origin;
    CAIRN_TRY(cairn_attempt_record_prove(cairn_buf_view(text), &committed->place.name,
                                         origin->attempt, ret, err));
    if (strcmp(ret->nonce, origin->nonce) != 0)
        return cairn_fail(err, CAIRN_CORRUPT, "it is of another attempt: its nonce differs");
    return CAIRN_OK;
}

static enum cairn_code take_attempt(struct cairn_committed *committed, struct cairn_buf *text,
                                    struct cairn_error *err) {
    CAIRN_AUTO(attempt_record) record = {0};
    CAIRN_TRY(prove_attempt(committed, text, &record, err));
    cairn_attempt_record_release(&committed->attempt);
    committed->attempt = record;
    record = (struct cairn_attempt_record){0};
    cairn_buf_release(&committed->attempt_text);
    committed->attempt_text = *text;
    *text = (struct cairn_buf){0};
    return CAIRN_OK;
}

/* A flipped digit can leave both records valid, so the copy must also equal the record. */
static enum cairn_code take_attempt_copy(struct cairn_committed *committed, struct cairn_buf *text,
                                         struct cairn_error *err) {
    const struct cairn_buf *record_text = &committed->attempt_text;
    CAIRN_AUTO(attempt_record) record = {0};
    CAIRN_TRY(prove_attempt(committed, text, &record, err));
    if (record_text->size &&
        (record_text->size != text->size || memcmp(record_text->data, text->data, text->size) != 0))
        return cairn_fail(err, CAIRN_CORRUPT, "it and the record that it is a copy of differ");
    return CAIRN_OK;
}

/* ---- reading ---- */

static const struct {
    /* Takes *text, on success. */
    enum cairn_code (*take)(struct cairn_committed *committed, struct cairn_buf *text,
                            struct cairn_error *err);
    uint64_t bytes_max;
} documents[CAIRN_DOCUMENT_COUNT] = {
    [CAIRN_DOCUMENT_RECORD] = {take_record, RECORD_BYTES_MAX},
    [CAIRN_DOCUMENT_MANIFEST] = {take_manifest, CAIRN_MANIFEST_BYTES_MAX},
    [CAIRN_DOCUMENT_CHECKSUMS] = {take_checksums, CHECKSUMS_BYTES_MAX},
    [CAIRN_DOCUMENT_LAYOUT] = {take_layout, CAIRN_LAYOUT_BYTES_MAX},
    [CAIRN_DOCUMENT_ATTEMPT] = {take_attempt, CAIRN_MANIFEST_BYTES_MAX},
    [CAIRN_DOCUMENT_ATTEMPT_COPY] = {take_attempt_copy, CAIRN_MANIFEST_BYTES_MAX},
};

/* *ret_read: the bytes arrived, so an error is about their content. */
static enum cairn_code read_once(struct cairn_committed *committed,
                                 const struct cairn_document_source *source,
                                 enum cairn_document document, const char *key, bool again,
                                 bool *ret_read, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = documents[document].bytes_max};
    enum cairn_code code = source->get(source->owner, document, key, again, &text, err);
    *ret_read = code == CAIRN_OK || code == CAIRN_TOO_LARGE;
    if (code == CAIRN_NOT_FOUND) return cairn_fail(err, code, "it is missing");
    if (code == CAIRN_TOO_LARGE) return cairn_fail(err, CAIRN_CORRUPT, "it is far too large");
    return code ? code : documents[document].take(committed, &text, err);
}

/* A flipped digit of a digest is still a digit, so the record is read again before a manifest
 * counts as damaged. If that read fails, the known record stays. */
static void read_record_again(struct cairn_committed *committed,
                              const struct cairn_document_source *source) {
    struct cairn_key key;
    bool came = false;
    if (!committed->has_record) return;
    cairn_committed_key(committed, CAIRN_DOCUMENT_RECORD, &key);
    if (committed->digest_of_record) committed->has_digest = false;
    (void)read_once(committed, source, CAIRN_DOCUMENT_RECORD, key.text, true, &came, NULL);
    committed->has_digest = true;
}

enum cairn_code cairn_committed_read(struct cairn_committed *committed,
                                     const struct cairn_document_source *source,
                                     enum cairn_document document, struct cairn_error *err) {
    struct cairn_key key;
    struct cairn_error why = {0};
    bool came = false;
    CAIRN_ASSERT(document < CAIRN_DOCUMENT_COUNT);
    cairn_committed_key(committed, document, &key);
    enum cairn_code code = read_once(committed, source, document, key.text, false, &came, &why);
    if (came && (code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED)) { /* S17 */
        const struct cairn_error first = why;
        why = (struct cairn_error){0};
        if (document == CAIRN_DOCUMENT_MANIFEST) read_record_again(committed, source);
        code = read_once(committed, source, document, key.text, true, &came, &why);
        if (!code && source->tell_again) source->tell_again(key.text, &first);
    }
    if (code && err) *err = why;
    return code;
}

enum cairn_code cairn_committed_load(struct cairn_committed *committed,
                                     const struct cairn_document_source *source, unsigned wanted,
                                     struct cairn_error *err) {
    for (unsigned at = 0; at < CAIRN_DOCUMENT_COUNT; at++) {
        enum cairn_document document = (enum cairn_document)at;
        struct cairn_key key;
        if (!(wanted & (1u << at))) continue;
        if (document == CAIRN_DOCUMENT_LAYOUT && !committed->manifest.has_layout) continue;
        enum cairn_code code = cairn_committed_read(committed, source, document, err);
        if (code == CAIRN_OK) continue;
        cairn_committed_key(committed, document, &key);
        if (code == CAIRN_NOT_FOUND && document != CAIRN_DOCUMENT_RECORD) code = CAIRN_CORRUPT;
        return cairn_within(err, code, "%s", key.text);
    }
    return CAIRN_OK;
}

/* ---- listings ---- */

struct name {
    char text[CAIRN_TENSOR_NAME_BYTES_MAX + 1];
};

static const char *text_of(struct cairn_view view, struct name *ret) {
    CAIRN_PROMISE(view.size < sizeof ret->text, return NULL);
    if (view.size) memcpy(ret->text, view.data, view.size);
    ret->text[view.size] = '\0';
    return ret->text;
}

static const char *const kind_texts[] = {[CAIRN_TENSOR_SHARDED] = "sharded",
                                         [CAIRN_TENSOR_REPLICATED] = "replicated",
                                         [CAIRN_TENSOR_ALIAS] = "alias",
                                         [CAIRN_TENSOR_LOCAL] = "local"};

/* Counts the fragments of all ranks that list the name. */
static uint64_t count_fragments(const struct cairn_layout *layout, uint32_t first, uint32_t count,
                                struct cairn_tensor *ret_tensor) {
    uint64_t fragments = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct cairn_tensor tensor;
        (void)cairn_layout_tensor_at(layout, first + i, &tensor);
        if (i == 0) *ret_tensor = tensor;
        fragments += tensor.fragment_count;
    }
    return fragments;
}

json_t *cairn_listing_tensor(const struct cairn_layout *layout, uint32_t index) {
    struct cairn_view name;
    uint32_t first = 0, count = 0;
    cairn_layout_name_at(layout, index, &name, &first, &count);
    struct cairn_tensor tensor = {0};
    uint64_t fragments = count_fragments(layout, first, count, &tensor);
    uint64_t elements = 0, bytes = 0;
    bool sized =
        cairn_tensor_size(tensor.dtype, tensor.dimension_count, tensor.shape, &elements, &bytes);
    CAIRN_AUTO_JSON json_t *shape = json_array();
    for (unsigned i = 0; i < tensor.dimension_count; i++) {
        if (json_array_append_new(shape, json_integer((json_int_t)tensor.shape[i]))) return NULL;
    }
    struct name own, other;
    bool alias = tensor.kind == CAIRN_TENSOR_ALIAS;
    return CAIRN_PACK(tensor_row, .name = text_of(name, &own),
                      .dtype = cairn_dtype_text(tensor.dtype), .shape = shape,
                      .kind = kind_texts[tensor.kind],
                      .alias_of = alias ? text_of(tensor.alias_of, &other) : NULL,
                      .bytes = sized ? bytes : 0, .fragments = fragments);
}

const char *cairn_listing_content(const struct cairn_layout *layout, uint32_t rank,
                                  const char *shard) {
    bool described = layout && cairn_layout_describes(layout, rank, cairn_view_of(shard));
    return described ? "tensors" : "opaque";
}

json_t *cairn_listing_shard(const char *name, uint64_t rank, uint64_t size_bytes,
                            const uint32_t *crc32c, const char *state, const char *content) {
    char text[16] = "";
    if (crc32c) snprintf(text, sizeof text, "%08x", *crc32c);
    return CAIRN_PACK(shard_row, .name = name, .rank = rank, .bytes = size_bytes,
                      .crc32c = crc32c ? text : NULL, .state = state, .content = content);
}
