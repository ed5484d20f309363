/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk i of the range, widened to grains, lies in slot i % 2: one slot is sent while the other
 * loads. Only a slot's state is changed by both threads.
 *
 * Nothing is sent before the first chunk is loaded, so of several chunks (of a shard) it is short.
 * The second is loaded after it: a bucket's first answer tells the ETag for the others, and a
 * refused object is requested only once. A ready stream (stream.h#4) uses a slot for the first
 * chunk only; at a block not in memory it starts anew, like a stream that has lent both slots. */
#include "server/reads/stream.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/memory.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/metrics.h"
#include "server/reads/send.h"

#define CHUNK_BYTES SRV_STREAM_CHUNK_BYTES
#define STEP_BYTES (256 * CAIRN_KIB)
#define READY_STEP_BYTES CAIRN_BLOCK_BYTES /* the smallest verifiable unit */
#define SILENT_MS 2000 /* a reader that takes nothing for so long lends its slot */
#define LEASE_S 120
#define RENEW_MS (LEASE_S * 1000 / 3)

/* ---- leases (Q29): counted per version in memory, with one catalog row each ---- */

struct leased_version {
    struct srv_task task; /* first */
    struct leased_version *next;
    struct srv *server;
    struct cairn_version_id version;
    size_t count;        /* answers under way */
    uint64_t renewed_ms; /* mono clock; 0: no row */
    bool queued;         /* the task is queued or runs */
};
struct srv_stream_leases {
    struct cairn_lock lock;
    struct {
        struct leased_version *first;
    } locked;
};

enum cairn_code srv_stream_leases_new(struct srv_stream_leases **ret, struct cairn_error *err) {
    struct srv_stream_leases *leases = calloc(1, sizeof(*leases));
    if (!leases) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for leases of downloads");
    cairn_lock_init(&leases->lock, CAIRN_LOCK_server_stream_leases);
    *ret = leases;
    return CAIRN_OK;
}

void srv_stream_leases_free(struct srv_stream_leases *leases) {
    if (!leases) return;
    for (struct leased_version *one = leases->locked.first, *next = NULL; one; one = next) {
        next = one->next;
        free(one);
    }
    cairn_lock_release(&leases->lock);
    free(leases);
}

struct lease_change {
    struct srv *server;
    struct leased_version *entry;
    char job[80];
    char id[SRV_READ_LEASE_BYTES];
    bool put; /* the row was written, not dropped */
};

static enum cairn_code put_lease(struct srv_tx *tx, struct lease_change *change,
                                 struct cairn_error *err) {
    bool made = false;
    CAIRN_TRY(srv_ticks_advance(tx, change->server, err));
    struct srv_read_lease lease = {.version = change->entry->version.text,
                                   .job = change->job,
                                   .until_tick = srv_ticks_after(change->server, LEASE_S * 1000),
                                   .wall_ms = srv_wall_ms(change->server)};
    memcpy(lease.id, change->id, sizeof(lease.id));
    return srv_read_lease_take(tx, &lease, &made, err);
}

/* Lease changes run one at a time and count answers here, so an answer that begins during a drop
 * has its row written afterwards. */
SRV_CHANGE(settle_lease, struct lease_change *change) {
    bool found = false;
    {
        CAIRN_HOLD(&change->server->stream_leases->lock);
        change->put = change->entry->count > 0;
        if (!change->put) change->entry->renewed_ms = 0;
    }
    if (change->put) return put_lease(tx, change, err);
    return srv_read_lease_drop(tx, change->id, change->entry->version.text, &found, err);
}

/* *entry has an answer under way or is queued. False: its row was dropped, or may stay. */
static bool write_row(struct srv *server, struct leased_version *entry) {
    struct lease_change change = {.server = server, .entry = entry};
    struct cairn_error why = {0};
    snprintf(change.job, sizeof(change.job), "downloads through server %.40s",
             srv_catalog_server(server->catalog));
    srv_read_lease_name(entry->version.text, change.job, change.id);
    if (!srv_catalog_write(server->catalog, settle_lease, &change, &why)) return change.put;
    cairn_log(WARN, "lease.untaken", "version=%s cause=\"%s\"", entry->version.text, why.message);
    return false;
}

static void settle_in_pool(struct srv_task *task, struct cairn_store_worker *worker) {
    struct leased_version *entry = (struct leased_version *)task;
    struct srv_stream_leases *leases = entry->server->stream_leases;
    (void)worker;
    for (bool has_row = true; has_row;) {
        has_row = write_row(entry->server, entry);
        CAIRN_HOLD(&leases->lock);
        if (!entry->count && has_row) continue; /* the last answer ended in between: drop the row */
        entry->queued = false;
        if (entry->count) return;
        struct leased_version **at = &leases->locked.first;
        while (*at != entry) at = &(*at)->next;
        *at = entry->next;
    }
    free(entry);
}

/* Needs the lock. */
static void queue_settling(struct leased_version *entry) {
    entry->task.run = settle_in_pool;
    entry->queued = srv_pool_push(entry->server->reads, &entry->task);
}

static struct leased_version *find_entry(struct srv_stream_leases *leases,
                                         const struct cairn_version_id *version) {
    struct leased_version *one = leases->locked.first;
    while (one && strcmp(one->version.text, version->text) != 0) one = one->next;
    return one;
}

static bool is_due(struct leased_version *entry) {
    uint64_t now_ms = cairn_mono_ms();
    if (entry->renewed_ms && now_ms < entry->renewed_ms + RENEW_MS) return false;
    entry->renewed_ms = now_ms;
    return true;
}

/* false: no memory; no give_lease() is due. */
static bool take_lease(struct srv *server, const struct cairn_version_id *version) {
    struct srv_stream_leases *leases = server->stream_leases;
    struct leased_version *made = calloc(1, sizeof(*made)), *entry = NULL;
    bool due = false;
    if (!made) return false;
    *made = (struct leased_version){.server = server, .version = *version};
    {
        CAIRN_HOLD(&leases->lock);
        entry = find_entry(leases, version);
        if (!entry) {
            made->next = leases->locked.first;
            leases->locked.first = entry = made;
        }
        entry->count++;
        due = is_due(entry);
    }
    if (entry != made) free(made);
    if (due) (void)write_row(server, entry);
    return true;
}

static void renew_lease(struct srv *server, const struct cairn_version_id *version) {
    CAIRN_HOLD(&server->stream_leases->lock);
    struct leased_version *entry = find_entry(server->stream_leases, version);
    if (entry && !entry->queued && is_due(entry)) queue_settling(entry);
}

static void give_lease(struct srv *server, const struct cairn_version_id *version) {
    CAIRN_HOLD(&server->stream_leases->lock);
    struct leased_version *entry = find_entry(server->stream_leases, version);
    CAIRN_ASSERT(entry && entry->count);
    if (!--entry->count && !entry->queued) queue_settling(entry);
}

/* ---- a stream ---- */

/* WAY_FIRST_CHUNK: a ready stream before its first chunk is sent. */
enum way { WAY_SLOTS, WAY_FIRST_CHUNK, WAY_READY };
/* A lent slot keeps its chunk number and has no memory. */
enum slot_state {
    SLOT_IDLE,
    SLOT_LOADING,
    SLOT_WAITED_FOR,
    SLOT_READY,
    SLOT_TAKEN_FROM,
    SLOT_LENT,
    SLOT_FAILED
};

struct slot {
    struct srv_task task; /* first */
    struct srv_stream *stream;
    uint64_t chunk;
    uint8_t *data; /* not on the heap: pages of its own or a shared chunk; NULL while lent */
    struct cairn_error error; /* the failure, until it is logged */
    _Atomic int state;
};
struct srv_stream {
    struct srv_read_slot slot; /* first */
    struct srv_stream_options options;
    size_t head_bytes;         /* of the first chunk */
    size_t slot_bytes;         /* of other chunks but the last */
    _Atomic uint64_t taken_ms; /* mono clock: last time the reader took bytes */
    struct slot *wanted;       /* the lent slot at which the reader waits */
    uint64_t first;            /* begin, rounded down to a grain */
    uint64_t last;             /* end, rounded up to a grain or the source's end */
    struct slot slots[2];
    bool leased;  /* its version, until the stream is freed */
    bool counted; /* in server->ready_streams */
    _Atomic int way;
    void (*wake)(void *owner);
    void *owner;
    _Atomic int holders; /* the connection and each loading slot */
};

/* Full slots share the server's chunks; smaller ranges map just their own bytes. */
static bool map(struct slot *slot) {
    const struct srv_stream *stream = slot->stream;
    if (slot->data) return true;
    slot->data = stream->slot_bytes == CHUNK_BYTES ? srv_chunks_take(stream->options.server->chunks)
                                                   : cairn_pages_map(stream->slot_bytes);
    return slot->data != NULL;
}

static void unmap(struct slot *slot) {
    const struct srv_stream *stream = slot->stream;
    if (stream->slot_bytes == CHUNK_BYTES)
        srv_chunks_give(stream->options.server->chunks, slot->data);
    else
        cairn_pages_unmap(slot->data, stream->slot_bytes);
    slot->data = NULL;
}

/* Logs a failure once, before its connection is broken or when the stream is freed. */
static void log_failed(struct slot *slot) {
    if (atomic_load(&slot->state) != SLOT_FAILED || !slot->error.code) return;
    cairn_log(ERROR, "read.broken", "cause=\"%s\"", slot->error.message);
    slot->error.code = CAIRN_OK;
}

static void drop_holder(struct srv_stream *stream) {
    struct srv *server = stream->options.server;
    if (atomic_fetch_sub(&stream->holders, 1) > 1) return;
    for (size_t i = 0; i < 2; i++) log_failed(&stream->slots[i]);
    srv_read_slots_leave(server->read_slots, &stream->slot); /* first: no lend() afterwards */
    for (size_t i = 0; i < 2; i++) unmap(&stream->slots[i]);
    if (stream->counted) atomic_fetch_sub(&server->ready_streams, 1);
    if (stream->leased) give_lease(server, &stream->options.take_source->version);
    srv_source_free(stream->options.take_source);
    free(stream);
    srv_waiters_wake(server->waiters, SRV_STREAMS_KEY);
}

/* ---- chunk boundaries ---- */

static uint64_t chunk_of(const struct srv_stream *stream, uint64_t at) {
    uint64_t from_first = at - stream->first;
    if (from_first < stream->head_bytes) return 0;
    return 1 + (from_first - stream->head_bytes) / stream->slot_bytes;
}

static uint64_t begin_of(const struct srv_stream *stream, uint64_t chunk) {
    if (!chunk) return stream->first;
    return stream->first + stream->head_bytes + (chunk - 1) * stream->slot_bytes;
}

static uint64_t end_of(const struct srv_stream *stream, uint64_t chunk) {
    return cairn_min_u64(begin_of(stream, chunk + 1), stream->last);
}

/* ---- loading a chunk ---- */

static enum cairn_code load_chunk(struct slot *slot, struct cairn_store_worker *worker,
                                  struct cairn_error *err) {
    const struct srv_stream *stream = slot->stream;
    struct srv_source *source = stream->options.take_source;
    uint64_t from = begin_of(stream, slot->chunk);
    if (stream->leased) renew_lease(stream->options.server, &source->version);
    return source->load(source, worker, from, end_of(stream, slot->chunk) - from, slot->data, err);
}

static void load_in_pool(struct srv_task *task, struct cairn_store_worker *worker) {
    struct slot *slot = (struct slot *)task;
    struct srv_stream *stream = slot->stream;
    enum cairn_code code = load_chunk(slot, worker, &slot->error);
    int before = atomic_exchange(&slot->state, code ? SLOT_FAILED : SLOT_READY);
    if (before == SLOT_WAITED_FOR) stream->wake(stream->owner);
    drop_holder(stream);
}

static void load(struct slot *slot, enum slot_state state) {
    struct srv_stream *stream = slot->stream;
    slot->task.run = load_in_pool;
    atomic_store(&slot->state, state);
    atomic_fetch_add(&stream->holders, 1);
    if (map(slot) && srv_pool_push(stream->options.server->reads, &slot->task)) return;
    atomic_store(&slot->state, SLOT_FAILED);
    atomic_fetch_sub(&stream->holders, 1); /* never the last: the caller holds one */
    if (state == SLOT_WAITED_FOR) stream->wake(stream->owner);
}

/* Loads this chunk; past the end the slot becomes idle for good, which lend() relies on. */
static void prefetch(struct srv_stream *stream, uint64_t chunk) {
    if (begin_of(stream, chunk) >= stream->last) {
        atomic_store(&stream->slots[chunk % 2].state, SLOT_IDLE);
        return;
    }
    struct slot *slot = &stream->slots[chunk % 2];
    slot->chunk = chunk;
    load(slot, SLOT_LOADING);
}

/* ---- lending the read slot ---- */

static bool swap(struct slot *slot, int from, int to) {
    return atomic_compare_exchange_strong(&slot->state, &from, to);
}

/* Frees the memory of a reader that is silent and loads nothing; it is loaded again on resume. */
static bool lend(struct srv_read_slot *held) {
    struct srv_stream *stream = (struct srv_stream *)held;
    if (atomic_load(&stream->way) == WAY_READY) return true; /* it uses no memory */
    if (cairn_passed_ms(cairn_mono_ms(), atomic_load(&stream->taken_ms)) < SILENT_MS) return false;
    for (size_t i = 0; i < 2; i++) {
        struct slot *slot = &stream->slots[i];
        if (swap(slot, SLOT_READY, SLOT_LENT) || atomic_load(&slot->state) == SLOT_IDLE) continue;
        if (i) (void)swap(&stream->slots[0], SLOT_LENT, SLOT_READY);
        return false;
    }
    for (size_t i = 0; i < 2; i++) unmap(&stream->slots[i]);
    return true;
}

static void got_slot(struct srv_read_slot *slot) {
    struct srv_stream *stream = (struct srv_stream *)slot;
    atomic_store(&stream->taken_ms, cairn_mono_ms());
    load(stream->wanted, SLOT_WAITED_FOR);
    for (size_t i = 0; i < 2; i++)
        if (atomic_load(&stream->slots[i].state) == SLOT_LENT)
            load(&stream->slots[i], SLOT_LOADING);
}

/* Sets the chunk sizes of the range from `first` on. */
static void divide(struct srv_stream *stream) {
    const struct srv_source *source = stream->options.take_source;
    uint64_t chunk = cairn_min_u64(CHUNK_BYTES, source->chunk_bytes);
    uint64_t bytes = stream->last - stream->first;
    stream->slot_bytes = (size_t)cairn_min_u64(chunk - chunk % source->grain_bytes, bytes);
    stream->head_bytes = stream->slot_bytes;
    if (bytes > stream->slot_bytes)
        stream->head_bytes = (size_t)cairn_min_u64(stream->slot_bytes, source->head_bytes);
}

/* ---- ready streams: blocks in memory ---- */

/* Few at once, since their steps are longer; none over TLS, which already loads the event loop. */
static bool count_ready(struct srv *server) {
    const struct srv_settings *settings = server->settings;
    if (settings->tls_cert[0]) return false;
    if (atomic_fetch_add(&server->ready_streams, 1) < settings->ready_streams_max) return true;
    atomic_fetch_sub(&server->ready_streams, 1);
    return false;
}

/* Called before anything is loaded. */
static void look_for_ready(struct srv_stream *stream) {
    struct srv_source *source = stream->options.take_source;
    uint64_t next = end_of(stream, 0);
    if (!source->open_ready || next >= stream->last) return;
    if (!count_ready(stream->options.server)) return;
    stream->counted = source->open_ready(source, next, stream->last);
    if (stream->counted)
        atomic_store(&stream->way, WAY_FIRST_CHUNK);
    else
        atomic_fetch_sub(&stream->options.server->ready_streams, 1);
}

/* The first chunk was sent, so its slot holds nothing to lend. */
static void become_ready(struct srv_stream *stream, struct slot *slot) {
    unmap(slot);
    atomic_store(&stream->way, WAY_READY);
}

/* 0: not in memory. Also 0 for a range that ends within a block, whose rest has no room in `to`. */
static ssize_t take_ready(struct srv_stream *stream, uint64_t at, void *to, size_t capacity) {
    struct srv_source *source = stream->options.take_source;
    uint64_t bytes = cairn_min_u64(source->grain_bytes, stream->last - at);
    if (bytes > capacity || at + bytes > stream->options.end) return 0;
    if (stream->leased) renew_lease(stream->options.server, &source->version);
    if (!source->load_ready(source, at, bytes, to)) return 0;
    cairn_metrics_add(stream->options.server->metrics, SRV_METRIC(read_ready_bytes_total), bytes);
    return (ssize_t)bytes;
}

/* Continues with slots from a block that is not in memory. */
static void begin_anew(struct srv_stream *stream, uint64_t at) {
    stream->first = at;
    divide(stream);
    for (uint64_t i = 0; i < 2; i++) {
        bool behind = begin_of(stream, i) >= stream->last;
        stream->slots[i].chunk = i;
        atomic_store(&stream->slots[i].state, behind ? SLOT_IDLE : SLOT_LENT);
    }
    atomic_store(&stream->way, WAY_SLOTS);
}

/* ---- the connection's side ---- */

static void init(struct srv_stream *stream, const struct srv_stream_options *options) {
    stream->slot = (struct srv_read_slot){.lend = lend, .got = got_slot};
    stream->options = *options;
    const struct srv_source *source = options->take_source;
    uint64_t grain = source->grain_bytes, past = options->end % grain;
    stream->first = options->begin - options->begin % grain;
    stream->last =
        cairn_min_u64(past ? options->end + (grain - past) : options->end, source->size_bytes);
    divide(stream);
    for (size_t i = 0; i < 2; i++) stream->slots[i].stream = stream;
    atomic_store(&stream->slots[0].state, SLOT_LOADING);
    atomic_store(&stream->taken_ms, cairn_mono_ms());
    atomic_store(&stream->holders, 1);
}

static ssize_t copy_out(struct srv_stream *stream, struct slot *slot, uint64_t at, void *to,
                        size_t capacity) {
    uint64_t chunk_end = cairn_min_u64(end_of(stream, slot->chunk), stream->options.end);
    uint64_t size = cairn_min_u64(chunk_end - at, capacity);
    memcpy(to, slot->data + (at - begin_of(stream, slot->chunk)), (size_t)size);
    atomic_store(&stream->taken_ms, cairn_mono_ms());
    if (at + size < chunk_end)
        atomic_store(&slot->state, SLOT_READY);
    else if (atomic_load(&stream->way) == WAY_FIRST_CHUNK)
        become_ready(stream, slot);
    else
        prefetch(stream, slot->chunk + 2);
    return (ssize_t)size;
}

/* Pauses before the slot's state is checked again: the loader may wake the reader any time. */
static void pause_at(struct srv_stream *stream, struct slot *slot,
                     const struct srv_flow_hooks *hooks) {
    stream->wake = hooks->wake;
    stream->owner = hooks->owner;
    stream->wanted = slot;
    hooks->pause(hooks->owner);
}

/* Both slots count as lent, whether or not the read slot was lent meanwhile. */
static void wait_anew(struct srv_stream *stream, const struct srv_flow_hooks *hooks) {
    pause_at(stream, &stream->slots[0], hooks);
    if (srv_read_slots_want(stream->options.server->read_slots, &stream->slot))
        got_slot(&stream->slot);
}

static ssize_t take(void *owner, uint64_t position, void *to, size_t capacity,
                    const struct srv_flow_hooks *hooks) {
    struct srv_stream *stream = owner;
    uint64_t at = stream->options.begin + position;
    if (atomic_load(&stream->way) == WAY_READY) {
        ssize_t got = take_ready(stream, at, to, capacity);
        if (got) return got;
        begin_anew(stream, at);
        wait_anew(stream, hooks);
        return 0;
    }
    struct slot *slot = &stream->slots[chunk_of(stream, at) % 2];
    if (atomic_load(&slot->state) == SLOT_FAILED) {
        log_failed(slot);
        return -1;
    }
    if (swap(slot, SLOT_READY, SLOT_TAKEN_FROM)) return copy_out(stream, slot, at, to, capacity);
    pause_at(stream, slot, hooks);
    if (swap(slot, SLOT_LOADING, SLOT_WAITED_FOR)) return 0;
    bool lent = atomic_load(&slot->state) == SLOT_LENT;
    if (!lent || srv_read_slots_want(stream->options.server->read_slots, &stream->slot))
        hooks->wake(hooks->owner);
    return 0;
}

static void free_stream(void *owner) {
    drop_holder(owner);
}

enum cairn_code srv_stream_open(const struct srv_stream_options *options, struct srv_flow *ret,
                                struct cairn_error *err) {
    struct srv_stream *stream = calloc(1, sizeof(*stream));
    struct srv *server = options->server;
    if (stream) init(stream, options);
    if (!stream || !srv_read_slots_take(server->read_slots, &stream->slot)) {
        free(stream);
        srv_source_free(options->take_source);
        return cairn_fail(err, CAIRN_BUSY, "too many shards are being read through this server");
    }
    if (!map(&stream->slots[0])) {
        drop_holder(stream);
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a read");
    }
    bool is_long = end_of(stream, 0) < stream->last && options->take_source->version.text[0];
    if (is_long && server->stream_leases)
        stream->leased = take_lease(server, &options->take_source->version);
    look_for_ready(stream);
    enum cairn_code code = load_chunk(&stream->slots[0], options->worker, err);
    if (code) {
        drop_holder(stream);
        return code;
    }
    atomic_store(&stream->taken_ms, cairn_mono_ms());
    if (!stream->counted) prefetch(stream, 1); /* slot 0 is not READY: lend() takes nothing */
    atomic_store(&stream->slots[0].state, SLOT_READY);
    *ret = (struct srv_flow){.owner = stream,
                             .take = take,
                             .free = free_stream,
                             .size_bytes = options->end - options->begin,
                             .step_bytes = stream->counted ? READY_STEP_BYTES : STEP_BYTES};
    return CAIRN_OK;
}

bool srv_stream_whole(struct srv_stream *stream, struct cairn_buf *ret) {
    const struct srv_stream_options *options = &stream->options;
    const struct slot *slot = &stream->slots[0];
    if (end_of(stream, 0) < options->end || atomic_load(&slot->state) != SLOT_READY) return false;
    return !cairn_buf_append(ret, slot->data + (options->begin - stream->first),
                             options->end - options->begin, NULL);
}
