/* SPDX-License-Identifier: Apache-2.0 */
/* The reading threads: take pieces, get them, compare every block, count. */
#include "uploader/fetch/fetch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/pages.h"
#include "uploader/fetch/inside.h"
#include "uploader/metrics.h"

#define IDLE_POLL_MS 1000

struct cairn_up_get { /* one request under way */
    struct cairn_store_range range;
    struct cairn_up_get *next;
    struct cairn_up_reading *reading;
    const struct cairn_up_piece *piece;
    struct cairn_up_bounce *bounce;
    struct cairn_key key;
    uint64_t submitted_us; /* mono clock */
    bool finished, unwanted;
};

/* ---- windows ---- */

enum cairn_code cairn_up_window_new(struct cairn_up *up, uint64_t bytes,
                                    struct cairn_up_window **ret, struct cairn_error *err) {
    if (!bytes || bytes > UINT64_C(1) << 46)
        return cairn_fail(err, CAIRN_INVALID, "a window of %" PRIu64 " bytes", bytes);
    CAIRN_TRY(cairn_up_fetch_run(up->fetch, err));
    struct cairn_up_window *window = calloc(1, sizeof(*window));
    if (!window) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a window");
    window->up = up;
    window->users = 1;
    uint64_t size = cairn_round_up(bytes, CAIRN_SLAB_UNIT_BYTES);
    enum cairn_code code = cairn_budget_take(&up->budget, size, "a restore window", err);
    if (code == CAIRN_OK) {
        code = cairn_slab_create("cairn-window", size, true, &window->memory, err);
        if (code != CAIRN_OK) cairn_budget_give(&up->budget, size);
    }
    if (code != CAIRN_OK) {
        free(window);
        return code;
    }
    *ret = window;
    return CAIRN_OK;
}

void cairn_up_window_leave(struct cairn_up_window *window) {
    if (!window) return;
    struct cairn_up *up = window->up;
    cairn_lock_take(&up->fetch->lock);
    bool last = --window->users == 0;
    cairn_lock_give(&up->fetch->lock);
    if (!last) return;
    uint64_t bytes = window->memory.size_bytes;
    cairn_slab_release(&window->memory);
    cairn_budget_give(&up->budget, bytes);
    free(window);
}

/* ---- ends of readings ---- */

static void reading_free(struct cairn_up_reading *reading) {
    cairn_up_version_leave(reading->version);
    cairn_up_window_leave(reading->window);
    free(reading->pieces);
    free(reading->fragments);
    free(reading);
}

/* One piece is over; the last one ends the reading. The lock is not held. */
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
    reading->done(reading->owner, reading->code, &reading->error);
    reading_free(reading);
}

/* ---- taking pieces ---- */

static void get_done(struct cairn_store_request *request) {
    struct cairn_up_get *get = request->owner;
    get->finished = true;
}

static void prepare(struct cairn_up_get *get) {
    const struct cairn_up_version *version = get->reading->version;
    const struct cairn_manifest_shard *shard = &version->manifest.shards[get->piece->shard];
    cairn_key_shard(&version->place, cairn_view_of(shard->name), &get->key);
    get->range = (struct cairn_store_range){
        .request = {.key = get->key.text,
                    .offset = get->piece->offset,
                    .length = get->piece->bytes,
                    .into = get->bounce ? get->bounce->data
                                        : get->reading->window->memory.data + get->piece->at,
                    .done = get_done,
                    .owner = get},
        .tags = version->tags,
        .object = get->piece->shard,
        .object_bytes = shard->size_bytes,
        .checksums =
            version->checksums + 4 * (shard->first_block + get->piece->offset / CAIRN_BLOCK_BYTES),
    };
}

static void submit(struct cairn_up_reader *reader, struct cairn_up_get *get) {
    get->finished = false;
    get->next = reader->flying;
    reader->flying = get;
    reader->flying_count++;
    get->submitted_us = cairn_mono_us();
    cairn_store_range_begin(&get->range);
    cairn_store_submit(reader->store, &get->range.request);
}

/* The oldest reading first. */
static struct cairn_up_get *take_piece(struct cairn_up_fetch *fetch) {
    struct cairn_up_get *get = calloc(1, sizeof(*get));
    if (!get) return NULL;
    CAIRN_HOLD(&fetch->lock);
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next) {
        if (at->taken == at->piece_count || at->code != CAIRN_OK) continue;
        const struct cairn_up_piece *piece = &at->pieces[at->taken];
        if (piece->bounced && !fetch->locked.free_bounces) continue;
        if (piece->bounced) {
            get->bounce = fetch->locked.free_bounces;
            fetch->locked.free_bounces = get->bounce->next;
        }
        at->taken++;
        get->reading = at;
        get->piece = piece;
        prepare(get);
        return get;
    }
    free(get);
    return NULL;
}

static void give_bounce(struct cairn_up_fetch *fetch, struct cairn_up_bounce *bounce) {
    if (!bounce) return;
    CAIRN_HOLD(&fetch->lock);
    bounce->next = fetch->locked.free_bounces;
    fetch->locked.free_bounces = bounce;
}

/* ---- checking ---- */

static enum cairn_code judge(struct cairn_up_get *get, struct cairn_error *err) {
    enum cairn_code code = cairn_store_range_judge(&get->range, err);
    if (code == CAIRN_OK) return CAIRN_OK;
    char text[900];
    cairn_up_version_shard_text(get->reading->version, get->piece->shard, text);
    return cairn_within(err, code, "%s", text);
}

static void place_fragments(const struct cairn_up_get *get) {
    for (size_t i = 0; i < get->piece->fragment_count; i++) {
        const struct cairn_up_fragment *fragment =
            &get->reading->fragments[get->piece->fragment_first + i];
        memcpy(get->reading->window->memory.data + fragment->at, get->bounce->data + fragment->from,
               fragment->bytes);
    }
}

static void measure(struct cairn_metrics *metrics, const struct cairn_up_get *get,
                    enum cairn_code code) {
    cairn_up_metrics_tell(metrics, &get->range.request);
    cairn_metrics_observe(
        metrics, (struct cairn_metric_at){CAIRN_UP_METRIC_range_read_duration_seconds, code, 0},
        cairn_mono_us() - get->submitted_us);
    if (!code)
        cairn_metrics_add(metrics, CAIRN_UP_METRIC(restore_bytes_total), get->piece->bytes);
}

static void finish(struct cairn_up_reader *reader, struct cairn_up_get *get) {
    struct cairn_error error = {0};
    enum cairn_code code = judge(get, &error);
    measure(reader->fetch->up->metrics, get, code);
    if (!get->unwanted && cairn_store_range_again(&get->range, code)) {
        cairn_up_fetch_tell_again(get->key.text, &error);
        submit(reader, get);
        return;
    }
    if (code == CAIRN_OK && get->bounce) place_fragments(get);
    give_bounce(reader->fetch, get->bounce);
    piece_over(reader->fetch, get->reading, code, &error);
    free(get);
}

static void finish_all(struct cairn_up_reader *reader) {
    struct cairn_up_get *ended = NULL, **at = &reader->flying;
    while (*at) {
        struct cairn_up_get *get = *at;
        if (!get->finished) {
            at = &get->next;
            continue;
        }
        *at = get->next;
        reader->flying_count--;
        get->next = ended;
        ended = get;
    }
    while (ended) {
        struct cairn_up_get *get = ended;
        ended = get->next;
        finish(reader, get);
    }
}

static bool stopping(struct cairn_up_fetch *fetch) {
    CAIRN_HOLD(&fetch->lock);
    return fetch->locked.stopping;
}

static void *reader_main(void *argument) {
    struct cairn_up_reader *reader = argument;
    while (!stopping(reader->fetch)) {
        bool took = false;
        while (reader->flying_count < cairn_store_appetite(reader->store)) {
            struct cairn_up_get *get = take_piece(reader->fetch);
            if (!get) break;
            submit(reader, get);
            took = true;
        }
        struct cairn_error error;
        if (cairn_store_poll(reader->store, took ? 0 : IDLE_POLL_MS, &error) != CAIRN_OK)
            cairn_log(ERROR, "fetch.poll", "cause=\"%s\"", error.message);
        finish_all(reader);
    }
    for (struct cairn_up_get *get = reader->flying; get; get = get->next) {
        get->unwanted = true;
        if (!get->finished) cairn_store_cancel(reader->store, &get->range.request);
    }
    finish_all(reader);
    return NULL;
}

/* ---- asking ---- */

enum cairn_code cairn_up_fetch_read(struct cairn_up_fetch *fetch, struct cairn_up_version *version,
                                    struct cairn_up_window *window,
                                    const struct cairn_up_range *ranges, size_t count,
                                    void (*done)(void *owner, enum cairn_code code,
                                                 const struct cairn_error *why),
                                    void *owner, struct cairn_error *err) {
    struct cairn_up_reading *reading = calloc(1, sizeof(*reading));
    if (!reading) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    reading->version = version;
    reading->window = window;
    reading->done = done;
    reading->owner = owner;
    enum cairn_code code = cairn_up_fetch_plan(reading, ranges, count, err);
    if (code != CAIRN_OK) {
        free(reading->pieces);
        free(reading->fragments);
        free(reading);
        return code;
    }
    cairn_lock_take(&fetch->lock);
    version->users++;
    window->users++;
    bool empty = !reading->piece_count || fetch->locked.stopping;
    if (!empty) {
        *fetch->locked.last = reading;
        fetch->locked.last = &reading->next;
    }
    cairn_lock_give(&fetch->lock);
    if (empty) {
        done(owner, CAIRN_OK, &reading->error);
        reading_free(reading);
        return CAIRN_OK;
    }
    for (size_t i = 0; i < fetch->reader_count; i++) cairn_store_wake(fetch->readers[i].store);
    return CAIRN_OK;
}

/* ---- life ---- */

enum cairn_code cairn_up_fetch_new(struct cairn_up *up, struct cairn_up_fetch **ret,
                                   struct cairn_error *err) {
    struct cairn_up_fetch *fetch = calloc(1, sizeof(*fetch));
    if (!fetch) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    fetch->up = up;
    cairn_lock_init(&fetch->lock, CAIRN_LOCK_uploader_fetch);
    fetch->locked.last = &fetch->locked.first;
    fetch->reader_count = (size_t)up->settings.restore_workers;
    enum cairn_code code = cairn_up_leases_start(fetch, err);
    if (code) {
        cairn_lock_release(&fetch->lock);
        free(fetch);
        return code;
    }
    *ret = fetch;
    return CAIRN_OK;
}

static enum cairn_code make_pool(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    size_t count = fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER;
    uint64_t bytes = count * CAIRN_BLOCK_BYTES;
    CAIRN_TRY(cairn_budget_take(&fetch->up->budget, bytes, "buffers for restores", err));
    void *pool = cairn_pages_map((size_t)bytes);
    fetch->locked.bounces = calloc(count, sizeof(*fetch->locked.bounces));
    if (!pool || !fetch->locked.bounces) {
        cairn_pages_unmap(pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the buffers of restores");
    }
    fetch->locked.pool = pool;
    for (size_t i = 0; i < count; i++) {
        struct cairn_up_bounce *bounce = &fetch->locked.bounces[i];
        bounce->data = fetch->locked.pool + i * CAIRN_BLOCK_BYTES;
        bounce->next = fetch->locked.free_bounces;
        fetch->locked.free_bounces = bounce;
    }
    return CAIRN_OK;
}

static enum cairn_code start_readers(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    fetch->readers = calloc(fetch->reader_count, sizeof(*fetch->readers));
    if (!fetch->readers) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the readers");
    for (size_t i = 0; i < fetch->reader_count; i++) {
        fetch->readers[i].fetch = fetch;
        CAIRN_TRY(cairn_store_worker_new(fetch->up->store, &fetch->readers[i].store, err));
    }
    CAIRN_TRY(make_pool(fetch, err));
    for (size_t i = 0; i < fetch->reader_count; i++) {
        if (pthread_create(&fetch->readers[i].thread, NULL, reader_main, &fetch->readers[i]))
            return cairn_fail(err, CAIRN_INTERNAL, "no thread for a reader");
        fetch->readers[i].started = true;
    }
    return CAIRN_OK;
}

static void drop_readers(struct cairn_up_fetch *fetch) {
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++) {
        if (fetch->readers[i].started) pthread_join(fetch->readers[i].thread, NULL);
        if (fetch->readers[i].store) cairn_store_worker_free(fetch->readers[i].store);
    }
    free(fetch->readers);
    fetch->readers = NULL;
    uint64_t bytes = fetch->reader_count * CAIRN_UP_BOUNCES_PER_READER * CAIRN_BLOCK_BYTES;
    if (fetch->locked.pool) {
        cairn_pages_unmap(fetch->locked.pool, (size_t)bytes);
        cairn_budget_give(&fetch->up->budget, bytes);
    }
    free(fetch->locked.bounces);
    fetch->locked.pool = NULL;
    fetch->locked.bounces = fetch->locked.free_bounces = NULL;
}

/* Under uploader_state, which only serialises the first windows of several sessions. */
enum cairn_code cairn_up_fetch_run(struct cairn_up_fetch *fetch, struct cairn_error *err) {
    CAIRN_HOLD(&fetch->up->lock);
    cairn_lock_take(&fetch->lock);
    bool running = fetch->locked.running;
    cairn_lock_give(&fetch->lock);
    if (running) return CAIRN_OK;
    enum cairn_code code = start_readers(fetch, err);
    if (code != CAIRN_OK) {
        cairn_lock_take(&fetch->lock);
        fetch->locked.stopping = true;
        cairn_lock_give(&fetch->lock);
        drop_readers(fetch);
    }
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = false;
    fetch->locked.running = code == CAIRN_OK;
    cairn_lock_give(&fetch->lock);
    return code;
}

void cairn_up_fetch_stop(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_lock_take(&fetch->lock);
    fetch->locked.stopping = true;
    struct cairn_up_reading *left = NULL;
    for (struct cairn_up_reading *at = fetch->locked.first; at; at = at->next) {
        if (at->code == CAIRN_OK) {
            at->code = CAIRN_CANCELLED;
            cairn_fail(&at->error, CAIRN_CANCELLED, "the uploader is stopping");
        }
    }
    cairn_lock_give(&fetch->lock);
    for (size_t i = 0; fetch->readers && i < fetch->reader_count; i++)
        cairn_store_wake(fetch->readers[i].store);
    drop_readers(fetch);
    /* Readings of which no piece was under way. */
    cairn_lock_take(&fetch->lock);
    left = fetch->locked.first;
    fetch->locked.first = NULL;
    fetch->locked.last = &fetch->locked.first;
    cairn_lock_give(&fetch->lock);
    while (left) {
        struct cairn_up_reading *reading = left;
        left = left->next;
        reading->done(reading->owner, reading->code, &reading->error);
        reading_free(reading);
    }
}

void cairn_up_fetch_free(struct cairn_up_fetch *fetch) {
    if (!fetch) return;
    cairn_up_fetch_stop(fetch);
    cairn_up_leases_stop(fetch);
    cairn_lock_release(&fetch->lock);
    free(fetch);
}
