/* SPDX-License-Identifier: Apache-2.0 */
/* stored: the server's JSON, made from a store. */
#include "cli/bucket/bucket.h"

#include <stdlib.h>

#include "api/documents/committed.h"
#include "api/wire/messages.h"
#include "common/buf.h"
#include "common/text.h"
#include "store/whole.h"

#define RUNS_MAX 100000

static json_t *hex_or_null(bool there, const uint8_t digest[32]) {
    char hex[65];
    if (!there) return json_null();
    cairn_hex_encode(digest, 32, hex);
    return json_string(hex);
}

static json_t *parsed(const char *text) {
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    return json ? json : json_object();
}

/* why: the damage of its documents; CAIRN_OK: none. */
static json_t *version_json(const struct cairn_cli_history_item *item,
                            const struct cairn_committed *version, const struct cairn_error *why) {
    const struct cairn_manifest *manifest = &version->manifest;
    bool damaged = why->code != CAIRN_OK, newer = why->code == CAIRN_UNSUPPORTED;
    enum cairn_code code = newer ? CAIRN_UNSUPPORTED : CAIRN_CORRUPT;
    json_t *json = json_object();
    bool failed = !json;
    uint64_t line = item->record.line ? item->record.line : item->record.attempt;
    struct {
        const char *name;
        json_t *value;
    } members[] = {
        {"version", json_string(item->place.id.text)},
        {"project", json_string(item->place.name.project)},
        {"run", json_string(item->place.name.run)},
        {"step", json_integer((json_int_t)item->place.step)},
        {"n", json_integer(item->record.n)},
        {"line", json_integer((json_int_t)line)},
        {"attempt", json_integer((json_int_t)item->record.attempt)},
        {"state", json_string(newer     ? "unsupported"
                              : damaged ? "damaged"
                                        : "committed")},
        {"recorded", json_boolean(!item->damaged && !item->newer)},
        {"superseded", json_boolean(item->superseded)},
        {"trashed", json_boolean(item->trashed)},
        {"latest", json_boolean(item->latest)},
        {"aliases", json_array()}, /* in the catalog only */
        {"world_size", json_integer(manifest->world_size)},
        {"format", json_string(manifest->format_tag ? manifest->format_tag : "")},
        {"labels", parsed(manifest->labels_json)},
        {"meta", parsed(manifest->meta_json)},
        {"metrics", json_object()}, /* this and the next two: in the catalog only */
        {"note", json_null()},
        {"pinned", json_false()},
        {"bytes", json_integer((json_int_t)(damaged ? item->bytes : manifest->total_bytes))},
        {"shards", json_integer((json_int_t)manifest->shard_count)},
        {"shards_registered", json_integer((json_int_t)manifest->shard_count)},
        {"ranks_sealed", json_integer(manifest->world_size)},
        {"layout", hex_or_null(manifest->has_layout, manifest->layout_digest)},
        {"created_at", json_null()},
        {"staged_at", json_null()}, /* this and the next two: in the catalog only */
        {"durable_at", json_null()},
        {"stall_ms", json_null()},
        {"committed_at",
         item->record.committed_at[0] ? json_string(item->record.committed_at) : json_null()},
        {"reason", damaged ? json_string(why->message) : json_null()},
        {"code", damaged ? json_string(cairn_code_info(code)->slug) : json_null()},
        {"http_status", json_null()},
        {"request_id", json_null()},
        {"warnings", json_array()},
        {"manifest_sha256", hex_or_null(version->has_digest, version->manifest_sha256)},
        {"copies", json_array()}, /* in the catalog only */
    };
    for (size_t i = 0; i < CAIRN_COUNT(members); i++)
        failed |= json_object_set_new(json, members[i].name, members[i].value) != 0;
    if (!failed) return json;
    json_decref(json);
    return NULL;
}

/* Errors that list the version as unreadable instead of ending the list. */
static bool is_told(enum cairn_code code) {
    return code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED || code == CAIRN_NOT_FOUND;
}

static enum cairn_code add_version(struct cairn_store_worker *worker,
                                   const struct cairn_cli_history_item *item, json_t *items,
                                   struct cairn_error *err) {
    CAIRN_AUTO(committed) version = {.place = item->place};
    struct cairn_document_source source = cairn_store_documents(worker, NULL);
    struct cairn_error why = {0};
    enum cairn_code code = cairn_committed_load(
        &version, &source, CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST), &why);
    if (code && !is_told(code)) return cairn_cli_pass_on(&why, code, err);
    return cairn_cli_list_add(items, version_json(item, &version, &why), err);
}

enum cairn_code cairn_cli_stored_versions(const struct cairn_cli *cli,
                                          const struct cairn_run_name *name, uint64_t limit,
                                          json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_AUTO_HEAP struct cairn_cli_history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0;
    CAIRN_TRY(cairn_cli_store_open(cli, &store, err));
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_TRY(cairn_cli_history_list(worker, name, &found, &count, &attempt, err));
    for (size_t i = 0; i < count && json_array_size(items) < limit; i++)
        CAIRN_TRY(add_version(worker, &found[i], items, err));
    return CAIRN_OK;
}

size_t cairn_cli_opaque_count(const json_t *shards) {
    size_t count = 0;
    const json_t *item = NULL;
    for (size_t i = 0; (item = json_array_get(shards, i)); i++) {
        struct cairn_msg_shard_row row = {0};
        if (cairn_msg_shard_row_read(item, "", &row, NULL)) continue;
        count += row.content && !strcmp(row.content, "opaque");
    }
    return count;
}

void cairn_cli_stored_release(struct cairn_cli_stored *stored) {
    json_decref(stored->version);
    json_decref(stored->shards);
    json_decref(stored->tensors);
    *stored = (struct cairn_cli_stored){0};
}

static enum cairn_code fill_lists(const struct cairn_committed *version,
                                  struct cairn_cli_stored *stored, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &version->manifest;
    stored->shards = json_array();
    stored->tensors = json_array();
    for (size_t i = 0; i < manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        const char *content = cairn_listing_content(manifest->has_layout ? &version->layout : NULL,
                                                    shard->rank, shard->name);
        json_t *row = cairn_listing_shard(shard->name, shard->rank, shard->size_bytes,
                                          &shard->crc32c, "committed", content);
        CAIRN_TRY(cairn_cli_list_add(stored->shards, row, err));
    }
    for (uint32_t i = 0; i < version->layout.name_count; i++)
        CAIRN_TRY(
            cairn_cli_list_add(stored->tensors, cairn_listing_tensor(&version->layout, i), err));
    return CAIRN_OK;
}

/* Finds latest, superseded and trashed in the run's history. */
static enum cairn_code find_item(struct cairn_store_worker *worker,
                                 const struct cairn_committed *version,
                                 struct cairn_cli_history_item *ret, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_cli_history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0;
    *ret = (struct cairn_cli_history_item){.place = version->place, .record = version->record};
    CAIRN_TRY(cairn_cli_history_list(worker, &version->place.name, &found, &count, &attempt, err));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(found[i].place.id.text, version->place.id.text)) *ret = found[i];
    return CAIRN_OK;
}

static enum cairn_code read_version(struct cairn_cli_source *source, struct cairn_cli_stored *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_cli_history_item item;
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(find_item(worker, &source->version, &item, err));
    struct cairn_document_source from = cairn_store_documents(worker, NULL);
    CAIRN_TRY(cairn_committed_load(&source->version, &from, CAIRN_DOCUMENT_BIT(LAYOUT), err));
    ret->version = version_json(&item, &source->version, &(struct cairn_error){0});
    if (!ret->version) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    return fill_lists(&source->version, ret, err);
}

enum cairn_code cairn_cli_stored_version(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *ref,
                                         struct cairn_cli_stored *ret, struct cairn_error *err) {
    struct cairn_cli_source source;
    CAIRN_TRY(cairn_cli_source_open(cli, ref, &source, err));
    enum cairn_code code = read_version(&source, ret, err);
    cairn_cli_source_release(&source);
    return code;
}

struct names {
    struct cairn_run_name *items;
    size_t count, capacity;
};

/* Keys are sorted, so a run's keys are adjacent. */
static enum cairn_code take_key(struct names *names, const char *key, struct cairn_error *err) {
    char text[2 * CAIRN_NAME_BYTES_MAX + 2];
    struct cairn_run_name name = {0};
    const char *slash = strchr(key, '/'), *end = slash ? strchr(slash + 1, '/') : NULL;
    if (!end || (size_t)(end - key) >= sizeof text) return CAIRN_OK;
    memcpy(text, key, (size_t)(end - key));
    text[end - key] = '\0';
    if (cairn_run_name_parse(text, &name, NULL) != CAIRN_OK)
        return CAIRN_OK; /* .cairn and foreign objects */
    if (names->count && !memcmp(&names->items[names->count - 1], &name, sizeof name))
        return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(names->items, names->count, names->capacity, RUNS_MAX, "runs", err));
    names->items[names->count++] = name;
    return CAIRN_OK;
}

static enum cairn_code list_names(struct cairn_store_worker *worker, struct names *names,
                                  struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request request = {
            .op = CAIRN_STORE_LIST, .key = "", .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &request, err));
        for (size_t i = 0; i < listing.count; i++)
            CAIRN_TRY(take_key(names, listing.entries[i].key, err));
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    return CAIRN_OK;
}

static enum cairn_code add_run(struct cairn_store_worker *worker, const struct cairn_run_name *name,
                               json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_cli_history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0, bytes = 0;
    CAIRN_TRY(cairn_cli_history_list(worker, name, &found, &count, &attempt, err));
    json_t *latest = NULL;
    for (size_t i = 0; i < count; i++) {
        bytes += found[i].bytes;
        if (found[i].latest)
            latest = json_pack("{s:I, s:s}", "step", (json_int_t)found[i].place.step, "version",
                               found[i].place.id.text);
    }
    json_t *item =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:o?, s:n, s:n, s:n, s:n, s:n, s:n}", "project",
                  name->project, "run", name->run, "attempt", (json_int_t)attempt, "committed",
                  (json_int_t)count, "bytes", (json_int_t)bytes, "latest", latest, "labels", "note",
                  "created_at", "nodes_silent_ms", "last_commit_at", "idle_s");
    return cairn_cli_list_add(items, item, err);
}

static enum cairn_code list_runs(struct cairn_store *store, struct names *names, uint64_t limit,
                                 json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_TRY(list_names(worker, names, err));
    if (!names->count) return cairn_cli_store_check(worker, err);
    for (size_t i = 0; i < names->count && json_array_size(items) < limit; i++)
        CAIRN_TRY(add_run(worker, &names->items[i], items, err));
    return CAIRN_OK;
}

enum cairn_code cairn_cli_stored_runs(const struct cairn_cli *cli, uint64_t limit, json_t *items,
                                      struct cairn_error *err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    struct names names = {0};
    CAIRN_TRY(cairn_cli_store_open(cli, &store, err));
    enum cairn_code code = list_runs(store, &names, limit, items, err);
    free(names.items);
    return code;
}
