/* SPDX-License-Identifier: Apache-2.0 */
/* documents: version numbers, digests and ids of stored JSON. */
#include "api/documents.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/text.h"

#define NEEDS_BYTES_MAX 32

enum cairn_code cairn_newer(struct cairn_error *err, const char *format, ...) {
    char text[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cairn_fail(err, CAIRN_UNSUPPORTED, "written by a newer release, needs %s", text);
}

/* A later document says in `needs` which release reads it; that is shown to people as it is. */
static enum cairn_code newer_document(const json_t *json, uint64_t major,
                                      struct cairn_error *err) {
    const char *needs = json_string_value(json_object_get(json, "needs"));
    bool said = needs && *needs && strlen(needs) <= NEEDS_BYTES_MAX;
    return cairn_newer(err, "%s%s that knows its format %llu (this one: %d)",
                       said ? "release " : "one", said ? needs : "", (unsigned long long)major,
                       DOCUMENT_MAJOR);
}

enum cairn_code cairn_document_bad(struct cairn_error *err, enum cairn_code code,
                                   const char *kind) {
    if (code == CAIRN_OK) return code;
    bool ours = code != CAIRN_NO_MEMORY && code != CAIRN_UNSUPPORTED;
    if (ours) code = CAIRN_CORRUPT;
    return cairn_within(err, code, "%s", kind);
}

enum cairn_code cairn_document_parse(struct cairn_view text, const char *kind,
                                     struct cairn_json_limits limits, json_t **ret_json,
                                     struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = NULL;
    uint64_t major = 0;
    CAIRN_TRY(cairn_json_parse(text, limits, &json, err));
    const struct cairn_json_field fields[] = {
        {.name = kind, .kind = CAIRN_JSON_U64, .required = true, .ret = &major},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), true, err));
    if (major == 0) return cairn_fail(err, CAIRN_CORRUPT, "format 0, which no release has written");
    if (major > DOCUMENT_MAJOR) return newer_document(json, major, err);
    *ret_json = CAIRN_TAKE(json);
    return CAIRN_OK;
}

enum cairn_code cairn_document_dump(json_t *take_json, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *json = take_json;
    if (!json) return cairn_fail(err, CAIRN_NO_MEMORY, "a stored document cannot be built");
    return cairn_json_dump(json, ret, err);
}

json_t *cairn_document_hex(const uint8_t *data, size_t size) {
    char text[65];
    CAIRN_PROMISE(size <= 32, return NULL);
    cairn_hex_encode(data, size, text);
    return json_string(text);
}

enum cairn_code cairn_document_digest(const char *text, uint8_t ret_digest[32],
                                      struct cairn_error *err) {
    return cairn_hex_decode(cairn_view_of(text), ret_digest, 32, err);
}

enum cairn_code cairn_document_id(const char *text, struct cairn_version_id *ret,
                                  struct cairn_error *err) {
    if (!cairn_version_id_valid(cairn_view_of(text))) {
        return cairn_fail(err, CAIRN_INVALID, "malformed version id");
    }
    memcpy(ret->text, text, CAIRN_VERSION_ID_BYTES);
    return CAIRN_OK;
}

enum cairn_code cairn_document_run(const char *project, const char *run, struct cairn_run_name *ret,
                                   struct cairn_error *err) {
    if (!cairn_name_valid(cairn_view_of(project)) || !cairn_name_valid(cairn_view_of(run))) {
        return cairn_fail(err, CAIRN_INVALID, "malformed project or run name");
    }
    memset(ret, 0, sizeof *ret);
    memcpy(ret->project, project, strlen(project) + 1);
    memcpy(ret->run, run, strlen(run) + 1);
    return CAIRN_OK;
}

enum cairn_code cairn_document_nonce(const char *text, char ret[CAIRN_NONCE_TEXT_BYTES],
                                     struct cairn_error *err) {
    uint8_t nonce[(CAIRN_NONCE_TEXT_BYTES - 1) / 2];
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(text), nonce, sizeof nonce, err));
    memcpy(ret, text, CAIRN_NONCE_TEXT_BYTES);
    return CAIRN_OK;
}
