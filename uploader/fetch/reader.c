/* SPDX-License-Identifier: Apache-2.0 */
/* The reading threads: take pieces, find blocks in cells or get them from the store, other nodes or
 * a slab of this node, compare every block, copy them out. A want with blocks in flight waits at
 * the cell until one of its requests ends. */
#include <stdatomic.h>
#include <stdlib.h>

#include "common/hooks.h"
#include "uploader/fetch/inside.h"
#include "uploader/saves/slabs.h"

/* Ends one piece of a reading; the last piece ends the reading. The lock is not held. */
static void piece_over(struct cairn_up_fetch *fetch, struct cairn_up_reading *reading,
                       enum cairn_code code, const struct cairn_error *why) {
    cairn_lock_take(&fetch->lock);
    if (code != CAIRN_OK && reading->code == CAIRN_OK) {
        reading->code = code;
        reading->error = *why;
    }
    reading->finished++;
    bool failed = reading->code != CAIRN_OK;
    bool last = reading->finished == (failed ? reading->taken : reading->piece_count);
    if (last) {
        struct cairn_up_reading **at = &fetch->locked.first;
        while (*at && *at != reading) at = &(*at)->next;
        if (*at) *at = reading->next;
        for (fetch->locked.last = &fetch->locked.first; *fetch->locked.last;)
            fetch->locked.last = &(*fetch->locked.last)->next;
    }
    cairn_lock_give(&fetch->lock);
    if (!last) return;
    reading->end(reading);
}

/* The connection's thread may have abandoned the answer. */
static void serve_over_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                              struct cairn_up_cell *cell, enum cairn_code code) {
    struct cairn_up_serve *serve = want->serve;
    CAIRN_ASSERT(!serve->over);
    serve->over = true;
    serve->code = code;
    serve->cell = cell;
    cairn_condition_broadcast(&fetch->changed);
    if (!serve->abandoned) return;
    if (cell) cell->users--;
    fetch->locked.serving--;
    if (serve->version->peers_until_ms) /* the version's keeping has its own use */
        serve->version->users--;
    else
        serve->version->peers_until_ms = 1; /* passes the use to the keeping, which the tick ends */
    free(serve);
}

/* ---- wants and requests ---- */

void cairn_up_readers_wake(struct cairn_up_fetch *fetch) {
    cairn_late_ring(&fetch->bell);
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        if (fetch->readers[i].stores[0]) cairn_store_wake(fetch->readers[i].stores[0]);
}

void cairn_up_want_add_locked(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    want->next = NULL;
    *fetch->locked.ready_last = want;
    fetch->locked.ready_last = &want->next;
}

void cairn_up_want_fail(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        enum cairn_code code, const struct cairn_error *why) {
    CAIRN_ASSERT(code != CAIRN_OK);
    if (want->reading) {
        piece_over(fetch, want->reading, code, why);
    } else {
        CAIRN_HOLD(&fetch->lock);
        serve_over_locked(fetch, want, NULL, code);
    }
    free(want);
}

void cairn_up_meter_begin(struct cairn_up_meter *meter) {
    if (!meter->flying++) meter->since_us = cairn_mono_us();
}

/* Halves the weight of older measurements every ten seconds. */
void cairn_up_meter_end(struct cairn_up_meter *meter, uint64_t bytes) {
    uint64_t now_us = cairn_mono_us();
    CAIRN_ASSERT(meter->flying > 0);
    meter->flying--;
    meter->us += now_us - meter->since_us;
    meter->since_us = now_us;
    meter->bytes += bytes;
    if (meter->us < 20000000) return;
    meter->us /= 2;
    meter->bytes /= 2;
}

/* Requeues the cell's waiters; fails those that wanted the missing blocks. */
void cairn_up_run_over(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code,
                       const struct cairn_error *why) {
    struct cairn_up_want *failed = NULL;
    struct cairn_up_version *version = get->version;
    {
        CAIRN_HOLD(&fetch->lock);
        struct cairn_up_cell *cell = get->cell;
        CAIRN_ASSERT((cell->flying & get->run) == get->run);
        cell->flying &= (uint8_t)~get->run;
        cell->asked &= (uint8_t)~get->run;
        if (!code) cell->present |= get->run;
        cell->elsewhere |= get->kept;
        CAIRN_ASSERT(cell->users > 0);
        cell->users--;
        struct cairn_up_want *waiters = CAIRN_TAKE(cell->waiters);
        bool of_rank = false; /* false: only other nodes want it; no restore of this node */
        for (struct cairn_up_want *want = waiters; want; want = want->next)
            of_rank |= want->reading != NULL;
        if (get->kept && of_rank) version->counts.memory_bytes += get->bytes;
        while (waiters) {
            struct cairn_up_want *want = waiters;
            waiters = want->next;
            uint8_t mask = cairn_up_cell_mask(want->piece->offset, want->piece->bytes);
            /* No store read was made for that node. */
            if (get->kept && want->serve) want->serve->shared = true;
            if (!code || !(mask & get->run)) {
                cairn_up_want_add_locked(fetch, want);
                continue;
            }
            want->next = failed;
            failed = want;
        }
    }
    free(get);
    while (failed) {
        struct cairn_up_want *want = failed;
        failed = want->next;
        cairn_up_want_fail(fetch, want, code, why);
    }
    cairn_up_version_unuse(version);
    cairn_up_readers_wake(fetch);
}

/* Compares the copy, not the slab, which a trainer may write; by blocks, for the CPU's cache. */
static bool copy(const uint8_t *from, const uint8_t *checksums, uint64_t bytes, uint8_t *into) {
    for (uint64_t at = 0; at < bytes; at += CAIRN_BLOCK_BYTES, checksums += 4) {
        size_t size = cairn_min_u64(CAIRN_BLOCK_BYTES, bytes - at);
        memcpy(into + at, from + at, size);
        if (cairn_store_blocks_check(checksums, at, (struct cairn_view){into + at, size}, NULL))
            return false;
    }
    return true;
}

/* Blocks of a shard. */
struct span {
    const struct cairn_up_version *version;
    uint32_t shard;
    uint64_t offset, bytes;
};

/* True: verified bytes were copied from a slab of this node (uploader/saves/slabs.h). */
static bool copy_kept(struct cairn_up *up, const struct span *span, uint8_t *into) {
    const struct cairn_up_version *version = span->version;
    const struct cairn_manifest_shard *shard = &version->manifest.shards[span->shard];
    struct cairn_up_kept_bytes kept;
    if (!cairn_up_kept_pin(up, version->place.id.text, shard->name, shard->size_bytes, &kept))
        return false;
    uint64_t block = shard->first_block + span->offset / CAIRN_BLOCK_BYTES;
    bool same = copy(kept.data + span->offset, version->checksums + 4 * block, span->bytes, into);
    cairn_up_kept_unpin(up, &kept, same);
    if (same)
        cairn_metrics_add(up->metrics, CAIRN_UP_METRIC(restore_memory_bytes_total), span->bytes);
    return same;
}

#define IDLE_POLL_MS 1000
#define OTHERS_POLL_MS 10
#define SHUN_MS 10000 /* how long an unresponsive store is avoided */
#define HELD_MAX 8
#define HELD_LOOK_MS 20
#define ACTS_MAX 8 /* between two polls of the store; each may copy 8 MiB */

/* The next action for a want, carried out without the lock. */
struct step {
    enum {
        STEP_NOTHING, /* no want, or none can proceed */
        STEP_AGAIN,   /* the want waits or has ended */
        STEP_COPY,    /* copy its bytes from the cell */
        STEP_KEPT,    /* look for its bytes in this node's slabs, which need no cell */
        STEP_FETCH,   /* begin `get` */
        STEP_FAIL
    } what;
    struct cairn_up_want *want;
    struct cairn_up_cell *cell;
    struct cairn_up_get *get;
    enum cairn_code code; /* of STEP_FAIL */
};

static const struct step nothing = {.what = STEP_NOTHING};

static bool shares(const struct cairn_up_fetch *fetch, const struct cairn_up_version *version,
                   const struct cairn_up_piece *piece) {
    return fetch->locked.cells.capacity &&
           (version->expected > 1 || version->peers_until_ms || version->division.count ||
            cairn_up_division_keeps_locked(version, piece->shard));
}

static struct cairn_up_cell *cell_of(struct cairn_up_fetch *fetch,
                                     const struct cairn_up_version *version,
                                     const struct cairn_up_piece *piece) {
    return cairn_up_cells_find(&fetch->locked.cells, version, piece->shard,
                               piece->offset - piece->offset % CAIRN_UP_CELL_BYTES);
}

/* True: a cell holds all bytes of the piece. */
static bool is_found(struct cairn_up_fetch *fetch, const struct cairn_up_version *version,
                     const struct cairn_up_piece *piece) {
    if (!shares(fetch, version, piece)) return false;
    const struct cairn_up_cell *cell = cell_of(fetch, version, piece);
    return cell && !(cairn_up_cell_mask(piece->offset, piece->bytes) & ~cell->present);
}

static bool is_present(struct cairn_up_fetch *fetch, const struct cairn_up_reading *reading) {
    return is_found(fetch, reading->version, &reading->pieces[reading->taken]);
}

static bool is_takeable(struct cairn_up_fetch *fetch, const struct cairn_up_reading *reading) {
    if (reading->taken == reading->piece_count || reading->code) return false;
    const struct cairn_up_piece *piece = &reading->pieces[reading->taken];
    return !piece->bounced || fetch->locked.free_bounces || shares(fetch, reading->version, piece);
}

/* Prefers a reading whose next piece is in a cell, so that ranks behind another follow closely and
 * free the cell sooner; then, if requests may begin, the oldest. */
static struct cairn_up_reading *choose(struct cairn_up_fetch *fetch, bool may_begin) {
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next)
        if (is_takeable(fetch, at) && is_present(fetch, at)) return at;
    if (!may_begin) return NULL;
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next)
        if (is_takeable(fetch, at)) return at;
    return NULL;
}

static struct cairn_up_want *take_want(struct cairn_up_fetch *fetch, bool may_begin) {
    struct cairn_up_want *want = fetch->locked.ready;
    if (want) {
        fetch->locked.ready = want->next;
        if (!want->next) fetch->locked.ready_last = &fetch->locked.ready;
        return want;
    }
    struct cairn_up_reading *reading = choose(fetch, may_begin);
    want = reading ? calloc(1, sizeof(*want)) : NULL;
    if (!want) return NULL;
    want->reading = reading;
    want->version = reading->version;
    want->piece = &reading->pieces[reading->taken++];
    return want;
}

static void look_at_held(struct cairn_up_fetch *fetch, bool all) {
    CAIRN_HOLD(&fetch->lock);
    uint64_t now_ms = cairn_mono_ms();
    if (!all && now_ms < fetch->locked.held_look_ms + HELD_LOOK_MS) return;
    fetch->locked.held_look_ms = now_ms;
    fetch->locked.held_count = 0;
    while (fetch->locked.held) {
        struct cairn_up_want *want = fetch->locked.held;
        fetch->locked.held = want->next;
        cairn_up_want_add_locked(fetch, want);
    }
}

static struct cairn_up_get *make_get(struct cairn_up_version *version, uint32_t shard,
                                     uint64_t offset, uint64_t bytes) {
    struct cairn_up_get *get = calloc(1, sizeof(*get));
    if (!get) return NULL;
    get->version = version;
    get->shard = shard;
    get->offset = offset;
    get->bytes = bytes;
    return get;
}

static void put_back(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    want->next = fetch->locked.ready;
    if (!want->next) fetch->locked.ready_last = &want->next;
    fetch->locked.ready = want;
}

/* Reads directly into the window, or one block into a bounce. */
static struct step place_direct(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    const struct cairn_up_piece *piece = want->piece;
    struct step step = {.what = STEP_FAIL, .want = want, .code = CAIRN_NO_MEMORY};
    if (want->serve) return step;
    if (piece->bounced && !fetch->locked.free_bounces) {
        put_back(fetch, want);
        return nothing;
    }
    struct cairn_up_get *get = make_get(want->version, piece->shard, piece->offset, piece->bytes);
    if (!get) return step;
    if (piece->bounced) {
        get->bounce = fetch->locked.free_bounces;
        fetch->locked.free_bounces = get->bounce->next;
    }
    get->want = want;
    return (struct step){.what = STEP_FETCH, .want = want, .get = get};
}

/* Counts the want's blocks that another request has read, or is reading, into the cell. */
static void count_found(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                        const struct cairn_up_cell *cell, uint8_t mask) {
    if (want->looked) return;
    want->looked = true;
    uint8_t found = mask & (cell->present | cell->flying);
    if (want->serve) want->serve->shared = found == mask;
    if (!want->reading || !found) return;
    uint64_t bytes = (uint64_t)__builtin_popcount(found) * CAIRN_BLOCK_BYTES;
    want->version->counts.shared_bytes += bytes;
    cairn_metrics_add(fetch->up->metrics, CAIRN_UP_METRIC(restore_shared_bytes_total), bytes);
}

static struct step begin_run(struct cairn_up_want *want, struct cairn_up_cell *cell, uint8_t run) {
    uint64_t size = want->version->manifest.shards[cell->shard].size_bytes;
    struct cairn_up_get *get =
        make_get(want->version, cell->shard, cairn_up_cell_run_offset(cell, run),
                 cairn_up_cell_run_bytes(cell, run, size));
    if (!get) return (struct step){.what = STEP_FAIL, .want = want, .code = CAIRN_NO_MEMORY};
    get->cell = cell;
    get->run = run;
    get->version->users++; /* the want may fail by another run before this one ends */
    cell->flying |= run;
    cell->users++;
    want->next = cell->waiters;
    cell->waiters = want;
    return (struct step){.what = STEP_FETCH, .get = get};
}

static struct step place_shared(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    const struct cairn_up_piece *piece = want->piece;
    struct cairn_up_cell *cell = cairn_up_cells_claim(
        &fetch->locked.cells, want->version, piece->shard,
        piece->offset - piece->offset % CAIRN_UP_CELL_BYTES, want->version->division.count > 0);
    if (!cell && !fetch->locked.cells.count) return place_direct(fetch, want); /* no memory */
    cairn_up_division_waits_locked(want->version, !cell);
    if (!cell) {
        /* Holds the want until cells may be free, which look_at_held checks every HELD_LOOK_MS. */
        want->next = fetch->locked.held;
        fetch->locked.held = want;
        fetch->locked.held_count++;
        return (struct step){.what = STEP_AGAIN};
    }
    uint8_t mask = cairn_up_cell_mask(piece->offset, piece->bytes);
    count_found(fetch, want, cell, mask);
    cairn_up_cells_used(&fetch->locked.cells, cell);
    uint32_t others = cell->elsewhere ? 0 : (uint32_t)want->version->division.count;
    cell->expected = want->version->expected + others;
    if (!(mask & ~cell->present)) {
        cell->users++;
        return (struct step){.what = STEP_COPY, .want = want, .cell = cell};
    }
    if (want->serve && (mask & cell->asked)) /* the calling node must read it itself */
        return (struct step){.what = STEP_FAIL, .want = want, .code = CAIRN_CONFLICT};
    uint8_t absent = (uint8_t)(mask & ~(cell->present | cell->flying));
    if (absent) return begin_run(want, cell, cairn_up_cell_run(absent));
    want->next = cell->waiters;
    cell->waiters = want;
    return (struct step){.what = STEP_AGAIN};
}

static struct step next_step(struct cairn_up_fetch *fetch, bool may_begin) {
    CAIRN_HOLD(&fetch->lock);
    if (fetch->locked.orders && may_begin) {
        struct cairn_up_get *get = fetch->locked.orders;
        fetch->locked.orders = get->next;
        return (struct step){.what = STEP_FETCH, .get = get};
    }
    /* Requests to other nodes fill at most half of the cells; the rest serves those nodes. */
    size_t asking_max =
        (size_t)cairn_min_u64(CAIRN_UP_ASKING_MAX, fetch->locked.cells.capacity / 2);
    may_begin = may_begin && (!fetch->locked.asking || fetch->locked.asking < asking_max) &&
                fetch->locked.held_count < HELD_MAX;
    struct cairn_up_want *want = take_want(fetch, may_begin);
    if (!want) return nothing;
    if (want->reading && !want->piece->bounced && !want->looked_kept &&
        !is_found(fetch, want->version, want->piece)) {
        want->looked_kept = true;
        return (struct step){.what = STEP_KEPT, .want = want};
    }
    cairn_up_division_look_locked(fetch, want->version);
    return shares(fetch, want->version, want->piece) ? place_shared(fetch, want)
                                                     : place_direct(fetch, want);
}

static void get_done(struct cairn_store_request *request) {
    struct cairn_up_get *get = request->owner;
    get->finished = true;
}

static uint8_t *memory_of(const struct cairn_up_get *get) {
    if (get->cell) return get->cell->data + (get->offset - get->cell->offset);
    return get->bounce ? get->bounce->data
                       : get->want->reading->window->memory.data + get->want->piece->at;
}

static void prepare(struct cairn_up_get *get, size_t store, size_t stores) {
    const struct cairn_up_version *version = get->version;
    const struct cairn_manifest_shard *shard = &version->manifest.shards[get->shard];
    cairn_key_shard(&version->place, cairn_view_of(shard->name), &get->key);
    get->store = store;
    get->range = (struct cairn_store_range){
        .request = {.key = get->key.text,
                    .offset = get->offset,
                    .length = get->bytes,
                    .into = memory_of(get),
                    .done = get_done,
                    .owner = get},
        .tags = version->tags,
        .object = store * version->manifest.shard_count + get->shard,
        .object_bytes = shard->size_bytes,
        .checksums =
            version->checksums + 4 * (shard->first_block + get->offset / CAIRN_BLOCK_BYTES),
        .wait_ms = get->tried + 1 < stores ? CAIRN_STORE_ELSEWHERE_MS : 0,
    };
}

/* Starts at the store of the documents; skips stores that did not answer recently. */
static size_t nearest(const struct cairn_up *up, size_t first) {
    uint64_t now_ms = cairn_mono_ms();
    for (size_t i = 0; i < up->read_count; i++) {
        size_t at = (first + i) % up->read_count;
        if (atomic_load(&up->reads_away_ms[at]) <= now_ms) return at;
    }
    return first;
}

static void copy_out(const struct cairn_up_want *want, const uint8_t *blocks) {
    const struct cairn_up_reading *reading = want->reading;
    const struct cairn_up_piece *piece = want->piece;
    if (!piece->bounced) {
        memcpy(reading->window->memory.data + piece->at, blocks, (size_t)piece->bytes);
        return;
    }
    for (size_t i = 0; i < piece->fragment_count; i++) {
        const struct cairn_up_fragment *fragment = &reading->fragments[piece->fragment_first + i];
        memcpy(reading->window->memory.data + fragment->at, blocks + fragment->from,
               fragment->bytes);
    }
}

static void give_bounce(struct cairn_up_fetch *fetch, struct cairn_up_bounce *bounce) {
    if (!bounce) return;
    CAIRN_HOLD(&fetch->lock);
    bounce->next = fetch->locked.free_bounces;
    fetch->locked.free_bounces = bounce;
}

static void finish_direct(struct cairn_up_fetch *fetch, struct cairn_up_get *get,
                          enum cairn_code code, const struct cairn_error *why) {
    struct cairn_up_want *want = get->want;
    if (!code && get->bounce) copy_out(want, get->bounce->data);
    give_bounce(fetch, get->bounce);
    piece_over(fetch, want->reading, code, why);
    free(want);
    free(get);
}

/* True: copied from this node's memory, without store or other node. */
static bool take_kept(struct cairn_up_fetch *fetch, struct cairn_up_get *get) {
    struct cairn_error none = {0};
    const struct span span = {get->version, get->shard, get->offset, get->bytes};
    if (!copy_kept(fetch->up, &span, memory_of(get))) return false;
    get->kept = true;
    if (get->want && get->want->reading) {
        CAIRN_HOLD(&fetch->lock);
        get->want->version->counts.memory_bytes += get->bytes;
    }
    if (get->cell)
        cairn_up_run_over(fetch, get, CAIRN_OK, &none);
    else
        finish_direct(fetch, get, CAIRN_OK, &none);
    return true;
}

/* Copies a want's bytes from this node's memory straight into the window, or queues the want again
 * for cells, other nodes and the store. */
static void take_kept_want(struct cairn_up_fetch *fetch, struct cairn_up_want *want) {
    struct cairn_up_reading *reading = want->reading;
    const struct cairn_up_piece *piece = want->piece;
    const struct span span = {want->version, piece->shard, piece->offset, piece->bytes};
    bool kept = copy_kept(fetch->up, &span, reading->window->memory.data + piece->at);
    {
        CAIRN_HOLD(&fetch->lock);
        if (kept)
            want->version->counts.memory_bytes += piece->bytes;
        else
            put_back(fetch, want);
    }
    if (!kept) return;
    piece_over(fetch, reading, CAIRN_OK, NULL);
    free(want);
}

static void submit(struct cairn_up_reader *reader, struct cairn_up_get *get) {
    get->finished = false;
    get->next = reader->flying;
    reader->flying = get;
    reader->flying_count++;
    reader->flying_at[get->store]++;
    get->submitted_us = cairn_mono_us();
    {
        CAIRN_HOLD(&reader->fetch->lock);
        cairn_up_meter_begin(&reader->fetch->locked.store_meter);
    }
    cairn_store_range_begin(&get->range);
    cairn_store_submit(reader->stores[get->store], &get->range.request);
}

/* Copies out a want whose bytes are all in the cell; the want holds one use of the cell. */
static void hand_out(struct cairn_up_fetch *fetch, struct cairn_up_want *want,
                     struct cairn_up_cell *cell) {
    struct cairn_up_reading *reading = want->reading;
    if (reading) {
        copy_out(want, cell->data + (want->piece->offset - cell->offset));
        cairn_metrics_add(fetch->up->metrics, CAIRN_UP_METRIC(restore_cached_bytes_total),
                          want->piece->bytes);
    }
    {
        CAIRN_HOLD(&fetch->lock);
        cell->had++;
        if (reading)
            cell->users--;
        else
            serve_over_locked(fetch, want, cell, CAIRN_OK);
    }
    if (reading) piece_over(fetch, reading, CAIRN_OK, NULL);
    free(want);
}

static bool serves(const struct cairn_up_cell *cell) {
    for (const struct cairn_up_want *at = cell->waiters; at; at = at->next)
        if (at->serve) return true;
    return false;
}

/* True: another node is asked. A request from another node is never forwarded: two nodes with
 * different lists could wait for each other. */
static bool ask_other(struct cairn_up_fetch *fetch, struct cairn_up_get *get) {
    if (!get->cell) return false;
    {
        CAIRN_HOLD(&fetch->lock);
        if (serves(get->cell) || !cairn_up_division_owner_locked(fetch, get)) return false;
        get->cell->asked |= get->run;
        fetch->locked.asking++;
    }
    cairn_up_division_ask(fetch, get);
    return true;
}

/* False: nothing to do now. */
static bool act(struct cairn_up_reader *reader) {
    struct cairn_up_fetch *fetch = reader->fetch;
    bool may_begin = reader->flying_count < cairn_store_appetite(reader->stores[0]);
    struct step step = next_step(fetch, may_begin);
    struct cairn_error err = {0};
    switch (step.what) {
    case STEP_NOTHING:
        return false;
    case STEP_AGAIN:
        return true;
    case STEP_COPY:
        hand_out(fetch, step.want, step.cell);
        return true;
    case STEP_KEPT:
        take_kept_want(fetch, step.want);
        return true;
    case STEP_FETCH:
        if (take_kept(fetch, step.get) || ask_other(fetch, step.get)) return true;
        prepare(step.get, nearest(fetch->up, step.get->version->store), fetch->up->read_count);
        submit(reader, step.get);
        return true;
    case STEP_FAIL:
        cairn_up_want_fail(fetch, step.want, cairn_fail(&err, step.code, "no memory for a read"),
                           &err);
        return true;
    }
    return false;
}

static enum cairn_code compare_blocks(struct cairn_up_get *get, struct cairn_error *err) {
    enum cairn_code code = cairn_store_range_judge(&get->range, err);
    if (code == CAIRN_OK) return CAIRN_OK;
    char text[900];
    cairn_up_version_shard_text(get->version, get->shard, text);
    return cairn_within(err, code, "%s", text);
}

static void measure(struct cairn_up_fetch *fetch, struct cairn_up_get *get, enum cairn_code code) {
    struct cairn_metrics *metrics = fetch->up->metrics;
    cairn_up_metrics_tell(metrics, &get->range.request);
    cairn_metrics_observe(
        metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_range_read_duration_seconds, code, 0},
        cairn_mono_us() - get->submitted_us);
    if (!code) cairn_metrics_add(metrics, CAIRN_UP_METRIC(restore_bytes_total), get->bytes);
    CAIRN_HOLD(&fetch->lock);
    cairn_up_meter_end(&fetch->locked.store_meter, code ? 0 : get->bytes);
    if (!code) get->version->counts.store_bytes += get->bytes;
}

/* Sends the request to the next untried store. */
static bool ask_another(struct cairn_up_reader *reader, struct cairn_up_get *get,
                        enum cairn_code code, const struct cairn_error *why) {
    size_t count = reader->fetch->up->read_count;
    if (!code || get->unwanted || code == CAIRN_CANCELLED || ++get->tried >= count) return false;
    /* Avoids a store for a while after a failure that every request would wait for. */
    if (code == CAIRN_UNAVAILABLE || code == CAIRN_TIMEOUT || code == CAIRN_BUSY)
        atomic_store(&reader->fetch->up->reads_away_ms[get->store], cairn_mono_ms() + SHUN_MS);
    cairn_metrics_add(reader->fetch->up->metrics, CAIRN_UP_METRIC(restore_fallbacks_total), 1);
    cairn_log(WARN, "fetch.fallback", "key=%s store=%s cause=\"%s\"", get->key.text,
              cairn_store_url(reader->fetch->up->reads[get->store]), why->message);
    prepare(get, (get->store + 1) % count, count);
    submit(reader, get);
    return true;
}

static void finish(struct cairn_up_reader *reader, struct cairn_up_get *get) {
    struct cairn_error error = {0};
    enum cairn_code code = compare_blocks(get, &error);
    measure(reader->fetch, get, code);
    if (!get->unwanted && cairn_store_range_again(&get->range, code)) {
        cairn_up_fetch_tell_again(get->key.text, &error);
        submit(reader, get);
        return;
    }
    if (ask_another(reader, get, code, &error)) return;
    if (get->cell)
        cairn_up_run_over(reader->fetch, get, code, &error);
    else
        finish_direct(reader->fetch, get, code, &error);
}

static void finish_all(struct cairn_up_reader *reader) {
    struct cairn_up_get *ended = NULL, **at = &reader->flying;
    while (*at) {
        struct cairn_up_get *get = *at;
        if (!get->finished) {
            at = &get->next;
            continue;
        }
        CAIRN_ASSERT(reader->flying_count > 0 && reader->flying_at[get->store] > 0);
        *at = get->next;
        reader->flying_count--;
        reader->flying_at[get->store]--;
        get->next = ended;
        ended = get;
    }
    while (ended) {
        struct cairn_up_get *get = ended;
        ended = get->next;
        finish(reader, get);
    }
}

static uint32_t patience(struct cairn_up_fetch *fetch) {
    CAIRN_HOLD(&fetch->lock);
    return fetch->locked.held ? HELD_LOOK_MS : IDLE_POLL_MS;
}

static bool stopping(struct cairn_up_fetch *fetch) {
    CAIRN_HOLD(&fetch->lock);
    return fetch->locked.stopping;
}

/* Wakes go to the first store's worker, so only its poll waits; busy others are polled often. */
static void poll_all(struct cairn_up_reader *reader, bool acted) {
    struct cairn_error error;
    size_t count = reader->fetch->up->read_count;
    bool elsewhere = false;
    for (size_t i = 1; i < count; i++) elsewhere |= reader->flying_at[i] > 0;
    uint32_t first_ms = acted || elsewhere ? 0 : patience(reader->fetch);
    uint64_t from_ms = cairn_mono_ms();
    for (size_t i = 0; i < count; i++) {
        if (i && !reader->flying_at[i]) continue;
        uint32_t wait_ms = !i ? first_ms : acted ? 0 : OTHERS_POLL_MS;
        if (cairn_store_poll(reader->stores[i], wait_ms, &error))
            cairn_log(ERROR, "fetch.poll", "cause=\"%s\"", error.message);
    }
    reader->late.timed_out = first_ms == IDLE_POLL_MS && cairn_mono_ms() >= from_ms + IDLE_POLL_MS;
}

void *cairn_up_reader_main(void *argument) {
    struct cairn_up_reader *reader = argument;
    while (!stopping(reader->fetch)) {
        bool acted = false;
        if (cairn_late_before(&reader->late, &reader->fetch->bell, cairn_mono_ms()))
            cairn_up_metrics_late(reader->fetch->up->metrics, CAIRN_UP_WAIT_READERS);
        for (int i = 0; i < ACTS_MAX && act(reader); i++) acted = true;
        cairn_late_after(&reader->late, &reader->fetch->bell, acted, cairn_mono_ms());
        poll_all(reader, acted);
        finish_all(reader);
        look_at_held(reader->fetch, false);
    }
    look_at_held(reader->fetch, true);
    if (reader != reader->fetch->readers) CAIRN_CRASHPOINT("uploader.fetch.stopping");
    for (struct cairn_up_get *get = reader->flying; get; get = get->next) {
        get->unwanted = true;
        if (!get->finished) cairn_store_cancel(reader->stores[get->store], &get->range.request);
    }
    finish_all(reader);
    CAIRN_ASSERT(!reader->flying && !reader->flying_count);
    return NULL;
}
