/* SPDX-License-Identifier: Apache-2.0 */
/* store.json of all stores, the generation, the grant key and the freeze; see identity.h. */
#include "server/guard/identity.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/hooks.h"
#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/ledger/attempts.h"
#include "store/s3/start.h"

#define NUMBERS_TRIED_MAX 16
#define PUTS_MAX 3

struct identity {
    struct srv *server;
    struct srv_store_seen seen;
    char key_digest[SRV_KEY_DIGEST_BYTES];
    bool has_runs, others;
    bool adopted; /* the store was ahead: the other stores are unread, too */
    uint64_t at_least, life;
};

/* ---- freezing ---- */

#define THAW_S_MAX 30 /* a reconcile may end before it is due */

struct row {
    struct srv *server;
    const struct cairn_run_name *name;
    bool made, asked;
    char cause[SRV_CAUSE_BYTES];
};

SRV_CHANGE(put, struct row *row) {
    int64_t wall_ms = srv_wall_ms(row->server);
    SRV_GET(run, run, srv_run_take(tx, row->name, wall_ms, &run, err));
    srv_notify_run(tx, row->name);
    return srv_frozen_put(tx, run.id, row->cause, wall_ms,
                          row->asked || row->server->settings->adopt_store, &row->made, err);
}

static enum cairn_code behind(const struct cairn_run_name *name, const char *cause,
                              struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CATALOG_BEHIND,
                      "run %s/%s is frozen until `cairn reconcile %s/%s` has ended: %s",
                      name->project, name->run, name->project, name->run, cause);
}

static enum cairn_code freeze(struct srv *server, const struct cairn_run_name *name,
                              const char *why, bool asked, struct cairn_error *err) {
    struct row row = {.server = server, .name = name, .asked = asked};
    (void)cairn_text_copy(row.cause, sizeof(row.cause), why);
    if (!CAIRN_RULE(Q36)) {
        srv_freeze(server, why);
        return srv_thawed(server, err);
    }
    CAIRN_TRY(srv_catalog_write(server->catalog, put, &row, err));
    if (row.made) {
        atomic_fetch_add(&server->frozen_runs, 1);
        cairn_log(ERROR, "run.frozen",
                  "run=%s/%s cause=\"%s\" effect=\"nothing is written, deleted or resumed from in "
                  "this run until it is reconciled; other runs go on\"",
                  name->project, name->run, row.cause);
    }
    return behind(name, row.cause, err);
}

enum cairn_code srv_run_freeze(struct srv *server, const struct cairn_run_name *name,
                               const char *why, struct cairn_error *err) {
    return freeze(server, name, why, false, err);
}

enum cairn_code srv_run_freeze_asked(struct srv *server, const struct cairn_run_name *name,
                                     const char *why, struct cairn_error *err) {
    return freeze(server, name, why, true, err);
}

enum cairn_code srv_run_thawed(struct srv *server, const struct cairn_run_name *name,
                               struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(server, err));
    /* Another server may have frozen the run. */
    if (!server->frozen_runs && !srv_catalog_is_shared(server->catalog)) return CAIRN_OK;
    char cause[SRV_CAUSE_BYTES] = "";
    bool frozen = false;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_frozen_cause(look.tx, name, &frozen, cause, err));
    return frozen ? behind(name, cause, err) : CAIRN_OK;
}

uint32_t srv_run_thaws_in_s(struct srv *server, const struct cairn_run_name *name) {
    uint64_t due_tick = 0;
    bool asked = false;
    SRV_AUTO(look) look = {0};
    if (srv_thawed(server, NULL) || srv_look_begin(server->catalog, &look, NULL) ||
        srv_frozen_ends(look.tx, name, &asked, &due_tick, NULL) || !asked)
        return 0;
    uint64_t now_tick = srv_ticks_now(server);
    uint64_t left_ms = due_tick > now_tick ? due_tick - now_tick : 0;
    return (uint32_t)cairn_min_u64(left_ms / 1000 + 1, THAW_S_MAX);
}

uint64_t srv_frozen_text(struct srv *server, char ret[SRV_FROZEN_BYTES]) {
    char cause[SRV_CAUSE_BYTES] = "";
    struct cairn_run_name first = {0};
    uint64_t count = 0;
    bool found = false;
    SRV_AUTO(look) look = {0};
    ret[0] = '\0';
    if (!server->frozen_runs && !srv_catalog_is_shared(server->catalog)) return 0;
    if (srv_look_begin(server->catalog, &look, NULL) || srv_frozen_count(look.tx, &count, NULL) ||
        srv_frozen_first(look.tx, &found, &first, cause, NULL) || !count)
        return 0;
    snprintf(ret, SRV_FROZEN_BYTES, "%" PRIu64 " frozen; %s/%s: %s", count, first.project,
             first.run, cause);
    return count;
}

/* ---- the catalog's side ---- */

static enum cairn_code load(struct identity *identity, struct cairn_error *err) {
    SRV_LOOK(look, identity->server->catalog, err);
    CAIRN_TRY(srv_store_seen_get(look.tx, &identity->seen, err));
    return srv_runs_any(look.tx, &identity->has_runs, err);
}

/* The first of two servers that start at once names the store. */
SRV_CHANGE(claim, struct identity *identity) {
    struct srv_store_seen seen = {0};
    CAIRN_TRY(srv_store_seen_get(tx, &seen, err));
    if (!seen.uuid[0]) return srv_store_seen_put(tx, &identity->seen, err);
    identity->seen = seen;
    return CAIRN_OK;
}

/* Raises the catalog before the store: a crash in between leaves the catalog ahead, never
 * behind. */
SRV_CHANGE(take_generation, struct identity *identity) {
    if (identity->adopted) CAIRN_TRY(srv_tiers_unread_put(tx, err));
    return srv_generation_take(tx, identity->at_least, &identity->seen, err);
}

/* Q38: every server must accept a grant that another signed. The catalog holds the key's digest,
 * not the key; without other live servers, this one's digest replaces it. */
static enum cairn_code agree_on_key(struct srv_tx *tx, const struct identity *identity,
                                    struct cairn_error *err) {
    const struct srv_settings *settings = identity->server->settings;
    char text[SRV_KEY_DIGEST_BYTES];
    CAIRN_TRY(srv_key_digest_get(tx, text, err));
    if (text[0] && strcmp(text, identity->key_digest) != 0 && identity->others &&
        !settings->new_grant_key)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s%s is not the key that the other servers of this catalog sign "
                          "grants with: give each the same grant-key-file, or copy grant.key from "
                          "the data_dir of one of them",
                          settings->grant_key_file[0] ? settings->grant_key_file
                                                      : settings->data_dir,
                          settings->grant_key_file[0] ? "" : "/grant.key");
    return srv_key_digest_put(tx, identity->key_digest, err);
}

/* Uploaders learn of a new life (Q19) only if no other server lives, not if one more joins. */
SRV_CHANGE(join, struct identity *identity) {
    struct srv *server = identity->server;
    char name[128], host[64] = "";
    if (gethostname(host, sizeof(host) - 1)) host[0] = '\0';
    snprintf(name, sizeof(name), "%s %.60s", host, server->settings->listen);
    CAIRN_TRY(
        srv_server_put(tx, srv_catalog_server(server->catalog), name, srv_wall_ms(server), err));
    CAIRN_TRY(srv_servers_others(tx, &identity->others, err));
    CAIRN_TRY(agree_on_key(tx, identity, err));
    CAIRN_TRY(srv_server_join(tx, err));
    identity->life = identity->seen.generation;
    bool goes_on = identity->others && !server->settings->adopt_store;
    return srv_life_join(tx, goes_on, &identity->life, err);
}

/* ---- the store's side ---- */

/* Writes a lost store.json again on request if the store has the catalog's newest attempt with its
 * nonce, which an empty mount point or another bucket has not. */
static enum cairn_code may_write_again(struct srv *server, struct cairn_store_worker *worker,
                                       const struct identity *identity, struct cairn_error *err) {
    struct cairn_attempt_record witness = {0};
    struct cairn_error why = {0};
    CAIRN_AUTO(attempt_record) record = {0};
    bool found = false;
    const char *url = cairn_store_url(server->store);
    if (!server->settings->adopt_store || !identity->seen.uuid[0])
        return cairn_fail(
            err, CAIRN_CATALOG_BEHIND,
            "%s has no .cairn/store.json, but this catalog has runs in a store: is it "
            "the right folder or bucket, and is it mounted? If only that object was "
            "lost, start once with --adopt-store=true",
            url);
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_attempt_newest_recorded(look.tx, &found, &witness, err));
    srv_look_release(&look);
    enum cairn_code code = CAIRN_NOT_FOUND;
    if (found) code = srv_attempt_read(worker, &witness.name, witness.attempt, &record, &why);
    if (code && code != CAIRN_NOT_FOUND && code != CAIRN_CORRUPT)
        return cairn_pass(err, code, &why);
    if (code || strcmp(record.nonce, witness.nonce))
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "%s has no .cairn/store.json, and the newest attempt of this catalog is "
                          "not in it: it is another store, or it is not mounted",
                          url);
    cairn_log(WARN, "store.json_rewritten", "store=%s uuid=%s", url, identity->seen.uuid);
    return CAIRN_OK;
}

static enum cairn_code make_store(struct srv *server, struct cairn_store_worker *worker,
                                  struct identity *identity, struct cairn_error *err) {
    if (identity->has_runs) CAIRN_TRY(may_write_again(server, worker, identity, err));
    if (!identity->seen.uuid[0]) cairn_uuid_random(identity->seen.uuid);
    /* The catalog first: no store may have a uuid that no catalog knows. */
    CAIRN_TRY(srv_catalog_write(server->catalog, claim, identity, err));
    struct cairn_store_record record = {.format = 1, .generation = identity->seen.generation};
    (void)cairn_text_copy(record.uuid, sizeof(record.uuid), identity->seen.uuid);
    (void)cairn_text_copy(record.owner, sizeof(record.owner), server->settings->owner);
    /* CAIRN_PRECONDITION: another's store.json, or ours after a lost reply; read and compared
     * next. */
    struct cairn_error failure = {0};
    enum cairn_code code = cairn_store_record_put(worker, &record, true, &failure);
    if (code == CAIRN_PRECONDITION) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &failure));
    cairn_log(INFO, "store.created", "store=%s uuid=%s", cairn_store_url(server->store),
              record.uuid);
    return CAIRN_OK;
}

static enum cairn_code compare_at_start(struct srv *server, const struct cairn_store_record *record,
                                        struct identity *identity, struct cairn_error *err) {
    if (identity->seen.uuid[0] && strcmp(identity->seen.uuid, record->uuid))
        return cairn_fail(
            err, CAIRN_FORBIDDEN,
            "the store %s is %s (owner %s), this catalog belongs to %s: name the catalog of this "
            "store, or the store of this catalog",
            cairn_store_url(server->store), record->uuid, record->owner, identity->seen.uuid);
    if (record->copies_of[0] && !server->settings->adopt_store)
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "the store %s holds copies of the versions of %s: name that store, or, "
                          "where it is lost, start once with --adopt-store=true",
                          cairn_store_url(server->store), record->copies_of);
    (void)cairn_text_copy(identity->seen.uuid, sizeof(identity->seen.uuid), record->uuid);
    identity->adopted = record->generation > identity->seen.generation;
    if (!identity->adopted || server->settings->adopt_store) return CAIRN_OK;
    srv_freeze(server, "the store's generation is ahead of this catalog: the catalog is a "
                       "lost, restored or second one (setting adopt-store takes it over)");
    return CAIRN_OK;
}

/* Compare-and-set for stores without a conditional overwrite: whoever creates a number's object
 * owns the number, also if the answer was lost or store.json refused it: the object bears this
 * life's name. Without conditional create, the object is read before and after the put: two servers
 * that raise at the same moment may notice each other only at the next raise. The object is always
 * made, since it reveals a late put of store.json. */
static enum cairn_code take_number(struct srv *server, struct cairn_store_worker *worker,
                                   uint64_t number, struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_generation(number, &key);
    const char *taker = srv_catalog_server(server->catalog);
    return cairn_store_put_to_free(worker, key.text, cairn_view_of(taker), false, err);
}

/* Keeps the last object: the next server must not be able to create it. */
static void drop_number(struct cairn_store_worker *worker, uint64_t number) {
    struct cairn_key key;
    struct cairn_error why = {0};
    if (!number) return;
    cairn_key_generation(number, &key);
    if (cairn_store_delete(worker, key.text, &why) != CAIRN_OK)
        cairn_log(DEBUG, "generation.left", "key=%s cause=\"%s\"", key.text, why.message);
}

/* *ret: a server of this catalog took the number. A failed read is retried: it proves nothing. */
static enum cairn_code has_number(struct cairn_store_worker *worker, struct srv *server,
                                  uint64_t number, bool *ret, struct cairn_error *err) {
    struct cairn_key key;
    CAIRN_AUTO(buf) taker = {.limit = CAIRN_KIB};
    *ret = false;
    cairn_key_generation(number, &key);
    enum cairn_code code = cairn_store_get_small(worker, key.text, &taker, err);
    if (code || !taker.size)
        return code == CAIRN_NOT_FOUND || code == CAIRN_TOO_LARGE ? CAIRN_OK : code;
    SRV_LOOK(look, server->catalog, err);
    return srv_server_there(look.tx, taker.data, ret, err);
}

/* A store may apply a dead server's put of store.json late, and lower the generation. If the object
 * of the catalog's number still exists, the store was not restored: the number is written again. */
static enum cairn_code is_late_put(struct srv *server, struct cairn_store_worker *worker,
                                   const struct cairn_store_record *found, const char *uuid,
                                   uint64_t number, bool *ret, struct cairn_error *err) {
    *ret = false;
    if (strcmp(found->uuid, uuid) || found->generation >= number) return CAIRN_OK;
    CAIRN_TRY(has_number(worker, server, number, ret, err));
    if (*ret)
        cairn_log(WARN, "generation.again", "found=%" PRIu64 " ours=%" PRIu64, found->generation,
                  number);
    return CAIRN_OK;
}

/* Puts the taken number, or a later one of another server of this catalog: puts may cross, and the
 * store keeps the highest. */
static enum cairn_code set_generation(struct srv *server, struct cairn_store_worker *worker,
                                      struct cairn_store_record *record, struct identity *identity,
                                      struct cairn_error *err) {
    uint64_t before = record->generation;
    record->copies_of[0] = '\0'; /* an adopted store is no copy any more */
    record->generation = identity->seen.generation;
    server->raising_to = identity->seen.generation;
    struct cairn_store_record again = {0};
    bool late = true;
    for (int i = 0; i < PUTS_MAX && late; i++) {
        CAIRN_TRY(cairn_store_record_put(worker, record, false, err));
        CAIRN_TRY(cairn_store_record_get(worker, 0, &again, err));
        CAIRN_TRY(load(identity, err));
        record->generation = identity->seen.generation;
        late = again.generation < record->generation && again.generation > before &&
               !strcmp(again.uuid, record->uuid);
        if (!late)
            CAIRN_TRY(
                is_late_put(server, worker, &again, record->uuid, record->generation, &late, err));
    }
    if (again.generation > record->generation || again.generation < server->raising_to ||
        strcmp(again.uuid, record->uuid))
        return cairn_fail(err, CAIRN_CONFLICT, "another server raised the store's generation");
    drop_number(worker, before);
    return CAIRN_OK;
}

/* Skips numbers that a server took before it died. */
static enum cairn_code raise_at_start(struct srv *server, struct cairn_store_worker *worker,
                                      struct cairn_store_record *record, struct identity *identity,
                                      struct cairn_error *err) {
    enum cairn_code code = CAIRN_CONFLICT;
    identity->at_least = record->generation;
    for (int i = 0; i < NUMBERS_TRIED_MAX && code == CAIRN_CONFLICT; i++) {
        CAIRN_TRY(srv_catalog_write(server->catalog, take_generation, identity, err));
        code = take_number(server, worker, identity->seen.generation, err);
    }
    CAIRN_TRY(code);
    server->raised_from = identity->seen.generation;
    CAIRN_TRY(srv_catalog_write(server->catalog, join, identity, err));
    return set_generation(server, worker, record, identity, err);
}

enum cairn_code srv_identity_raise(struct srv *server, struct cairn_store_worker *worker,
                                   struct cairn_error *err) {
    struct identity identity = {.server = server};
    struct cairn_store_record record = {0};
    struct cairn_error why = {0};
    CAIRN_TRY(srv_identity_compare(server, worker, err));
    (void)cairn_text_copy(identity.seen.uuid, sizeof(identity.seen.uuid), server->store_uuid);
    CAIRN_TRY(cairn_store_record_get(worker, 0, &record, err));
    identity.at_least = record.generation;
    CAIRN_TRY(srv_catalog_write(server->catalog, take_generation, &identity, err));
    enum cairn_code code = take_number(server, worker, identity.seen.generation, &why);
    if (!code) code = set_generation(server, worker, &record, &identity, &why);
    if (code == CAIRN_CONFLICT) {
        srv_freeze(server, "another server, not of this catalog, raises this store's "
                           "generation");
        return srv_thawed(server, err);
    }
    return cairn_pass(err, code, &why);
}

/* Makes a key only if no grant of an older key can exist: a new key ends every save under way
 * (Q49). */
static enum cairn_code make_grant_key(struct srv *server, const char *path,
                                      const struct identity *identity, struct cairn_error *err) {
    bool has_runs = identity->has_runs;
    if (identity->others && !server->settings->new_grant_key)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s is missing, and other servers of this catalog sign grants: copy "
                          "grant.key from the data_dir of one of them (and chmod 600 it)",
                          path);
    if (has_runs && !server->settings->new_grant_key)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          "%s is missing, and this catalog has runs whose attempts it has signed: "
                          "put the file back from the backup of data_dir; if it is lost for good, "
                          "start once with --new-grant-key=true, which ends all saves under way "
                          "(jobs then open a new attempt)",
                          path);
    cairn_random(server->grant_key, sizeof(server->grant_key));
    struct cairn_view view = {server->grant_key, sizeof(server->grant_key)};
    CAIRN_TRY(cairn_file_replace(path, view, 0600, err));
    if (has_runs) cairn_log(WARN, "grant.key_made", "path=%s", path);
    return CAIRN_OK;
}

/* A key provided by the site, so that servers need not wait for each other: raw bytes, or hex
 * digits with a newline, as secret managers store them. */
static enum cairn_code load_given_key(struct srv *server, struct cairn_error *err) {
    const char *path = server->settings->grant_key_file;
    CAIRN_AUTO(buf) key = {.limit = 256};
    CAIRN_TRY(cairn_file_load_secret(path, &key, err));
    size_t size = key.size;
    enum cairn_code code = CAIRN_OK;
    if (size == sizeof(server->grant_key)) {
        memcpy(server->grant_key, key.data, size);
    } else {
        while (size && strchr("\r\n", key.data[size - 1])) size--;
        if (size != 2 * sizeof(server->grant_key) ||
            cairn_hex_decode((struct cairn_view){key.data, size}, server->grant_key,
                             sizeof(server->grant_key), NULL))
            code = cairn_fail(err, CAIRN_CORRUPT,
                              "grant-key-file %s holds %zu bytes: want %d random bytes, or as many "
                              "as hexadecimal digits",
                              path, key.size, CAIRN_GRANT_KEY_BYTES);
    }
    cairn_wipe(key.data, key.size);
    return code;
}

static enum cairn_code load_grant_key(struct srv *server, const struct identity *identity,
                                      struct cairn_error *err) {
    if (server->settings->grant_key_file[0]) return load_given_key(server, err);
    char path[1024];
    snprintf(path, sizeof(path), "%.900s/grant.key", server->settings->data_dir);
    CAIRN_AUTO(buf) key = {.limit = 256};
    enum cairn_code code = cairn_file_load(path, &key, err);
    if (code == CAIRN_NOT_FOUND) return make_grant_key(server, path, identity, err);
    if (code) return code;
    struct stat status;
    if (stat(path, &status)) return cairn_fail_errno(err, "%s", path);
    if (status.st_mode & 077)
        return cairn_fail(err, CAIRN_FORBIDDEN, "%s can be read by others: chmod 600 it", path);
    if (key.size != sizeof(server->grant_key))
        return cairn_fail(err, CAIRN_CORRUPT, "%s holds %zu bytes, not %d", path, key.size,
                          CAIRN_GRANT_KEY_BYTES);
    memcpy(server->grant_key, key.data, key.size);
    cairn_wipe(key.data, key.size);
    return CAIRN_OK;
}

SRV_CHANGE(find_others, struct identity *identity) {
    return srv_servers_others(tx, &identity->others, err);
}

enum cairn_code srv_identity_start(struct srv *server, struct cairn_store_worker *worker,
                                   struct cairn_error *err) {
    struct identity identity = {.server = server};
    CAIRN_TRY(load(&identity, err));
    CAIRN_TRY(srv_catalog_write(server->catalog, find_others, &identity, err));
    CAIRN_TRY(load_grant_key(server, &identity, err));
    uint8_t digest[32];
    cairn_sha256_of((struct cairn_view){server->grant_key, sizeof(server->grant_key)}, digest);
    cairn_hex_encode(digest, sizeof(digest), identity.key_digest);
    struct cairn_store_record record = {0};
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND) {
        CAIRN_TRY(make_store(server, worker, &identity, err));
        code = cairn_store_record_get(worker, 0, &record, err);
    }
    if (code) return cairn_within(err, code, "store.json of %s", cairn_store_url(server->store));
    /* Read after the store: another server may have raised both meanwhile. */
    CAIRN_TRY(load(&identity, err));
    CAIRN_TRY(compare_at_start(server, &record, &identity, err));
    server->copies_missing = true; /* earlier lives may have left some (Q5) */
    server->raising_to = server->raised_from = identity.seen.generation;
    identity.life = identity.seen.generation;
    if (!server->frozen) CAIRN_TRY(raise_at_start(server, worker, &record, &identity, err));
    server->generation = identity.life;
    (void)cairn_text_copy(server->store_uuid, sizeof(server->store_uuid), identity.seen.uuid);
    uint64_t frozen = 0;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_frozen_count(look.tx, &frozen, err));
    server->frozen_runs = frozen;
    return CAIRN_OK;
}

enum cairn_code srv_identity_compare(struct srv *server, struct cairn_store_worker *worker,
                                     struct cairn_error *err) {
    struct identity identity = {.server = server};
    struct cairn_store_record record = {0};
    uint64_t number = 0, newest = 0;
    bool late = false, ours = false;
    /* Retries if the number was raised meanwhile, which deletes the older object. */
    do {
        number = newest;
        CAIRN_TRY(srv_thawed(server, err));
        enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
        if (code == CAIRN_NOT_FOUND) /* says nothing about a run */
            return cairn_fail(err, CAIRN_UNAVAILABLE,
                              "%s has no .cairn/store.json: is the store mounted? docs/runbook.md "
                              "says how a lost one is written again",
                              cairn_store_url(server->store));
        CAIRN_TRY(code);
        CAIRN_TRY(load(&identity, err));
        newest = identity.seen.generation;
        /* Numbers between the start's and the newest belong to servers of this catalog. */
        ours = !strcmp(record.uuid, server->store_uuid) &&
               record.generation >= server->raised_from && record.generation <= newest;
        if (record.generation < server->raised_from)
            CAIRN_TRY(is_late_put(server, worker, &record, server->store_uuid, newest, &late, err));
    } while (!ours && !late && number != newest);
    if (ours) return CAIRN_OK;
    if (late) {
        record.generation = newest;
        return cairn_store_record_put(worker, &record, false, err);
    }
    srv_freeze(server, "the store is another one, or its generation was raised by a server "
                       "that is not of this catalog");
    return srv_thawed(server, err);
}

/* ---- store.json of other stores ---- */

struct known {
    const char *store;
    char uuid[CAIRN_UUID_TEXT_BYTES];
    bool taken_back;
};

/* The first of two servers that claim at once names the store. */
SRV_CHANGE(claim_tier, struct known *known) {
    CAIRN_TRY(srv_tier_uuid_put(tx, known->store, known->uuid, err));
    if (known->taken_back) CAIRN_TRY(srv_tier_unread_put(tx, known->store, true, err));
    return srv_tier_uuid_get(tx, known->store, known->uuid, err);
}

static enum cairn_code make(struct srv *server, struct cairn_store_worker *worker,
                            struct known *known, struct cairn_store_record *ret,
                            struct cairn_error *err) {
    cairn_uuid_random(known->uuid);
    CAIRN_TRY(srv_catalog_write(server->catalog, claim_tier, known, err));
    struct cairn_store_record record = {.format = 1};
    (void)cairn_text_copy(record.uuid, sizeof(record.uuid), known->uuid);
    (void)cairn_text_copy(record.owner, sizeof(record.owner), server->settings->owner);
    (void)cairn_text_copy(record.copies_of, sizeof(record.copies_of), server->store_uuid);
    struct cairn_error failure = {0};
    enum cairn_code code = cairn_store_record_put(worker, &record, true, &failure);
    if (code && code != CAIRN_PRECONDITION) return cairn_pass(err, code, &failure);
    if (!code) cairn_log(INFO, "tier.created", "store=%s uuid=%s", known->store, record.uuid);
    return cairn_store_record_get(worker, 0, ret, err);
}

static enum cairn_code stranger(const struct srv *server, const struct srv_tier *tier,
                                const struct cairn_store_record *record, const struct known *known,
                                struct cairn_error *err) {
    if (!strcmp(record->uuid, server->store_uuid))
        return cairn_fail(err, CAIRN_FORBIDDEN, "stores: %s is the main store itself", tier->name);
    if (known->uuid[0])
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "stores: %s is %s (owner %s), this catalog knows %s by that name",
                          tier->name, record->uuid, record->owner, known->uuid);
    return cairn_fail(err, CAIRN_FORBIDDEN,
                      "stores: %s is %s (owner %s), and holds no copies of the versions of %s",
                      tier->name, record->uuid, record->owner, server->store_uuid);
}

enum cairn_code srv_tier_ready(struct srv *server, const struct srv_tier *tier,
                               struct cairn_store_worker *worker, struct cairn_error *err) {
    struct known known = {.store = tier->name};
    struct cairn_store_record record = {0};
    /* checked by srv_identity_start */
    if (srv_tier_is_main(server, tier)) return CAIRN_OK;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_tier_uuid_get(look.tx, tier->name, known.uuid, err));
    srv_look_release(&look);
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND && known.uuid[0])
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "stores: %s (%s) has no .cairn/store.json: is it mounted?", tier->name,
                          cairn_store_url(tier->store));
    if (code == CAIRN_NOT_FOUND) code = make(server, worker, &known, &record, err);
    if (code) return cairn_within(err, code, "stores: %s", tier->name);
    bool ours = !strcmp(record.copies_of, server->store_uuid);
    if (known.uuid[0] ? strcmp(known.uuid, record.uuid) != 0 : !ours)
        return stranger(server, tier, &record, &known, err);
    if (known.uuid[0]) return CAIRN_OK;
    (void)cairn_text_copy(known.uuid, sizeof(known.uuid), record.uuid);
    known.taken_back = true;
    cairn_log(INFO, "tier.taken_back", "store=%s uuid=%s", tier->name, record.uuid);
    code = srv_catalog_write(server->catalog, claim_tier, &known, err);
    return code ? cairn_within(err, code, "stores: %s", tier->name) : CAIRN_OK;
}

enum cairn_code srv_tier_is_ours(struct srv *server, const struct srv_tier *tier,
                                 struct cairn_store_worker *worker, struct cairn_error *err) {
    const struct known known = {.store = tier->name};
    struct cairn_store_record record = {0};
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "stores: %s (%s) has no .cairn/store.json: is it mounted?", tier->name,
                          cairn_store_url(tier->store));
    if (code) return cairn_within(err, code, "stores: %s", tier->name);
    if (strcmp(record.copies_of, server->store_uuid) != 0)
        return stranger(server, tier, &record, &known, err);
    return CAIRN_OK;
}

enum cairn_code srv_tiers_start(struct srv *server, struct cairn_error *err) {
    struct srv_tiers *tiers = server->tiers;
    for (size_t i = 0; i < tiers->count; i++) {
        struct srv_tier *tier = &tiers->tiers[i];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        if (i == tiers->main) continue;
        enum cairn_code code = srv_tier_borrow(server, tier, &worker, &why);
        if (!code) code = srv_tier_ready(server, tier, worker, &why);
        srv_tier_return(server, tier, worker);
        if (!code) cairn_store_start_keep(tier->store);
        bool unread = false;
        SRV_LOOK(look, server->catalog, err);
        CAIRN_TRY(srv_tier_unread_get(look.tx, tier->name, &unread, err));
        tier->unread = unread;
        if (!code) continue;
        if (!cairn_code_info(code)->retryable) return cairn_pass(err, code, &why);
        cairn_log(WARN, "tier.away", "store=%s cause=\"%s\"", tier->name, why.message);
    }
    return CAIRN_OK;
}
