/* SPDX-License-Identifier: Apache-2.0 */
/* The latest events in memory, and their followers. An event is stored as the text of its SSE frame
 * (HTML Living Standard, 9.2.5), made once for all followers. GET /v1/events, {R}/events and
 * {C}/events: a page, a long poll, or a stream if the caller accepts text/event-stream.
 * Promises in feed.h. */
#include "server/events/feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "common/net.h"
#include "common/process.h"
#include "server/http/waiters.h"
#include "server/ledger/versions.h"

#define ROWS_AT_ONCE 256
#define LOAD_ROWS 64
#define AGAIN_MS 1000 /* retry after a failed read of the catalog */
#define WAKE_AT_ONCE 32
#define WAKE_PAUSES 64 /* maximum, while waking all followers */
#define WAKE_PAUSE_NS 1000000
static const char beat[] = ": nothing new\n\n";

struct kept {
    uint64_t number;
    uint64_t kind;
    struct cairn_run_name name;
    struct cairn_version_id version;
    struct cairn_buf frame;
};

struct srv_follower {
    struct srv_task task; /* must be first */
    struct srv_feed *feed;
    struct srv_follow follow;
    struct cairn_buf text; /* not yet taken; belongs to the follower's current owner */
    size_t taken;
    uint64_t loaded;
    uint64_t given_ms;
    bool ended;
    struct srv_flow_hooks hooks;
    char caller[96];                         /* token or address that the stream counts for */
    struct srv_follower *all_next, **all_at; /* under the lock, until freed */
    struct srv_follower *next, **at;         /* under the lock; at NULL: not waiting */
};

struct srv_feed {
    struct srv *server;
    struct cairn_thread thread;
    struct cairn_lock lock;
    struct {
        struct kept ring[SRV_FEED_KEPT];
        size_t count, oldest;
        uint64_t last; /* events up to this one are in the ring, or older */
        struct srv_follower *all, *waiting;
        struct srv_follower *due; /* removed from `waiting`, not woken yet */
        size_t due_count;
        uint64_t first_given_ms; /* oldest given_ms of those waiting; for heartbeats */
        bool stopping;
    } locked;
};

/* ---- frames ---- */

static enum cairn_code make_frame(const struct srv_event_row *row, struct cairn_buf *to,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) json = {0};
    CAIRN_TRY(cairn_json_show(row->json, &json, err)); /* one line: JSON escapes others */
    return cairn_buf_printf(to, err, "id: %" PRIu64 "\nevent: %s\ndata: %.*s\n\n", row->number,
                            row->event, (int)json.size, json.data);
}

static uint64_t kind_of(const char *event) {
    enum srv_event kind = srv_event_named(event);
    return kind < SRV_EVENT_COUNT ? UINT64_C(1) << kind : 0;
}

static bool is_followed(const struct srv_follow *follow, uint64_t kind,
                        const struct cairn_run_name *name, const struct cairn_version_id *version) {
    if (follow->kinds && !(follow->kinds & kind)) return false;
    if (follow->project[0] && strcmp(follow->project, name->project) != 0) return false;
    if (!follow->name.run[0])
        return srv_caller_may(&follow->caller, CAIRN_SCOPE_READ, name->project);
    if (!cairn_run_name_same(&follow->name, name)) return false;
    return !follow->version.text[0] || !strcmp(follow->version.text, version->text);
}

/* ---- waiting followers: with the lock held ---- */

static void unlink_follower(struct srv_follower *follower) {
    *follower->at = follower->next;
    if (follower->next) follower->next->at = follower->at;
    follower->at = NULL;
}

static struct srv_follower *take_waiting(struct srv_feed *feed, const struct kept *kept,
                                         uint64_t given_before_ms) {
    struct srv_follower *taken = NULL, *next = NULL;
    for (struct srv_follower *one = feed->locked.waiting; one; one = next) {
        next = one->next;
        bool due = one->given_ms <= given_before_ms || feed->locked.stopping;
        bool wants = kept && is_followed(&one->follow, kept->kind, &kept->name, &kept->version);
        if (!due && !wants) continue;
        unlink_follower(one);
        one->next = taken;
        taken = one;
    }
    return taken;
}

/* The feed owns followers in this list until they are woken. */
static void add_due(struct srv_feed *feed, struct srv_follower *first) {
    while (first) {
        struct srv_follower *one = first;
        first = one->next;
        one->next = feed->locked.due;
        feed->locked.due = one;
        feed->locked.due_count++;
    }
}

static struct srv_follower *take_due(struct srv_feed *feed, size_t count) {
    struct srv_follower *taken = NULL;
    while (feed->locked.due && count--) {
        struct srv_follower *one = feed->locked.due;
        feed->locked.due = one->next;
        feed->locked.due_count--;
        one->next = taken;
        taken = one;
    }
    return taken;
}

/* ---- waking: without the lock ---- */

static void wake_all(struct srv_follower *first) {
    while (first) {
        struct srv_follower *one = first;
        first = one->next;
        one->hooks.wake(one->hooks.owner);
    }
}

static size_t count_due(struct srv_feed *feed) {
    CAIRN_HOLD(&feed->lock);
    return feed->locked.due_count;
}

static struct srv_follower *take_some(struct srv_feed *feed, size_t count) {
    CAIRN_HOLD(&feed->lock);
    return take_due(feed, count);
}

/* Wakes a few at a time: a thousand streams resumed at once would block the event loops for
 * milliseconds, for all other callers. */
static void wake_due(struct srv_feed *feed) {
    const struct timespec pause = {.tv_nsec = WAKE_PAUSE_NS};
    size_t left = count_due(feed);
    size_t at_once = left / WAKE_PAUSES > WAKE_AT_ONCE ? left / WAKE_PAUSES : WAKE_AT_ONCE;
    while (left) {
        wake_all(take_some(feed, at_once));
        left = count_due(feed);
        if (left) (void)nanosleep(&pause, NULL);
    }
}

/* ---- the feed's thread ---- */

static void keep_event(struct srv_feed *feed, struct kept *take_kept) {
    CAIRN_HOLD(&feed->lock);
    /* Numbers are consecutive; a gap from manual deletion of rows restarts the ring. */
    if (take_kept->number != feed->locked.last + 1) feed->locked.count = 0;
    size_t at = (feed->locked.oldest + feed->locked.count) % SRV_FEED_KEPT;
    if (feed->locked.count == SRV_FEED_KEPT)
        feed->locked.oldest = (feed->locked.oldest + 1) % SRV_FEED_KEPT;
    else
        feed->locked.count++;
    cairn_buf_release(&feed->locked.ring[at].frame);
    feed->locked.ring[at] = *take_kept;
    feed->locked.last = take_kept->number;
    add_due(feed, take_waiting(feed, &feed->locked.ring[at], 0));
}

void srv_events_key_of_version(const struct cairn_version_id *id, char ret[SRV_EVENTS_KEY_BYTES]) {
    snprintf(ret, SRV_EVENTS_KEY_BYTES, "%s%s", SRV_EVENTS_KEY, id->text);
}

void srv_events_key_of_run(const struct cairn_run_name *name, char ret[SRV_EVENTS_KEY_BYTES]) {
    snprintf(ret, SRV_EVENTS_KEY_BYTES, "%s%s%s%s", SRV_EVENTS_KEY,
             name->run[0] ? name->project : "", name->run[0] ? "/" : "", name->run);
}

static void wake_waiters(struct srv_feed *feed, const struct srv_event_row *row) {
    char key[SRV_EVENTS_KEY_BYTES];
    struct srv_waiters *waiters = feed->server->waiters;
    srv_waiters_wake(waiters, SRV_EVENTS_KEY);
    srv_events_key_of_run(&row->name, key);
    srv_waiters_wake(waiters, key);
    if (!row->version.text[0]) return;
    srv_events_key_of_version(&row->version, key);
    srv_waiters_wake(waiters, key);
}

struct new_rows {
    struct srv_feed *feed;
    uint64_t count;
};

static enum cairn_code keep_one(const struct srv_event_row *row, void *owner,
                                struct cairn_error *err) {
    struct new_rows *found = owner;
    struct kept kept = {.number = row->number,
                        .kind = kind_of(row->event),
                        .name = row->name,
                        .version = row->version};
    enum cairn_code code = make_frame(row, &kept.frame, err);
    if (code) {
        cairn_buf_release(&kept.frame);
        return code;
    }
    keep_event(found->feed, &kept);
    wake_waiters(found->feed, row);
    found->count++;
    return CAIRN_OK;
}

static uint64_t last_of(struct srv_feed *feed) {
    CAIRN_HOLD(&feed->lock);
    return feed->locked.last;
}

static enum cairn_code read_rows(struct new_rows *found, struct cairn_error *err) {
    const struct cairn_run_name all = {"", ""};
    SRV_LOOK(look, found->feed->server->catalog, err);
    struct srv_events_query query = {
        .name = &all, .version = "", .after = last_of(found->feed), .limit = ROWS_AT_ONCE};
    found->count = 0;
    return srv_events_read(look.tx, &query, keep_one, found, err);
}

static uint64_t beat_now(struct srv_feed *feed) {
    uint64_t now_ms = cairn_mono_ms(), next_ms = now_ms + SRV_FEED_BEAT_MS;
    CAIRN_HOLD(&feed->lock);
    add_due(feed,
            take_waiting(feed, NULL, now_ms > SRV_FEED_BEAT_MS ? now_ms - SRV_FEED_BEAT_MS : 0));
    for (const struct srv_follower *one = feed->locked.waiting; one; one = one->next)
        next_ms = cairn_min_u64(next_ms, one->given_ms + SRV_FEED_BEAT_MS);
    return next_ms;
}

static void run_feed(struct cairn_thread *thread, void *owner) {
    struct srv_feed *feed = owner;
    struct srv_catalog *catalog = feed->server->catalog;
    uint64_t next_ms = 0;
    while (cairn_thread_wait(thread, next_ms)) {
        struct cairn_error why = {0};
        struct new_rows found = {.feed = feed};
        enum cairn_code code = CAIRN_OK;
        do {
            code = read_rows(&found, &why);
        } while (!code && found.count == ROWS_AT_ONCE);
        next_ms = beat_now(feed);
        wake_due(feed);
        if (code) {
            cairn_log(DEBUG, "feed.late", "cause=\"%s\"", why.message);
            next_ms = cairn_min_u64(next_ms, cairn_mono_ms() + AGAIN_MS);
        }
        uint64_t look_ms = srv_catalog_hears(catalog) ? SRV_FEED_HEARD_MS : SRV_FEED_LOOK_MS;
        if (srv_catalog_is_shared(catalog))
            next_ms = cairn_min_u64(next_ms, cairn_mono_ms() + look_ms);
    }
}

void srv_feed_look(struct srv_feed *feed) {
    cairn_thread_wake(&feed->thread);
}

static void happened(void *owner) {
    srv_feed_look(owner);
}

static enum cairn_code find_last(struct srv_feed *feed, struct cairn_error *err) {
    uint64_t first = 0;
    SRV_LOOK(look, feed->server->catalog, err);
    return srv_events_bounds(look.tx, &first, &feed->locked.last, err);
}

enum cairn_code srv_feed_new(struct srv *server, struct srv_feed **ret, struct cairn_error *err) {
    struct srv_feed *feed = calloc(1, sizeof(*feed));
    if (!feed) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for events");
    feed->server = server;
    cairn_lock_init(&feed->lock, CAIRN_LOCK_server_feed);
    feed->thread = (struct cairn_thread){.name = "cairn-feed", .run = run_feed, .owner = feed};
    enum cairn_code code = find_last(feed, err);
    if (!code) code = cairn_thread_start(&feed->thread, err);
    if (code) {
        srv_feed_free(feed);
        return code;
    }
    srv_catalog_set_watcher(server->catalog, happened, feed);
    *ret = feed;
    return CAIRN_OK;
}

void srv_feed_stop(struct srv_feed *feed) {
    struct srv_follower *woken = NULL;
    {
        CAIRN_HOLD(&feed->lock);
        feed->locked.stopping = true;
        add_due(feed, take_waiting(feed, NULL, UINT64_MAX));
        woken = take_due(feed, SIZE_MAX);
    }
    wake_all(woken);
}

void srv_feed_free(struct srv_feed *feed) {
    if (!feed) return;
    srv_feed_stop(feed);
    CAIRN_ASSERT(!feed->locked.all);
    srv_catalog_set_watcher(feed->server->catalog, NULL, NULL);
    cairn_thread_stop(&feed->thread);
    for (size_t i = 0; i < SRV_FEED_KEPT; i++) cairn_buf_release(&feed->locked.ring[i].frame);
    cairn_lock_release(&feed->lock);
    free(feed);
}

/* ---- a follower, from its connection ---- */

/* As for rate limits: the token, or the address of a caller without one. */
static void name_caller(const struct srv_follow *follow, char ret[96]) {
    char address[64];
    cairn_net_caller_text(follow->from, address, sizeof(address));
    if (follow->caller.kind == SRV_TOKEN)
        snprintf(ret, 96, "token %s", follow->caller.id);
    else
        snprintf(ret, 96, "address %s", address);
}

static enum cairn_code join_feed(struct srv_feed *feed, struct srv_follower *follower,
                                 struct cairn_error *err) {
    const struct srv_settings *settings = feed->server->settings;
    uint64_t all = 0, of_caller = 0;
    CAIRN_HOLD(&feed->lock);
    for (const struct srv_follower *one = feed->locked.all; one; one = one->all_next) {
        all++;
        of_caller += !strcmp(one->caller, follower->caller);
    }
    if (all >= settings->event_streams_max)
        return cairn_fail(err, CAIRN_BUSY,
                          "%" PRIu64 " streams of events are open, more than event-streams-max "
                          "allows: ask with ?since= and ?wait= instead",
                          all);
    if (of_caller >= settings->event_streams_per_caller)
        return cairn_fail(err, CAIRN_BUSY,
                          "the %s has %" PRIu64 " streams of events open, more than "
                          "event-streams-per-caller allows: ask with ?since= and ?wait= instead",
                          follower->caller, of_caller);
    follower->all_next = feed->locked.all;
    follower->all_at = &feed->locked.all;
    if (follower->all_next) follower->all_next->all_at = &follower->all_next;
    feed->locked.all = follower;
    return CAIRN_OK;
}

static void free_follower(void *owner) {
    struct srv_follower *follower = owner;
    CAIRN_ASSERT(!follower->at);
    {
        CAIRN_HOLD(&follower->feed->lock);
        *follower->all_at = follower->all_next;
        if (follower->all_next) follower->all_next->all_at = follower->all_at;
    }
    cairn_buf_release(&follower->text);
    free(follower);
}

/* Fills from the ring, up to the bound; false: older rows are needed. The caller holds the lock. */
static bool fill_from_ring(struct srv_follower *follower, struct cairn_error *err,
                           enum cairn_code *ret_code) {
    struct srv_feed *feed = follower->feed;
    uint64_t first = feed->locked.last + 1 - feed->locked.count;
    *ret_code = CAIRN_OK;
    if (follower->follow.after + 1 < first) return false;
    while (follower->follow.after < feed->locked.last && !*ret_code &&
           follower->text.size < SRV_FEED_TEXT_BYTES / 2) {
        size_t index = (size_t)(follower->follow.after + 1 - first);
        const struct kept *kept = &feed->locked.ring[(feed->locked.oldest + index) % SRV_FEED_KEPT];
        follower->follow.after++;
        if (is_followed(&follower->follow, kept->kind, &kept->name, &kept->version))
            *ret_code = cairn_buf_append(&follower->text, kept->frame.data, kept->frame.size, err);
    }
    return true;
}

static enum cairn_code load_one(const struct srv_event_row *one, void *owner,
                                struct cairn_error *err) {
    struct srv_follower *follower = owner;
    if (follower->text.size >= SRV_FEED_TEXT_BYTES / 2) return CAIRN_OK;
    follower->follow.after = one->number;
    follower->loaded++;
    if (!is_followed(&follower->follow, kind_of(one->event), &one->name, &one->version))
        return CAIRN_OK;
    return make_frame(one, &follower->text, err);
}

static enum cairn_code load_rows(struct srv_follower *follower, struct cairn_error *err) {
    struct srv_follow *follow = &follower->follow;
    struct srv_events_query query = {.name = &follow->name,
                                     .version = follow->version.text,
                                     .after = follow->after,
                                     .limit = LOAD_ROWS};
    uint64_t first = 0, last = 0;
    SRV_LOOK(look, follower->feed->server->catalog, err);
    CAIRN_TRY(srv_events_bounds(look.tx, &first, &last, err));
    if (follow->after + 1 < first)
        return cairn_fail(err, CAIRN_DELETED, "events up to %" PRIu64 " were trimmed", first - 1);
    follower->loaded = 0;
    CAIRN_TRY(srv_events_read(look.tx, &query, load_one, follower, err));
    if (!follower->loaded) follow->after = last; /* no matching event up to there */
    return CAIRN_OK;
}

static void load_in_pool(struct srv_task *task, struct cairn_store_worker *worker) {
    struct srv_follower *follower = (struct srv_follower *)task;
    struct cairn_error why = {0};
    (void)worker;
    follower->ended = load_rows(follower, &why) != CAIRN_OK;
    follower->hooks.wake(follower->hooks.owner);
}

enum found { TEXT, NOTHING, ROWS, END };

/* Reads the ring, and queues the follower if there is nothing. The connection is paused already,
 * since from the queuing on the follower may be woken. */
static enum found look_into_ring(struct srv_follower *follower, bool may_wait) {
    struct srv_feed *feed = follower->feed;
    struct cairn_error why = {0};
    enum cairn_code code;
    CAIRN_HOLD(&feed->lock);
    if (feed->locked.stopping || follower->ended) return END;
    if (!fill_from_ring(follower, &why, &code)) return ROWS;
    if (code) return END;
    if (follower->text.size) return TEXT;
    if (cairn_mono_ms() - follower->given_ms >= SRV_FEED_BEAT_MS)
        return cairn_buf_append_text(&follower->text, beat, &why) ? END : TEXT;
    if (!may_wait) return NOTHING;
    follower->next = feed->locked.waiting;
    follower->at = &feed->locked.waiting;
    if (follower->next) follower->next->at = &follower->next;
    feed->locked.waiting = follower;
    return NOTHING;
}

/* Pauses the connection while there is no text, so that a waiting follower needs no thread. */
static void wait_for_more(struct srv_follower *follower, const struct srv_flow_hooks *hooks) {
    follower->hooks = *hooks;
    hooks->pause(hooks->owner);
    switch (look_into_ring(follower, true)) {
    case NOTHING:
        return;
    case ROWS:
        follower->task = (struct srv_task){.run = load_in_pool};
        if (srv_pool_push(follower->feed->server->looks, &follower->task)) return;
        follower->ended = true;
        break;
    case END:
        follower->ended = true;
        break;
    case TEXT:
        break;
    }
    hooks->wake(hooks->owner);
}

static ssize_t take_text(void *owner, uint64_t position, void *to, size_t capacity,
                         const struct srv_flow_hooks *hooks) {
    struct srv_follower *follower = owner;
    (void)position;
    if (!srv_access_holds(follower->feed->server->access, &follower->follow.credential)) return -1;
    if (!follower->text.size && look_into_ring(follower, false) == END) return -1;
    if (!follower->text.size) {
        wait_for_more(follower, hooks);
        return 0;
    }
    size_t size = follower->text.size - follower->taken;
    if (size > capacity) size = capacity;
    memcpy(to, follower->text.data + follower->taken, size);
    follower->taken += size;
    follower->given_ms = cairn_mono_ms();
    if (follower->taken < follower->text.size) return (ssize_t)size;
    cairn_buf_release(&follower->text);
    follower->taken = 0;
    return (ssize_t)size;
}

enum cairn_code srv_feed_follow(struct srv_feed *feed, const struct srv_follow *follow,
                                struct srv_flow *ret, struct cairn_error *err) {
    struct srv_follower *follower = calloc(1, sizeof(*follower));
    if (!follower) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a stream of events");
    name_caller(follow, follower->caller);
    enum cairn_code code = join_feed(feed, follower, err);
    if (code) {
        free(follower);
        return code;
    }
    follower->feed = feed;
    follower->follow = *follow;
    follower->given_ms = 0; /* sends a comment at once: the stream is open */
    *ret = (struct srv_flow){.owner = follower,
                             .take = take_text,
                             .free = free_follower,
                             .size_bytes = UINT64_MAX,
                             .step_bytes = SRV_FEED_TEXT_BYTES};
    return CAIRN_OK;
}

/* ---- GET /v1/events, {R}/events, {C}/events ---- */

struct call {
    struct srv_request *request;
    struct srv_follow follow;
    bool of_run, since_given, audit;
    uint64_t since, limit;
    uint64_t first, last;         /* bounds of the stored events */
    uint64_t looked, last_looked; /* rows read, and the number of the last */
    json_t *items;
};

static enum cairn_code read_number(const char *text, const char *name, uint64_t *ret,
                                   struct cairn_error *err) {
    enum cairn_code code = cairn_parse_u64(cairn_view_of(text), ret, err);
    if (!code && *ret > INT64_MAX) code = cairn_fail(err, CAIRN_INVALID, "it is too large");
    return code ? cairn_within(err, code, "%s", name) : CAIRN_OK;
}

/* A browser sends Last-Event-ID when it reconnects, so it takes precedence. */
static enum cairn_code read_since(struct call *call, struct cairn_error *err) {
    const char *since = cairn_query_get(&call->request->query, "since");
    const char *header = call->request->last_event_id;
    call->since_given = since || header[0];
    if (header[0]) return read_number(header, "Last-Event-ID", &call->since, err);
    return since ? read_number(since, "since", &call->since, err) : CAIRN_OK;
}

/* True if Accept lists the media type; parameters are ignored. */
static bool wants_stream(const struct srv_request *request) {
    static const char wanted[] = "text/event-stream";
    for (const char *at = request->accept; *at;) {
        at += strspn(at, " \t,");
        size_t size = strcspn(at, " \t,;");
        if (size == strlen(wanted) && !strncasecmp(at, wanted, size)) return true;
        at += strcspn(at, ",");
    }
    return false;
}

static enum cairn_code read_audit(struct call *call, struct cairn_error *err) {
    const char *text = cairn_query_get(&call->request->query, "audit");
    call->audit = text && !strcmp(text, "true");
    if (text && !call->audit && strcmp(text, "false") != 0)
        return cairn_fail(err, CAIRN_INVALID, "audit: want true or false");
    if (!call->audit || !wants_stream(call->request)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, "audit: of pages alone; a stream has all events");
}

static enum cairn_code read_filters(struct call *call, struct cairn_error *err) {
    const struct cairn_query *query = &call->request->query;
    const char *kind = cairn_query_get(query, "kind"), *project = cairn_query_get(query, "project");
    if (kind) CAIRN_TRY(srv_event_kinds_parse(kind, &call->follow.kinds, err));
    if (!project) return CAIRN_OK;
    if (!cairn_name_valid(cairn_view_of(project)))
        return cairn_fail(err, CAIRN_INVALID, "project: " CAIRN_NAME_WANTED);
    (void)cairn_text_copy(call->follow.project, sizeof(call->follow.project), project);
    return CAIRN_OK;
}

static enum cairn_code find_scope(struct srv_tx *tx, struct call *call, struct cairn_error *err) {
    const struct srv_request *request = call->request;
    if (!call->of_run) return CAIRN_OK;
    call->follow.name = request->params.run_name;
    if (!request->params.ref[0]) {
        SRV_AUTO(run) run = {0};
        return srv_run_get(tx, &call->follow.name, &run, err);
    }
    struct srv_ref ref = {&request->params.run_name, request->params.ref, true};
    SRV_GET(version, version, srv_version_find(tx, &ref, &version, err));
    call->follow.version = version.id;
    return CAIRN_OK;
}

/* Refuses a number that was trimmed or never given: the caller has missed events. */
static enum cairn_code judge_since(const struct call *call, struct cairn_error *err) {
    /* Audit events are not trimmed by count. */
    bool trimmed = !call->audit && call->since && call->since + 1 < call->first;
    if (!call->since_given || (!trimmed && call->since <= call->last)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CURSOR_EXPIRED,
                      "events %" PRIu64 " to %" PRIu64 " are kept, so what came after %" PRIu64
                      " is not known: read the runs again, then go on from %" PRIu64,
                      call->first, call->last, call->since, call->last);
}

/* ---- a page ---- */

static enum cairn_code add_item(const struct srv_event_row *row, void *owner,
                                struct cairn_error *err) {
    struct call *call = owner;
    call->looked++;
    call->last_looked = row->number;
    if (!srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, row->name.project) &&
        !call->of_run)
        return CAIRN_OK;
    size_t at = call->since_given ? json_array_size(call->items) : 0;
    if (!json_array_insert(call->items, at, row->json)) return CAIRN_OK;
    return srv_no_memory(err);
}

static enum cairn_code look_at_page(struct call *call, struct cairn_error *err) {
    call->items = json_array();
    SRV_LOOK(look, call->request->server->catalog, err);
    CAIRN_TRY(find_scope(look.tx, call, err));
    CAIRN_TRY(srv_events_bounds(look.tx, &call->first, &call->last, err));
    CAIRN_TRY(judge_since(call, err));
    struct srv_events_query query = {.name = &call->follow.name,
                                     .version = call->follow.version.text,
                                     .after = call->since,
                                     .limit = call->limit,
                                     .kinds = call->follow.kinds,
                                     .project = call->follow.project,
                                     .newest = !call->since_given,
                                     .audit = call->audit};
    return call->limit ? srv_events_read(look.tx, &query, add_item, call, err) : CAIRN_OK;
}

static void park(const struct call *call, struct srv_reply *reply, uint64_t until_ms) {
    char key[SRV_EVENTS_KEY_BYTES];
    if (call->follow.version.text[0])
        srv_events_key_of_version(&call->follow.version, key);
    else
        srv_events_key_of_run(&call->follow.name, key);
    reply->park = reply->rung = true;
    reply->park_key = srv_key_of(key);
    reply->park_until_ms = until_ms;
}

static enum cairn_code serve_page(struct call *call, struct srv_reply *reply,
                                  struct cairn_error *err) {
    struct srv_request *request = call->request;
    const char *wait = cairn_query_get(&request->query, "wait");
    uint64_t wait_ms = 0;
    enum cairn_code code =
        wait ? cairn_parse_duration(cairn_view_of(wait), &wait_ms, err) : CAIRN_OK;
    if (code) return cairn_within(err, code, "wait");
    CAIRN_TRY(srv_query_limit(request, &call->limit, err));
    CAIRN_TRY(look_at_page(call, err));
    uint64_t until_ms = request->arrived_ms + cairn_min_u64(wait_ms, CAIRN_WAIT_MS_MAX);
    if (request->wait_over) wait_ms = 0;
    bool full = call->since_given && call->looked == call->limit;
    if (!json_array_size(call->items) && !full && call->since_given && wait_ms &&
        srv_mono_ms(request->server) < until_ms) {
        park(call, reply, until_ms);
        return CAIRN_OK;
    }
    reply->in_vain = !json_array_size(call->items);
    /* More rows may follow a full page; otherwise all rows up to the newest were read. */
    uint64_t next = full ? call->last_looked : call->last;
    return srv_reply_json(reply, 200, CAIRN_PACK(event_page, .items = call->items, .since = next),
                          err);
}

/* ---- a stream ---- */

static enum cairn_code serve_stream(struct call *call, struct srv_reply *reply,
                                    struct cairn_error *err) {
    struct srv *server = call->request->server;
    if (!server->feed)
        return cairn_fail(err, CAIRN_UNSUPPORTED, "this server has no streams of events");
    CAIRN_TRY(look_at_page(call, err));
    call->follow.after = call->since_given ? call->since : call->last;
    call->follow.credential = call->request->credential;
    call->follow.caller = call->request->caller;
    (void)cairn_text_copy(call->follow.from, sizeof(call->follow.from), call->request->from);
    CAIRN_TRY(srv_feed_follow(server->feed, &call->follow, &reply->flow, err));
    reply->content_type = "text/event-stream";
    srv_reply_header(reply, "X-Accel-Buffering", "no");
    return CAIRN_OK;
}

SRV_HANDLER(event_list) {
    struct call call = {.request = request, .of_run = request->params.run_name.run[0]};
    CAIRN_TRY(srv_thawed(request->server, err));
    CAIRN_TRY(read_since(&call, err));
    CAIRN_TRY(read_audit(&call, err));
    CAIRN_TRY(read_filters(&call, err));
    enum cairn_code code =
        wants_stream(request) ? serve_stream(&call, reply, err) : serve_page(&call, reply, err);
    json_decref(call.items);
    return code;
}

SRV_HANDLED_AS(run_events, event_list)
SRV_HANDLED_AS(checkpoint_events, event_list)
