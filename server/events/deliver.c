/* SPDX-License-Identifier: Apache-2.0 */
/* Webhooks: their file, a thread each that delivers events in order, and /v1/webhooks with
 * positions and dead letters. Promises in deliver.h. A loaded file is immutable; a webhook is shown
 * by its host only, since path and query may be secret. */
#include "server/events/deliver.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/wire/messages.h"
#include "common/file.h"
#include "common/hooks.h"
#include "common/http/http.h"
#include "common/log.h"
#include "common/process.h"
#include "server/guard/jobs.h"
#include "server/http/request.h"
#include "server/ledger/events.h"
#include "server/metrics.h"

#define PAGE_EVENTS 50
#define LOOK_MS 500
#define BUSY_MS 2000
#define DELIVERY_MS 10000
#define POLL_MS 100 /* bounds the delay of a stop */
#define FIRST_PAUSE_MS 5000
#define FILE_BYTES_MAX CAIRN_MIB
#define SECRET_BYTES_MIN 16
#define SECRET_PREFIX "whsec_" /* prefix of Standard Webhooks secrets; base64 follows */

#define WEBHOOKS_MAX 32
#define WEBHOOK_NAME_MAX 64
#define WEBHOOK_SECRET_MAX 128

struct webhook {
    char name[WEBHOOK_NAME_MAX + 1];
    char url[1024];
    char host[256];                         /* "https://hooks.example.org", for messages */
    char project[CAIRN_NAME_BYTES_MAX + 1]; /* a pattern of fnmatch; "*": all */
    bool events[SRV_EVENT_COUNT];
    uint8_t secret[WEBHOOK_SECRET_MAX];
    size_t secret_size;
};
struct webhook_file {
    struct webhook hooks[WEBHOOKS_MAX];
    size_t count;
};

/* ---- the file of the setting webhooks-file ---- */

static const char *const event_names[SRV_EVENT_COUNT] = {
#define EVENT(id, name, kept, about, ...) [SRV_EVENT_##id] = name,
#include "api/events.def"
#undef EVENT
};

static bool wants_event(const struct webhook *hook, const char *event, const char *project) {
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++)
        if (hook->events[i] && !strcmp(event_names[i], event))
            return !fnmatch(hook->project, project, 0);
    return false;
}

/* "checkpoint.*" selects all events with that prefix. */
static bool choose(struct webhook *hook, const char *pattern) {
    bool any = false;
    for (size_t i = 0; i < CAIRN_COUNT(event_names); i++) {
        if (fnmatch(pattern, event_names[i], 0) != 0) continue;
        hook->events[i] = any = true;
    }
    return any;
}

static enum cairn_code read_events(struct webhook *hook, const json_t *events, const char *pointer,
                                   struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    if (!json_array_size(events)) return choose(hook, "*") ? CAIRN_OK : CAIRN_INVALID;
    json_array_foreach((json_t *)(uintptr_t)events, index, item) {
        const char *pattern = json_string_value(item);
        if (!pattern || !choose(hook, pattern))
            return cairn_fail(err, CAIRN_INVALID,
                              "%s/events/%zu: \"%.64s\" is no event, nor a pattern of some: "
                              "docs/http.md has them",
                              pointer, index, pattern ? pattern : "(not a text)");
    }
    return CAIRN_OK;
}

/* Text after the third slash may be secret, and text before an @ as well. */
static enum cairn_code read_url(struct webhook *hook, const char *pointer,
                                struct cairn_error *err) {
    bool plain = cairn_text_starts(hook->url, "http://");
    if (!plain && !cairn_text_starts(hook->url, "https://"))
        return cairn_fail(err, CAIRN_INVALID, "%s/url: want https://... or http://...", pointer);
    const char *host = strstr(hook->url, "//") + 2;
    size_t size = strcspn(host, "/?#");
    const char *at = memchr(host, '@', size);
    if (at || !size || size > 200)
        return cairn_fail(err, CAIRN_INVALID, "%s/url: want a host, and no user before it",
                          pointer);
    snprintf(hook->host, sizeof(hook->host), "%s://%.*s", plain ? "http" : "https", (int)size,
             host);
    return CAIRN_OK;
}

static enum cairn_code read_secret(struct webhook *hook, const char *text, const char *pointer,
                                   struct cairn_error *err) {
    CAIRN_AUTO(buf) bytes = {.limit = WEBHOOK_SECRET_MAX};
    struct cairn_view view = cairn_view_of(text);
    enum cairn_code code = CAIRN_OK;
    if (cairn_text_starts(text, SECRET_PREFIX)) {
        view = cairn_view_of(text + strlen(SECRET_PREFIX));
        code = cairn_base64_decode(view, &bytes, NULL);
        view = cairn_buf_view(&bytes);
    }
    if (code || view.size < SECRET_BYTES_MIN || view.size > sizeof(hook->secret))
        return cairn_fail(err, CAIRN_INVALID,
                          "%s/secret: want %d to %d bytes, or " SECRET_PREFIX
                          " and as many in base64 (openssl rand -base64 32 makes some)",
                          pointer, SECRET_BYTES_MIN, WEBHOOK_SECRET_MAX);
    memcpy(hook->secret, view.data, view.size);
    hook->secret_size = view.size;
    return CAIRN_OK;
}

static enum cairn_code load_secret(struct webhook *hook, const char *text, const char *path,
                                   const char *pointer, struct cairn_error *err) {
    CAIRN_AUTO(buf) line = {.limit = 4096};
    if (!text == !path)
        return cairn_fail(err, CAIRN_INVALID, "%s: want secret or secret_file", pointer);
    if (text) return read_secret(hook, text, pointer, err);
    enum cairn_code code = cairn_file_load_secret_line(path, &line, err);
    if (code) return cairn_within(err, CAIRN_INVALID, "%s/secret_file", pointer);
    return read_secret(hook, (const char *)line.data, pointer, err);
}

static enum cairn_code read_hook(struct webhook *hook, const json_t *item, const char *pointer,
                                 struct cairn_error *err) {
    const char *name = NULL, *url = NULL, *project = "*", *secret = NULL, *path = NULL;
    json_t *events = NULL;
    const struct cairn_json_field fields[] = {
        {"name", CAIRN_JSON_TEXT, true, &name, WEBHOOK_NAME_MAX},
        {"url", CAIRN_JSON_TEXT, true, &url, sizeof(hook->url) - 1},
        {"events", CAIRN_JSON_ARRAY, false, &events, 0},
        {"project", CAIRN_JSON_TEXT, false, &project, CAIRN_NAME_BYTES_MAX},
        {"secret", CAIRN_JSON_TEXT, false, &secret, 1024},
        {"secret_file", CAIRN_JSON_TEXT, false, &path, 1024},
    };
    CAIRN_TRY(cairn_json_read(item, pointer, fields, CAIRN_COUNT(fields), false, err));
    if (!cairn_name_valid(cairn_view_of(name)))
        return cairn_fail(err, CAIRN_INVALID, "%s/name: want letters, digits, . _ -", pointer);
    snprintf(hook->name, sizeof(hook->name), "%s", name);
    snprintf(hook->url, sizeof(hook->url), "%s", url);
    snprintf(hook->project, sizeof(hook->project), "%s", project);
    CAIRN_TRY(read_url(hook, pointer, err));
    CAIRN_TRY(read_events(hook, events, pointer, err));
    return load_secret(hook, secret, path, pointer, err);
}

static enum cairn_code read_all(struct webhook_file *file, const json_t *json,
                                struct cairn_error *err) {
    json_t *hooks = NULL;
    const struct cairn_json_field fields[] = {
        {"webhooks", CAIRN_JSON_ARRAY, true, &hooks, 0},
    };
    CAIRN_TRY(cairn_json_read(json, "", fields, CAIRN_COUNT(fields), false, err));
    if (json_array_size(hooks) > WEBHOOKS_MAX)
        return cairn_fail(err, CAIRN_INVALID, "/webhooks: at most %d", WEBHOOKS_MAX);
    for (size_t i = 0; i < json_array_size(hooks); i++) {
        char pointer[32];
        snprintf(pointer, sizeof(pointer), "/webhooks/%zu", i);
        CAIRN_TRY(read_hook(&file->hooks[i], json_array_get(hooks, i), pointer, err));
        for (size_t j = 0; j < i; j++)
            if (!strcmp(file->hooks[i].name, file->hooks[j].name))
                return cairn_fail(err, CAIRN_INVALID, "%s/name: %s is there twice", pointer,
                                  file->hooks[i].name);
        file->count++;
    }
    return CAIRN_OK;
}

static enum cairn_code load_text(const char *path, struct webhook_file *file,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = FILE_BYTES_MAX};
    CAIRN_AUTO_JSON json_t *json = NULL;
    CAIRN_TRY(cairn_file_load_secret(path, &text, err));
    CAIRN_TRY(cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &json, err));
    return read_all(file, json, err);
}

static enum cairn_code load_file(const char *path, struct webhook_file **ret,
                                 struct cairn_error *err) {
    struct webhook_file *file = calloc(1, sizeof(*file));
    if (!file) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for webhooks");
    enum cairn_code code = path[0] ? load_text(path, file, err) : CAIRN_OK;
    *ret = file;
    if (!code) return CAIRN_OK;
    free(file);
    *ret = NULL;
    if (code != CAIRN_NO_MEMORY) code = CAIRN_INVALID;
    return cairn_within(err, code, "webhooks-file %s", path);
}

/* ---- types of a webhook ---- */

struct teller {
    struct srv *server;
    const struct webhook *hook;
    struct cairn_thread thread;
    atomic_bool running; /* the thread may be woken: it was started and is not being stopped */
    struct cairn_http_engine *engine;
    struct srv_lease lease;
    struct srv_webhook_row row;
    char store[CAIRN_UUID_TEXT_BYTES]; /* the store's UUID, part of delivery ids */
    struct {
        uint64_t number;
        bool wanted;
        json_t *json;
    } page[PAGE_EVENTS];
    size_t count;
    uint64_t first;
    struct srv_letter letter;
    bool has_letter;
};
/* The webhooks of one load of the file, and their threads. */
struct roster {
    struct webhook_file *file;
    struct teller *tellers;
    struct roster *before; /* kept until the server ends: a handler may still read it */
};
struct srv_webhooks {
    struct srv *server;
    _Atomic(struct roster *) now;
};

/* ---- messages and signatures ---- */

struct message {
    struct cairn_buf body, id, timestamp, signature;
};

static void message_release(struct message *message) {
    struct cairn_buf *const all[] = {&message->body, &message->id, &message->timestamp,
                                     &message->signature};
    for (size_t i = 0; i < CAIRN_COUNT(all); i++) cairn_buf_release(all[i]);
}

/* "v1,<base64>" of HMAC-SHA256 over "<id>.<seconds>.<body>", as in Standard Webhooks. */
static enum cairn_code sign(const struct webhook *hook, struct message *message, const char *id,
                            int64_t seconds, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = 2 * CAIRN_MIB};
    uint8_t digest[CAIRN_SHA256_BYTES];
    CAIRN_TRY(cairn_buf_printf(&text, err, "%s.%" PRId64 ".", id, seconds));
    CAIRN_TRY(cairn_buf_append(&text, message->body.data, message->body.size, err));
    cairn_hmac_sha256((struct cairn_view){hook->secret, hook->secret_size}, cairn_buf_view(&text),
                      digest);
    CAIRN_TRY(cairn_buf_printf(&message->signature, err, "webhook-signature: v1,"));
    return cairn_base64_encode((struct cairn_view){digest, sizeof(digest)}, &message->signature,
                               err);
}

/* Numbers restart with a restored or new catalog; the event's time keeps ids distinct. */
static void id_of(const char *store, uint64_t number, const json_t *event, char *ret,
                  size_t capacity) {
    const char *at = json_string_value(json_object_get(event, "at"));
    size_t used = (size_t)snprintf(ret, capacity, "%s-%" PRIu64 "-", store, number);
    for (; at && *at && used + 1 < capacity; at++)
        if (*at >= '0' && *at <= '9') ret[used++] = *at;
    ret[used] = '\0';
}

static enum cairn_code compose(const struct teller *teller, uint64_t number, const json_t *event,
                               struct message *message, struct cairn_error *err) {
    char id[CAIRN_UUID_TEXT_BYTES + 64];
    int64_t seconds = srv_wall_ms(teller->server) / 1000;
    id_of(teller->store, number, event, id, sizeof(id));
    CAIRN_AUTO_JSON json_t *body =
        json_pack("{s:O?, s:O?, s:O}", "type", json_object_get(event, "event"), "timestamp",
                  json_object_get(event, "at"), "data", event);
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a webhook's message");
    CAIRN_TRY(cairn_json_show(body, &message->body, err));
    CAIRN_TRY(cairn_buf_printf(&message->id, err, "webhook-id: %s", id));
    CAIRN_TRY(cairn_buf_printf(&message->timestamp, err, "webhook-timestamp: %" PRId64, seconds));
    return sign(teller->hook, message, id, seconds, err);
}

/* ---- one delivery ---- */

static void on_done(struct cairn_http_request *request) {
    *(bool *)request->owner = true;
}

/* CAIRN_CANCELLED if the server stops: no failure of the receiver. */
static enum cairn_code send_to(struct teller *teller, struct cairn_http_request *request,
                               struct cairn_error *err) {
    bool done = false;
    request->done = on_done;
    request->owner = &done;
    CAIRN_TRY(cairn_http_submit(teller->engine, request, err));
    while (!done) {
        enum cairn_code code = cairn_http_poll(teller->engine, POLL_MS, err);
        if (!code && !teller->server->stopping) continue;
        if (!done) cairn_http_cancel(teller->engine, request);
        return code ? code : cairn_fail(err, CAIRN_CANCELLED, "the server stops");
    }
    return CAIRN_OK;
}

/* Error texts of libcurl may contain the URL; only code and status are used. */
static enum cairn_code judge_answer(const struct teller *teller,
                                    const struct cairn_http_request *request,
                                    struct cairn_error *err) {
    const char *host = teller->hook->host;
    if (request->code)
        return cairn_fail(err, request->code, "%s was not reached: %s", host,
                          cairn_code_info(request->code)->slug);
    if (request->status >= 200 && request->status < 300) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNAVAILABLE, "%s answered %d", host, request->status);
}

static enum cairn_code deliver(struct teller *teller, uint64_t number, const json_t *event,
                               struct cairn_error *err) {
    struct message message = {0};
    enum cairn_code code = compose(teller, number, event, &message, err);
    const char *headers[] = {"Content-Type: application/json", "User-Agent: cairn-server",
                             message.id.data, message.timestamp.data, message.signature.data};
    /* Only the status of the answer counts; its body is dropped. */
    struct cairn_http_request request = {.method = "POST",
                                         .url = teller->hook->url,
                                         .headers = headers,
                                         .header_count = CAIRN_COUNT(headers),
                                         .body = cairn_buf_view(&message.body),
                                         .has_body = true,
                                         .total_ms = DELIVERY_MS};
    if (!code) code = send_to(teller, &request, err);
    if (!code) code = judge_answer(teller, &request, err);
    message_release(&message);
    return code;
}

static void count(const struct teller *teller, enum srv_result result) {
    if (teller->server->metrics)
        cairn_metrics_add(teller->server->metrics,
                          (struct cairn_metric_at){SRV_METRIC_webhook_deliveries_total, result, 0},
                          1);
}

/* ---- reading what is due ---- */

static enum cairn_code take_event(const struct srv_event_row *row, void *owner,
                                  struct cairn_error *err) {
    struct teller *teller = owner;
    (void)err;
    bool wanted = wants_event(teller->hook, row->event, row->name.project);
    teller->page[teller->count].number = row->number;
    teller->page[teller->count].wanted = wanted;
    teller->page[teller->count].json = wanted ? json_deep_copy(row->json) : NULL;
    if (wanted && !teller->page[teller->count].json)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an event");
    teller->count++;
    return CAIRN_OK;
}

static void drop_page(struct teller *teller) {
    for (size_t i = 0; i < teller->count; i++) json_decref(teller->page[i].json);
    teller->count = 0;
    srv_letter_release(&teller->letter);
    teller->has_letter = false;
}

SRV_CHANGE(open_row, struct teller *teller) {
    CAIRN_TRY(srv_lease_check(tx, &teller->lease, err));
    return srv_webhook_open(tx, teller->hook->name, &teller->row, err);
}

static enum cairn_code read_due(struct teller *teller, struct cairn_error *err) {
    struct srv_store_seen store;
    const char *name = teller->hook->name;
    uint64_t last = 0;
    drop_page(teller);
    SRV_LOOK(look, teller->server->catalog, err);
    CAIRN_TRY(srv_store_seen_get(look.tx, &store, err));
    memcpy(teller->store, store.uuid, sizeof(teller->store));
    CAIRN_TRY(srv_webhook_get(look.tx, name, &teller->row, err));
    CAIRN_TRY(srv_letter_next(look.tx, name, &teller->has_letter, &teller->letter, err));
    CAIRN_TRY(srv_events_bounds(look.tx, &teller->first, &last, err));
    if (last <= teller->row.position) return CAIRN_OK;
    const struct cairn_run_name all = {0};
    const struct srv_events_query query = {
        .name = &all, .version = "", .after = teller->row.position, .limit = PAGE_EVENTS};
    return srv_events_read(look.tx, &query, take_event, teller, err);
}

/* ---- recording results ---- */

struct outcome {
    struct teller *teller;
    const struct srv_letter *letter; /* to store; NULL: none */
    uint64_t drop;                   /* number of the letter to delete; 0: none */
};

SRV_CHANGE(write_outcome, const struct outcome *outcome) {
    const char *name = outcome->teller->hook->name;
    CAIRN_TRY(srv_lease_check(tx, &outcome->teller->lease, err));
    if (outcome->letter) CAIRN_TRY(srv_letter_put(tx, name, outcome->letter, err));
    if (outcome->drop) CAIRN_TRY(srv_letter_drop(tx, name, outcome->drop, err));
    return srv_webhook_put(tx, name, &outcome->teller->row, err);
}

/* Moves the position past an event that was delivered or not selected. */
static enum cairn_code move_on(struct teller *teller, uint64_t number, bool delivered,
                               struct cairn_error *err) {
    struct srv_webhook_row *row = &teller->row;
    row->position = number;
    row->failures = row->failing_tick = 0;
    row->cause[0] = '\0';
    row->delivered += delivered;
    if (delivered) row->delivered_ms = row->tried_ms = srv_wall_ms(teller->server);
    struct outcome outcome = {.teller = teller};
    return srv_catalog_write(teller->server->catalog, write_outcome, &outcome, err);
}

/* W02. *ret_dead: the event became a dead letter. */
static enum cairn_code note_failure(struct teller *teller, size_t at, const struct cairn_error *why,
                                    bool *ret_dead, struct cairn_error *err) {
    struct srv *server = teller->server;
    struct srv_webhook_row *row = &teller->row;
    struct outcome outcome = {.teller = teller};
    struct srv_letter letter = {.number = teller->page[at].number,
                                .at_ms = srv_wall_ms(server),
                                .event = teller->page[at].json};
    uint64_t tick = srv_ticks_now(server);
    if (!row->failures++) row->failing_tick = tick;
    row->tried_ms = letter.at_ms;
    snprintf(row->cause, sizeof(row->cause), "%.199s", why->message);
    *ret_dead =
        row->failures > 1 && tick - row->failing_tick >= server->settings->webhook_give_up_ms;
    count(teller, *ret_dead ? SRV_RESULT_DEAD : SRV_RESULT_FAILED);
    if (!*ret_dead) return srv_catalog_write(teller->server->catalog, write_outcome, &outcome, err);
    letter.tries = row->failures;
    snprintf(letter.cause, sizeof(letter.cause), "%s", row->cause);
    cairn_log(WARN, "webhook.dead", "webhook=%s event=%" PRIu64 " tries=%" PRIu64 " cause=\"%s\"",
              teller->hook->name, letter.number, letter.tries, letter.cause);
    row->position = letter.number;
    row->failures = row->failing_tick = 0;
    outcome.letter = &letter;
    return srv_catalog_write(teller->server->catalog, write_outcome, &outcome, err);
}

/* Each call of redeliver tries a letter once. */
static enum cairn_code try_letter(struct teller *teller, struct cairn_error *err) {
    struct srv_letter *letter = &teller->letter;
    struct cairn_error why = {0};
    struct outcome outcome = {.teller = teller};
    enum cairn_code code = deliver(teller, letter->number, letter->event, &why);
    if (code == CAIRN_CANCELLED) return cairn_fail(err, code, "%s", why.message);
    count(teller, code ? SRV_RESULT_FAILED : SRV_RESULT_DELIVERED);
    teller->row.delivered += !code;
    letter->tries++;
    letter->at_ms = srv_wall_ms(teller->server);
    snprintf(letter->cause, sizeof(letter->cause), "%.199s", why.message);
    if (code)
        outcome.letter = letter;
    else
        outcome.drop = letter->number;
    return srv_catalog_write(teller->server->catalog, write_outcome, &outcome, err);
}

/* W05: counts events that were trimmed before delivery. */
static enum cairn_code count_missed(struct teller *teller, struct cairn_error *err) {
    struct srv_webhook_row *row = &teller->row;
    if (teller->first <= row->position + 1) return CAIRN_OK;
    uint64_t missed = teller->first - row->position - 1;
    cairn_log(WARN, "webhook.missed", "webhook=%s events=%" PRIu64 " after=%" PRIu64,
              teller->hook->name, missed, row->position);
    if (teller->server->metrics)
        cairn_metrics_add(teller->server->metrics, SRV_METRIC(webhook_missed_total), missed);
    row->missed += missed;
    return move_on(teller, teller->first - 1, false, err);
}

/* Doubles with each failure of the event; a quarter is jitter, to spread the load on receivers. */
static uint64_t pause_of(const struct teller *teller) {
    uint64_t longest_ms = teller->server->settings->webhook_pause_max_ms, bits = 0;
    uint64_t pause_ms = cairn_min_u64(FIRST_PAUSE_MS, longest_ms);
    for (uint64_t i = 1; i < teller->row.failures && pause_ms < longest_ms; i++) pause_ms *= 2;
    pause_ms = cairn_min_u64(pause_ms, longest_ms);
    teller->server->random(&bits, sizeof(bits));
    return pause_ms - pause_ms / 4 + bits % (pause_ms / 4 + 1);
}

/* W01: delivers the page in order, up to the first failure. */
static enum cairn_code tell_page(struct teller *teller, uint64_t *ret_wait_ms,
                                 struct cairn_error *err) {
    bool stale = false; /* the row lags behind skipped events */
    for (size_t i = 0; i < teller->count && !teller->server->stopping; i++) {
        struct cairn_error why = {0};
        bool dead = false;
        stale = !teller->page[i].wanted;
        teller->row.position += stale ? teller->page[i].number - teller->row.position : 0;
        if (stale) continue;
        CAIRN_TRY(srv_lease_still(&teller->lease, err)); /* W04 */
        enum cairn_code code = deliver(teller, teller->page[i].number, teller->page[i].json, &why);
        if (code == CAIRN_CANCELLED) return CAIRN_OK;
        if (!code) {
            count(teller, SRV_RESULT_DELIVERED);
            CAIRN_CRASHPOINT("server.webhook.after_delivery");
            CAIRN_TRY(move_on(teller, teller->page[i].number, true, err));
            continue;
        }
        if (!teller->row.failures)
            cairn_log(WARN, "webhook.failed", "webhook=%s event=%" PRIu64 " cause=\"%s\"",
                      teller->hook->name, teller->page[i].number, why.message);
        CAIRN_TRY(note_failure(teller, i, &why, &dead, err));
        *ret_wait_ms = dead ? 0 : pause_of(teller);
        return CAIRN_OK;
    }
    if (stale) CAIRN_TRY(move_on(teller, teller->row.position, false, err));
    if (teller->count == PAGE_EVENTS) *ret_wait_ms = 0;
    return CAIRN_OK;
}

static enum cairn_code tell_due(struct teller *teller, bool *opened, uint64_t *ret_wait_ms,
                                struct cairn_error *err) {
    struct srv *server = teller->server;
    CAIRN_TRY(srv_thawed(server, err));
    if (!teller->lease.held) {
        *opened = false;
        srv_lease_init(&teller->lease, server, "webhook", teller->hook->name);
        CAIRN_TRY(srv_lease_take(&teller->lease, err));
    }
    if (!*opened) CAIRN_TRY(srv_catalog_write(server->catalog, open_row, teller, err));
    *opened = true;
    CAIRN_TRY(read_due(teller, err));
    if (teller->has_letter) {
        *ret_wait_ms = 0;
        return try_letter(teller, err);
    }
    if (!teller->count) return CAIRN_OK;
    CAIRN_TRY(count_missed(teller, err));
    return tell_page(teller, ret_wait_ms, err);
}

static void run_teller(struct cairn_thread *thread, void *owner) {
    struct teller *teller = owner;
    uint64_t wait_ms = 0;
    bool opened = false;
    do {
        struct cairn_error why = {0};
        wait_ms = LOOK_MS;
        enum cairn_code code = tell_due(teller, &opened, &wait_ms, &why);
        if (!code) continue;
        wait_ms = BUSY_MS;
        srv_lease_end(&teller->lease);
        teller->lease.held = opened = false;
        if (code != CAIRN_BUSY && code != CAIRN_CANCELLED)
            cairn_log(INFO, "webhook.delayed", "webhook=%s cause=\"%s\"", teller->hook->name,
                      why.message);
    } while (cairn_thread_wait(thread, cairn_mono_ms() + wait_ms));
    srv_lease_end(&teller->lease);
    drop_page(teller);
}

/* ---- all webhooks ---- */

/* Creates missing rows, so that every event from here on is delivered. */
SRV_CHANGE(open_rows, const struct webhook_file *file) {
    struct srv_webhook_row row;
    for (size_t i = 0; i < file->count; i++)
        CAIRN_TRY(srv_webhook_open(tx, file->hooks[i].name, &row, err));
    return CAIRN_OK;
}

static void free_roster(struct roster *roster) {
    if (roster->file) cairn_wipe(roster->file, sizeof(*roster->file));
    free(roster->tellers);
    free(roster->file);
    free(roster);
}

static enum cairn_code read_roster(struct srv *server, struct roster **ret,
                                   struct cairn_error *err) {
    struct roster *roster = calloc(1, sizeof(*roster));
    if (!roster) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for webhooks");
    enum cairn_code code = load_file(server->settings->webhooks_file, &roster->file, err);
    if (!code && roster->file->count)
        roster->tellers = calloc(roster->file->count, sizeof(*roster->tellers));
    if (!code && roster->file->count && !roster->tellers)
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no memory for webhooks");
    if (!code && roster->file->count && !server->frozen)
        code = srv_catalog_write(server->catalog, open_rows, roster->file, err);
    if (code)
        free_roster(roster);
    else
        *ret = roster;
    return code;
}

static enum cairn_code start_roster(struct srv *server, struct roster *roster,
                                    struct cairn_error *err) {
    const struct cairn_http_options options = {.connections_max = 1};
    for (size_t i = 0; i < roster->file->count; i++) {
        struct teller *teller = &roster->tellers[i];
        teller->server = server;
        teller->hook = &roster->file->hooks[i];
        teller->thread =
            (struct cairn_thread){.name = "cairn-webhook", .run = run_teller, .owner = teller};
        CAIRN_TRY(cairn_http_engine_new(&options, &teller->engine, err));
        CAIRN_TRY(cairn_thread_start(&teller->thread, err));
        atomic_store(&teller->running, true);
        cairn_log(INFO, "webhook.ready", "webhook=%s host=%s", teller->hook->name,
                  teller->hook->host);
    }
    return CAIRN_OK;
}

static void stop_roster(struct roster *roster) {
    for (size_t i = 0; roster->tellers && i < roster->file->count; i++) {
        atomic_store(&roster->tellers[i].running, false);
        cairn_thread_stop(&roster->tellers[i].thread);
        if (roster->tellers[i].engine) cairn_http_engine_free(roster->tellers[i].engine);
        roster->tellers[i].engine = NULL;
    }
}

enum cairn_code srv_webhooks_new(struct srv *server, struct srv_webhooks **ret,
                                 struct cairn_error *err) {
    struct roster *roster = NULL;
    struct srv_webhooks *webhooks = calloc(1, sizeof(*webhooks));
    if (!webhooks) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for webhooks");
    webhooks->server = server;
    enum cairn_code code = read_roster(server, &roster, err);
    webhooks->now = roster;
    if (code)
        free(webhooks);
    else
        *ret = webhooks;
    return code;
}

enum cairn_code srv_webhooks_start(struct srv_webhooks *webhooks, struct cairn_error *err) {
    return start_roster(webhooks->server, webhooks->now, err);
}

/* Stops the old threads first: a webhook has one at a time, and the next resumes from its row. */
void srv_webhooks_reload(struct srv_webhooks *webhooks) {
    struct cairn_error why = {0};
    struct roster *old = webhooks->now, *next = NULL;
    enum cairn_code code = read_roster(webhooks->server, &next, &why);
    if (!code && !memcmp(old->file, next->file, sizeof(*next->file))) {
        free_roster(next);
        return;
    }
    if (!code) {
        stop_roster(old);
        next->before = old;
        webhooks->now = next;
        code = start_roster(webhooks->server, next, &why);
    }
    if (code)
        cairn_log(WARN, "webhooks.kept", "file=%s cause=\"%s\"",
                  webhooks->server->settings->webhooks_file, why.message);
    else
        cairn_log(INFO, "webhooks.loaded", "file=%s webhooks=%zu",
                  webhooks->server->settings->webhooks_file, next->file->count);
}

void srv_webhooks_free(struct srv_webhooks *webhooks) {
    if (!webhooks) return;
    struct roster *roster = webhooks->now;
    stop_roster(roster);
    while (roster) {
        struct roster *before = roster->before;
        free_roster(roster);
        roster = before;
    }
    free(webhooks);
}

/* ---- /v1/webhooks ---- */

static json_t *row_of(const struct webhook *hook, const struct srv_webhook_row *row,
                      uint64_t last) {
    char tried[32], delivered[32];
    cairn_time_text(row->tried_ms, true, tried);
    cairn_time_text(row->delivered_ms, true, delivered);
    return CAIRN_PACK(webhook_row, .name = hook->name, .host = hook->host, .project = hook->project,
                      .position = row->position,
                      .behind = last > row->position ? last - row->position : 0,
                      .delivered = row->delivered, .failures = row->failures,
                      .cause = row->cause[0] ? row->cause : NULL, .missed = row->missed,
                      .dead_letters = row->letters, .tried_at = row->tried_ms ? tried : NULL,
                      .delivered_at = row->delivered_ms ? delivered : NULL);
}

static enum cairn_code list_webhooks(const struct srv_request *request, json_t *items,
                                     struct cairn_error *err) {
    const struct roster *roster = request->server->webhooks->now;
    const struct webhook_file *file = roster->file;
    uint64_t first = 0, last = 0;
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(srv_events_bounds(look.tx, &first, &last, err));
    for (size_t i = 0; i < file->count; i++) {
        struct srv_webhook_row row = {0};
        struct cairn_error why = {0};
        enum cairn_code code = srv_webhook_get(look.tx, file->hooks[i].name, &row, &why);
        if (code && code != CAIRN_NOT_FOUND) return cairn_fail(err, code, "%s", why.message);
        if (code) row.position = last;
        CAIRN_TRY(cairn_json_append(items, row_of(&file->hooks[i], &row, last),
                                    "the list of webhooks", err));
    }
    return CAIRN_OK;
}

SRV_HANDLER(webhook_list) {
    CAIRN_AUTO_JSON json_t *items = json_array();
    uint64_t limit = 0;
    CAIRN_TRY(srv_query_limit(request, &limit, err));
    if (request->server->webhooks) CAIRN_TRY(list_webhooks(request, items, err));
    return srv_reply_page(reply, CAIRN_TAKE(items), NULL, err);
}

/* ---- GET /v1/webhooks/{webhook}/dead-letters ---- */

static enum cairn_code find_teller(const struct srv_request *request, struct teller **ret,
                                   struct cairn_error *err) {
    const struct srv_webhooks *webhooks = request->server->webhooks;
    const struct roster *roster = webhooks ? webhooks->now : NULL;
    const char *name = request->params.node;
    for (size_t i = 0; roster && i < roster->file->count; i++) {
        *ret = &roster->tellers[i];
        if (!strcmp(roster->file->hooks[i].name, name)) return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no webhook %s", name);
}

SRV_HANDLER(letter_list) {
    const char *name = request->params.node;
    struct teller *teller = NULL;
    uint64_t after = 0;
    CAIRN_TRY(find_teller(request, &teller, err));
    SRV_GET(list, list, srv_list_open(request, &list, err));
    CAIRN_TRY(srv_list_after(&list, &after, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(rows, rows, srv_letters_open(look.tx, name, after, list.limit + 1, &rows, err));
    SQL_EACH(&rows, err) {
        char at[32], number[24];
        SRV_GET(letter, letter, srv_letter_row(&rows, &letter, err));
        snprintf(number, sizeof(number), "%" PRIu64, letter.number);
        cairn_time_text(letter.at_ms, true, at);
        if (!srv_list_takes(&list, number)) continue;
        json_t *item = CAIRN_PACK(letter_row, .id = letter.number, .tries = letter.tries,
                                  .tried_at = at, .cause = letter.cause, .event = letter.event);
        CAIRN_TRY(srv_list_add(&list, item, err));
    }
    return srv_list_reply(&list, reply, err);
}

/* ---- POST /v1/webhooks/{webhook}/redeliver ---- */

struct retry {
    const char *name;
    uint64_t letters; /* queued again */
};

SRV_CHANGE(retry_letters, struct retry *retry) {
    const struct cairn_run_name all = {0};
    CAIRN_TRY(srv_letters_again(tx, retry->name, &retry->letters, err));
    return srv_event_of_name(tx, SRV_EVENT_WEBHOOK_REDELIVERED, &all, retry->name, err);
}

SRV_HANDLER(webhook_redeliver) {
    struct retry retry = {.name = request->params.node};
    struct teller *teller = NULL;
    CAIRN_TRY(find_teller(request, &teller, err));
    CAIRN_TRY(srv_catalog_write(request->server->catalog, retry_letters, &retry, err));
    /* Finds the thread again: a reload may have stopped it meanwhile. */
    if (!find_teller(request, &teller, NULL) && atomic_load(&teller->running))
        cairn_thread_wake(&teller->thread);
    return srv_reply_json(
        reply, 202,
        CAIRN_PACK(redelivered, .name = request->params.node, .dead_letters = retry.letters), err);
}
