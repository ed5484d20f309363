/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding a committed version with store credentials alone: attempt records say what a resume
 * superseded, committed.json records say what is committed.
 */
#include <stdlib.h>

#include "cli/source.h"
#include "common/text.h"

#define VERSIONS_MAX 1000000

struct found {
    struct cairn_record record;
    bool superseded;
};
struct catalog {
    struct found *items;
    size_t count, capacity;
};

static enum cairn_code load(struct cairn_store_worker *worker, const char *key, size_t limit,
                            struct cairn_buf *ret, struct cairn_error *err) {
    ret->limit = limit;
    cairn_buf_clear(ret);
    enum cairn_code code = cairn_store_get_small(worker, key, ret, err);
    return code == CAIRN_OK ? code : cairn_within(err, code, "%s", key);
}

static enum cairn_code keep(struct catalog *catalog, const struct cairn_record *record,
                            struct cairn_error *err) {
    if (catalog->count == VERSIONS_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "more than %d versions in one run", VERSIONS_MAX);
    if (catalog->count == catalog->capacity) {
        size_t capacity = catalog->capacity ? 2 * catalog->capacity : 64;
        struct found *items = realloc(catalog->items, capacity * sizeof *items);
        if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of versions");
        catalog->items = items;
        catalog->capacity = capacity;
    }
    catalog->items[catalog->count++] = (struct found){.record = *record};
    return CAIRN_OK;
}

static bool ends_with(const char *text, const char *end) {
    size_t text_bytes = strlen(text), end_bytes = strlen(end);
    return text_bytes >= end_bytes && !strcmp(text + text_bytes - end_bytes, end);
}

static enum cairn_code take_record(struct cairn_store_worker *worker, const char *key,
                                   struct catalog *catalog, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    struct cairn_record record;
    CAIRN_TRY(load(worker, key, CAIRN_MIB, &text, err));
    enum cairn_code code = cairn_record_decode(cairn_buf_view(&text), &record, err);
    if (code != CAIRN_OK) return cairn_within(err, CAIRN_CORRUPT, "%s", key);
    return keep(catalog, &record, err);
}

static void mark(struct catalog *catalog, const struct cairn_version_id *id, bool superseded) {
    for (size_t i = 0; i < catalog->count; i++)
        if (!strcmp(catalog->items[i].record.id.text, id->text))
            catalog->items[i].superseded = superseded;
}

/* Attempt records in the order of their numbers: each supersedes, and revives what it resumes. */
static enum cairn_code take_attempt(struct cairn_store_worker *worker, const char *key,
                                    struct catalog *catalog, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_AUTO(attempt_record) record = {0};
    CAIRN_TRY(load(worker, key, 16 * CAIRN_MIB, &text, err));
    enum cairn_code code = cairn_attempt_record_decode(cairn_buf_view(&text), &record, err);
    if (code != CAIRN_OK) return cairn_within(err, CAIRN_CORRUPT, "%s", key);
    for (size_t i = 0; i < record.superseded_count; i++) mark(catalog, &record.superseded[i], true);
    if (record.has_resume) mark(catalog, &record.resume_version, false);
    return CAIRN_OK;
}

/* Calls take for every key under prefix that ends in suffix, in the order of the keys. */
static enum cairn_code each(struct cairn_store_worker *worker, const char *prefix,
                            const char *suffix, struct catalog *catalog,
                            enum cairn_code (*take)(struct cairn_store_worker *, const char *,
                                                    struct catalog *, struct cairn_error *),
                            struct cairn_error *err) {
    CAIRN_AUTO_HEAP char *page = NULL;
    do {
        CAIRN_AUTO(store_listing) listing = {0};
        struct cairn_store_request request = {
            .op = CAIRN_STORE_LIST, .key = prefix, .page = page, .listing = &listing};
        CAIRN_TRY(cairn_store_perform(worker, &request, err));
        for (size_t i = 0; i < listing.count; i++)
            if (ends_with(listing.entries[i].key, suffix))
                CAIRN_TRY(take(worker, listing.entries[i].key, catalog, err));
        free(page);
        page = CAIRN_TAKE(listing.next_page);
    } while (page);
    return CAIRN_OK;
}

static bool newer(const struct cairn_record *a, const struct cairn_record *b) {
    if (a->attempt != b->attempt) return a->attempt > b->attempt;
    return a->step != b->step ? a->step > b->step : a->n > b->n;
}

static const struct found *choose(const struct catalog *catalog, const char *version) {
    const struct found *best = NULL;
    uint64_t step = 0;
    bool by_step = cairn_parse_u64(cairn_view_of(version), &step, NULL) == CAIRN_OK;
    bool latest = !strcmp(version, "latest");
    for (size_t i = 0; i < catalog->count; i++) {
        const struct found *item = &catalog->items[i];
        if (!latest && !by_step && !strcmp(item->record.id.text, version)) return item;
        if (item->superseded || (by_step && item->record.step != step) || (!latest && !by_step))
            continue;
        if (!best || newer(&item->record, &best->record)) best = item;
    }
    return best;
}

static enum cairn_code load_version(struct cairn_cli_source *source,
                                    struct cairn_store_worker *worker,
                                    const struct cairn_record *record, struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) manifest = {0};
    source->place =
        (struct cairn_version_place){.name = source->name, .step = record->step, .id = record->id};
    cairn_key_manifest(&source->place, &key);
    CAIRN_TRY(load(worker, key.text, CAIRN_MANIFEST_BYTES_MAX, &manifest, err));
    CAIRN_TRY(
        cairn_cli_source_check(source, cairn_buf_view(&manifest), record->manifest_sha256, err));
    if (strcmp(source->manifest.id.text, record->id.text))
        return cairn_fail(err, CAIRN_CORRUPT, "the manifest is of %s, not of %s",
                          source->manifest.id.text, record->id.text);
    cairn_key_checksums(&source->place, &key);
    CAIRN_TRY(load(worker, key.text, CAIRN_GIB, &source->checksums, err));
    if (!source->manifest.has_layout) return CAIRN_OK;
    cairn_key_layout(&source->name, source->manifest.layout_digest, &source->manifest.layout_writer,
                     &key);
    return load(worker, key.text, CAIRN_LAYOUT_BYTES_MAX, &source->layout_bytes, err);
}

enum cairn_code cairn_cli_source_find(struct cairn_cli_source *source,
                                      const struct cairn_cli_ref *ref, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_AUTO(buf) prefix = {0};
    struct catalog catalog = {0};
    CAIRN_TRY(cairn_store_worker_new(source->store, &worker, err));
    CAIRN_TRY(cairn_buf_printf(&prefix, err, "%s/%s/", ref->name.project, ref->name.run));
    enum cairn_code code = each(worker, prefix.data, "/committed.json", &catalog, take_record, err);
    if (code == CAIRN_OK) code = cairn_buf_append_text(&prefix, "attempts/", err);
    if (code == CAIRN_OK) code = each(worker, prefix.data, ".json", &catalog, take_attempt, err);
    const struct found *found = code == CAIRN_OK ? choose(&catalog, ref->version) : NULL;
    if (code == CAIRN_OK && !found)
        code = cairn_fail(err, CAIRN_NOT_FOUND, "no committed version in %s (%zu others)",
                          cairn_store_url(source->store), catalog.count);
    if (code == CAIRN_OK) code = load_version(source, worker, &found->record, err);
    free(catalog.items);
    return code;
}
