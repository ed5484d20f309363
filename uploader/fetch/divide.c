/* SPDX-License-Identifier: Apache-2.0 */
/* Which node serves a piece, and its throughput; failed requests go to the store. And answers to
 * other nodes: a connection's thread sends blocks once readers have them in a cell. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text.h"
#include "uploader/fetch/inside.h"

#define LOOK_MS 500

static bool is_set_to(const struct cairn_up_fetch *fetch, const char *word) {
    return !strcmp(fetch->up->settings.peer_restore, word);
}

/* Takes the newest list with the hash of each name; this node comes last. */
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

/* Called with the lock held, before and after each change of `asking`. */
static void count_asking(struct cairn_up_division *division) {
    uint64_t now_us = cairn_mono_us();
    if (division->asking) division->asked_us += now_us - division->asking_since_us;
    division->asking_since_us = now_us;
}

/* Also counts a wait in progress, so that it can end the division that causes it. */
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

/* Returns keepers of the shard's rank, which are adjacent. */
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

/* Picks one of several keepers by the piece. NULL: none is available. */
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

/* Returns the node whose share the piece is; NULL: this node, or unavailable. */
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
    const struct cairn_up_member *member = get->keeper_failed ? NULL : keeper_of(fetch, get, place);
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

/* Queues a failed request for readers: after a keeper for the share's node, otherwise the store. */
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

/* Starts the measurement of the network: before, the other node waits for the store. */
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
        if (ask->has_begun) cairn_up_meter_end(&fetch->locked.peer_meter, code ? 0 : get->bytes);
        count_asking(&version->division);
        version->division.asking--;
        version->division.asked_bytes += code ? 0 : get->bytes;
        version->division.answers += !code;
        version->division.shared += !code && ask->shared;
        if (!code) version->counts.peer_bytes += get->bytes;
        if (!code) fetch->locked.asking--;
    }
    if (code && code != CAIRN_CONFLICT && code != CAIRN_BUSY) /* these come from a live node */
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

/* ---- answers to other nodes ---- */

/* Bounds loads for other nodes: helpers are for this node's trainers. */
#define LOADING_MAX 4

struct wanted {
    struct cairn_version_place place;
    uint64_t shard, offset, bytes;
};

/* "STEP/VERSION/SHARD" */
static bool read_path(const struct cairn_up_call *call, struct wanted *ret) {
    const char *version = strchr(call->rest, '/');
    const char *shard = version ? strchr(version + 1, '/') : NULL;
    if (!shard || !call->head.has_range) return false;
    struct cairn_view step = {call->rest, (size_t)(version - call->rest)};
    struct cairn_view id = {version + 1, (size_t)(shard - version - 1)};
    memset(ret, 0, sizeof(*ret)); /* places are compared by bytes */
    ret->place.name = call->right.run;
    if (cairn_parse_u64(step, &ret->place.step, NULL) || !cairn_version_id_valid(id)) return false;
    if (cairn_parse_u64(cairn_view_of(shard + 1), &ret->shard, NULL)) return false;
    memcpy(ret->place.id.text, id.data, id.size);
    ret->offset = call->head.first;
    ret->bytes = call->head.last - call->head.first + 1;
    return true;
}

/* True for whole blocks within one cell. */
static bool is_good(const struct cairn_up_version *version, const struct wanted *wanted) {
    if (wanted->shard >= version->manifest.shard_count) return false;
    uint64_t size = version->manifest.shards[wanted->shard].size_bytes;
    if (wanted->offset >= size || wanted->bytes > size - wanted->offset) return false;
    uint64_t end = wanted->offset + wanted->bytes;
    return wanted->offset % CAIRN_BLOCK_BYTES == 0 &&
           (end % CAIRN_BLOCK_BYTES == 0 || end == size) &&
           wanted->offset / CAIRN_UP_CELL_BYTES == (end - 1) / CAIRN_UP_CELL_BYTES;
}

struct loading { /* run by a helper, while the connection's thread waits */
    struct cairn_up_fetch *fetch;
    struct cairn_version_place place;
    struct cairn_up_version *version;
    bool over, abandoned; /* locked by uploader_fetch */
    enum cairn_code code;
};

static void end_loading(struct loading *loading, enum cairn_code code) {
    struct cairn_up_fetch *fetch = loading->fetch;
    cairn_lock_take(&fetch->lock);
    loading->code = code;
    loading->over = true;
    fetch->locked.loading--;
    bool abandoned = loading->abandoned;
    cairn_condition_broadcast(&fetch->changed);
    cairn_lock_give(&fetch->lock);
    if (!abandoned) return;
    cairn_up_version_leave(loading->version);
    free(loading);
}

static void load_task(struct cairn_up_helper *helper, void *owner) {
    struct loading *loading = owner;
    struct cairn_error why = {0};
    struct cairn_up_version_request request = {.name = &loading->place.name,
                                               .ref = loading->place.id.text,
                                               .known_version = loading->place.id.text,
                                               .known_step = loading->place.step};
    enum cairn_code code = cairn_up_version_load(helper, &request, &loading->version, &why);
    if (code)
        cairn_log(WARN, "peers.unloaded", "version=%s cause=\"%s\"", loading->place.id.text,
                  why.message);
    end_loading(loading, code);
}

static void drop_task(void *owner) {
    end_loading(owner, CAIRN_CANCELLED);
}

/* Waits for a change, unlocked for signs to the peer. False: the peer or this node is gone. */
static bool await_change_locked(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                uint64_t *sign_ms) {
    struct cairn_error ignored = {0};
    if (cairn_condition_wait(&fetch->changed, &fetch->lock, *sign_ms)) return true;
    *sign_ms = cairn_mono_ms() + CAIRN_UP_PORT_SIGN_MS;
    cairn_lock_give(&fetch->lock);
    bool gone = cairn_up_port_stopping(call->port) || cairn_up_call_sign(call, &ignored);
    cairn_lock_take(&fetch->lock);
    return !gone;
}

/* True: over; false: the peer or this node is gone. Releases the lock only for signs. */
static bool await_locked(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                         const bool *over) {
    uint64_t sign_ms = cairn_mono_ms() + CAIRN_UP_PORT_SIGN_MS;
    while (!*over && await_change_locked(call, fetch, &sign_ms)) continue;
    return *over;
}

/* Waits for a turn: answers keep their cells, so at most half of the cells serve other nodes.
 * Refused, the peer would read the bytes from the store again. Releases the lock to sign. */
static enum cairn_code await_turn_locked(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                         struct cairn_error *err) {
    uint64_t sign_ms = cairn_mono_ms() + CAIRN_UP_PORT_SIGN_MS;
    size_t most = fetch->locked.cells.capacity / 2;
    while (most && !fetch->locked.stopping && fetch->locked.serving >= most)
        if (!await_change_locked(call, fetch, &sign_ms))
            return cairn_fail(err, CAIRN_CANCELLED, "nobody waits for it");
    if (!most || fetch->locked.stopping)
        return cairn_fail(err, CAIRN_BUSY, "there are no cells to answer from");
    return CAIRN_OK;
}

/* Returns the version with one more use; NULL: the caller must load it. Waits without a helper. */
static enum cairn_code await_version(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                     const struct cairn_version_place *place,
                                     struct cairn_up_version **ret, struct cairn_error *err) {
    uint64_t sign_ms = cairn_mono_ms() + CAIRN_UP_PORT_SIGN_MS;
    bool loading = false;
    CAIRN_HOLD(&fetch->lock);
    while (!(*ret = cairn_up_version_find_locked(fetch, place, &loading)) &&
           (loading || fetch->locked.loading >= LOADING_MAX))
        if (!await_change_locked(call, fetch, &sign_ms))
            return cairn_fail(err, CAIRN_CANCELLED, "nobody waits for it");
    if (!*ret) fetch->locked.loading++;
    return CAIRN_OK;
}

/* Loads the version on a helper; the caller has counted this load in `loading`. */
static enum cairn_code load_for_peer(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                     const struct wanted *wanted, struct cairn_up_version **ret,
                                     struct cairn_error *err) {
    struct loading *loading = calloc(1, sizeof(*loading));
    enum cairn_code code =
        loading ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a version");
    if (!code) {
        *loading = (struct loading){.fetch = fetch, .place = wanted->place};
        code = cairn_up_tasks_add(fetch->up->tasks, load_task, drop_task, loading, err);
    }
    if (code) {
        free(loading);
        cairn_lock_take(&fetch->lock);
        fetch->locked.loading--;
        cairn_condition_broadcast(&fetch->changed);
        cairn_lock_give(&fetch->lock);
        return code;
    }
    cairn_lock_take(&fetch->lock);
    bool over = await_locked(call, fetch, &loading->over);
    loading->abandoned = !over;
    cairn_lock_give(&fetch->lock);
    if (!over) return cairn_fail(err, CAIRN_CANCELLED, "nobody waits for it");
    code = loading->code;
    *ret = loading->version;
    free(loading);
    return code;
}

/* Adds a use for the caller, and another while it is kept for other nodes. */
static enum cairn_code use_version(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                   const struct wanted *wanted, struct cairn_up_version **ret,
                                   struct cairn_error *err) {
    struct cairn_up_version *version = NULL;
    CAIRN_TRY(await_version(call, fetch, &wanted->place, &version, err));
    bool loaded = !version;
    if (loaded) CAIRN_TRY(load_for_peer(call, fetch, wanted, &version, err));
    CAIRN_HOLD(&fetch->lock);
    if (loaded) version->holders--; /* no restore holds it; the caller keeps its use */
    if (!version->peers_until_ms) version->users++;
    version->peers_until_ms = cairn_mono_ms() + CAIRN_UP_VERSION_KEPT_MS;
    *ret = version;
    return CAIRN_OK;
}

static enum cairn_code begin_serve(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                                   struct cairn_up_version *version, const struct wanted *wanted,
                                   struct cairn_up_serve **ret, struct cairn_error *err) {
    struct cairn_up_serve *serve = calloc(1, sizeof(*serve));
    struct cairn_up_want *want = calloc(1, sizeof(*want));
    enum cairn_code code = CAIRN_OK;
    if (!serve || !want) code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    if (!code) {
        *serve = (struct cairn_up_serve){.piece = {.shard = (uint32_t)wanted->shard,
                                                   .offset = wanted->offset,
                                                   .bytes = wanted->bytes},
                                         .version = version};
        *want = (struct cairn_up_want){.version = version, .piece = &serve->piece, .serve = serve};
        cairn_up_fetch_expect(fetch, version);
        CAIRN_HOLD(&fetch->lock);
        code = await_turn_locked(call, fetch, err);
        if (!code) fetch->locked.serving++;
        if (!code) cairn_up_want_add_locked(fetch, want);
    }
    if (code) {
        free(serve);
        free(want);
        return code;
    }
    *ret = serve;
    cairn_up_readers_wake(fetch);
    return CAIRN_OK;
}

static void send_cell(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                      const struct cairn_up_serve *serve) {
    const struct cairn_up_piece *piece = &serve->piece;
    struct cairn_error why = {0};
    const uint8_t *bytes = serve->cell->data + (piece->offset - serve->cell->offset);
    if (cairn_up_call_answer(call, 206, serve->shared ? "Cairn-Shared: 1\r\n" : "", piece->bytes,
                             &why) ||
        cairn_up_call_send(call, (struct cairn_view){bytes, (size_t)piece->bytes}, &why)) {
        cairn_log(DEBUG, "peers.unsent", "node=%s cause=\"%s\"", call->right.from, why.message);
        return;
    }
    cairn_metrics_add(fetch->up->metrics, CAIRN_UP_METRIC(peer_served_bytes_total), piece->bytes);
    CAIRN_HOLD(&fetch->lock);
    serve->version->counts.served_bytes += piece->bytes;
    serve->version->division.answers++;
    serve->version->division.shared += serve->shared;
}

/* Answers with the blocks, then gives back the caller's use of the version. */
static void serve_blocks(struct cairn_up_call *call, struct cairn_up_fetch *fetch,
                         struct cairn_up_version *version, const struct wanted *wanted) {
    struct cairn_up_serve *serve = NULL;
    struct cairn_error why = {0};
    enum cairn_code code = cairn_up_fetch_run(fetch, &why);
    if (!code) code = begin_serve(call, fetch, version, wanted, &serve, &why);
    if (code) {
        cairn_up_version_unuse(version);
        if (!call->broken) cairn_up_call_refuse(call, code);
        return;
    }
    cairn_lock_take(&fetch->lock);
    bool over = await_locked(call, fetch, &serve->over);
    serve->abandoned = !over;
    cairn_lock_give(&fetch->lock);
    if (!over) {
        if (!call->broken) cairn_up_call_refuse(call, CAIRN_UNAVAILABLE);
        return;
    }
    if (serve->cell)
        send_cell(call, fetch, serve);
    else
        cairn_up_call_refuse(call, serve->code);
    cairn_lock_take(&fetch->lock);
    if (serve->cell) serve->cell->users--;
    fetch->locked.serving--;
    cairn_condition_broadcast(&fetch->changed); /* the next peer's turn */
    cairn_lock_give(&fetch->lock);
    cairn_up_readers_wake(fetch); /* the cell is free */
    free(serve);
    cairn_up_version_unuse(version);
}

static void serve(struct cairn_up_call *call, void *owner) {
    struct cairn_up_fetch *fetch = owner;
    struct cairn_up_version *version = NULL;
    struct cairn_error why = {0};
    struct wanted wanted;
    if (!read_path(call, &wanted)) {
        cairn_up_call_refuse(call, CAIRN_INVALID);
        return;
    }
    enum cairn_code code = use_version(call, fetch, &wanted, &version, &why);
    if (code) {
        if (!call->broken) cairn_up_call_refuse(call, code);
        return;
    }
    if (is_good(version, &wanted)) {
        serve_blocks(call, fetch, version, &wanted);
        return;
    }
    cairn_up_version_unuse(version);
    cairn_up_call_refuse(call, CAIRN_RANGE);
}

void cairn_up_serve_route(struct cairn_up *up, struct cairn_up_fetch *fetch) {
    if (!up->peers) return;
    cairn_up_port_route(up->peers->port, &(struct cairn_up_route){.method = "GET",
                                                                  .path = CAIRN_UP_SERVE_PATH,
                                                                  .serve = serve,
                                                                  .owner = fetch});
}
