/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: one writing thread with the only connection for changes, and a pool of connections
 * for reads; see catalog.h. The engine knows the database. */
#include "server/db/catalog.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/process.h"
#include "server/db/engine.h"

#define CHANGES_WAITING_MAX 4096
#define CHANGES_PER_COMMIT 256
#define COMMIT_AFTER_MS 1000 /* other servers wait for the transaction's end */
#define READERS_MAX 16       /* starting a PostgreSQL session costs ten milliseconds of CPU */

/* One caller's change, on its stack until the writing thread has finished it. */
struct waiting {
    enum cairn_code (*change)(struct srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument;
    const struct srv_actor *actor;
    struct cairn_error *err;
    enum cairn_code code;
    bool done;
    struct cairn_condition finished;
    struct waiting *next;
};

struct srv_catalog {
    const struct srv_engine *engine;
    void *place;
    struct srv_tx *writer;
    _Atomic uint64_t changes;              /* from 1 on */
    struct srv_listener *_Atomic listener; /* set once; notifications need it */
    struct srv_migrated migrated;
    bool in_memory;                  /* no thread: callers use the one connection */
    const struct cairn_clock *clock; /* for event times */
    void (*happened)(void *owner);
    void *watcher;
    srv_catalog_failed *_Atomic failed; /* set after failed_owner */
    void *failed_owner;
    struct cairn_metrics *metrics; /* NULL: durations are not counted */
    size_t metric;
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct waiting *first, **last;
        size_t count;
        bool stopping;
        struct cairn_error trouble; /* last change's error; code CAIRN_OK: none */
    } locked;
    struct cairn_lock readers_lock;
    struct cairn_condition reader_given;
    struct {
        struct srv_tx *idle;
        size_t count; /* including those in use */
    } readers;
};

/* ---- notifications ---- */

#define AGAIN_MS 500    /* before a new session, after a lost one */
#define SILENCE_MS 5000 /* then the session is checked for being alive */
#define RUN_TEXT_BYTES (2 * CAIRN_NAME_BYTES_MAX + 2)

struct srv_listener {
    const struct srv_engine *engine;
    void *place;
    void (*changed)(void *owner, uint64_t key);
    void *owner;
    int wake_fd; /* readable once stopping */
    atomic_bool hears;
    struct cairn_thread thread;
};

uint64_t srv_key_of(const char *text) {
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return hash;
}

uint64_t srv_key_of_run(const struct cairn_run_name *name) {
    char text[RUN_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s/%s", name->project, name->run);
    return srv_key_of(text);
}

void srv_notify_events(struct srv_tx *tx) {
    if (tx->engine->notify) tx->engine->notify(tx, SRV_NOTIFY_EVENTS);
}

void srv_notify_text(struct srv_tx *tx, const char *text) {
    if (tx->engine->notify) tx->engine->notify(tx, srv_key_of(text));
}

void srv_notify_run(struct srv_tx *tx, const struct cairn_run_name *name) {
    CAIRN_ASSERT(name->run[0]);
    if (tx->engine->notify) tx->engine->notify(tx, srv_key_of_run(name));
}

void srv_notify_version(struct srv_tx *tx, const struct cairn_version_id *id,
                        const struct cairn_run_name *name) {
    srv_notify_text(tx, id->text);
    srv_notify_run(tx, name);
}

/* Listens until the session is lost (returns that error) or the listener stops (CAIRN_OK). */
static enum cairn_code hear_all(struct srv_listener *listener, struct srv_tx *tx,
                                struct cairn_error *err) {
    const struct srv_engine *engine = listener->engine;
    enum cairn_code code = CAIRN_OK;
    listener->hears = true;
    listener->changed(listener->owner, SRV_NOTIFY_ALL);
    while (!code && cairn_thread_wait(&listener->thread, 0))
        code = engine->listen_for(tx, listener->wake_fd, SILENCE_MS, listener->changed,
                                  listener->owner, err);
    listener->hears = false;
    listener->changed(listener->owner, SRV_NOTIFY_ALL);
    return code;
}

static void listen_loop(struct cairn_thread *thread, void *owner) {
    struct srv_listener *listener = owner;
    bool said = false;
    do {
        struct srv_tx *tx = NULL;
        struct cairn_error why = {0};
        enum cairn_code code = listener->engine->listen(listener->place, &tx, &why);
        if (!code) {
            if (said)
                cairn_log(INFO, "catalog.heard", "server=%s",
                          listener->engine->server(listener->place));
            said = false;
            code = hear_all(listener, tx, &why);
            listener->engine->disconnect(tx);
        }
        if (code && !said)
            cairn_log(WARN, "catalog.unheard",
                      "cause=\"%s\" effect=\"requests that wait for another server's change look "
                      "for it themselves, more often\"",
                      why.message);
        said |= code != CAIRN_OK;
    } while (cairn_thread_wait(thread, cairn_mono_ms() + AGAIN_MS));
}

/* No callback runs afterwards; other threads may still call hears(). Accepts NULL. */
static void stop_listener(struct srv_listener *listener) {
    if (!listener) return;
    if (listener->wake_fd >= 0) (void)eventfd_write(listener->wake_fd, 1);
    cairn_thread_stop(&listener->thread);
}

static void free_listener(struct srv_listener *listener) {
    if (!listener) return;
    stop_listener(listener);
    if (listener->wake_fd >= 0) close(listener->wake_fd);
    free(listener);
}

/* *ret stays NULL where no other process can change the catalog. */
static enum cairn_code start_listener(const struct srv_engine *engine, void *place,
                                      void (*changed)(void *owner, uint64_t key), void *owner,
                                      struct srv_listener **ret, struct cairn_error *err) {
    if (!engine->listen) return CAIRN_OK;
    struct srv_listener *listener = calloc(1, sizeof(*listener));
    if (!listener) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for listening");
    listener->engine = engine;
    listener->place = place;
    listener->changed = changed;
    listener->owner = owner;
    listener->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listener->thread =
        (struct cairn_thread){.name = "cairn-listen", .run = listen_loop, .owner = listener};
    enum cairn_code code = listener->wake_fd < 0 ? cairn_fail_errno(err, "eventfd")
                                                 : cairn_thread_start(&listener->thread, err);
    if (code)
        free_listener(listener);
    else
        *ret = listener;
    return code;
}

static void measure(struct srv_catalog *catalog, enum srv_query query, uint64_t from_us) {
    cairn_metrics_observe(catalog->metrics, (struct cairn_metric_at){catalog->metric, query, 0},
                          cairn_mono_us() - from_us);
}

void srv_catalog_set_metrics(struct srv_catalog *catalog, struct cairn_metrics *metrics,
                             size_t family) {
    catalog->metrics = metrics;
    catalog->metric = family;
}

void srv_catalog_set_failed(struct srv_catalog *catalog, srv_catalog_failed *failed, void *owner) {
    catalog->failed_owner = owner;
    atomic_store(&catalog->failed, failed);
}

static void tell_failed(const struct srv_catalog *catalog, enum cairn_code code,
                        const struct cairn_error *why) {
    srv_catalog_failed *failed = code ? atomic_load(&catalog->failed) : NULL;
    if (failed) failed(catalog->failed_owner, why);
}

/* ---- the writing thread ---- */

static void run_one(struct srv_tx *tx, struct waiting *one) {
    tx->actor = one->actor;
    one->code = tx->engine->savepoint(tx, one->err);
    if (one->code) return;
    one->code = one->change(tx, one->argument, one->err);
    if (!one->code) one->code = tx->engine->keep(tx, one->err);
    if (one->code) tx->engine->undo(tx);
}

/* A failure that has undone the whole transaction ends the batch (engine.h#2). */
static enum cairn_code still_open(struct srv_tx *tx, const struct waiting *one,
                                  struct cairn_error *err) {
    if (tx->engine->is_open(tx)) return CAIRN_OK;
    if (tx->undone.code) *err = tx->undone;
    if (err->code) return err->code;
    if (one->code && one->err) *err = *one->err;
    if (err->code) return err->code;
    return cairn_fail(err, one->code ? one->code : CAIRN_IO,
                      "catalog: the transaction was undone by the database");
}

/* D05: logged once when trouble begins and once when it ends. */
static void note_trouble(struct srv_catalog *catalog, enum cairn_code code,
                         const struct cairn_error *err) {
    bool trouble = code == CAIRN_NO_SPACE || code == CAIRN_IO || code == CAIRN_CORRUPT ||
                   code == CAIRN_UNAVAILABLE || code == CAIRN_CATALOG_BEHIND;
    bool changed;
    if (code && !trouble) return;
    {
        CAIRN_HOLD(&catalog->lock);
        changed = trouble != (catalog->locked.trouble.code != CAIRN_OK);
        catalog->locked.trouble = trouble ? *err : (struct cairn_error){0};
    }
    if (changed && trouble)
        cairn_log(ERROR, "catalog.unwritable", "path=%s cause=\"%s\"",
                  catalog->engine->describe(catalog->place), err->message);
    if (changed && !trouble)
        cairn_log(INFO, "catalog.writable", "path=%s", catalog->engine->describe(catalog->place));
}

enum cairn_code srv_catalog_writable(struct srv_catalog *catalog, struct cairn_error *err) {
    CAIRN_HOLD(&catalog->lock);
    const struct cairn_error *trouble = &catalog->locked.trouble;
    if (!trouble->code) return CAIRN_OK;
    /* an unreachable or newer database is not a disk's fault */
    bool disk = trouble->code != CAIRN_UNAVAILABLE && trouble->code != CAIRN_CATALOG_BEHIND;
    return cairn_fail(err, trouble->code, "it cannot be written (%s), %s%s: %s",
                      cairn_code_info(trouble->code)->slug,
                      !disk                             ? ""
                      : trouble->code == CAIRN_NO_SPACE ? "make room on the disk of "
                                                        : "see to the disk of ",
                      catalog->engine->describe(catalog->place), trouble->message);
}

bool srv_catalog_checked(const struct srv_catalog *catalog, char *ret, size_t capacity) {
    char text[SRV_CHECKED_BYTES] = "ok";
    bool damaged = catalog->engine->checked &&
                   catalog->engine->checked(catalog->place, text) == SRV_CHECKED_DAMAGED;
    (void)cairn_text_copy(ret, capacity, text);
    return !damaged;
}

static enum cairn_code refuse_damaged(const struct srv_catalog *catalog, struct cairn_error *err) {
    char text[SRV_CHECKED_BYTES];
    if (srv_catalog_checked(catalog, text, sizeof(text))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "catalog: %s", text);
}

/* Takes the first of the queue; NULL: it is empty. */
static struct waiting *take_one(struct srv_catalog *catalog) {
    CAIRN_HOLD(&catalog->lock);
    struct waiting *first = catalog->locked.first;
    if (!first) return NULL;
    catalog->locked.first = first->next;
    if (!first->next) catalog->locked.last = &catalog->locked.first;
    first->next = NULL;
    catalog->locked.count--;
    return first;
}

/* The changes of one transaction. */
struct batch {
    struct waiting *first, **end;
    size_t count;
    uint64_t until_ms;
};

static struct waiting *add_one(struct srv_catalog *catalog, struct batch *batch) {
    bool full = batch->count >= CHANGES_PER_COMMIT ||
                (batch->count && !cairn_deadline_left_ms(&cairn_clock_real, batch->until_ms));
    struct waiting *one = full ? NULL : take_one(catalog);
    if (!one) return NULL;
    *batch->end = one;
    batch->end = &one->next;
    batch->count++;
    return one;
}

/* Runs all changes that were queued when the transaction began; a failed commit fails all. */
static void run_batch(struct srv_catalog *catalog, struct batch *batch) {
    struct srv_tx *tx = catalog->writer;
    struct cairn_error err = {0};
    struct waiting *one = NULL;
    enum cairn_code code = refuse_damaged(catalog, &err);
    if (!code) code = tx->engine->begin_write(tx, &err);
    batch->until_ms = cairn_deadline_in(&cairn_clock_real, COMMIT_AFTER_MS);
    tx->wall_ms = catalog->clock->wall_ms(catalog->clock);
    tx->events = 0;
    while ((one = add_one(catalog, batch))) {
        if (code) continue;
        run_one(tx, one);
        code = still_open(tx, one, &err);
    }
    if (!code) code = tx->engine->commit(tx, &err);
    atomic_fetch_add(&catalog->changes, 1); /* also after a failure: its outcome is unknown */
    note_trouble(catalog, code, &err);
    if (!code && tx->events && catalog->happened) catalog->happened(catalog->watcher);
    if (!code) return;
    tell_failed(catalog, code, &err);
    tx->engine->rollback(tx);
    for (one = batch->first; one; one = one->next) {
        one->code = code;
        if (one->err) *one->err = err;
    }
}

static void finish_batch(struct srv_catalog *catalog, struct batch *batch) {
    CAIRN_HOLD(&catalog->lock);
    for (struct waiting *one = batch->first, *next = NULL; one; one = next) {
        next = one->next;
        one->done = true;
        cairn_condition_signal(&one->finished);
    }
}

static void write_batch(struct srv_catalog *catalog) {
    struct batch batch = {.end = &batch.first};
    run_batch(catalog, &batch);
    finish_batch(catalog, &batch);
}

/* False: the catalog is closed. */
static bool wait_for_work(struct srv_catalog *catalog) {
    CAIRN_HOLD(&catalog->lock);
    while (!catalog->locked.first && !catalog->locked.stopping)
        (void)cairn_condition_wait(&catalog->work, &catalog->lock, UINT64_MAX);
    return catalog->locked.first != NULL;
}

static void *write_loop(void *argument) {
    struct srv_catalog *catalog = argument;
    while (wait_for_work(catalog)) write_batch(catalog);
    return NULL;
}

enum cairn_code srv_catalog_write(struct srv_catalog *catalog,
                                  enum cairn_code (*change)(struct srv_tx *tx, void *argument,
                                                            struct cairn_error *err),
                                  void *argument, struct cairn_error *err) {
    struct waiting one = {
        .change = change, .argument = argument, .actor = srv_actor_get(), .err = err};
    uint64_t from_us = cairn_mono_us();
    CAIRN_ASSERT(!*srv_sql_looking()); /* catalog.h#10 */
    cairn_condition_init(&one.finished);
    {
        CAIRN_HOLD(&catalog->lock);
        if (catalog->locked.count >= CHANGES_WAITING_MAX || catalog->locked.stopping) {
            one.done = true;
            one.code = cairn_fail(err, CAIRN_BUSY, "the catalog has too many changes waiting");
        } else {
            *catalog->locked.last = &one;
            catalog->locked.last = &one.next;
            catalog->locked.count++;
            cairn_condition_signal(&catalog->work);
        }
        while (!one.done && !catalog->in_memory)
            (void)cairn_condition_wait(&one.finished, &catalog->lock, UINT64_MAX);
    }
    if (!one.done) write_batch(catalog);
    cairn_condition_release(&one.finished);
    measure(catalog, SRV_QUERY_CHANGE, from_us);
    return one.code;
}

void srv_catalog_set_clock(struct srv_catalog *catalog, const struct cairn_clock *clock) {
    catalog->clock = clock;
}

void srv_catalog_set_watcher(struct srv_catalog *catalog, void (*happened)(void *owner),
                             void *owner) {
    CAIRN_HOLD(&catalog->lock);
    catalog->happened = happened;
    catalog->watcher = owner;
}

const char *srv_catalog_server(const struct srv_catalog *catalog) {
    return catalog->engine->server(catalog->place);
}

bool srv_catalog_is_shareable(const struct srv_catalog *catalog) {
    return catalog->engine->shareable;
}

uint64_t srv_catalog_changes(const struct srv_catalog *catalog) {
    return atomic_load(&catalog->changes) + 1;
}

bool srv_catalog_is_shared(const struct srv_catalog *catalog) {
    return catalog->engine->shared(catalog->place);
}

bool srv_catalog_is_behind(const struct srv_catalog *catalog) {
    return catalog->engine->behind(catalog->place);
}

uint64_t srv_catalog_log_bytes(const struct srv_catalog *catalog) {
    return catalog->engine->log_bytes ? catalog->engine->log_bytes(catalog->place) : 0;
}

enum cairn_code srv_catalog_listen(struct srv_catalog *catalog,
                                   void (*changed)(void *owner, uint64_t key), void *owner,
                                   struct cairn_error *err) {
    struct srv_listener *listener = NULL;
    CAIRN_ASSERT(!catalog->listener);
    CAIRN_TRY(start_listener(catalog->engine, catalog->place, changed, owner, &listener, err));
    catalog->listener = listener;
    return CAIRN_OK;
}

void srv_catalog_unlisten(struct srv_catalog *catalog) {
    stop_listener(catalog->listener);
}

bool srv_catalog_hears(const struct srv_catalog *catalog) {
    return catalog->listener && catalog->listener->hears;
}

/* ---- readers ---- */

/* NULL: the caller may open one more connection. */
static struct srv_tx *wait_for_reader(struct srv_catalog *catalog) {
    CAIRN_HOLD(&catalog->readers_lock);
    while (!catalog->readers.idle && catalog->readers.count == READERS_MAX)
        (void)cairn_condition_wait(&catalog->reader_given, &catalog->readers_lock, UINT64_MAX);
    struct srv_tx *reader = catalog->readers.idle;
    if (reader)
        catalog->readers.idle = reader->next;
    else
        catalog->readers.count++;
    return reader;
}

/* reader NULL: opening it has failed. */
static void give_reader(struct srv_catalog *catalog, struct srv_tx *reader) {
    CAIRN_HOLD(&catalog->readers_lock);
    if (reader) {
        reader->next = catalog->readers.idle;
        catalog->readers.idle = reader;
    } else {
        catalog->readers.count--;
    }
    cairn_condition_signal(&catalog->reader_given);
}

static enum cairn_code take_reader(struct srv_catalog *catalog, struct srv_tx **ret,
                                   struct cairn_error *err) {
    *ret = wait_for_reader(catalog);
    if (*ret) return CAIRN_OK;
    enum cairn_code code = catalog->engine->connect(catalog->place, true, ret, err);
    if (code) give_reader(catalog, NULL);
    return code;
}

/* ---- looks ---- */

static enum cairn_code begin_read(struct srv_catalog *catalog, struct srv_tx **ret,
                                  struct cairn_error *err) {
    *ret = catalog->writer;
    if (!catalog->in_memory) CAIRN_TRY(take_reader(catalog, ret, err));
    enum cairn_code code = (*ret)->engine->begin_read(*ret, err);
    if (code && !catalog->in_memory) give_reader(catalog, *ret);
    return code;
}

enum cairn_code srv_look_begin(struct srv_catalog *catalog, struct srv_look *ret,
                               struct cairn_error *err) {
    struct cairn_error why = {0};
    struct srv_tx *tx = NULL;
    uint64_t from_us = cairn_mono_us();
    CAIRN_ASSERT(!*srv_sql_looking()); /* catalog.h#10 */
    enum cairn_code code = begin_read(catalog, &tx, &why);
    if (code) {
        tell_failed(catalog, code, &why);
        measure(catalog, SRV_QUERY_LOOK, from_us);
        return cairn_pass(err, code, &why);
    }
    tx->broken = (struct cairn_error){0};
    *srv_sql_looking() = true;
    *ret = (struct srv_look){catalog, tx, from_us};
    return CAIRN_OK;
}

void srv_look_release(struct srv_look *look) {
    struct srv_catalog *catalog = look->catalog;
    if (!look->tx) return;
    look->tx->engine->end_read(look->tx);
    struct cairn_error broken = look->tx->broken;
    if (!catalog->in_memory) give_reader(catalog, look->tx);
    look->tx = NULL;
    *srv_sql_looking() = false;
    tell_failed(catalog, broken.code, &broken);
    measure(catalog, SRV_QUERY_LOOK, look->from_us);
}

/* SQLite is last: it accepts every place. */
static const struct srv_engine *const engines[] = {&srv_engine_postgres, &srv_engine_sqlite};

const struct srv_engine *srv_engine_of(const char *where) {
    for (size_t i = 0; i + 1 < CAIRN_COUNT(engines); i++)
        if (engines[i]->knows(where)) return engines[i];
    return engines[CAIRN_COUNT(engines) - 1];
}

static enum cairn_code open_place(struct srv_catalog *catalog, const char *where,
                                  struct cairn_error *err) {
    catalog->engine = srv_engine_of(where);
    CAIRN_TRY(catalog->engine->take(where, &catalog->place, err));
    CAIRN_TRY(catalog->engine->connect(catalog->place, false, &catalog->writer, err));
    struct srv_migrated *migrated = &catalog->migrated;
    CAIRN_TRY(catalog->engine->migrate(catalog->writer, migrated, err));
    if (migrated->from)
        cairn_log(WARN, "catalog.migrated", "from=%u to=%u before=\"%s\"", migrated->from,
                  srv_catalog_schema(),
                  migrated->before[0] ? migrated->before
                                      : "no copy was made: the way back is a pg_dump from before "
                                        "(docs/upgrade.md)");
    return CAIRN_OK;
}

const struct srv_migrated *srv_catalog_migrated(const struct srv_catalog *catalog) {
    return &catalog->migrated;
}

bool srv_catalog_is_there(const char *where) {
    return srv_engine_of(where)->is_there(where);
}

static void release_place(struct srv_catalog *catalog) {
    free_listener(catalog->listener);
    while (catalog->readers.idle) {
        struct srv_tx *reader = catalog->readers.idle;
        catalog->readers.idle = reader->next;
        catalog->engine->disconnect(reader);
    }
    if (catalog->writer) catalog->engine->disconnect(catalog->writer);
    if (catalog->place) catalog->engine->leave(catalog->place);
    cairn_lock_release(&catalog->lock);
    cairn_lock_release(&catalog->readers_lock);
    cairn_condition_release(&catalog->work);
    cairn_condition_release(&catalog->reader_given);
    free(catalog);
}

static struct srv_catalog *new_catalog(void) {
    struct srv_catalog *catalog = calloc(1, sizeof(*catalog));
    if (!catalog) return NULL;
    catalog->locked.last = &catalog->locked.first;
    catalog->clock = &cairn_clock_real;
    cairn_lock_init(&catalog->lock, CAIRN_LOCK_catalog_writer);
    cairn_lock_init(&catalog->readers_lock, CAIRN_LOCK_catalog_readers);
    cairn_condition_init(&catalog->work);
    cairn_condition_init(&catalog->reader_given);
    return catalog;
}

static enum cairn_code open_catalog(const char *where, bool in_memory, struct srv_catalog **ret,
                                    struct cairn_error *err) {
    struct srv_catalog *catalog = new_catalog();
    if (!catalog) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    catalog->in_memory = in_memory;
    enum cairn_code code = open_place(catalog, where, err);
    if (!code && !in_memory && pthread_create(&catalog->thread, NULL, write_loop, catalog))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no thread for the catalog");
    if (code)
        release_place(catalog);
    else
        *ret = catalog;
    return code;
}

enum cairn_code srv_catalog_open_memory(struct srv_catalog **ret, struct cairn_error *err) {
    return open_catalog(":memory:", true, ret, err);
}

enum cairn_code srv_catalog_open(const char *where, struct srv_catalog **ret,
                                 struct cairn_error *err) {
    return open_catalog(where, false, ret, err);
}

void srv_catalog_password_from(const char *path) {
    srv_postgres_password_from(path);
}

void srv_catalog_free(struct srv_catalog *catalog) {
    if (!catalog->in_memory) {
        {
            CAIRN_HOLD(&catalog->lock);
            catalog->locked.stopping = true;
            cairn_condition_signal(&catalog->work);
        }
        pthread_join(catalog->thread, NULL);
    }
    release_place(catalog);
}

/* ---- actors ---- */

/* The catalog passes a handler thread's actor to the writing thread. */

static _Thread_local const struct srv_actor *acting;

void srv_actor_set(const struct srv_actor *actor) {
    acting = actor;
}

const struct srv_actor *srv_actor_get(void) {
    return acting;
}
