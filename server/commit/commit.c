/* SPDX-License-Identifier: Apache-2.0 */
/* The commit of one version (rules Q22, Q23, Q53): proof, layout object, checksums.bin,
 * manifest.json, one transaction; the record after it is record.c's. Every step may be repeated:
 * what is written is a pure function of the version's rows, and a writer that finds it there
 * compares it. */
#include "server/commit/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/digest.h"
#include "api/layout.h"
#include "api/manifest.h"
#include "api/table.h"
#include "common/array.h"
#include "common/clock.h"
#include "common/crashpoint.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/rule.h"
#include "common/text.h"
#include "plan/cover.h"
#include "server/commit/commit_objects.h"
#include "server/commit/replicas.h"
#include "server/copies/tiering.h"
#include "server/db/sql.h"
#include "server/guard/identity.h"
#include "server/guard/jobs.h"
#include "server/guard/records.h"
#include "server/http/waiters.h"
#include "server/ledger/layouts.h"
#include "server/ledger/shards.h"
#include "server/metrics.h"
#include "server/retention/retain.h"

/* A manifest of far fewer shards is above CAIRN_MANIFEST_BYTES_MAX, which ends its version. */
#define SHARDS_MAX (CAIRN_MANIFEST_BYTES_MAX / 8)

struct rank_table {
    uint32_t rank;
    uint8_t digest[32];
    struct cairn_buf bytes;
};
struct work {
    struct cairn_srv *server;
    struct cairn_store_worker *worker;
    const char *id;
    uint64_t from_ms, from_us; /* when it began: the server's clock, and the machine's */
    struct cairn_srv_lease lease;
    struct cairn_srv_version version;
    bool whole, has_room;
    uint64_t weight_bytes;
    struct cairn_manifest manifest;
    struct cairn_buf text; /* of the manifest */
    char **nodes;          /* by shard: who registered it */
    size_t shard_capacity, node_capacity;
    struct cairn_buf checksums;
    struct rank_table *tables; /* by rank */
    size_t table_count;
    uint32_t ranks_sealed;
    bool layout_known; /* another version of this layout was proven and its object is there */
    uint8_t layout_digest[32];
    struct cairn_srv_replicas *replicas;
    uint8_t manifest_sha256[32];
    bool final; /* the reason to give up can never heal */
    bool again; /* another choice of the layout's object was taken over: all from its rows on */
    bool committed, changed;
    struct cairn_error why; /* of giving up */
};

static void release_work(struct work *work) {
    for (size_t i = 0; i < work->table_count; i++) cairn_buf_release(&work->tables[i].bytes);
    for (size_t i = 0; i < work->manifest.shard_count; i++) free(work->nodes[i]);
    free(work->tables);
    free(work->nodes);
    cairn_manifest_release(&work->manifest);
    cairn_buf_release(&work->checksums);
    cairn_buf_release(&work->text);
    cairn_srv_version_release(&work->version);
    cairn_srv_replicas_free(work->replicas);
    if (work->has_room) cairn_srv_jobs_give_room(work->server);
}

/* ---- reading the rows ---- */

static enum cairn_code add_shard(void *argument, const struct cairn_srv_shard_row *row,
                                 struct cairn_error *err) {
    struct work *work = argument;
    struct cairn_manifest *manifest = &work->manifest;
    size_t before = manifest->shard_count;
    CAIRN_ASSERT(row->rank < work->version.world_size);
    CAIRN_ASSERT(row->blocks.size == 4 * cairn_block_count(row->size)); /* it is registered */
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

static enum cairn_code add_rank(void *argument, const struct cairn_srv_rank_sealed *rank,
                                struct cairn_error *err) {
    struct work *work = argument;
    CAIRN_ASSERT(rank->rank < work->version.world_size); /* tables has room for as many */
    CAIRN_ASSERT(!work->table_count || work->tables[work->table_count - 1].rank < rank->rank);
    CAIRN_TRY(cairn_srv_replicas_add(work->replicas, rank->rank, rank->replicated, err));
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

static struct cairn_srv_layout layout_of(const struct work *work,
                                         const struct cairn_version_id *writer) {
    struct cairn_srv_layout layout = {.run_id = work->version.run_id, .writer = *writer};
    memcpy(layout.digest, work->layout_digest, 32);
    return layout;
}

/* Which object holds the layout is chosen once and kept in the row: the manifest names it and must
 * come out the same whoever writes it again. The choice is the reference of Q33. */
static enum cairn_code choose_layout(struct cairn_srv_tx *tx, struct work *work,
                                     struct cairn_error *err) {
    if (!work->version.has_writer) {
        CAIRN_TRY(
            cairn_srv_layout_choose(tx, work->id, work->version.run_id, work->layout_digest, err));
        cairn_srv_version_release(&work->version);
        CAIRN_TRY(cairn_srv_version_get(tx, work->id, &work->version, err));
        CAIRN_ASSERT(work->version.has_writer);
    }
    struct cairn_srv_layout layout = layout_of(work, &work->version.layout_writer);
    return cairn_srv_layout_there(tx, &layout, &work->layout_known, err);
}

/* Tables are only needed for a layout that was not proven before. */
static enum cairn_code load_tables(struct cairn_srv_tx *tx, struct work *work,
                                   struct cairn_error *err) {
    for (size_t i = 0; i < work->table_count; i++) {
        struct rank_table *table = &work->tables[i];
        bool there = false;
        table->bytes.limit = CAIRN_TABLE_BYTES_MAX;
        CAIRN_TRY(cairn_srv_table_get(tx, table->digest, &table->bytes, &there, err));
        if (!there)
            return cairn_fail(err, CAIRN_INTERNAL, "the table of rank %u is gone", table->rank);
    }
    return CAIRN_OK;
}

/* A write, because the choice of the layout's object is kept. */
static enum cairn_code load(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct work *work = argument;
    CAIRN_TRY(cairn_srv_version_expect(tx, work->id, err));
    CAIRN_TRY(cairn_srv_version_whole_expect(tx, work->id, err));
    CAIRN_TRY(cairn_srv_lease_take_expect(tx, &work->lease, err));
    CAIRN_TRY(cairn_srv_shards_all_expect(tx, work->id, err));
    CAIRN_TRY(cairn_srv_version_get(tx, work->id, &work->version, err));
    CAIRN_TRY(cairn_srv_version_whole(tx, &work->version, &work->whole, err));
    if (!work->whole) return CAIRN_OK;
    work->checksums.limit = CAIRN_GIB;
    work->tables = calloc((size_t)work->version.world_size + 1, sizeof(*work->tables));
    if (!work->tables) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the rank tables");
    CAIRN_TRY(cairn_srv_replicas_new(&work->replicas, err));
    /* In the order of the manifest, which is that of checksums.bin. */
    CAIRN_TRY(cairn_srv_shards_all(tx, work->id, add_shard, work, err));
    CAIRN_TRY(cairn_srv_ranks_sealed(tx, work->id, add_rank, work, err));
    CAIRN_ASSERT(work->ranks_sealed == work->version.world_size); /* what "whole" counted */
    CAIRN_TRY(cairn_srv_lease_take_in(tx, &work->lease, err)); /* what is expected is taken */
    if (!work->table_count) return CAIRN_OK;
    digest_layout(work);
    CAIRN_TRY(choose_layout(tx, work, err));
    return work->layout_known ? CAIRN_OK : load_tables(tx, work, err);
}

/* ---- giving up ---- */

static enum cairn_code abort_version(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct work *work = argument;
    CAIRN_AUTO(srv_version) version = {0};
    CAIRN_TRY(cairn_srv_lease_check(tx, &work->lease, err));
    CAIRN_TRY(cairn_srv_version_get(tx, work->id, &version, err));
    if (version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    struct cairn_srv_move move = {CAIRN_EVENT_GIVE_UP, work->why.code, work->why.message};
    work->changed = true;
    return cairn_srv_version_move(tx, &version, &move, err);
}

/* A failed proof can never heal, since seals are final; work->why names the place. */
static enum cairn_code give_up(struct work *work, struct cairn_error *err) {
    CAIRN_ASSERT(work->final || !CAIRN_RULE(Q53));
    CAIRN_ASSERT(!work->committed);
    CAIRN_ASSERT(work->why.code); /* what its other ranks and people are told */
    CAIRN_TRY(cairn_srv_catalog_write(work->server->catalog, abort_version, work, err));
    cairn_log(WARN, "commit.refused", "version=%s step=%" PRIu64 " cause=\"%s\"", work->id,
              work->version.step, work->why.message);
    if (!work->changed) return CAIRN_OK;
    cairn_srv_waiters_wake_version(work->server->waiters, &work->version.id, &work->version.name);
    cairn_srv_jobs_sweep(work->server);
    return CAIRN_OK;
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
    CAIRN_TRY(build_layout(work, layout_bytes, err));
    struct cairn_layout layout = {0};
    CAIRN_TRY(cairn_layout_open(cairn_buf_view(layout_bytes), &layout, err));
    enum cairn_code code = cairn_plan_cover_prove_until(&layout, &work->server->stopping, err);
    cairn_layout_release(&layout);
    return code;
}

static enum cairn_code read_tables(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    return load_tables(tx, argument, err);
}

/* A layout that another version wrote is only looked for; one that somebody removed is written
 * again, from the tables of this version. */
static enum cairn_code write_layout(struct work *work, struct cairn_buf *layout_bytes,
                                    struct cairn_error *err) {
    struct cairn_key key;
    cairn_key_layout(&work->version.name, work->layout_digest, &work->version.layout_writer, &key);
    if (work->layout_known) {
        struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = key.text};
        enum cairn_code code = cairn_store_perform(work->worker, &head, err);
        if (code != CAIRN_NOT_FOUND) return code;
        CAIRN_TRY(cairn_srv_catalog_read(work->server->catalog, read_tables, work, err));
        CAIRN_TRY(build_layout(work, layout_bytes, err));
    }
    CAIRN_TRY(cairn_store_put_same(work->worker, key.text, cairn_buf_view(layout_bytes), err));
    CAIRN_CRASHPOINT("server.commit.after_layout");
    return CAIRN_OK;
}

/* ---- manifest ---- */

static enum cairn_code encode_manifest(struct work *work, struct cairn_error *err) {
    const struct cairn_srv_version *version = &work->version;
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

/* Q53: the stored manifest names another object for the same layout, which a life of this catalog
 * chose that a backup has made it forget. That choice stands, since a manifest is never replaced,
 * unless the object was swept since (V20). What was written under our own choice is swept when no
 * other version comes to use it. */
static enum cairn_code take_choice(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct work *work = argument;
    const char *chosen = work->manifest.layout_writer.text;
    struct cairn_srv_layout stored = layout_of(work, &work->manifest.layout_writer);
    struct cairn_srv_layout ours = layout_of(work, &work->version.layout_writer);
    bool swept = false;
    CAIRN_TRY(cairn_srv_lease_check(tx, &work->lease, err));
    CAIRN_TRY(cairn_srv_layout_swept(tx, &stored, &swept, err));
    if (swept)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "its manifest is there and names a layout object of %s that was swept",
                          chosen);
    CAIRN_TRY(cairn_srv_layout_add(tx, &ours, err));
    return cairn_srv_layout_rechoose(tx, work->id, chosen, err);
}

/* Nothing, unless the rows say what `stored` says once they name its object for the layout. */
static enum cairn_code take_layout(struct work *work, const struct cairn_manifest *stored,
                                   struct cairn_view canonical, struct cairn_error *err) {
    CAIRN_AUTO(buf) ours = {.limit = CAIRN_MANIFEST_BYTES_MAX};
    if (!stored->has_layout || !work->manifest.has_layout) return CAIRN_OK;
    work->manifest.layout_writer = stored->layout_writer;
    CAIRN_TRY(cairn_manifest_encode(&work->manifest, &ours, err));
    if (ours.size != canonical.size || memcmp(ours.data, canonical.data, ours.size))
        return CAIRN_OK;
    CAIRN_TRY(cairn_srv_catalog_write(work->server->catalog, take_choice, work, err));
    cairn_log(INFO, "commit.layout_taken", "version=%s writer=%s", work->id,
              stored->layout_writer.text);
    work->again = true;
    return CAIRN_OK;
}

/* Q53: bytes that say the same as these rows were written by a server of another release, between
 * its manifest and its transaction. Read as its format and written in ours they come out equal;
 * then the stored bytes are this version's manifest. Anything else leaves the version open. */
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

static enum cairn_code write_checksums(struct work *work, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&work->version);
    struct cairn_key key;
    cairn_key_checksums(&place, &key);
    CAIRN_TRY(cairn_store_put_same(work->worker, key.text, cairn_buf_view(&work->checksums), err));
    CAIRN_CRASHPOINT("server.commit.after_checksums");
    return CAIRN_OK;
}

static enum cairn_code write_manifest(struct work *work, struct cairn_error *err) {
    struct cairn_version_place place = cairn_srv_version_place(&work->version);
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

static enum cairn_code flip(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct work *work = argument;
    CAIRN_ASSERT(work->whole);
    CAIRN_ASSERT(!work->final);
    work->committed = false;
    CAIRN_TRY(cairn_srv_lease_check_expect(tx, &work->lease, err));
    CAIRN_TRY(cairn_srv_version_expect(tx, work->id, err));
    CAIRN_TRY(cairn_srv_run_expect(tx, &work->version.name, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed_expect(tx, work->version.run_id, err));
    CAIRN_TRY(cairn_srv_lease_check(tx, &work->lease, err));
    cairn_srv_version_release(&work->version);
    CAIRN_TRY(cairn_srv_version_get(tx, work->id, &work->version, err));
    CAIRN_AUTO(srv_run) run = {0};
    CAIRN_TRY(cairn_srv_run_get(tx, &work->version.name, &run, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, run.id, err));
    if (work->version.state != CAIRN_STATE_OPEN || run.attempt != work->version.attempt)
        return CAIRN_OK;
    struct cairn_srv_move move = {.event = CAIRN_EVENT_COMMIT};
    CAIRN_ASSERT(!work->version.recorded);
    CAIRN_TRY(cairn_srv_version_move(tx, &work->version, &move, err));
    CAIRN_ASSERT(work->version.state == CAIRN_STATE_COMMITTED);
    work->version.committed_ms = cairn_srv_wall_ms(work->server);
    work->version.bytes = work->manifest.total_bytes;
    work->version.shards = work->manifest.shard_count;
    memcpy(work->version.manifest_sha256, work->manifest_sha256, sizeof(work->manifest_sha256));
    work->committed = true;
    CAIRN_AUTO_HEAP char *warnings = cairn_srv_replicas_warnings(work->replicas);
    if (!warnings) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for warnings");
    CAIRN_TRY(cairn_srv_version_set_committed(tx, &work->version, warnings, err));
    bool shown = false;
    if (!CAIRN_RULE(Q24))
        CAIRN_TRY(cairn_srv_version_set_recorded(tx, &work->version, &shown, err));
    if (!CAIRN_RULE(Q52)) CAIRN_TRY(cairn_srv_record_supersede(tx, &work->version, err));
    struct cairn_srv_layout layout = layout_of(work, &work->version.layout_writer);
    return work->table_count ? cairn_srv_layout_use(tx, &layout, err) : CAIRN_OK;
}

/* ---- the whole ---- */

/* What seals and registrations fixed can never heal. */
static bool is_verdict(enum cairn_code code) {
    return code == CAIRN_BEGIN_DIFFERS || code == CAIRN_INVALID || code == CAIRN_TABLE_INVALID ||
           code == CAIRN_TOO_LARGE;
}

/* What is no manifest yet: the sweep takes it away with a version that is given up (Q33). */
static enum cairn_code write_parts(struct work *work, struct cairn_buf *layout_bytes,
                                   struct cairn_error *err) {
    if (work->table_count) CAIRN_TRY(write_layout(work, layout_bytes, err));
    return write_checksums(work, err);
}

/* Everything that may end the version sets work->final. Q55 before the manifest: the store lists
 * all objects, and layout and checksums are written while its answer is on the way; in a folder
 * after it, since a folder whose mount is gone takes writes. Q53: nothing that is found while
 * writing ends the version; the verdict on the objects does. */
static enum cairn_code prove_and_write(struct work *work, struct cairn_error *err) {
    CAIRN_AUTO(buf) layout_bytes = {0};
    CAIRN_CRASHPOINT("server.commit.before_proof");
    enum cairn_code code = CAIRN_OK;
    if (work->table_count && !work->layout_known) code = prove(work, &layout_bytes, err);
    if (!code) code = encode_manifest(work, err);
    work->final = is_verdict(code);
    if (code) return code;
    struct cairn_srv_objects objects = {.server = work->server,
                                        .worker = work->worker,
                                        .place = cairn_srv_version_place(&work->version),
                                        .manifest = &work->manifest,
                                        .nodes = work->nodes};
    CAIRN_TRY(cairn_srv_objects_start(&objects, err));
    struct cairn_error why = {0};
    bool look_first = cairn_store_may_move(work->server->store);
    enum cairn_code written = look_first ? CAIRN_OK : write_parts(work, &layout_bytes, &why);
    CAIRN_TRY(cairn_srv_objects_finish(&objects, &work->final, err));
    if (look_first) written = write_parts(work, &layout_bytes, &why);
    if (written) {
        *err = why;
        return written;
    }
    return write_manifest(work, err);
}

static enum cairn_code commit(struct work *work, struct cairn_error *err) {
    enum cairn_code code = prove_and_write(work, &work->why);
    if (code && work->final) return give_up(work, err);
    if (code == CAIRN_CONFLICT && !CAIRN_RULE(Q53)) return give_up(work, err);
    if (code) {
        *err = work->why;
        return code;
    }
    CAIRN_TRY(cairn_srv_catalog_write(work->server->catalog, flip, work, err));
    if (!work->committed) return CAIRN_OK; /* given up in between: the sweep cleans */
    CAIRN_CRASHPOINT("server.commit.after_transaction");
    cairn_srv_replicas_log(work->replicas, work->id);
    cairn_srv_version_release(&work->version);
    return CAIRN_OK;
}

static enum cairn_code look(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct work *work = argument;
    cairn_srv_version_release(&work->version);
    CAIRN_TRY(cairn_srv_version_get(tx, work->id, &work->version, err));
    CAIRN_TRY(cairn_srv_tx_run_thawed(tx, work->version.run_id, err));
    if (work->version.state != CAIRN_STATE_OPEN) return CAIRN_OK;
    return cairn_srv_version_weight(tx, work->id, &work->weight_bytes, err);
}

/* Until whoever waits was told. */
static void say_took(const struct work *work) {
    cairn_metrics_observe(
        work->server->metrics,
        (struct cairn_metric_at){.family = CAIRN_SRV_METRIC_commit_duration_seconds},
        cairn_mono_us() - work->from_us);
    cairn_log(DEBUG, "commit.took", "version=%s ms=%" PRIu64, work->id,
              cairn_srv_mono_ms(work->server) - work->from_ms);
}

static enum cairn_code run(struct work *work, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_read(work->server->catalog, look, work, err));
    if (work->version.state == CAIRN_STATE_OPEN) {
        work->has_room = cairn_srv_jobs_take_room(work->server, work->weight_bytes);
        if (work->server->stopping)
            return cairn_fail(err, CAIRN_CANCELLED, "the server is stopping");
        cairn_srv_version_release(&work->version);
        CAIRN_TRY(cairn_srv_catalog_write(work->server->catalog, load, work, err));
        if (!work->whole) return CAIRN_OK;
        CAIRN_TRY(cairn_srv_lease_take(&work->lease, err)); /* load has it, or nobody here */
        CAIRN_TRY(commit(work, err));
        CAIRN_TRY(cairn_srv_catalog_read(work->server->catalog, look, work, err));
    }
    bool done = work->version.recorded && (CAIRN_RULE(Q24) || !work->committed);
    if (work->version.state != CAIRN_STATE_COMMITTED || done) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_lease_take(&work->lease, err));
    CAIRN_ASSERT(!work->final); /* what is given up has no record */
    CAIRN_TRY(
        cairn_srv_record_write(work->server, work->worker, &work->version, &work->lease, err));
    if (work->committed) say_took(work);
    cairn_srv_record_drop_rows(work->server, &work->version);
    cairn_srv_retain_after_commit(work->server, work->worker, &work->version.name);
    (void)cairn_srv_tiering_run(work->server, work->worker, &work->version.name);
    return CAIRN_OK;
}

enum cairn_code cairn_srv_commit_run(struct cairn_srv *server, struct cairn_store_worker *worker,
                                     const char *version_id, struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_thawed(server, err));
    if (server->stopping) return cairn_fail(err, CAIRN_CANCELLED, "the server is stopping");
    uint64_t from_ms = cairn_srv_mono_ms(server), from_us = cairn_mono_us();
    enum cairn_code code = CAIRN_OK;
    bool again = true;
    for (int i = 0; i < 2 && again; i++) {
        struct work work = {.server = server,
                            .worker = worker,
                            .id = version_id,
                            .from_ms = from_ms,
                            .from_us = from_us};
        struct cairn_error why = {0};
        cairn_srv_lease_init(&work.lease, server, "version", version_id);
        code = run(&work, &why);
        cairn_srv_lease_end(&work.lease);
        if (code && err) *err = why;
        again = work.again;
        release_work(&work);
    }
    return code;
}
