/* SPDX-License-Identifier: Apache-2.0 */
/* Which node a piece is asked of, and what its answer is worth. The store is behind all of it: an
 * ask that fails is read from there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/text.h"
#include "uploader/fetch/inside.h"
#include "uploader/metrics.h"

#define LOOK_MS 500

/* ---- among whom ---- */

static bool is_set_to(const struct cairn_up_fetch *fetch, const char *word) {
    return !strcmp(fetch->up->settings.peer_restore, word);
}

/* The newest list, with the hash of each name; this node stands behind the others. */
static void take_roster(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    struct cairn_up_division *division = &version->division;
    struct cairn_up_roster roster = {0};
    if (cairn_up_members_get(&fetch->up->peers->members, &version->place.name,
                             version->place.id.text, &roster, NULL))
        return;
    uint64_t *hashes = calloc(roster.count + 1, sizeof(*hashes));
    if (!hashes) {
        cairn_up_roster_release(&roster);
        return;
    }
    for (size_t i = 0; i < roster.count; i++)
        hashes[i] = cairn_plan_node_hash(roster.members[i].node);
    hashes[roster.count] = cairn_plan_node_hash(fetch->up->places.node);
    cairn_up_roster_release(&division->roster);
    free(division->hashes);
    division->roster = roster;
    division->hashes = hashes;
}

static enum cairn_plan_choice choose(const struct cairn_up_fetch *fetch,
                                     const struct cairn_up_division *division) {
    const struct cairn_up_meter *store = &fetch->locked.store_meter;
    const struct cairn_up_meter *peer = &fetch->locked.peer_meter;
    struct cairn_plan_measured measured = {.nodes = division->roster.count + 1,
                                           .store_bytes = store->bytes,
                                           .store_us = store->us,
                                           .peer_bytes = peer->bytes,
                                           .peer_us = peer->us,
                                           .answers = division->answers,
                                           .shared = division->shared,
                                           .waited_ms = division->waited_ms,
                                           .asked_bytes = division->asked_bytes,
                                           .asked_us = division->asked_us};
    if (is_set_to(fetch, "on") && measured.nodes > 1) return CAIRN_PLAN_DIVIDE;
    return cairn_plan_choose(&measured);
}

/* The lock is held. Before and after each change of `asking`. */
static void count_asking(struct cairn_up_division *division) {
    uint64_t now_us = cairn_mono_us();
    if (division->asking) division->asked_us += now_us - division->asking_since_us;
    division->asking_since_us = now_us;
}

/* Counted up to now also while it goes on, so that it can end the division that makes it wait. */
void cairn_up_division_waits_locked(struct cairn_up_version *version, bool waits) {
    struct cairn_up_division *division = &version->division;
    uint64_t now_ms = cairn_mono_ms();
    if (division->waits_since_ms) division->waited_ms += now_ms - division->waits_since_ms;
    division->waits_since_ms = waits && division->count ? now_ms : 0;
}

void cairn_up_division_look_locked(struct cairn_up_fetch *fetch, struct cairn_up_version *version) {
    struct cairn_up_division *division = &version->division;
    if (!fetch->up->peers || is_set_to(fetch, "off") || !fetch->locked.cells.capacity) return;
    uint64_t now_ms = cairn_mono_ms();
    count_asking(division);
    if (division->looked_ms && now_ms < division->looked_ms + LOOK_MS) return;
    bool first = !division->looked_ms;
    division->looked_ms = now_ms;
    take_roster(fetch, version);
    enum cairn_plan_choice choice = choose(fetch, division);
    if (first || choice != division->choice)
        cairn_log(INFO, "restore.divided", "version=%s nodes=%zu choice=\"%s\"",
                  version->place.id.text, division->roster.count + 1,
                  cairn_plan_choice_text(choice));
    division->choice = choice;
    division->count = cairn_plan_divides(choice) ? division->roster.count : 0;
    division->asks_keepers = division->roster.keeper_count && choice != CAIRN_PLAN_NETWORK;
}

/* ---- who has it in memory ---- */

/* Those of the shard's rank stand together. */
static const struct cairn_up_keeper *keepers_of(const struct cairn_up_version *version,
                                                uint32_t shard, size_t *ret_count) {
    const struct cairn_up_roster *roster = &version->division.roster;
    uint32_t rank = version->manifest.shards[shard].rank;
    size_t first = 0, end = version->division.asks_keepers ? roster->keeper_count : 0, count = 0;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (roster->keepers[middle].rank < rank)
            first = middle + 1;
        else
            end = middle;
    }
    end = version->division.asks_keepers ? roster->keeper_count : 0;
    while (first + count < end && roster->keepers[first + count].rank == rank) count++;
    *ret_count = count;
    return count ? roster->keepers + first : NULL;
}

bool cairn_up_division_keeps_locked(const struct cairn_up_version *version, uint32_t shard) {
    size_t count = 0;
    return keepers_of(version, shard, &count) != NULL;
}

/* Of several each is asked for its part. NULL: none can be asked. */
static const struct cairn_up_member *keeper_of(const struct cairn_up_fetch *fetch,
                                               const struct cairn_up_get *get, uint64_t place) {
    const struct cairn_up_division *division = &get->version->division;
    const struct cairn_up_member *found = NULL;
    uint64_t best = 0;
    size_t count = 0;
    const struct cairn_up_keeper *keepers = keepers_of(get->version, get->shard, &count);
    for (size_t i = 0; i < count; i++) {
        uint32_t at = keepers[i].member;
        CAIRN_ASSERT(at < division->roster.count);
        const struct cairn_up_member *member = &division->roster.members[at];
        uint64_t score = cairn_plan_score(division->hashes[at], place);
        if ((found && score <= best) ||
            cairn_up_asks_passes_by(fetch->up->peers->asks, member->node))
            continue;
        found = member;
        best = score;
    }
    return found;
}

/* ---- asking ---- */

/* The one whose share it is; NULL: this node's, or it cannot be asked. */
static const struct cairn_up_member *owner_of(const struct cairn_up_fetch *fetch,
                                              const struct cairn_up_get *get, uint64_t place) {
    const struct cairn_up_division *division = &get->version->division;
    if (!division->count || get->owner_failed) return NULL;
    size_t owner = cairn_plan_owner(division->hashes, division->count + 1, place);
    if (owner == division->count) return NULL;
    const struct cairn_up_member *member = &division->roster.members[owner];
    return cairn_up_asks_passes_by(fetch->up->peers->asks, member->node) ? NULL : member;
}

bool cairn_up_division_owner_locked(struct cairn_up_fetch *fetch, struct cairn_up_get *get) {
    const struct cairn_up_version *version = get->version;
    const struct cairn_up_division *division = &version->division;
    uint64_t place = cairn_plan_place_hash(version->place.id.text, get->shard,
                                           get->cell->offset / CAIRN_UP_CELL_BYTES);
    const struct cairn_up_member *member =
        get->keeper_failed ? NULL : keeper_of(fetch, get, place);
    get->of_keeper = member != NULL;
    if (!member) member = owner_of(fetch, get, place);
    if (!member) return false;
    get->cell->elsewhere |= get->of_keeper;
    get->ask.to = *member;
    get->ask.run = version->place.name;
    get->ask.attempt = division->roster.attempt;
    memcpy(get->ask.key, division->roster.key, sizeof(get->ask.key));
    return true;
}

/* The readers take it from here: to the node whose share it is, where one was asked that should
 * have had it in memory, else to the store. */
static void order(struct cairn_up_fetch *fetch, struct cairn_up_get *get) {
    {
        CAIRN_HOLD(&fetch->lock);
        if (get->of_keeper)
            get->keeper_failed = true;
        else
            get->owner_failed = true;
        fetch->locked.asking--;
        get->cell->asked &= (uint8_t)~get->run;
        get->next = fetch->locked.orders;
        fetch->locked.orders = get;
    }
    cairn_up_readers_wake(fetch);
}

static enum cairn_code compare(struct cairn_up_fetch *fetch, struct cairn_up_get *get,
                               struct cairn_error *err) {
    const struct cairn_up_version *version = get->version;
    const struct cairn_manifest_shard *shard = &version->manifest.shards[get->shard];
    const uint8_t *checksums =
        version->checksums + 4 * (shard->first_block + get->offset / CAIRN_BLOCK_BYTES);
    struct cairn_view bytes = {get->ask.into, (size_t)get->bytes};
    enum cairn_code code = cairn_store_blocks_check(checksums, get->offset, bytes, err);
    if (!code) return CAIRN_OK;
    cairn_up_asks_wrong(fetch->up->peers->asks, get->ask.to.node);
    cairn_log(WARN, "peers.wrong_bytes", "node=%s version=%s cause=\"%s\"", get->ask.to.node,
              version->place.id.text, err->message);
    return code;
}

/* What the network gives is measured from here: until then the other node waits for the store. */
static void ask_begun(struct cairn_up_ask *ask) {
    struct cairn_up_get *get = ask->owner;
    struct cairn_up_fetch *fetch = get->version->fetch;
    CAIRN_HOLD(&fetch->lock);
    cairn_up_meter_begin(&fetch->locked.peer_meter);
}

static void ask_done(struct cairn_up_ask *ask) {
    struct cairn_up_get *get = ask->owner;
    struct cairn_up_version *version = get->version;
    struct cairn_up_fetch *fetch = version->fetch;
    struct cairn_error why = ask->error;
    enum cairn_code code = ask->code;
    if (!code) code = compare(fetch, get, &why);
    if (!code)
        cairn_metrics_add(fetch->up->metrics, CAIRN_UP_METRIC(restore_peer_bytes_total),
                          get->bytes);
    {
        CAIRN_HOLD(&fetch->lock);
        if (ask->has_begun)
            cairn_up_meter_end(&fetch->locked.peer_meter, code ? 0 : get->bytes);
        count_asking(&version->division);
        version->division.asking--;
        version->division.asked_bytes += code ? 0 : get->bytes;
        version->division.answers += !code;
        version->division.shared += !code && ask->shared;
        if (!code) version->counts.peer_bytes += get->bytes;
        if (!code) fetch->locked.asking--;
    }
    if (code && code != CAIRN_CONFLICT && code != CAIRN_BUSY) /* those are there */
        cairn_up_members_outdate(&fetch->up->peers->members, &version->place.name);
    if (code)
        order(fetch, get);
    else
        cairn_up_run_over(fetch, get, CAIRN_OK, NULL);
}

void cairn_up_division_ask(struct cairn_up_fetch *fetch, struct cairn_up_get *get) {
    struct cairn_up_ask *ask = &get->ask;
    struct cairn_error err = {0};
    ask->method = "GET";
    ask->offset = get->offset;
    ask->bytes = get->bytes;
    ask->into = get->cell->data + (get->offset - get->cell->offset);
    ask->begun = ask_begun;
    ask->done = ask_done;
    ask->owner = get;
    snprintf(ask->path, sizeof(ask->path), CAIRN_UP_SERVE_PATH "%" PRIu64 "/%s/%" PRIu32,
             get->version->place.step, get->version->place.id.text, get->shard);
    cairn_lock_take(&fetch->lock);
    count_asking(&get->version->division);
    get->version->division.asking++;
    cairn_lock_give(&fetch->lock);
    if (!cairn_up_asks_add(fetch->up->peers->asks, ask, &err)) return;
    cairn_lock_take(&fetch->lock);
    count_asking(&get->version->division);
    get->version->division.asking--;
    cairn_lock_give(&fetch->lock);
    order(fetch, get);
}
