/* SPDX-License-Identifier: Apache-2.0 */
/* The commit of one version (rules Q22, Q23, Q53): proof, layout object, checksums.bin,
 * manifest.json, one transaction; server/guard/records.h writes the record. */
#include "server/commit/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/documents/digest.h"
#include "common/hooks.h"
#include "common/log.h"
#include "plan/cover.h"
#include "server/copies/copies.h"
#include "server/guard/identity.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/layouts.h"
#include "server/ledger/shards.h"
#include "server/metrics.h"
#include "server/retention/retain.h"

/* Never reached: CAIRN_MANIFEST_BYTES_MAX ends a version of far fewer shards. */
#define SHARDS_MAX (CAIRN_MANIFEST_BYTES_MAX / 8)

/* ---- replicated tensors: are they equal on all ranks? (commit.h#4) ---- */

#define REPORTS_MAX 100 /* per version; the rest is counted */

struct replicas {
    json_t *first;    /* name -> [rank, crc32c] */
    json_t *reported; /* name -> true */
    json_t *warnings;
    size_t more;
};

static enum cairn_code report_replica(struct replicas *replicas, const char *name,
                                      const json_t *first, uint32_t rank, const char *crc,
                                      struct cairn_error *err) {
    if (json_object_get(replicas->reported, name)) return CAIRN_OK;
    if (json_array_size(replicas->warnings) >= REPORTS_MAX) {
        replicas->more++;
        return CAIRN_OK;
    }
    char text[1400];
    snprintf(text, sizeof(text),
             "replicated tensor %s differs: rank %lld has checksum %s, rank %u has %s", name,
             (long long)json_integer_value(json_array_get(first, 0)),
             json_string_value(json_array_get(first, 1)), rank, crc);
    if (json_array_append_new(replicas->warnings, json_string(text)) ||
        json_object_set_new(replicas->reported, name, json_true()))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a warning");
    return CAIRN_OK;
}

/* text: JSON [{name, crc32c}] of one rank; ranks come in ascending order. */
static enum cairn_code add_replicas(struct replicas *replicas, uint32_t rank, const char *text,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *list = json_loads(text, 0, NULL);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        const char *crc = json_string_value(json_object_get(item, "crc32c"));
        CAIRN_ASSERT(name); /* checked before the seal became a row */
        CAIRN_ASSERT(crc);
        const json_t *first = json_object_get(replicas->first, name);
        if (first && strcmp(json_string_value(json_array_get(first, 1)), crc)) {
            CAIRN_TRY(report_replica(replicas, name, first, rank, crc, err));
            continue;
        }
        /* Only in memory during this commit: no row of messages.def. */
        if (!first &&
            json_object_set_new(replicas->first, name, json_pack("[i, s]", (int)rank, crc)))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for replicas");
    }
    return CAIRN_OK;
}

/* JSON array of sentences; owned by the caller, NULL: no memory. */
static char *replica_warnings(const struct replicas *replicas) {
    CAIRN_AUTO_JSON json_t *all = json_copy(replicas->warnings);
    if (replicas->more) {
        char text[64];
        snprintf(text, sizeof(text), "%zu more replicated tensors differ", replicas->more);
        if (json_array_append_new(all, json_string(text))) return NULL;
    }
    return all ? json_dumps(all, JSON_COMPACT) : NULL;
}

/* ---- state of a commit ---- */

struct rank_table {
    uint32_t rank;
    uint8_t digest[32];
    struct cairn_buf bytes;
};
struct work {
    struct srv *server;
    struct cairn_store_worker *worker;
    const char *id;
    uint64_t from_ms, from_us; /* start: the server's clock, and the machine's */
    struct srv_lease lease;
    struct srv_version version;
    bool whole, has_room;
    uint64_t weight_bytes;
    struct cairn_manifest manifest;
    struct cairn_buf text; /* of the manifest */
    char **nodes;          /* by shard: the node that registered it */
    size_t shard_capacity, node_capacity;
    struct cairn_buf checksums;
    struct rank_table *tables; /* by rank */
    size_t table_count;
    uint32_t ranks_sealed;
    bool layout_known; /* this layout was proven before, and its object exists */
    uint8_t layout_digest[32];
    struct replicas replicas;
    struct cairn_store_presence presence; /* of the objects; started, then judged */
    struct cairn_key prefix;              /* of presence */
    char *keys;                           /* of presence's objects */
    uint64_t waited_ms;                   /* for presence */
    uint8_t manifest_sha256[32];
    bool final; /* the failure is permanent: the version is given up */
    bool again; /* the stored layout choice was taken over: start again from the rows */
    bool committed, changed;
    struct cairn_error why; /* why it was given up */
};

static void release_work(struct work *work) {
    for (size_t i = 0; i < work->table_count; i++) cairn_buf_release(&work->tables[i].bytes);
    for (size_t i = 0; i < work->manifest.shard_count; i++) free(work->nodes[i]);
    free(work->tables);
    free(work->nodes);
    cairn_manifest_release(&work->manifest);
    cairn_buf_release(&work->checksums);
    cairn_buf_release(&work->text);
    srv_version_release(&work->version);
    json_decref(work->replicas.first);
    json_decref(work->replicas.reported);
    json_decref(work->replicas.warnings);
    if (work->has_room) srv_jobs_give_room(work->server);
}

/* ---- reading the rows ---- */

static enum cairn_code add_shard(struct work *work, const struct srv_shard_row *row,
                                 struct cairn_error *err) {
    struct cairn_manifest *manifest = &work->manifest;
    size_t before = manifest->shard_count;
    CAIRN_ASSERT(row->rank < work->version.world_size);
    CAIRN_ASSERT(row->blocks.size == 4 * cairn_block_count(row->size)); /* as registered */
    CAIRN_ASSERT(!before || strcmp(manifest->shards[before - 1].name, row->name) < 0);
    CAIRN_TRY(CAIRN_ARRAY_ROOM(manifest->shards, manifest->shard_count, work->shard_capacity,
                               SHARDS_MAX, "shards", err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(work->nodes, manifest->shard_count, work->node_capacity, SHARDS_MAX,
                               "nodes of shards", err));
    struct cairn_manifest_shard shard = {.name = strdup(row->name),
                                         .rank = (uint32_t)row->rank,
                                         .size_bytes = row->size,
                                         .crc32c = row->crc32c,
                                         .part_bytes = row->part_bytes};
    char *node = strdup(row->node);
    if (!shard.name || !node) {
        free(shard.name);
        free(node);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the shards");
    }
    work->nodes[manifest->shard_count] = node;
    manifest->shards[manifest->shard_count++] = shard;
    return row->blocks.size
               ? cairn_buf_append(&work->checksums, row->blocks.data, row->blocks.size, err)
               : CAIRN_OK;
}

static enum cairn_code add_rank(struct work *work, const struct srv_rank_sealed *rank,
                                struct cairn_error *err) {
    CAIRN_ASSERT(rank->rank < work->version.world_size); /* the capacity of tables */
    CAIRN_ASSERT(!work->table_count || work->tables[work->table_count - 1].rank < rank->rank);
    CAIRN_TRY(add_replicas(&work->replicas, rank->rank, rank->replicated, err));
    work->ranks_sealed++;
    if (!rank->has_table) return CAIRN_OK;
    struct rank_table *table = &work->tables[work->table_count++];
    table->rank = rank->rank;
    memcpy(table->digest, rank->table, sizeof(table->digest));
    return CAIRN_OK;
}

static void digest_layout(struct work *work) {
    CAIRN_AUTO_HEAP uint32_t *ranks = calloc(work->table_count + 1, sizeof(*ranks));
    CAIRN_AUTO_HEAP uint8_t(*digests)[32] = calloc(work->table_count + 1, sizeof(*digests));
    CAIRN_ASSERT(ranks);
    CAIRN_ASSERT(digests);
    for (size_t i = 0; i < work->table_count; i++) {
        ranks[i] = work->tables[i].rank;
        memcpy(digests[i], work->tables[i].digest, 32);
    }
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, work->table_count,
                        work->layout_digest);
}

static struct srv_layout layout_of(const struct work *work, const struct cairn_version_id *writer) {
    struct srv_layout layout = {.run_id = work->version.run_id, .writer = *writer};
    memcpy(layout.digest, work->layout_digest, 32);
    return layout;
}

/* Q33: the layout's object is chosen once, in the row: a repeat must write the same manifest. */
static enum cairn_code choose_layout(struct srv_tx *tx, struct work *work,
                                     struct cairn_error *err) {
    if (!work->version.has_writer) {
        CAIRN_TRY(srv_layout_choose(tx, work->id, work->version.run_id, work->layout_digest, err));
        srv_version_release(&work->version);
        CAIRN_TRY(srv_version_get(tx, work->id, &work->version, err));
        CAIRN_ASSERT(work->version.has_writer);
    }
    struct srv_layout layout = layout_of(work, &work->version.layout_writer);
    return srv_layout_there(tx, &layout, &work->layout_known, err);
}

/* Only a layout that was not proven before needs the tables. */
static enum cairn_code load_tables(struct srv_tx *tx, struct work *work, struct cairn_error *err) {
    for (size_t i = 0; i < work->table_count; i++) {
        struct rank_table *table = &work->tables[i];
        bool there = false;
        table->bytes.limit = CAIRN_TABLE_BYTES_MAX;
        CAIRN_TRY(srv_table_get(tx, table->digest, &table->bytes, &there, err));
        if (!there)
            return cairn_fail(err, CAIRN_INTERNAL, "the table of rank %u is gone", table->rank);
    }
    return CAIRN_OK;
}

/* A write transaction, because it stores the choice of the layout's object. */
SRV_CHANGE(load_rows, struct work *work) {
    CAIRN_TRY(srv_version_expect(tx, work->id, err));
    CAIRN_TRY(srv_version_whole_expect(tx, work->id, err));
    CAIRN_TRY(srv_lease_take_expect(tx, &work->lease, err));
    CAIRN_TRY(srv_shards_all_expect(tx, work->id, err));
    CAIRN_TRY(srv_version_get(tx, work->id, &work->version, err));
    CAIRN_TRY(srv_version_whole(tx, &work->version, &work->whole, err));
    if (!work->whole) return CAIRN_OK;
    work->checksums.limit = CAIRN_GIB;
    work->tables = calloc((size_t)work->version.world_size + 1, sizeof(*work->tables));
    if (!work->tables) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the rank tables");
    work->replicas = (struct replicas){json_object(), json_object(), json_array(), 0};
    /* In the order of the manifest and of checksums.bin. */
    {
        SRV_GET(rows, shards, srv_shards_all(tx, work->id, &shards, err));
        SQL_EACH(&shards, err) {
            const struct srv_shard_row row = srv_row_shard(&shards);
            CAIRN_TRY(add_shard(work, &row, err));
        }
    }
    SRV_GET(rows, ranks, srv_ranks_sealed(tx, work->id, &ranks, err));
    SQL_EACH(&ranks, err) {
        const struct srv_rank_sealed row = srv_row_rank_sealed(&ranks);
        CAIRN_TRY(add_rank(work, &row, err));
    }
    CAIRN_ASSERT(work->ranks_sealed == work->version.world_size); /* as "whole" counted */
    CAIRN_TRY(srv_lease_take_in(tx, &work->lease, err));          /* as expected above */
    if (!work->table_count) return CAIRN_OK;
    digest_layout(work);
    CAIRN_TRY(choose_layout(tx, work, err));
    return work->layout_known ? CAIRN_OK : load_tables(tx, work, err);
}

/* ---- giving up ---- */

SRV_CHANGE(abort_version, struct work *work) {
    CAIRN_TRY(srv_lease_check(tx, &work->lease, err));
    SRV_GET(version, version, srv_version_get(tx, work->id, &version, err));
    if (version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    struct srv_move move = {CAIRN_EVENT_GIVE_UP, work->why.code, work->why.message};
    work->changed = true;
    return srv_version_move(tx, &version, &move, err);
}

/* A failed proof is permanent, since seals are final; work->why names the place. */
static enum cairn_code give_up(struct work *work, struct cairn_error *err) {
    CAIRN_ASSERT(work->final || !CAIRN_RULE(Q53));
    CAIRN_ASSERT(!work->committed);
    CAIRN_ASSERT(work->why.code); /* shown to other ranks and people */
    CAIRN_TRY(srv_catalog_write(work->server->catalog, abort_version, work, err));
    cairn_log(WARN, "commit.refused", "version=%s step=%" PRIu64 " cause=\"%s\"", work->id,
              work->version.step, work->why.message);
    if (!work->changed) return CAIRN_OK;
    srv_waiters_wake_version(work->server->waiters, &work->version.id, &work->version.name);
    srv_jobs_sweep(work->server);
    return CAIRN_OK;
}

/* ---- are the objects in this server's store? (Q55, commit.h#1 to #3) ----
 *
 * An uploader with a missing mount or a wrong prefix stores its shards elsewhere; and an object
 * that existed at registration may be gone at commit. */

static void release_objects(struct work *work) {
    free(CAIRN_TAKE(work->presence.objects));
    free(CAIRN_TAKE(work->keys));
}

/* All keys in one block: to print each by itself took as long as to look at its object. */
static enum cairn_code fill_objects(struct work *work, struct cairn_error *err) {
    const struct cairn_manifest *manifest = &work->manifest;
    struct cairn_version_place place = srv_version_place(&work->version);
    struct cairn_key folder;
    cairn_key_shards(&place, &folder);
    size_t folder_size = strlen(folder.text), bytes = 1;
    for (size_t i = 0; i < manifest->shard_count; i++)
        bytes += folder_size + strlen(manifest->shards[i].name) + 1;
    struct cairn_store_object *objects = calloc(manifest->shard_count + 1, sizeof(*objects));
    work->presence.objects = objects;
    work->keys = malloc(bytes);
    if (!objects || !work->keys)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to look at objects");
    char *key = work->keys;
    for (size_t i = 0; i < manifest->shard_count; i++) {
        const struct cairn_manifest_shard *shard = &manifest->shards[i];
        size_t size = strlen(shard->name) + 1;
        objects[i] = (struct cairn_store_object){.key = key, .size_bytes = shard->size_bytes};
        memcpy(key, folder.text, folder_size);
        memcpy(key + folder_size, shard->name, size);
        key += folder_size + size;
    }
    CAIRN_ASSERT(key + 1 == work->keys + bytes);
    return CAIRN_OK;
}

static enum cairn_code judge_presence(const struct work *work, struct cairn_error *err) {
    const struct cairn_store_presence *presence = &work->presence;
    CAIRN_ASSERT(presence->count == work->manifest.shard_count);
    CAIRN_ASSERT(presence->there_count <= presence->count);
    if (presence->there_count == presence->count) return CAIRN_OK;
    size_t at = 0;
    while (at < presence->count && presence->objects[at].there) at++;
    CAIRN_ASSERT(at < presence->count);
    const struct cairn_store_object *object = &presence->objects[at];
    CAIRN_ASSERT(object->known && (!object->found || object->found_bytes != object->size_bytes));
    const struct cairn_manifest_shard *shard = &work->manifest.shards[at];
    /* A missing object proves nothing if the store is unmounted or another catalog's. */
    CAIRN_TRY(srv_identity_compare(work->server, work->worker, err));
    const char *node = work->nodes[at];
    size_t bad = presence->count - presence->there_count;
    if (!object->found)
        return cairn_fail(err, CAIRN_CORRUPT,
                          "%zu of %s: not in the server's store; the first: node %s "
                          "registered shard %s of rank %u, there is no such object (is the store "
                          "mounted on that node?)",
                          bad, cairn_counted(presence->count, "shard").text, node, shard->name,
                          shard->rank);
    return cairn_fail(err, CAIRN_CORRUPT,
                      "%zu of %s: not as registered; the first: node %s "
                      "registered shard %s of rank %u with %" PRIu64
                      " bytes, the store has %" PRIu64,
                      bad, cairn_counted(presence->count, "shard").text, node, shard->name,
                      shard->rank, shard->size_bytes, object->found_bytes);
}

/* Starts a listing beside the worker's other requests. After CAIRN_OK judge_objects() is due. */
static enum cairn_code look_at_objects(struct work *work, struct cairn_error *err) {
    size_t count = work->manifest.shard_count;
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    uint64_t from_ms = srv_mono_ms(work->server);
    struct cairn_store_presence *presence = &work->presence;
    struct cairn_version_place place = srv_version_place(&work->version);
    cairn_key_version_prefix(&place, &work->prefix);
    *presence = (struct cairn_store_presence){.prefix = work->prefix.text, .count = count};
    enum cairn_code code = fill_objects(work, err);
    if (code)
        release_objects(work);
    else
        cairn_store_presence_start(presence, work->worker);
    work->waited_ms = srv_mono_ms(work->server) - from_ms;
    return code;
}

/* Sets work->final when the failure is the verdict of commit.h#2. */
static enum cairn_code judge_objects(struct work *work, struct cairn_error *err) {
    struct cairn_store_presence *presence = &work->presence;
    if (!CAIRN_RULE(Q55)) return CAIRN_OK;
    uint64_t from_ms = srv_mono_ms(work->server);
    enum cairn_code code = cairn_store_presence_finish(presence, work->worker, err);
    bool looked = !code;
    if (!code) code = judge_presence(work, err);
    work->final = looked && code == CAIRN_CORRUPT;
    work->waited_ms += srv_mono_ms(work->server) - from_ms;
    cairn_log(DEBUG, "commit.objects", "version=%s shards=%zu requests=%u waited_ms=%" PRIu64,
              work->id, presence->count, presence->requests, work->waited_ms);
    release_objects(work);
    return code;
}

/* ---- proof and layout ---- */

static enum cairn_code build_layout(struct work *work, struct cairn_buf *ret,
                                    struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_table *tables = calloc(work->table_count, sizeof(*tables));
    if (!tables) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the layout");
    for (size_t i = 0; i < work->table_count; i++)
        CAIRN_TRY(cairn_table_open(cairn_buf_view(&work->tables[i].bytes), &tables[i], err));
    ret->limit = CAIRN_LAYOUT_BYTES_MAX;
    return cairn_layout_build(tables, work->table_count, ret, err);
}

static enum cairn_code prove(struct work *work, struct cairn_buf *layout_bytes,
                             struct cairn_error *err) {
    CAIRN_AUTO(layout) layout = {0};
    CAIRN_TRY(build_layout(work, layout_bytes, err));
    CAIRN_TRY(cairn_layout_open(cairn_buf_view(layout_bytes), &layout, err));
    return cairn_plan_cover_prove(&layout, &work->server->stopping, err);
}

/* Checks a known layout object; if it was removed, writes it again from this version's tables. */
static enum cairn_code write_layout(struct work *work, struct cairn_buf *layout_bytes,
                                    struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_layout(&work->version.name, work->layout_digest, &work->version.layout_writer, &key);
    if (work->layout_known) {
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(work->worker, &head, err);
        if (code != CAIRN_NOT_FOUND) return code;
        SRV_LOOK(look, work->server->catalog, err);
        CAIRN_TRY(load_tables(look.tx, work, err));
        srv_look_release(&look);
        CAIRN_TRY(build_layout(work, layout_bytes, err));
    }
    CAIRN_TRY(cairn_store_put_same(work->worker, key.text, cairn_buf_view(layout_bytes), err));
    CAIRN_CRASHPOINT("server.commit.after_layout");
    return CAIRN_OK;
}

/* ---- manifest ---- */

static enum cairn_code encode_manifest(struct work *work, struct cairn_error *err) {
    const struct srv_version *version = &work->version;
    struct cairn_manifest *manifest = &work->manifest;
    manifest->origin = (struct cairn_version_origin){
        .name = version->name, .attempt = version->attempt, .step = version->step, .n = version->n};
    (void)cairn_text_copy(manifest->origin.nonce, sizeof(manifest->origin.nonce), version->nonce);
    manifest->id = version->id;
    manifest->world_size = version->world_size;
    manifest->format_tag = strdup(version->format);
    manifest->meta_json = strdup(version->meta);
    manifest->labels_json = strdup(version->labels);
    if (!manifest->format_tag || !manifest->meta_json || !manifest->labels_json)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the manifest");
    manifest->has_layout = work->table_count > 0;
    if (manifest->has_layout) {
        memcpy(manifest->layout_digest, work->layout_digest, 32);
        manifest->layout_writer = version->layout_writer;
    }
    cairn_sha256_of(cairn_buf_view(&work->checksums), manifest->checksums_sha256);
    work->text.limit = CAIRN_MANIFEST_BYTES_MAX;
    CAIRN_TRY(cairn_manifest_encode(&work->manifest, &work->text, err));
    CAIRN_ASSERT(work->checksums.size == 4 * manifest->block_count);
    return CAIRN_OK;
}

/* Q53: the stored manifest names another object for the same layout, chosen in a life of this
 * catalog that a backup has made it forget. Manifests are never replaced, so that choice stands
 * unless its object was swept (V20). The object of our own choice is swept when unused. */
SRV_CHANGE(take_choice, struct work *work) {
    const char *chosen = work->manifest.layout_writer.text;
    struct srv_layout stored = layout_of(work, &work->manifest.layout_writer);
    struct srv_layout ours = layout_of(work, &work->version.layout_writer);
    bool swept = false;
    CAIRN_TRY(srv_lease_check(tx, &work->lease, err));
    CAIRN_TRY(srv_layout_swept(tx, &stored, &swept, err));
    if (swept)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "its manifest is there and names a layout object of %s that was swept",
                          chosen);
    CAIRN_TRY(srv_layout_add(tx, &ours, err));
    return srv_layout_rechoose(tx, work->id, chosen, err);
}

/* Does nothing unless the rows encode to `stored` once they name its object for the layout. */
static enum cairn_code take_layout(struct work *work, const struct cairn_manifest *stored,
                                   struct cairn_view canonical, struct cairn_error *err) {
    CAIRN_AUTO(buf) ours = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    if (!stored->has_layout || !work->manifest.has_layout) return CAIRN_OK;
    work->manifest.layout_writer = stored->layout_writer;
    CAIRN_TRY(cairn_manifest_encode(&work->manifest, &ours, err));
    if (ours.size != canonical.size || memcmp(ours.data, canonical.data, ours.size))
        return CAIRN_OK;
    CAIRN_TRY(srv_catalog_write(work->server->catalog, take_choice, work, err));
    cairn_log(INFO, "commit.layout_taken", "version=%s writer=%s", work->id,
              stored->layout_writer.text);
    work->again = true;
    return CAIRN_OK;
}

/* Q53: a server of another release may have died between its manifest and its transaction, leaving
 * the same content in other bytes. If the stored manifest, decoded and encoded by us, equals ours,
 * its bytes are this version's manifest. Anything else leaves the version open. */
static enum cairn_code take_stored(struct work *work, const char *key, struct cairn_error *err) {
    CAIRN_AUTO(buf) stored = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    CAIRN_AUTO(buf) again = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    CAIRN_AUTO(manifest) manifest = {0};
    struct cairn_error why = {0};
    CAIRN_TRY(cairn_store_get_small(work->worker, key, &stored, err));
    enum cairn_code code = cairn_manifest_decode(cairn_buf_view(&stored), &manifest, &why);
    if (!code) code = cairn_manifest_encode(&manifest, &again, &why);
    if (code)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is there and is no manifest of this version: %s",
                          key, why.message);
    if (again.size != work->text.size || memcmp(again.data, work->text.data, again.size)) {
        CAIRN_TRY(take_layout(work, &manifest, cairn_buf_view(&again), err));
        return cairn_fail(err, CAIRN_CONFLICT,
                          "%s is there and says something else than the "
                          "version's rows",
                          key);
    }
    cairn_sha256_of(cairn_buf_view(&stored), work->manifest_sha256);
    return CAIRN_OK;
}

static enum cairn_code write_manifest(struct work *work, struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&work->version);
    struct cairn_key key;
    cairn_key_manifest(&place, &key);
    cairn_sha256_of(cairn_buf_view(&work->text), work->manifest_sha256);
    enum cairn_code code =
        cairn_store_put_same(work->worker, key.text, cairn_buf_view(&work->text), err);
    if (code == CAIRN_CONFLICT && CAIRN_RULE(Q53)) code = take_stored(work, key.text, err);
    CAIRN_TRY(code);
    CAIRN_CRASHPOINT("server.commit.after_manifest");
    return CAIRN_OK;
}

/* ---- the one commit point ---- */

SRV_CHANGE(flip, struct work *work) {
    CAIRN_ASSERT(work->whole);
    CAIRN_ASSERT(!work->final);
    work->committed = false;
    CAIRN_TRY(srv_lease_check_expect(tx, &work->lease, err));
    CAIRN_TRY(srv_version_expect(tx, work->id, err));
    CAIRN_TRY(srv_run_expect(tx, &work->version.name, err));
    CAIRN_TRY(srv_tx_run_thawed_expect(tx, work->version.run_id, err));
    CAIRN_TRY(srv_lease_check(tx, &work->lease, err));
    srv_version_release(&work->version);
    CAIRN_TRY(srv_version_get(tx, work->id, &work->version, err));
    SRV_GET(run, run, srv_run_get(tx, &work->version.name, &run, err));
    CAIRN_TRY(srv_tx_run_thawed(tx, run.id, err));
    if (work->version.state != CAIRN_STATE_OPEN || run.attempt != work->version.attempt)
        return CAIRN_OK;
    struct srv_move move = {.event = CAIRN_EVENT_COMMIT};
    CAIRN_ASSERT(!work->version.recorded);
    CAIRN_TRY(srv_version_move(tx, &work->version, &move, err));
    CAIRN_ASSERT(work->version.state == CAIRN_STATE_COMMITTED);
    work->version.committed_ms = srv_wall_ms(work->server);
    work->version.bytes = work->manifest.total_bytes;
    work->version.shards = work->manifest.shard_count;
    memcpy(work->version.manifest_sha256, work->manifest_sha256, sizeof(work->manifest_sha256));
    work->committed = true;
    CAIRN_AUTO_HEAP char *warnings = replica_warnings(&work->replicas);
    if (!warnings) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for warnings");
    CAIRN_TRY(srv_version_set_committed(tx, &work->version, warnings, err));
    bool shown = false;
    if (!CAIRN_RULE(Q24)) CAIRN_TRY(srv_version_set_recorded(tx, &work->version, &shown, err));
    if (!CAIRN_RULE(Q52)) CAIRN_TRY(srv_record_supersede(tx, &work->version, err));
    struct srv_layout layout = layout_of(work, &work->version.layout_writer);
    return work->table_count ? srv_layout_use(tx, &layout, err) : CAIRN_OK;
}

/* ---- one run of the commit ---- */

/* Documents before the manifest; the sweep deletes them with a version that is given up (Q33). */
static enum cairn_code write_parts(struct work *work, struct cairn_buf *layout_bytes,
                                   struct cairn_error *err) {
    struct cairn_version_place place = srv_version_place(&work->version);
    struct cairn_key key;
    if (work->table_count) CAIRN_TRY(write_layout(work, layout_bytes, err));
    cairn_key_checksums(&place, &key);
    CAIRN_TRY(cairn_store_put_same(work->worker, key.text, cairn_buf_view(&work->checksums), err));
    CAIRN_CRASHPOINT("server.commit.after_checksums");
    return CAIRN_OK;
}

/* Every failure that ends the version sets work->final. Q55: the objects are judged before the
 * manifest; on S3 while layout and checksums are written, in a folder before that, since a folder
 * without its mount still accepts writes. Q53: a failed write never ends the version. */
static enum cairn_code prove_and_write(struct work *work, struct cairn_error *err) {
    CAIRN_AUTO(buf) layout_bytes = {0};
    CAIRN_CRASHPOINT("server.commit.before_proof");
    enum cairn_code code = CAIRN_OK;
    if (work->table_count && !work->layout_known) code = prove(work, &layout_bytes, err);
    if (!code) code = encode_manifest(work, err);
    /* Failures in what seals and registrations fixed are permanent. */
    work->final = code == CAIRN_BEGIN_DIFFERS || code == CAIRN_INVALID ||
                  code == CAIRN_TABLE_INVALID || code == CAIRN_TOO_LARGE;
    if (code) return code;
    CAIRN_TRY(look_at_objects(work, err));
    struct cairn_error why = {0};
    bool look_first = cairn_store_may_move(work->server->store);
    enum cairn_code written = look_first ? CAIRN_OK : write_parts(work, &layout_bytes, &why);
    CAIRN_TRY(judge_objects(work, err));
    if (look_first) written = write_parts(work, &layout_bytes, &why);
    CAIRN_TRY(cairn_pass(err, written, &why));
    return write_manifest(work, err);
}

static enum cairn_code commit_whole(struct work *work, struct cairn_error *err) {
    enum cairn_code code = prove_and_write(work, &work->why);
    if (code && work->final) return give_up(work, err);
    if (code == CAIRN_CONFLICT && !CAIRN_RULE(Q53)) return give_up(work, err);
    CAIRN_TRY(cairn_pass(err, code, &work->why));
    CAIRN_TRY(srv_catalog_write(work->server->catalog, flip, work, err));
    if (!work->committed) return CAIRN_OK; /* given up in between: the sweep cleans up */
    CAIRN_CRASHPOINT("server.commit.after_transaction");
    size_t differing = json_array_size(work->replicas.warnings) + work->replicas.more;
    if (differing)
        cairn_log(WARN, "commit.replicas_differ", "version=%s tensors=%zu first=\"%s\"", work->id,
                  differing, json_string_value(json_array_get(work->replicas.warnings, 0)));
    srv_version_release(&work->version);
    return CAIRN_OK;
}

static enum cairn_code look_at_version(struct work *work, struct cairn_error *err) {
    SRV_LOOK(look, work->server->catalog, err);
    srv_version_release(&work->version);
    CAIRN_TRY(srv_version_get(look.tx, work->id, &work->version, err));
    CAIRN_TRY(srv_tx_run_thawed(look.tx, work->version.run_id, err));
    if (work->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    return srv_version_weight(look.tx, work->id, &work->weight_bytes, err);
}

static enum cairn_code run_once(struct work *work, struct cairn_error *err) {
    CAIRN_TRY(look_at_version(work, err));
    if (work->version.state == CAIRN_STATE_OPEN) {
        work->has_room = srv_jobs_take_room(work->server, work->weight_bytes);
        if (work->server->stopping)
            return cairn_fail(err, CAIRN_CANCELLED, "the server is stopping");
        srv_version_release(&work->version);
        CAIRN_TRY(srv_catalog_write(work->server->catalog, load_rows, work, err));
        if (!work->whole) return CAIRN_OK;
        CAIRN_TRY(srv_lease_take(&work->lease, err)); /* held since load_rows, else busy */
        CAIRN_TRY(commit_whole(work, err));
        CAIRN_TRY(look_at_version(work, err));
    }
    bool done = work->version.recorded && (CAIRN_RULE(Q24) || !work->committed);
    if (work->version.state != CAIRN_STATE_COMMITTED || done) return CAIRN_OK;
    CAIRN_TRY(srv_lease_take(&work->lease, err));
    CAIRN_ASSERT(!work->final); /* a version that was given up has no record */
    CAIRN_TRY(srv_record_write(work->server, work->worker, &work->version, &work->lease, err));
    if (work->committed) { /* the duration until waiters were woken */
        cairn_metrics_observe(work->server->metrics, SRV_METRIC(commit_duration_seconds),
                              cairn_mono_us() - work->from_us);
        cairn_log(DEBUG, "commit.took", "version=%s ms=%" PRIu64, work->id,
                  srv_mono_ms(work->server) - work->from_ms);
    }
    srv_record_drop_rows(work->server, &work->version);
    srv_retain_after_commit(work->server, work->worker, &work->version.name);
    (void)srv_tiering_run(work->server, work->worker, &work->version.name);
    return CAIRN_OK;
}

enum cairn_code srv_commit_run(struct srv *server, struct cairn_store_worker *worker,
                               const char *version_id, struct cairn_error *err) {
    CAIRN_TRY(srv_thawed(server, err));
    if (server->stopping) return cairn_fail(err, CAIRN_CANCELLED, "the server is stopping");
    uint64_t from_ms = srv_mono_ms(server), from_us = cairn_mono_us();
    enum cairn_code code = CAIRN_OK;
    bool again = true;
    for (int i = 0; i < 2 && again; i++) {
        struct work work = {.server = server,
                            .worker = worker,
                            .id = version_id,
                            .from_ms = from_ms,
                            .from_us = from_us};
        struct cairn_error why = {0};
        srv_lease_init(&work.lease, server, "version", version_id);
        code = run_once(&work, &why);
        srv_lease_end(&work.lease);
        if (code && err) *err = why;
        again = work.again;
        release_work(&work);
    }
    return code;
}
