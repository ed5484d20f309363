/* SPDX-License-Identifier: Apache-2.0 */
/* One small reader per document: a walk and a table of wanted paths. */
#include "store/xml/xml.h"

#include <expat.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>

#include "common/buf.h"
#include "common/text.h"
#include "store/time.h"

/* ---- any document: expat, with bounds ---- */

#define DEPTH_MAX 16
#define TEXT_BYTES_MAX (16 * CAIRN_KIB)
#define PATH_BYTES 256

struct state {
    const struct cairn_xml_walk *walk;
    XML_Parser parser;
    char path[PATH_BYTES];
    size_t path_size, starts[DEPTH_MAX];
    unsigned depth, elements;
    struct cairn_buf text;
    enum cairn_code code;
    struct cairn_error error;
};

static void stop_walk(struct state *state, enum cairn_code code) {
    state->code = code;
    XML_StopParser(state->parser, XML_FALSE);
}

static void stop_for(struct state *state, const char *why) {
    stop_walk(state, cairn_fail(&state->error, CAIRN_PROTOCOL, "the XML answer %s", why));
}

static bool push_element(struct state *state, const char *name) {
    size_t size = strlen(name), more = size + (state->depth > 0);
    if (state->depth == DEPTH_MAX || state->path_size + more >= PATH_BYTES) return false;
    state->starts[state->depth++] = state->path_size;
    if (state->depth > 1) state->path[state->path_size++] = '/';
    memcpy(state->path + state->path_size, name, size + 1);
    state->path_size += size;
    return true;
}

static void on_start(void *owner, const XML_Char *name, const XML_Char **attributes) {
    (void)attributes;
    struct state *state = owner;
    if (state->code) return;
    /* Servers that bind XML to classes write <ns2:ListBucketResult xmlns:ns2="...">. */
    const char *colon = strrchr(name, ':');
    if (colon) name = colon + 1;
    if (!state->depth && strcmp(name, state->walk->root) != 0) {
        stop_walk(state,
                  cairn_fail(&state->error, CAIRN_PROTOCOL,
                             "the answer is <%.40s> where <%s> is due", name, state->walk->root));
        return;
    }
    if (++state->elements > CAIRN_XML_ELEMENTS_MAX || !push_element(state, name)) {
        stop_for(state, "is deeper or longer than any real one");
        return;
    }
    cairn_buf_clear(&state->text);
    if (!state->walk->started) return;
    enum cairn_code code = state->walk->started(state->walk->owner, state->path, &state->error);
    if (code) stop_walk(state, code);
}

static void on_end(void *owner, const XML_Char *name) {
    (void)name;
    struct state *state = owner;
    if (state->code) return;
    CAIRN_ASSERT(state->depth);
    if (state->walk->ended) {
        const char *text = state->text.data ? state->text.data : "";
        enum cairn_code code =
            state->walk->ended(state->walk->owner, state->path, text, &state->error);
        if (code) stop_walk(state, code);
    }
    state->path_size = state->starts[--state->depth];
    state->path[state->path_size] = '\0';
    cairn_buf_clear(&state->text);
}

static void on_text(void *owner, const XML_Char *text, int size) {
    struct state *state = owner;
    if (state->code) return;
    enum cairn_code code = cairn_buf_append(&state->text, text, (size_t)size, &state->error);
    if (code == CAIRN_TOO_LARGE) stop_for(state, "holds an element of more than 16 KiB");
    if (code && code != CAIRN_TOO_LARGE) stop_walk(state, code);
}

static void on_doctype(void *owner, const XML_Char *name, const XML_Char *system,
                       const XML_Char *public, int internal) {
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop_for(owner, "declares a document type, which S3 never does");
}

enum cairn_code cairn_xml_walk_run(const struct cairn_xml_walk *walk, struct cairn_view text,
                                   struct cairn_error *err) {
    const char *at = text.data;
    size_t size = text.size;
    while (size && strchr(" \t\r\n", *at) && *at) at++, size--;
    struct cairn_view whole = {at, size};
    if (!whole.size) return cairn_fail(err, CAIRN_PROTOCOL, "the answer is empty");
    if (whole.size > INT_MAX) return cairn_fail(err, CAIRN_PROTOCOL, "the answer is too long");
    struct state state = {.walk = walk, .text.limit = TEXT_BYTES_MAX};
    state.parser = XML_ParserCreate("UTF-8");
    if (!state.parser) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an XML parser");
    XML_SetUserData(state.parser, &state);
    XML_SetElementHandler(state.parser, on_start, on_end);
    XML_SetCharacterDataHandler(state.parser, on_text);
    XML_SetStartDoctypeDeclHandler(state.parser, on_doctype);
    enum XML_Status status = XML_Parse(state.parser, whole.data, (int)whole.size, XML_TRUE);
    XML_ParserFree(state.parser);
    if (state.text.data) explicit_bzero(state.text.data, state.text.capacity); /* keys of STS */
    cairn_buf_release(&state.text);
    if (state.code) return cairn_pass(err, state.code, &state.error);
    if (status != XML_STATUS_OK)
        return cairn_fail(err, CAIRN_PROTOCOL, "the answer is no whole XML document");
    return CAIRN_OK;
}

struct field {
    const char *path;
    char *to;
    size_t capacity;
};
struct fields {
    const struct field *fields;
    size_t count;
};

static enum cairn_code take_field(void *owner, const char *path, const char *text,
                                  struct cairn_error *err) {
    const struct fields *fields = owner;
    for (size_t i = 0; i < fields->count; i++) {
        const struct field *field = &fields->fields[i];
        if (strcmp(field->path, path) != 0) continue;
        if (!cairn_text_copy(field->to, field->capacity, text))
            return cairn_fail(err, CAIRN_PROTOCOL, "<%s> is longer than %zu bytes", path,
                              field->capacity - 1);
    }
    return CAIRN_OK;
}

static enum cairn_code read_fields(struct cairn_view text, const char *root,
                                   const struct field *fields, size_t count,
                                   struct cairn_error *err) {
    struct fields owner = {fields, count};
    struct cairn_xml_walk walk = {.root = root, .ended = take_field, .owner = &owner};
    return cairn_xml_walk_run(&walk, text, err);
}

/* Messages are cut, not refused; control bytes would break a line. */
static enum cairn_code take_problem(void *owner, const char *path, const char *text,
                                    struct cairn_error *err) {
    (void)err;
    struct cairn_xml_problem *problem = owner;
    char *to = NULL;
    size_t capacity = 0;
    if (cairn_text_starts(path, "ErrorResponse/")) path += strlen("ErrorResponse/"); /* of STS */
    if (!strcmp(path, "Error/Code")) to = problem->code, capacity = sizeof problem->code;
    if (!strcmp(path, "Error/Message")) to = problem->message, capacity = sizeof problem->message;
    if (!strcmp(path, "Error/Region")) to = problem->region, capacity = sizeof problem->region;
    if (!strcmp(path, "Error/Endpoint"))
        to = problem->endpoint, capacity = sizeof problem->endpoint;
    if (!strcmp(path, "Error/RequestId"))
        to = problem->request_id, capacity = sizeof problem->request_id;
    if (!to) return CAIRN_OK;
    (void)cairn_text_copy(to, capacity, text);
    for (; *to; to++)
        if ((unsigned char)*to < ' ' || *to == 0x7f) *to = ' ';
    return CAIRN_OK;
}

bool cairn_xml_problem_read(struct cairn_view text, struct cairn_xml_problem *ret) {
    struct cairn_xml_problem problem = {0};
    struct cairn_xml_walk walk = {.root = "Error", .ended = take_problem, .owner = &problem};
    enum cairn_code code = cairn_xml_walk_run(&walk, text, NULL);
    walk.root = "ErrorResponse";
    if (code) code = cairn_xml_walk_run(&walk, text, NULL);
    if (code || !problem.code[0]) return false;
    *ret = problem;
    return true;
}

enum cairn_code cairn_xml_upload_id(struct cairn_view text, char ret_id[CAIRN_UPLOAD_ID_BYTES_MAX],
                                    struct cairn_error *err) {
    static const char root[] = "InitiateMultipartUploadResult";
    char id[CAIRN_UPLOAD_ID_BYTES_MAX] = "";
    struct field field = {"InitiateMultipartUploadResult/UploadId", id, sizeof id};
    CAIRN_TRY(read_fields(text, root, &field, 1, err));
    if (!id[0]) return cairn_fail(err, CAIRN_PROTOCOL, "<%s> names no upload", root);
    memcpy(ret_id, id, sizeof id);
    return CAIRN_OK;
}

enum cairn_code cairn_xml_copied(struct cairn_view text, char ret_etag[128], char ret_crc32c[24],
                                 struct cairn_error *err) {
    static const char root[] = "CopyPartResult";
    char etag[128] = "", crc32c[24] = "";
    struct field fields[] = {{"CopyPartResult/ETag", etag, sizeof etag},
                             {"CopyPartResult/ChecksumCRC32C", crc32c, sizeof crc32c}};
    CAIRN_TRY(read_fields(text, root, fields, CAIRN_COUNT(fields), err));
    if (!etag[0]) return cairn_fail(err, CAIRN_PROTOCOL, "<%s> has no ETag", root);
    memcpy(ret_etag, etag, sizeof etag);
    memcpy(ret_crc32c, crc32c, sizeof crc32c);
    return CAIRN_OK;
}

enum cairn_code cairn_xml_completed(struct cairn_view text, char ret_etag[128],
                                    struct cairn_error *err) {
    static const char root[] = "CompleteMultipartUploadResult";
    char etag[128] = "?";
    struct field field = {"CompleteMultipartUploadResult/ETag", etag, sizeof etag};
    CAIRN_TRY(read_fields(text, root, &field, 1, err));
    /* Ceph 16 sends an empty ETag; its presence identifies the document. */
    if (!strcmp(etag, "?")) return cairn_fail(err, CAIRN_PROTOCOL, "<%s> has no ETag", root);
    memcpy(ret_etag, etag, sizeof etag);
    return CAIRN_OK;
}

/* Text without the white space around it. */
static struct cairn_view trimmed(const char *text) {
    text += strspn(text, " \t\r\n");
    return (struct cairn_view){text, strcspn(text, " \t\r\n")};
}

/* S3 writes "true"; servers in other languages write "True" or "1". */
static bool is_true(const char *text) {
    struct cairn_view word = trimmed(text);
    return (word.size == 4 && !strncasecmp(word.data, "true", 4)) ||
           (word.size == 1 && !memcmp(word.data, "1", 1));
}

struct parts_reader {
    struct cairn_xml_parts *parts;
    struct cairn_store_part part;
    bool truncated;
    uint64_t next_marker; /* 0: none, or unreadable */
};

static enum cairn_code parts_started(void *owner, const char *path, struct cairn_error *err) {
    (void)err;
    struct parts_reader *reader = owner;
    if (!strcmp(path, "ListPartsResult/Part")) reader->part = (struct cairn_store_part){0};
    return CAIRN_OK;
}

static enum cairn_code take_crc32c(struct cairn_store_part *part, const char *text) {
    CAIRN_AUTO(buf) raw = {.limit = 64};
    if (cairn_base64_decode(cairn_view_of(text), &raw, NULL) != CAIRN_OK || raw.size != 4)
        return CAIRN_OK; /* an unreadable checksum counts as absent */
    const uint8_t *b = (const uint8_t *)raw.data;
    part->crc32c = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    part->has_crc32c = true;
    return CAIRN_OK;
}

static enum cairn_code parts_ended(void *owner, const char *path, const char *text,
                                   struct cairn_error *err) {
    struct parts_reader *reader = owner;
    uint64_t number = 0;
    struct cairn_view view = trimmed(text);
    if (!strcmp(path, "ListPartsResult/IsTruncated")) reader->truncated = is_true(text);
    /* Of a whole listing it is not used, and some stores write a word there. */
    if (!strcmp(path, "ListPartsResult/NextPartNumberMarker") &&
        cairn_parse_u64(view, &reader->next_marker, NULL) != CAIRN_OK)
        reader->next_marker = 0;
    if (!strcmp(path, "ListPartsResult/Part/PartNumber")) {
        CAIRN_TRY(cairn_parse_u64(view, &number, err));
        if (number < 1 || number > 10000)
            return cairn_fail(err, CAIRN_PROTOCOL, "part number %s", text);
        reader->part.number = (uint32_t)number;
    }
    if (!strcmp(path, "ListPartsResult/Part/Size"))
        return cairn_parse_u64(view, &reader->part.size_bytes, err);
    if (!strcmp(path, "ListPartsResult/Part/ETag") &&
        !cairn_text_copy(reader->part.etag, sizeof reader->part.etag, text))
        return cairn_fail(err, CAIRN_PROTOCOL, "an ETag of more than 127 bytes");
    if (!strcmp(path, "ListPartsResult/Part/ChecksumCRC32C"))
        return take_crc32c(&reader->part, text);
    if (!strcmp(path, "ListPartsResult/Part")) {
        struct cairn_xml_parts *parts = reader->parts;
        if (!reader->part.number)
            return cairn_fail(err, CAIRN_PROTOCOL, "a listed part has no number");
        if (parts->count == parts->capacity)
            return cairn_fail(err, CAIRN_PROTOCOL, "more parts are listed than were ever sent");
        parts->parts[parts->count++] = reader->part;
        return CAIRN_OK;
    }
    return CAIRN_OK;
}

enum cairn_code cairn_xml_parts_read(struct cairn_view text, struct cairn_xml_parts *parts,
                                     struct cairn_error *err) {
    struct parts_reader reader = {.parts = parts};
    struct cairn_xml_walk walk = {"ListPartsResult", parts_started, parts_ended, &reader};
    size_t before = parts->count;
    enum cairn_code code = cairn_xml_walk_run(&walk, text, err);
    if (!code && reader.truncated && (reader.next_marker < 1 || reader.next_marker > 10000))
        code = cairn_fail(err, CAIRN_PROTOCOL, "a cut list of parts does not say where it goes on");
    if (code) {
        parts->count = before;
        return code;
    }
    parts->next_marker = reader.truncated ? (uint32_t)reader.next_marker : 0;
    return CAIRN_OK;
}

struct listing_reader {
    struct cairn_store_listing *listing;
    const char *root, *item, *time, *token; /* names that differ between listings */
    const char *marker;                     /* element of a delete marker; NULL: none */
    const char *token_below;                /* second half of the next page's marker; NULL: none */
    const struct cairn_xml_listed *listed;
    struct cairn_store_entry entry;
    bool truncated, says_truncated, encoded;
    char *next, *next_below;
};

static void drop_entry(struct cairn_store_entry *entry) {
    free(entry->key);
    free(entry->upload_id);
    free(entry->version_id);
    *entry = (struct cairn_store_entry){0};
}

static enum cairn_code keep_text(char **to, const char *text, struct cairn_error *err) {
    free(*to);
    *to = strdup(text);
    return *to ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a listing");
}

/* Encoded keys have '+' for a space. Keys are decoded last: the encoding may come after them. */
static enum cairn_code decode_key(char **key, struct cairn_error *err) {
    for (char *at = *key; *at; at++)
        if (*at == '+') *at = ' ';
    CAIRN_AUTO(buf) plain = {0};
    CAIRN_TRY(cairn_percent_decode(cairn_view_of(*key), &plain, err));
    return keep_text(key, plain.data ? plain.data : "", err);
}

static enum cairn_code keep_entry(struct listing_reader *reader, struct cairn_error *err) {
    if (!reader->entry.key) return cairn_fail(err, CAIRN_PROTOCOL, "a listed object has no key");
    struct cairn_store_listing *listing = reader->listing;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(listing->entries, listing->count, listing->capacity,
                               CAIRN_XML_ELEMENTS_MAX, "objects on a page", err));
    listing->entries[listing->count++] = reader->entry;
    reader->entry = (struct cairn_store_entry){0};
    return CAIRN_OK;
}

static enum cairn_code item_ended(struct listing_reader *reader, const char *leaf, const char *text,
                                  struct cairn_error *err) {
    struct cairn_store_entry *entry = &reader->entry;
    if (!strcmp(leaf, "Key")) return keep_text(&entry->key, text, err);
    if (!strcmp(leaf, "UploadId")) return keep_text(&entry->upload_id, text, err);
    if (!strcmp(leaf, "VersionId")) return keep_text(&entry->version_id, text, err);
    if (!strcmp(leaf, "Size")) return cairn_parse_u64(trimmed(text), &entry->size_bytes, err);
    /* An unreadable time is unknown, which never counts as old (store/store.h). */
    if (!strcmp(leaf, reader->time) && !cairn_s3_time_any(text, &entry->modified_ms))
        entry->modified_ms = 0;
    return CAIRN_OK;
}

static enum cairn_code listing_started(void *owner, const char *path, struct cairn_error *err) {
    (void)err;
    struct listing_reader *reader = owner;
    bool is_marker = reader->marker && !strcmp(path, reader->marker);
    if (!is_marker && strcmp(path, reader->item) != 0) return CAIRN_OK;
    drop_entry(&reader->entry);
    reader->entry.is_marker = is_marker;
    return CAIRN_OK;
}

/* The name of an item's field; "": the item itself. NULL: not in an item. */
static const char *leaf_of(const char *path, const char *item) {
    size_t size = item ? strlen(item) : 0;
    if (!item || strncmp(path, item, size) != 0) return NULL;
    if (!path[size]) return "";
    return path[size] == '/' ? path + size + 1 : NULL;
}

static enum cairn_code listing_ended(void *owner, const char *path, const char *text,
                                     struct cairn_error *err) {
    struct listing_reader *reader = owner;
    const char *of_item = leaf_of(path, reader->item);
    if (!of_item) of_item = leaf_of(path, reader->marker);
    if (of_item) return *of_item ? item_ended(reader, of_item, text, err) : keep_entry(reader, err);
    const char *leaf = strchr(path, '/') ? strchr(path, '/') + 1 : "";
    if (!strcmp(leaf, "IsTruncated")) {
        reader->says_truncated = true;
        reader->truncated = is_true(text);
    }
    if (!strcmp(leaf, "EncodingType")) reader->encoded = !strcmp(text, "url");
    if (!strcmp(leaf, reader->token)) return keep_text(&reader->next, text, err);
    if (reader->token_below && !strcmp(leaf, reader->token_below))
        return keep_text(&reader->next_below, text, err);
    return CAIRN_OK;
}

/* Keys outside the prefix must not pass for ours: callers delete what a listing returns. */
static enum cairn_code cut_keys(const struct listing_reader *reader, size_t first,
                                struct cairn_error *err) {
    struct cairn_store_listing *listing = reader->listing;
    for (size_t i = first; i < listing->count; i++) {
        struct cairn_store_entry *entry = &listing->entries[i];
        if (reader->encoded) CAIRN_TRY(decode_key(&entry->key, err));
        CAIRN_TRY(cairn_store_listed_check(reader->listed->prefix, entry, err));
        size_t cut = reader->listed->cut_bytes;
        memmove(entry->key, entry->key + cut, strlen(entry->key) - cut + 1);
    }
    return CAIRN_OK;
}

static enum cairn_code keep_next_page(struct listing_reader *reader, struct cairn_error *err) {
    free(reader->listing->next_page);
    reader->listing->next_page = NULL;
    /* A token is there only where a listing goes on; a marker may be the last key's. */
    bool goes_on = !reader->says_truncated && !reader->token_below && reader->next && *reader->next;
    if (!reader->truncated && !goes_on) return CAIRN_OK;
    if (!reader->next || !*reader->next)
        return cairn_fail(err, CAIRN_STORE,
                          "the store is broken: it cuts a listing off and does not say where it "
                          "goes on (IsTruncated without %s)",
                          reader->token);
    if (!reader->token_below) return keep_text(&reader->listing->next_page, reader->next, err);
    if (reader->encoded) CAIRN_TRY(decode_key(&reader->next, err));
    CAIRN_AUTO(buf) both = {0};
    CAIRN_TRY(cairn_buf_printf(&both, err, "%s\n%s", reader->next,
                               reader->next_below ? reader->next_below : ""));
    return keep_text(&reader->listing->next_page, both.data, err);
}

static enum cairn_code read_listing(struct listing_reader *reader, struct cairn_view text,
                                    struct cairn_error *err) {
    size_t before = reader->listing->count;
    struct cairn_xml_walk walk = {reader->root, listing_started, listing_ended, reader};
    enum cairn_code code = cairn_xml_walk_run(&walk, text, err);
    if (!code) code = cut_keys(reader, before, err);
    if (!code) code = keep_next_page(reader, err);
    if (code)
        while (reader->listing->count > before)
            drop_entry(&reader->listing->entries[--reader->listing->count]);
    drop_entry(&reader->entry);
    free(reader->next);
    free(reader->next_below);
    return code;
}

enum cairn_code cairn_xml_objects(struct cairn_view text, const struct cairn_xml_listed *listed,
                                  struct cairn_store_listing *ret, struct cairn_error *err) {
    struct listing_reader reader = {.listing = ret,
                                    .root = "ListBucketResult",
                                    .item = "ListBucketResult/Contents",
                                    .time = "LastModified",
                                    .token = "NextContinuationToken",
                                    .listed = listed};
    return read_listing(&reader, text, err);
}

enum cairn_code cairn_xml_versions(struct cairn_view text, const struct cairn_xml_listed *listed,
                                   struct cairn_store_listing *ret, struct cairn_error *err) {
    struct listing_reader reader = {.listing = ret,
                                    .root = "ListVersionsResult",
                                    .item = "ListVersionsResult/Version",
                                    .marker = "ListVersionsResult/DeleteMarker",
                                    .time = "LastModified",
                                    .token = "NextKeyMarker",
                                    .token_below = "NextVersionIdMarker",
                                    .listed = listed};
    return read_listing(&reader, text, err);
}

enum cairn_code cairn_xml_uploads(struct cairn_view text, const struct cairn_xml_listed *listed,
                                  struct cairn_store_listing *ret, struct cairn_error *err) {
    struct listing_reader reader = {.listing = ret,
                                    .root = "ListMultipartUploadsResult",
                                    .item = "ListMultipartUploadsResult/Upload",
                                    .time = "Initiated",
                                    .token = "NextKeyMarker",
                                    .token_below = "NextUploadIdMarker",
                                    .listed = listed};
    return read_listing(&reader, text, err);
}

struct deletions_reader {
    const struct cairn_xml_deletions *deletions;
    struct cairn_buf key; /* of the current element */
    bool has_key, is_whole;
    char version[CAIRN_UPLOAD_ID_BYTES_MAX], code[64], message[120];
};

static enum cairn_code deletion_started(void *owner, const char *path, struct cairn_error *err) {
    (void)err;
    struct deletions_reader *reader = owner;
    if (strcmp(path, "DeleteResult/Deleted") != 0 && strcmp(path, "DeleteResult/Error") != 0)
        return CAIRN_OK;
    cairn_buf_clear(&reader->key);
    reader->has_key = false;
    reader->version[0] = reader->code[0] = reader->message[0] = '\0';
    return CAIRN_OK;
}

static enum cairn_code deletion_ended(void *owner, const char *path, const char *text,
                                      struct cairn_error *err) {
    struct deletions_reader *reader = owner;
    const struct cairn_xml_deletions *to = reader->deletions;
    bool failed = cairn_text_starts(path, "DeleteResult/Error");
    if (!failed && !cairn_text_starts(path, "DeleteResult/Deleted")) return CAIRN_OK;
    const char *leaf = strchr(path + strlen("DeleteResult/"), '/');
    if (leaf && !strcmp(leaf, "/Key")) {
        reader->has_key = true;
        cairn_buf_clear(&reader->key);
        return cairn_buf_append_text(&reader->key, text, err);
    }
    if (leaf && !strcmp(leaf, "/VersionId"))
        (void)cairn_text_copy(reader->version, sizeof reader->version, text);
    if (leaf && failed && !strcmp(leaf, "/Code"))
        (void)cairn_text_copy(reader->code, sizeof reader->code, text);
    if (leaf && failed && !strcmp(leaf, "/Message"))
        (void)cairn_text_copy(reader->message, sizeof reader->message, text);
    if (leaf) return CAIRN_OK;
    const char *key = reader->key.data ? reader->key.data : "";
    size_t prefix_size = strlen(to->prefix);
    if (!reader->has_key || (failed && !reader->code[0]))
        return cairn_fail(err, CAIRN_PROTOCOL, "a deletion is told without its %s",
                          reader->has_key ? "code" : "key");
    if (reader->is_whole && strncmp(key, to->prefix, prefix_size) == 0)
        to->each(to->owner, key + prefix_size, reader->version, failed ? reader->code : NULL,
                 reader->message);
    return CAIRN_OK;
}

enum cairn_code cairn_xml_deletions_read(struct cairn_view text,
                                         const struct cairn_xml_deletions *deletions,
                                         struct cairn_error *err) {
    struct deletions_reader reader = {.deletions = deletions};
    struct cairn_xml_walk walk = {"DeleteResult", deletion_started, deletion_ended, &reader};
    enum cairn_code code = cairn_xml_walk_run(&walk, text, err);
    reader.is_whole = code == CAIRN_OK; /* xml.h#1: a truncated document reports nothing */
    if (!code) code = cairn_xml_walk_run(&walk, text, err);
    cairn_buf_release(&reader.key);
    return code;
}

void cairn_xml_session_release(struct cairn_xml_session *session) {
    cairn_secret_release(&session->secret);
    cairn_secret_release(&session->token);
}

static enum cairn_code take_session(void *owner, const char *path, const char *text,
                                    struct cairn_error *err) {
    struct cairn_xml_session *session = owner;
    const char *leaf = strstr(path, "/Credentials/");
    if (!leaf) return CAIRN_OK;
    leaf += strlen("/Credentials/");
    if (!strcmp(leaf, "SecretAccessKey"))
        return cairn_secret_set(&session->secret, cairn_view_of(text), err);
    if (!strcmp(leaf, "SessionToken"))
        return cairn_secret_set(&session->token, cairn_view_of(text), err);
    bool whole = true;
    if (!strcmp(leaf, "AccessKeyId"))
        whole = cairn_text_copy(session->access_key, sizeof session->access_key, text);
    if (!strcmp(leaf, "Expiration"))
        whole = cairn_text_copy(session->expiration, sizeof session->expiration, text);
    return whole ? CAIRN_OK : cairn_fail(err, CAIRN_PROTOCOL, "<%s> is too long", leaf);
}

enum cairn_code cairn_xml_session_read(struct cairn_view text, const char *root,
                                       struct cairn_xml_session *ret, struct cairn_error *err) {
    struct cairn_xml_walk walk = {.root = root, .ended = take_session, .owner = ret};
    CAIRN_TRY(cairn_xml_walk_run(&walk, text, err));
    if (!ret->access_key[0] || !ret->secret.size)
        return cairn_fail(err, CAIRN_PROTOCOL, "the answer of STS holds no key");
    return CAIRN_OK;
}

enum cairn_code cairn_xml_escape(const char *text, struct cairn_buf *ret, struct cairn_error *err) {
    for (; *text; text++) {
        const char *escaped = *text == '&'   ? "&amp;"
                              : *text == '<' ? "&lt;"
                              : *text == '>' ? "&gt;"
                              : *text == '"' ? "&quot;"
                                             : NULL;
        if (escaped)
            CAIRN_TRY(cairn_buf_append_text(ret, escaped, err));
        else
            CAIRN_TRY(cairn_buf_append(ret, text, 1, err));
    }
    return CAIRN_OK;
}
