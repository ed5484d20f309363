/* SPDX-License-Identifier: Apache-2.0 */
/* keys: every key is printed from parts that were validated on input. */
#include "api/documents/keys.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/text.h"

#define COMPONENT_BYTES_MAX 200
#define VERSION_ID_PREFIX "ckpt_"

static bool is_alnum(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool cairn_name_valid(struct cairn_view name) {
    const char *text = name.data;
    if (name.size == 0 || name.size > CAIRN_NAME_BYTES_MAX || !is_alnum(text[0])) return false;
    for (size_t i = 0; i < name.size; i++) {
        if (!is_alnum(text[i]) && text[i] != '.' && text[i] != '_' && text[i] != '-') return false;
        if (text[i] == '.' && text[i - 1] == '.') return false; /* text[0] is not a dot */
    }
    return true;
}

enum cairn_code cairn_run_name_parse(const char *text, struct cairn_run_name *ret,
                                     struct cairn_error *err) {
    const char *slash = strchr(text, '/');
    if (!slash) return cairn_fail(err, CAIRN_INVALID, "run \"%.80s\": want project/run", text);
    struct cairn_view project = {text, (size_t)(slash - text)};
    struct cairn_view run = cairn_view_of(slash + 1);
    if (!cairn_name_valid(project) || !cairn_name_valid(run))
        return cairn_fail(
            err, CAIRN_INVALID,
            "run \"%.80s\": each name is [A-Za-z0-9][A-Za-z0-9._-]*, at most %d bytes, "
            "without \"..\"",
            text, CAIRN_NAME_BYTES_MAX);
    memset(ret, 0, sizeof *ret);
    memcpy(ret->project, project.data, project.size);
    memcpy(ret->run, run.data, run.size);
    return CAIRN_OK;
}

/* What is wrong with one component of a shard name, [from, to), or NULL. */
static const char *component_problem(const char *from, const char *to) {
    size_t size = (size_t)(to - from);
    if (size == 0) return "an empty component";
    if (size > COMPONENT_BYTES_MAX) return "a component of more than 200 bytes";
    if (size == 1 && from[0] == '.') return "a component \".\"";
    if (size == 2 && from[0] == '.' && from[1] == '.') return "a component \"..\"";
    return NULL;
}

static const char *shard_name_problem(struct cairn_view name) {
    const char *text = name.data;
    if (name.size == 0) return "it is empty";
    if (name.size > CAIRN_SHARD_NAME_BYTES_MAX) return "it has more than 512 bytes";
    if (!cairn_utf8_valid(name)) return "it is not UTF-8";
    for (size_t i = 0; i < name.size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f) return "it has a control byte";
        if (c == '\\') return "it has a backslash";
    }
    const char *end = text + name.size;
    for (const char *from = text;; from++) {
        const char *to = memchr(from, '/', (size_t)(end - from));
        if (!to) to = end;
        const char *problem = component_problem(from, to);
        if (problem || to == end) return problem;
        from = to;
    }
}

enum cairn_code cairn_shard_name_check(struct cairn_view name, struct cairn_error *err) {
    const char *problem = shard_name_problem(name);
    if (!problem) return CAIRN_OK;
    /* A refused name may hold any bytes, so only its printable beginning is quoted. */
    char shown[64];
    size_t size = 0;
    for (; size < name.size && size < sizeof shown - 1; size++) {
        char c = ((const char *)name.data)[size];
        shown[size] = c >= 0x20 && c < 0x7f ? c : '?';
    }
    shown[size] = '\0';
    return cairn_fail(err, CAIRN_INVALID, "shard name \"%s\": %s", shown, problem);
}

enum cairn_code cairn_store_name_check(struct cairn_view name, struct cairn_error *err) {
    const char *text = name.data;
    bool good = name.size && name.size < CAIRN_STORE_NAME_BYTES && text[0] >= 'a' && text[0] <= 'z';
    for (size_t i = 0; good && i < name.size; i++)
        good = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= '0' && text[i] <= '9') ||
               text[i] == '-';
    if (good) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "\"%.*s\" names no store: a small letter, then small letters, digits and -, "
                      "at most %d",
                      (int)(name.size < 64 ? name.size : 64), name.size ? text : "",
                      CAIRN_STORE_NAME_BYTES - 1);
}

bool cairn_version_id_valid(struct cairn_view text) {
    size_t prefix = sizeof VERSION_ID_PREFIX - 1;
    if (text.size != CAIRN_VERSION_ID_BYTES - 1) return false;
    if (memcmp(text.data, VERSION_ID_PREFIX, prefix) != 0) return false;
    return cairn_uuid_text_valid(
        (struct cairn_view){(const char *)text.data + prefix, text.size - prefix});
}

CAIRN_PRINTF(2, 3) static void key_print(struct cairn_key *ret, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(ret->text, sizeof ret->text, format, args);
    va_end(args);
    CAIRN_PROMISE(size > 0, ret->text[0] = '\0');
    CAIRN_PROMISE((size_t)size < sizeof ret->text, (void)0); /* names are bounded far below it */
}

static void assert_run_name(const struct cairn_run_name *name) {
    CAIRN_PROMISE(cairn_name_valid(cairn_view_of(name->project)), (void)0);
    CAIRN_PROMISE(cairn_name_valid(cairn_view_of(name->run)), (void)0);
}

void cairn_key_store_json(struct cairn_key *ret) {
    key_print(ret, ".cairn/store.json");
}

void cairn_key_health(struct cairn_key *ret) {
    key_print(ret, ".cairn/health.json");
}

void cairn_key_catalog(uint64_t number, struct cairn_key *ret) {
    key_print(ret, ".cairn/catalog/%020llu.json", (unsigned long long)number);
}

void cairn_key_catalog_piece(const char *sha256, struct cairn_key *ret) {
    key_print(ret, ".cairn/catalog/versions/%.64s.json", sha256);
}

void cairn_key_revoked(const char *token, struct cairn_key *ret) {
    CAIRN_PROMISE(cairn_name_valid(cairn_view_of(token)), (void)0);
    key_print(ret, ".cairn/revoked/%s.json", token);
}

void cairn_key_generation(uint64_t number, struct cairn_key *ret) {
    key_print(ret, ".cairn/generations/%020llu", (unsigned long long)number);
}

void cairn_key_attempt(const struct cairn_run_name *name, uint64_t attempt, struct cairn_key *ret) {
    assert_run_name(name);
    key_print(ret, "%s/%s/attempts/%012llu.json", name->project, name->run,
              (unsigned long long)attempt);
}

void cairn_key_attempt_copy(const struct cairn_run_name *name, uint64_t attempt,
                            struct cairn_key *ret) {
    assert_run_name(name);
    key_print(ret, "%s/%s/attempts/%012llu.copy.json", name->project, name->run,
              (unsigned long long)attempt);
}

void cairn_key_layout(const struct cairn_run_name *name, const uint8_t digest[32],
                      const struct cairn_version_id *writer, struct cairn_key *ret) {
    assert_run_name(name);
    CAIRN_PROMISE(cairn_version_id_valid(cairn_view_of(writer->text)), *ret = (struct cairn_key){0};
                  return );
    char hex[65], short_id[17];
    cairn_hex_encode(digest, 32, hex);
    size_t size = 0; /* the first 16 hex digits of the id, without dashes */
    for (const char *at = writer->text + sizeof VERSION_ID_PREFIX - 1; size < 16; at++) {
        if (*at != '-') short_id[size++] = *at;
    }
    short_id[size] = '\0';
    key_print(ret, "%s/%s/layouts/%s-%s.layout", name->project, name->run, hex, short_id);
}

void cairn_key_version_prefix(const struct cairn_version_place *place, struct cairn_key *ret) {
    assert_run_name(&place->name);
    CAIRN_PROMISE(cairn_version_id_valid(cairn_view_of(place->id.text)), (void)0);
    CAIRN_PROMISE(place->step <= CAIRN_STEP_MAX, (void)0);
    key_print(ret, "%s/%s/%012llu/%s/", place->name.project, place->name.run,
              (unsigned long long)place->step, place->id.text);
}

static void key_in_version(const struct cairn_version_place *place, const char *name,
                           struct cairn_key *ret) {
    struct cairn_key prefix;
    cairn_key_version_prefix(place, &prefix);
    key_print(ret, "%s%s", prefix.text, name);
}

void cairn_key_shards(const struct cairn_version_place *place, struct cairn_key *ret) {
    key_in_version(place, "data/", ret);
}

void cairn_key_shard(const struct cairn_version_place *place, struct cairn_view shard,
                     struct cairn_key *ret) {
    CAIRN_PROMISE(cairn_shard_name_check(shard, NULL) == CAIRN_OK, (void)0);
    struct cairn_key folder;
    cairn_key_shards(place, &folder);
    key_print(ret, "%s%.*s", folder.text, (int)shard.size, (const char *)shard.data);
}

void cairn_key_manifest(const struct cairn_version_place *place, struct cairn_key *ret) {
    key_in_version(place, "manifest.json", ret);
}

void cairn_key_checksums(const struct cairn_version_place *place, struct cairn_key *ret) {
    key_in_version(place, "checksums.bin", ret);
}

void cairn_key_committed(const struct cairn_version_place *place, struct cairn_key *ret) {
    key_in_version(place, "committed.json", ret);
}

void cairn_key_trashed(const struct cairn_version_place *place, struct cairn_key *ret) {
    key_in_version(place, "trashed.json", ret);
}

void cairn_key_superseded(const struct cairn_version_place *place, uint64_t attempt,
                          struct cairn_key *ret) {
    char name[40];
    snprintf(name, sizeof name, "superseded-%012llu.json", (unsigned long long)attempt);
    key_in_version(place, name, ret);
}

/* ---- parsing keys ---- */

#define DIGITS 12 /* of a step and of an attempt's number */

static bool take_number(const char **at, uint64_t *ret) {
    uint64_t value = 0;
    for (int i = 0; i < DIGITS; i++) {
        char c = (*at)[i];
        if (c < '0' || c > '9') return false;
        value = value * 10 + (uint64_t)(c - '0');
    }
    *at += DIGITS;
    *ret = value;
    return true;
}

static bool take_text(const char **at, const char *text) {
    size_t size = strlen(text);
    if (strncmp(*at, text, size) != 0) return false;
    *at += size;
    return true;
}

/* "<step>/<version>/" */
static bool take_version(const char **at, struct cairn_key_parts *ret) {
    if (!take_number(at, &ret->step) || !take_text(at, "/")) return false;
    const char *slash = strchr(*at, '/');
    struct cairn_view id = {*at, slash ? (size_t)(slash - *at) : 0};
    if (!cairn_version_id_valid(id)) return false;
    memcpy(ret->id.text, id.data, id.size);
    ret->id.text[id.size] = '\0';
    *at = slash + 1;
    return true;
}

static enum cairn_key_kind attempt_kind(const char *rest, uint64_t *ret_number) {
    if (!take_number(&rest, ret_number) || !*ret_number) return CAIRN_KEY_OTHER;
    if (!strcmp(rest, ".json")) return CAIRN_KEY_ATTEMPT;
    return strcmp(rest, ".copy.json") == 0 ? CAIRN_KEY_ATTEMPT_COPY : CAIRN_KEY_OTHER;
}

static enum cairn_key_kind version_kind(const char *rest, uint64_t *ret_number) {
    if (!strcmp(rest, "committed.json")) return CAIRN_KEY_COMMITTED;
    if (!strcmp(rest, "manifest.json")) return CAIRN_KEY_MANIFEST;
    if (!strcmp(rest, "trashed.json")) return CAIRN_KEY_TRASHED;
    if (take_text(&rest, "superseded-") && take_number(&rest, ret_number) && *ret_number &&
        !strcmp(rest, ".json"))
        return CAIRN_KEY_SUPERSEDED;
    return CAIRN_KEY_CONTENT;
}

void cairn_key_read(const char *rest, struct cairn_key_parts *ret) {
    *ret = (struct cairn_key_parts){.kind = CAIRN_KEY_OTHER};
    if (take_text(&rest, "attempts/"))
        ret->kind = attempt_kind(rest, &ret->number);
    else if (take_version(&rest, ret))
        ret->kind = version_kind(rest, &ret->number);
}

bool cairn_key_run(const char *key, struct cairn_run_name *ret, const char **ret_rest) {
    const char *slash = strchr(key, '/'), *end = slash ? strchr(slash + 1, '/') : NULL;
    char text[2 * CAIRN_NAME_BYTES_MAX + 2];
    if (!end || (size_t)(end - key) >= sizeof(text)) return false;
    memcpy(text, key, (size_t)(end - key));
    text[end - key] = '\0';
    *ret_rest = end + 1;
    return cairn_run_name_parse(text, ret, NULL) == CAIRN_OK;
}

bool cairn_key_is_mark(const char *key) {
    struct cairn_run_name name;
    struct cairn_key_parts parts;
    const char *rest = NULL;
    if (!cairn_key_run(key, &name, &rest)) return false;
    cairn_key_read(rest, &parts);
    return parts.kind == CAIRN_KEY_TRASHED || parts.kind == CAIRN_KEY_SUPERSEDED;
}
