/* SPDX-License-Identifier: Apache-2.0 */
/* history: opens --store, replays a run's attempts from the store, and makes the server's JSON of
 * what it finds. */
#include "cli/bucket/bucket.h"

#include <stdio.h>
#include <stdlib.h>

#include "api/documents/committed.h"
#include "api/documents/digest.h"
#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "cli/shell/output.h"
#include "common/buf.h"
#include "common/text.h"
#include "store/open.h"
#include "store/s3/start.h"
#include "store/whole.h"

enum cairn_code cli_store_open_url(const struct cli *cli, const char *url, bool writes,
                                   struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_store_s3_environment said;
    CAIRN_TRY(cairn_store_s3_environment_load(&said, err));
    uint32_t deadline_ms = (uint32_t)cairn_min_u64(cli->timeout_ms, UINT32_MAX);
    if (deadline_ms) said.choice.options.deadline_ms = deadline_ms;
    struct cairn_store_options options = {
        .url = url, .read_only = !writes, .s3 = &said.choice.options};
    enum cairn_code code = cairn_store_open(&options, ret, err);
    cairn_store_s3_environment_release(&said);
    return code;
}

/* A store of a later release may define `latest` differently, so it is refused. */
static enum cairn_code check_number(struct cairn_store *store, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct cairn_store_record record;
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, &why);
    bool newer = code == CAIRN_UNSUPPORTED;
    bool away = code == CAIRN_TIMEOUT || code == CAIRN_UNAVAILABLE;
    if (!newer && !away) return CAIRN_OK; /* a missing or damaged store.json does no harm */
    if (err) *err = why;
    if (away) return code; /* further requests would wait as long */
    return cairn_within(err, code, "the store was written by a newer release; read it with that");
}

enum cairn_code cli_store_open(const struct cli *cli, struct cairn_store **ret,
                               struct cairn_error *err) {
    struct cairn_store *store = NULL;
    CAIRN_TRY(cli_store_open_url(cli, cli->store, false, &store, err));
    enum cairn_code code = check_number(store, err);
    if (code)
        cairn_store_free(store);
    else
        *ret = store;
    return code;
}

enum cairn_code cli_store_check(struct cairn_store_worker *worker, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
    enum cairn_code code = cairn_store_perform(worker, &head, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "the store has no .cairn/store.json: is it mounted, and its path right?");
    return code;
}

#define ITEMS_MAX 1000000

struct version {
    struct cairn_version_id id;
    uint64_t step, superseded_by; /* superseded_by: newest attempt whose mark supersedes it */
    uint64_t shard_bytes;
    bool has_record, has_manifest, has_content, trashed, superseded;
    bool loaded, damaged; /* loaded: committed.json was read; damaged: it is invalid */
    bool newer;           /* of a newer release: only the id is known */
    bool order_known;
    uint64_t changed_by; /* newest attempt that superseded or revived it */
    struct cairn_record record;
};
struct attempt {
    uint64_t number;
    bool has_record, has_copy, readable;
    struct cairn_attempt_record record;
};
struct history {
    struct cairn_store_worker *worker;
    const struct cairn_run_name *name;
    struct version *versions; /* sorted by id */
    size_t version_count, version_capacity;
    struct attempt *attempts; /* sorted by number */
    size_t attempt_count, attempt_capacity;
    uint64_t lost_count, lost_newest; /* attempts without a readable record */
    struct cairn_error newer;         /* error of the first record of a newer release */
    bool by_order;                    /* looking for the newest, not for a version id */
    bool damaged_too;
};

static void release(struct history *history) {
    for (size_t i = 0; i < history->attempt_count; i++)
        cairn_attempt_record_release(&history->attempts[i].record);
    free(history->attempts);
    free(history->versions);
}

static enum cairn_code load(struct cairn_store_worker *worker, const char *key, size_t limit,
                            struct cairn_buf *ret, struct cairn_error *err) {
    ret->limit = limit;
    enum cairn_code code = cairn_store_get_small(worker, key, ret, err);
    if (code == CAIRN_TOO_LARGE) return cairn_fail(err, CAIRN_CORRUPT, "%s is far too large", key);
    return cairn_within(err, code, "%s", key);
}

/* ---- listing ---- */

/* Keys are sorted: a version's keys are adjacent, and so are a record and its copy. */
static enum cairn_code take_version(struct history *history, const struct cairn_key_parts *parts,
                                    const struct cairn_store_entry *entry,
                                    struct cairn_error *err) {
    struct version *last =
        history->version_count ? &history->versions[history->version_count - 1] : NULL;
    if (!last || strcmp(last->id.text, parts->id.text)) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(history->versions, history->version_count,
                                   history->version_capacity, ITEMS_MAX, "versions of a run", err));
        last = &history->versions[history->version_count++];
        *last = (struct version){.id = parts->id, .step = parts->step};
    }
    last->has_record |= parts->kind == CAIRN_KEY_COMMITTED;
    last->has_manifest |= parts->kind == CAIRN_KEY_MANIFEST;
    last->trashed |= parts->kind == CAIRN_KEY_TRASHED;
    last->has_content |= parts->kind == CAIRN_KEY_CONTENT;
    if (parts->kind == CAIRN_KEY_CONTENT && strstr(entry->key, "/data/"))
        last->shard_bytes += entry->size_bytes;
    if (parts->kind == CAIRN_KEY_SUPERSEDED)
        last->superseded_by = cairn_max_u64(last->superseded_by, parts->number);
    return CAIRN_OK;
}

static enum cairn_code take_attempt(struct history *history, const struct cairn_key_parts *parts,
                                    struct cairn_error *err) {
    struct attempt *last =
        history->attempt_count ? &history->attempts[history->attempt_count - 1] : NULL;
    if (!last || last->number != parts->number) {
        CAIRN_TRY(CAIRN_ARRAY_ROOM(history->attempts, history->attempt_count,
                                   history->attempt_capacity, ITEMS_MAX, "attempts of a run", err));
        last = &history->attempts[history->attempt_count++];
        *last = (struct attempt){.number = parts->number};
    }
    last->has_record |= parts->kind == CAIRN_KEY_ATTEMPT;
    last->has_copy |= parts->kind == CAIRN_KEY_ATTEMPT_COPY;
    return CAIRN_OK;
}

static enum cairn_code list(struct history *history, struct cairn_error *err) {
    CAIRN_AUTO(buf) prefix = {0};
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST}};
    CAIRN_TRY(cairn_buf_printf(&prefix, err, "%s/%s/", history->name->project, history->name->run));
    pages.list.key = prefix.data;
    while (!pages.ended) {
        CAIRN_TRY(cairn_store_pages_next(&pages, history->worker, err));
        for (size_t i = 0; i < pages.listing.count; i++) {
            const struct cairn_store_entry *entry = &pages.listing.entries[i];
            struct cairn_key_parts parts;
            cairn_key_read(entry->key + prefix.size, &parts);
            if (parts.kind >= CAIRN_KEY_COMMITTED)
                CAIRN_TRY(take_version(history, &parts, entry, err));
            else if (parts.kind != CAIRN_KEY_OTHER)
                CAIRN_TRY(take_attempt(history, &parts, err));
        }
    }
    return CAIRN_OK;
}

/* ---- attempts ---- */

/* CAIRN_NOT_FOUND or CAIRN_CORRUPT: no valid record at this key. */
static enum cairn_code read_attempt(struct history *history, struct attempt *attempt,
                                    const struct cairn_key *key, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_TRY(load(history->worker, key->text, CAIRN_MANIFEST_BYTES_MAX, &text, err));
    enum cairn_code code = cairn_attempt_record_prove(cairn_buf_view(&text), history->name,
                                                      attempt->number, &attempt->record, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", key->text);
    attempt->readable = true;
    return CAIRN_OK;
}

static bool is_lost(enum cairn_code code) {
    return code == CAIRN_NOT_FOUND || code == CAIRN_CORRUPT;
}

static enum cairn_code load_attempts(struct history *history, struct cairn_error *err) {
    for (size_t i = 0; i < history->attempt_count; i++) {
        struct attempt *attempt = &history->attempts[i];
        struct cairn_error why = {0};
        struct cairn_key key, copy;
        cairn_key_attempt(history->name, attempt->number, &key);
        cairn_key_attempt_copy(history->name, attempt->number, &copy);
        enum cairn_code code = CAIRN_NOT_FOUND;
        if (attempt->has_record) code = read_attempt(history, attempt, &key, &why);
        if (is_lost(code) && attempt->has_copy) {
            code = read_attempt(history, attempt, &copy, &why);
            if (code == CAIRN_OK)
                fprintf(stderr, "note: %s is missing or damaged; its copy was read\n", key.text);
        }
        if (code == CAIRN_UNSUPPORTED && !history->newer.code) history->newer = why;
        if (code == CAIRN_OK || code == CAIRN_UNSUPPORTED || is_lost(code)) continue;
        return cairn_pass(err, code, &why);
    }
    return CAIRN_OK;
}

static struct attempt *find_attempt(const struct history *history, uint64_t number) {
    size_t low = 0, high = history->attempt_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (history->attempts[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < history->attempt_count && history->attempts[low].number == number;
    return found ? &history->attempts[low] : NULL;
}

/* ---- versions ---- */

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct version *)a)->id.text, ((const struct version *)b)->id.text);
}

static struct version *find_version(const struct history *history,
                                    const struct cairn_version_id *id) {
    struct version wanted = {.id = *id};
    if (!history->version_count) return NULL;
    return bsearch(&wanted, history->versions, history->version_count, sizeof wanted, by_id);
}

static void set_superseded(const struct history *history, const struct cairn_version_id *id,
                           bool superseded, uint64_t by) {
    struct version *version = find_version(history, id);
    if (!version) return;
    version->superseded = superseded;
    version->changed_by = by;
}

/* In order of numbers, each attempt supersedes versions and revives the one it resumes from; then
 * its saves' marks supersede others. */
static void replay(struct history *history) {
    for (size_t i = 0; i < history->attempt_count; i++) {
        const struct cairn_attempt_record *record = &history->attempts[i].record;
        for (size_t j = 0; j < record->superseded_count; j++)
            set_superseded(history, &record->superseded[j], true, record->attempt);
        if (record->has_resume)
            set_superseded(history, &record->resume_version, false, record->attempt);
    }
    for (size_t i = 0; i < history->version_count; i++) {
        struct version *version = &history->versions[i];
        if (version->superseded_by && version->superseded_by >= version->changed_by)
            version->superseded = true;
    }
}

/* Reads the inputs of the version id's hash from the manifest; the id proves them. */
static bool origin_of(const struct history *history, const struct version *version,
                      struct cairn_version_origin *ret) {
    CAIRN_AUTO(buf) text = {0};
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_error unused = {0};
    struct cairn_version_place place = {*history->name, version->step, version->id};
    struct cairn_key key;
    cairn_key_manifest(&place, &key);
    if (load(history->worker, key.text, CAIRN_MANIFEST_BYTES_MAX, &text, &unused) ||
        cairn_manifest_prove(cairn_buf_view(&text), &place, &manifest, &unused))
        return false;
    *ret = manifest.origin;
    return true;
}

/* committed.json has no checksum, but its numbers must hash to the id, with the nonce of the
 * attempt's record or, if that is lost, of the manifest. */
static bool order_proven(const struct history *history, const struct version *version) {
    const struct attempt *attempt = find_attempt(history, version->record.attempt);
    struct cairn_version_origin origin = {.name = *history->name,
                                          .attempt = version->record.attempt,
                                          .step = version->step,
                                          .n = version->record.n};
    struct cairn_version_id id;
    if (!attempt || !attempt->readable)
        return origin_of(history, version, &origin) && origin.attempt == version->record.attempt &&
               origin.n == version->record.n;
    cairn_text_copy(origin.nonce, sizeof origin.nonce, attempt->record.nonce);
    cairn_version_id_make(&origin, &id);
    return strcmp(id.text, version->id.text) == 0;
}

/* The manifest repeats the numbers of a damaged record. */
static void order_from_manifest(const struct history *history, struct version *version) {
    struct cairn_version_origin origin;
    if (!origin_of(history, version, &origin)) return;
    version->record = (struct cairn_record){
        .id = version->id, .attempt = origin.attempt, .step = origin.step, .n = origin.n};
    version->order_known = true;
}

/* CAIRN_CORRUPT: the object is no record of this version. */
static enum cairn_code read_record(const struct history *history, struct version *version,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    struct cairn_version_place place = {*history->name, version->step, version->id};
    struct cairn_key key;
    cairn_key_committed(&place, &key);
    CAIRN_TRY(load(history->worker, key.text, CAIRN_MIB, &text, err));
    enum cairn_code code = cairn_record_prove(cairn_buf_view(&text), &place, &version->record, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", key.text);
    if (history->by_order && !order_proven(history, version))
        return cairn_fail(err, CAIRN_CORRUPT, "%s is of another version", key.text);
    return CAIRN_OK;
}

static enum cairn_code load_version(const struct history *history, struct version *version,
                                    struct cairn_error *err) {
    struct cairn_error why = {0};
    version->loaded = true;
    enum cairn_code code = read_record(history, version, &why);
    version->order_known = code == CAIRN_OK;
    version->damaged = code == CAIRN_CORRUPT;
    version->newer = code == CAIRN_UNSUPPORTED;
    if (code == CAIRN_NOT_FOUND) version->has_record = false; /* deleted meanwhile */
    if (code == CAIRN_CORRUPT) order_from_manifest(history, version);
    if (code == CAIRN_OK || version->newer || is_lost(code)) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

/* ---- choosing the version ---- */

/* A record without manifest and content is the rest of a deletion. */
static bool is_committed(const struct version *version) {
    return version->has_record && (version->has_manifest || version->has_content);
}

/* Q25. A damaged record's line is unknown; its attempt stands in for it. */
static uint64_t line_of(const struct cairn_record *record) {
    return record->line ? record->line : record->attempt;
}

static bool newer(const struct version *a, const struct version *b) {
    if (a->order_known != b->order_known) return !a->order_known; /* it may be the newest */
    uint64_t of_a = line_of(&a->record), of_b = line_of(&b->record);
    if (of_a != of_b) return of_a > of_b;
    if (a->step != b->step) return a->step > b->step;
    if (a->record.attempt != b->record.attempt) return a->record.attempt > b->record.attempt;
    return a->record.n > b->record.n;
}

static enum cairn_code choose(struct history *history, bool by_step, uint64_t step,
                              struct version **ret, struct cairn_error *err) {
    for (size_t i = 0; i < history->version_count; i++) {
        struct version *version = &history->versions[i];
        if (!is_committed(version) || (by_step && version->step != step)) continue;
        CAIRN_TRY(load_version(history, version, err));
        if (!version->has_record || version->superseded || version->trashed) continue;
        if (!*ret || newer(version, *ret)) *ret = version;
    }
    return CAIRN_OK;
}

/* Attempt numbers start at 1 without gaps, so lost records are counted up to the newest number
 * seen. */
static void count_lost(struct history *history) {
    uint64_t newest = 0, readable = 0;
    for (size_t i = 0; i < history->version_count; i++) {
        const struct version *version = &history->versions[i];
        newest = cairn_max_u64(newest, version->superseded_by);
        if (version->order_known) newest = cairn_max_u64(newest, version->record.attempt);
    }
    for (size_t i = 0; i < history->attempt_count; i++) {
        newest = cairn_max_u64(newest, history->attempts[i].number);
        readable += history->attempts[i].readable;
    }
    history->lost_count = newest - cairn_min_u64(readable, newest);
    for (history->lost_newest = history->lost_count ? newest : 0; history->lost_newest;
         history->lost_newest--) {
        const struct attempt *attempt = find_attempt(history, history->lost_newest);
        if (!attempt || !attempt->readable) break;
    }
}

/* An attempt supersedes and revives versions of older attempts only. */
static void note_lost_attempts(const struct history *history, const struct version *chosen) {
    if (!history->lost_count || history->newer.code) return;
    bool certain = chosen && chosen->order_known && chosen->record.attempt >= history->lost_newest;
    fprintf(stderr, "%s: %s/%s lacks the records of %s, the newest of them %llu; ",
            certain ? "note" : "warning", history->name->project, history->name->run,
            cairn_counted(history->lost_count, "attempt").text,
            (unsigned long long)history->lost_newest);
    if (certain)
        fputs("that changes nothing here\n", stderr);
    else if (chosen)
        fprintf(stderr,
                "what it superseded is not known, so step %llu (%s) may not count any more: name "
                "the version to be sure\n",
                (unsigned long long)chosen->step, chosen->id.text);
    else
        fputs("what it revived is not known: name a version to get it all the same\n", stderr);
}

static enum cairn_code fail_not_found(struct history *history, const char *asked,
                                      struct cairn_error *err) {
    CAIRN_TRY(cli_store_check(history->worker, err));
    if (!*asked)
        return cairn_fail(err, CAIRN_NOT_FOUND, "the store has no run %s/%s",
                          history->name->project, history->name->run);
    return cairn_fail(err, CAIRN_NOT_FOUND, "no committed version %s in the store (%zu %s)", asked,
                      history->version_count, history->version_count == 1 ? "other" : "others");
}

/* Returns the version's place, or the error that names its damaged documents. */
static enum cairn_code give_place(struct history *history, struct version *version,
                                  struct cairn_version_place *ret, struct cairn_error *err) {
    *ret = (struct cairn_version_place){*history->name, version->step, version->id};
    if (history->damaged_too) return CAIRN_OK;
    struct cairn_error why = {0};
    enum cairn_code code = read_record(history, version, &why);
    if (code == CAIRN_CORRUPT && version->damaged && !version->order_known)
        return cairn_fail(err, code, "%s; it may be the newest: name another version to get that",
                          why.message);
    if (code == CAIRN_UNSUPPORTED && version->newer)
        return cairn_fail(err, code, "%s; it may be the newest, name another version to get that",
                          why.message);
    if (code && err) *err = why;
    if (code == CAIRN_NOT_FOUND)
        return cairn_within(err, CAIRN_NOT_COMMITTED, "%s is being deleted", version->id.text);
    CAIRN_TRY(code);
    if (!version->has_manifest)
        return cairn_fail(err, CAIRN_CORRUPT, "step %llu (%s): manifest.json is missing",
                          (unsigned long long)version->step, version->id.text);
    return CAIRN_OK;
}

static enum cairn_code by_name(struct history *history, const char *text,
                               struct cairn_version_place *ret, struct cairn_error *err) {
    struct cairn_version_id id;
    cairn_text_copy(id.text, sizeof id.text, text);
    struct version *version = find_version(history, &id);
    bool wanted = version && (is_committed(version) || history->damaged_too);
    if (wanted) return give_place(history, version, ret, err);
    if (version && version->has_manifest)
        return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s has no committed.json", text);
    return fail_not_found(history, text, err);
}

static enum cairn_code list_versions_by_id(struct history *history, struct cairn_error *err) {
    CAIRN_TRY(list(history, err));
    if (history->version_count)
        qsort(history->versions, history->version_count, sizeof *history->versions, by_id);
    return CAIRN_OK;
}

enum cairn_code cli_history_find(struct cairn_store_worker *worker, const struct cli_ref *ref,
                                 bool damaged_too, struct cairn_version_place *ret,
                                 struct cairn_error *err) {
    CAIRN_RELEASED(release)
    struct history history = {.worker = worker, .name = &ref->name, .damaged_too = damaged_too};
    uint64_t step = 0;
    struct version *chosen = NULL;
    CAIRN_TRY(list_versions_by_id(&history, err));
    if (cairn_version_id_valid(cairn_view_of(ref->version)))
        return by_name(&history, ref->version, ret, err);
    bool by_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    if (!by_step && *ref->version && strcmp(ref->version, "latest") != 0)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "what \"%s\" means is in the server's catalog, and this is its store: "
                          "name a step, an id or latest",
                          ref->version);
    history.by_order = true;
    CAIRN_TRY(load_attempts(&history, err));
    replay(&history);
    CAIRN_TRY(choose(&history, by_step, step, &chosen, err));
    count_lost(&history);
    note_lost_attempts(&history, chosen);
    if (history.newer.code && !history.damaged_too) /* it may have superseded the answer */
        return cairn_pass(err, history.newer.code, &history.newer);
    return chosen ? give_place(&history, chosen, ret, err)
                  : fail_not_found(&history, ref->version, err);
}

/* ---- listing all versions ---- */

/* A committed version in a run's history. */
struct history_item {
    struct cairn_version_place place;
    struct cairn_record record; /* partly known if damaged */
    uint64_t bytes;             /* sum of its shards' listed sizes */
    bool latest, superseded, trashed;
    bool damaged; /* committed.json is damaged */
    bool newer;   /* committed.json is of a newer release */
};

static int newest_first(const void *a, const void *b) {
    const struct history_item *x = a, *y = b;
    if (x->record.attempt != y->record.attempt)
        return x->record.attempt > y->record.attempt ? -1 : 1;
    if (x->place.step != y->place.step) return x->place.step > y->place.step ? -1 : 1;
    return x->record.n > y->record.n ? -1 : x->record.n < y->record.n;
}

static enum cairn_code list_history(struct cairn_store_worker *worker,
                                    const struct cairn_run_name *name, struct history_item **ret,
                                    size_t *ret_count, uint64_t *ret_attempt,
                                    struct cairn_error *err) {
    CAIRN_RELEASED(release) struct history history = {.worker = worker, .name = name};
    struct version *latest = NULL;
    history.by_order = true;
    CAIRN_TRY(list_versions_by_id(&history, err));
    if (!history.version_count && !history.attempt_count) return fail_not_found(&history, "", err);
    CAIRN_TRY(load_attempts(&history, err));
    replay(&history);
    CAIRN_TRY(choose(&history, false, 0, &latest, err));
    count_lost(&history);
    note_lost_attempts(&history, latest);
    if (history.newer.code) {
        fprintf(stderr, "warning: what counts of %s/%s is not known: %s\n", history.name->project,
                history.name->run, history.newer.message);
        latest = NULL;
    }
    struct history_item *items = calloc(history.version_count + 1, sizeof *items);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of versions");
    *ret_count = 0;
    for (size_t i = 0; i < history.version_count; i++) {
        const struct version *version = &history.versions[i];
        if (!is_committed(version)) continue;
        items[(*ret_count)++] =
            (struct history_item){.place = {*history.name, version->step, version->id},
                                  .record = version->record,
                                  .bytes = version->shard_bytes,
                                  .latest = version == latest,
                                  .superseded = version->superseded,
                                  .trashed = version->trashed,
                                  .damaged = version->damaged,
                                  .newer = version->newer};
    }
    if (*ret_count) qsort(items, *ret_count, sizeof *items, newest_first);
    *ret = items;
    *ret_attempt = history.attempt_count ? history.attempts[history.attempt_count - 1].number : 0;
    return CAIRN_OK;
}

/* ---- the server's JSON ---- */

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
static json_t *version_json(const struct history_item *item, const struct cairn_committed *version,
                            const struct cairn_error *why) {
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

static enum cairn_code add_version(struct cairn_store_worker *worker,
                                   const struct history_item *item, json_t *items,
                                   struct cairn_error *err) {
    CAIRN_AUTO(committed) version = {.place = item->place};
    struct cairn_document_source source = cairn_store_documents(worker, NULL);
    struct cairn_error why = {0};
    enum cairn_code code = cairn_committed_load(
        &version, &source, CAIRN_DOCUMENT_BIT(RECORD) | CAIRN_DOCUMENT_BIT(MANIFEST), &why);
    if (code && !(code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED || code == CAIRN_NOT_FOUND))
        return cairn_pass(err, code, &why);
    return cli_list_add(items, version_json(item, &version, &why), err);
}

enum cairn_code cli_stored_versions(const struct cli *cli, const struct cairn_run_name *name,
                                    uint64_t limit, json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_AUTO_HEAP struct history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0;
    CAIRN_TRY(cli_store_open(cli, &store, err));
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_TRY(list_history(worker, name, &found, &count, &attempt, err));
    for (size_t i = 0; i < count && json_array_size(items) < limit; i++)
        CAIRN_TRY(add_version(worker, &found[i], items, err));
    return CAIRN_OK;
}

size_t cli_opaque_count(const json_t *shards) {
    size_t count = 0;
    CAIRN_JSON_EACH(item, shards) {
        struct cairn_msg_shard_row row = {0};
        if (cairn_msg_shard_row_read(item, "", &row, NULL)) continue;
        count += row.content && !strcmp(row.content, "opaque");
    }
    return count;
}

void cli_stored_release(struct cli_stored *stored) {
    json_decref(stored->version);
    json_decref(stored->shards);
    json_decref(stored->tensors);
    *stored = (struct cli_stored){0};
}

enum cairn_code cli_stored_version(const struct cli *cli, const struct cli_ref *ref,
                                   struct cli_stored *ret, struct cairn_error *err) {
    CAIRN_RELEASED(cli_source_release) struct cli_source source = {0};
    CAIRN_TRY(cli_source_open(cli, ref, &source, err));
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    struct history_item item;
    CAIRN_TRY(cairn_store_worker_new(source.store, &worker, err));
    /* Finds latest, superseded and trashed in the run's history. */
    CAIRN_AUTO_HEAP struct history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0;
    item = (struct history_item){.place = source.version.place, .record = source.version.record};
    CAIRN_TRY(list_history(worker, &source.version.place.name, &found, &count, &attempt, err));
    for (size_t i = 0; i < count; i++)
        if (!strcmp(found[i].place.id.text, source.version.place.id.text)) item = found[i];
    struct cairn_document_source from = cairn_store_documents(worker, NULL);
    CAIRN_TRY(cairn_committed_load(&source.version, &from, CAIRN_DOCUMENT_BIT(LAYOUT), err));
    ret->version = version_json(&item, &source.version, &(struct cairn_error){0});
    if (!ret->version) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
    const struct cairn_manifest *manifest = &source.version.manifest;
    ret->shards = json_array();
    ret->tensors = json_array();
    for (size_t i = 0; i < manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        const char *content = cairn_listing_content(
            manifest->has_layout ? &source.version.layout : NULL, shard->rank, shard->name);
        json_t *row = cairn_listing_shard(shard->name, shard->rank, shard->size_bytes,
                                          &shard->crc32c, "committed", content);
        CAIRN_TRY(cli_list_add(ret->shards, row, err));
    }
    for (uint32_t i = 0; i < source.version.layout.name_count; i++)
        CAIRN_TRY(cli_list_add(ret->tensors, cairn_listing_tensor(&source.version.layout, i), err));
    return CAIRN_OK;
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

static enum cairn_code add_run(struct cairn_store_worker *worker, const struct cairn_run_name *name,
                               json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct history_item *found = NULL;
    size_t count = 0;
    uint64_t attempt = 0, bytes = 0;
    CAIRN_TRY(list_history(worker, name, &found, &count, &attempt, err));
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
    return cli_list_add(items, item, err);
}

static enum cairn_code list_runs(struct cairn_store *store, struct names *names, uint64_t limit,
                                 json_t *items, struct cairn_error *err) {
    CAIRN_AUTO_PTR(store_worker) worker = NULL;
    CAIRN_TRY(cairn_store_worker_new(store, &worker, err));
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = ""}};
    while (!pages.ended) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count; i++)
            CAIRN_TRY(take_key(names, pages.listing.entries[i].key, err));
    }
    if (!names->count) return cli_store_check(worker, err);
    for (size_t i = 0; i < names->count && json_array_size(items) < limit; i++)
        CAIRN_TRY(add_run(worker, &names->items[i], items, err));
    return CAIRN_OK;
}

enum cairn_code cli_stored_runs(const struct cli *cli, uint64_t limit, json_t *items,
                                struct cairn_error *err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    struct names names = {0};
    CAIRN_TRY(cli_store_open(cli, &store, err));
    enum cairn_code code = list_runs(store, &names, limit, items, err);
    free(names.items);
    return code;
}
