/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use which connection when: one writing thread with the one connection that can write or
 * checkpoint, and idle READONLY readers for everybody else; see catalog.h. */
#include "server/catalog/sqlite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/lock.h"
#include "common/log.h"
#include "server/catalog/catalog.h"

#define CHANGES_WAITING_MAX 4096
#define CHANGES_PER_COMMIT 256
#define READERS_IDLE_MAX 8

/* One caller's change; lives on its stack until the writing thread says done. */
struct waiting {
    enum cairn_code (*change)(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err);
    void *argument;
    struct cairn_error *err;
    enum cairn_code code;
    bool done;
    struct cairn_condition finished;
    struct waiting *next;
};

struct cairn_srv_catalog {
    char path[1024];
    int lock_fd; /* sqlite.h#1: one process */
    struct cairn_srv_tx *writer;
    bool in_memory; /* no thread: whoever calls writes and reads over the one connection */
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition work;
    struct {
        struct waiting *first, **last;
        size_t count;
        bool stopping;
        struct cairn_error trouble; /* of the last change; code CAIRN_OK: none */
    } locked;
    struct cairn_lock readers_lock;
    struct {
        struct cairn_srv_tx *idle;
        size_t count;
    } readers;
};

/* ---- the writing thread ---- */

static void run_one(struct cairn_srv_tx *tx, struct waiting *one) {
    one->code = cairn_srv_sqlite_exec(tx, "SAVEPOINT change", one->err);
    if (one->code) return;
    one->code = one->change(tx, one->argument, one->err);
    if (!one->code) one->code = cairn_srv_sqlite_exec(tx, "RELEASE change", one->err);
    if (one->code)
        (void)sqlite3_exec(tx->db, "ROLLBACK TO change; RELEASE change", NULL, NULL, NULL);
}

/* A full disk, a failed read or write and want of memory undo the whole transaction, not only the
 * change that met them: nothing of the batch may go on as if it were still there. */
static enum cairn_code still_open(struct cairn_srv_tx *tx, const struct waiting *one,
                                  struct cairn_error *err) {
    if (!sqlite3_get_autocommit(tx->db)) return CAIRN_OK;
    enum cairn_code code = one->code ? one->code : CAIRN_IO;
    if (one->code && one->err) *err = *one->err;
    if (err->code) return err->code;
    return cairn_fail(err, code, "catalog: the transaction was undone: %s", sqlite3_errmsg(tx->db));
}

/* D05: said once when it begins and once when it ends. */
static void note_trouble(struct cairn_srv_catalog *catalog, enum cairn_code code,
                         const struct cairn_error *err) {
    bool trouble = code == CAIRN_NO_SPACE || code == CAIRN_IO || code == CAIRN_CORRUPT, changed;
    if (code && !trouble) return;
    {
        CAIRN_HOLD(&catalog->lock);
        changed = trouble != (catalog->locked.trouble.code != CAIRN_OK);
        catalog->locked.trouble = trouble ? *err : (struct cairn_error){0};
    }
    if (changed && trouble)
        cairn_log(ERROR, "catalog.unwritable", "path=%s cause=\"%s\"", catalog->path, err->message);
    if (changed && !trouble) cairn_log(INFO, "catalog.writable", "path=%s", catalog->path);
}

/* All of the batch in one transaction; a commit that fails fails all that were in it. */
static void run_batch(struct cairn_srv_catalog *catalog, struct waiting *batch) {
    struct cairn_srv_tx *tx = catalog->writer;
    struct cairn_error err = {0};
    enum cairn_code code = cairn_srv_sqlite_exec(tx, "BEGIN IMMEDIATE", &err);
    for (struct waiting *one = batch; one && !code; one = one->next) {
        run_one(tx, one);
        code = still_open(tx, one, &err);
    }
    if (!code) code = cairn_srv_sqlite_exec(tx, "COMMIT", &err);
    note_trouble(catalog, code, &err);
    if (!code) return;
    (void)sqlite3_exec(tx->db, "ROLLBACK", NULL, NULL, NULL);
    for (struct waiting *one = batch; one; one = one->next) {
        one->code = code;
        if (one->err) *one->err = err;
    }
}

enum cairn_code cairn_srv_catalog_writable(struct cairn_srv_catalog *catalog,
                                           struct cairn_error *err) {
    CAIRN_HOLD(&catalog->lock);
    const struct cairn_error *trouble = &catalog->locked.trouble;
    if (!trouble->code) return CAIRN_OK;
    return cairn_fail(err, trouble->code, "it cannot be written (%s): %s",
                      cairn_code_info(trouble->code)->slug, trouble->message);
}

/* Up to CHANGES_PER_COMMIT from the front of the queue; the lock is held. */
static struct waiting *take_batch(struct cairn_srv_catalog *catalog) {
    struct waiting *first = catalog->locked.first, *last = first;
    if (!first) return NULL;
    size_t count = 1;
    while (last->next && count < CHANGES_PER_COMMIT) {
        last = last->next;
        count++;
    }
    catalog->locked.first = last->next;
    if (!last->next) catalog->locked.last = &catalog->locked.first;
    last->next = NULL;
    catalog->locked.count -= count;
    return first;
}

static void finish_batch(struct cairn_srv_catalog *catalog, struct waiting *batch) {
    CAIRN_HOLD(&catalog->lock);
    while (batch) {
        struct waiting *one = batch;
        batch = one->next;
        one->done = true;
        cairn_condition_signal(&one->finished);
    }
}

static struct waiting *next_batch(struct cairn_srv_catalog *catalog) {
    CAIRN_HOLD(&catalog->lock);
    for (;;) {
        struct waiting *batch = take_batch(catalog);
        if (batch || catalog->locked.stopping) return batch;
        (void)cairn_condition_wait(&catalog->work, &catalog->lock, UINT64_MAX);
    }
}

static void *write_loop(void *argument) {
    struct cairn_srv_catalog *catalog = argument;
    for (;;) {
        struct waiting *batch = next_batch(catalog);
        if (!batch) return NULL;
        run_batch(catalog, batch);
        finish_batch(catalog, batch);
    }
}

enum cairn_code cairn_srv_catalog_write(struct cairn_srv_catalog *catalog,
                                        enum cairn_code (*change)(struct cairn_srv_tx *tx,
                                                                  void *argument,
                                                                  struct cairn_error *err),
                                        void *argument, struct cairn_error *err) {
    struct waiting one = {.change = change, .argument = argument, .err = err};
    if (catalog->in_memory) {
        run_batch(catalog, &one);
        return one.code;
    }
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
        while (!one.done) (void)cairn_condition_wait(&one.finished, &catalog->lock, UINT64_MAX);
    }
    cairn_condition_release(&one.finished);
    return one.code;
}

/* ---- readers ---- */

static enum cairn_code take_reader(struct cairn_srv_catalog *catalog, struct cairn_srv_tx **ret,
                                   struct cairn_error *err) {
    {
        CAIRN_HOLD(&catalog->readers_lock);
        if (catalog->readers.idle) {
            *ret = catalog->readers.idle;
            catalog->readers.idle = (*ret)->next;
            catalog->readers.count--;
            return CAIRN_OK;
        }
    }
    return cairn_srv_sqlite_open(catalog->path, true, ret, err);
}

static void give_reader(struct cairn_srv_catalog *catalog, struct cairn_srv_tx *reader) {
    {
        CAIRN_HOLD(&catalog->readers_lock);
        if (catalog->readers.count < READERS_IDLE_MAX) {
            reader->next = catalog->readers.idle;
            catalog->readers.idle = reader;
            catalog->readers.count++;
            return;
        }
    }
    cairn_srv_sqlite_free(reader);
}

enum cairn_code cairn_srv_catalog_read(struct cairn_srv_catalog *catalog,
                                       enum cairn_code (*look)(struct cairn_srv_tx *tx,
                                                               void *argument,
                                                               struct cairn_error *err),
                                       void *argument, struct cairn_error *err) {
    struct cairn_srv_tx *reader = catalog->writer;
    if (!catalog->in_memory) CAIRN_TRY(take_reader(catalog, &reader, err));
    enum cairn_code code = cairn_srv_sqlite_exec(reader, "BEGIN", err);
    if (!code) {
        code = look(reader, argument, err);
        (void)sqlite3_exec(reader->db, "COMMIT", NULL, NULL, NULL);
    }
    if (!catalog->in_memory) give_reader(catalog, reader);
    return code;
}

/* ---- open and close ---- */

/* D06: WAL needs memory that both sides share, which a network file system does not give. */
static enum cairn_code refuse_network(const char *folder, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "%s", folder);
    const char *kind = cairn_file_network_fs(fd);
    if (kind)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s is on %s: the catalog needs a local disk (setting data-dir)", folder,
                          kind);
    return CAIRN_OK;
}

static enum cairn_code open_files(struct cairn_srv_catalog *catalog, const char *folder,
                                  struct cairn_error *err) {
    CAIRN_TRY(cairn_dir_make(folder, 0700, err));
    CAIRN_TRY(refuse_network(folder, err));
    char lock_path[1024];
    snprintf(lock_path, sizeof(lock_path), "%.900s/catalog.lock", folder);
    snprintf(catalog->path, sizeof(catalog->path), "%.900s/catalog.db", folder);
    enum cairn_code code = cairn_file_lock(lock_path, &catalog->lock_fd, err);
    if (code) return cairn_within(err, code, "another cairn-server uses this catalog");
    CAIRN_TRY(cairn_srv_sqlite_open(catalog->path, false, &catalog->writer, err));
    return cairn_srv_sqlite_migrate(catalog->writer, err);
}

static void release_files(struct cairn_srv_catalog *catalog) {
    while (catalog->readers.idle) {
        struct cairn_srv_tx *reader = catalog->readers.idle;
        catalog->readers.idle = reader->next;
        cairn_srv_sqlite_free(reader);
    }
    if (catalog->writer) cairn_srv_sqlite_free(catalog->writer);
    if (catalog->lock_fd >= 0) close(catalog->lock_fd);
    cairn_lock_release(&catalog->lock);
    cairn_lock_release(&catalog->readers_lock);
    cairn_condition_release(&catalog->work);
    free(catalog);
}

static struct cairn_srv_catalog *new_catalog(void) {
    struct cairn_srv_catalog *catalog = calloc(1, sizeof(*catalog));
    if (!catalog) return NULL;
    catalog->lock_fd = -1;
    catalog->locked.last = &catalog->locked.first;
    cairn_lock_init(&catalog->lock, CAIRN_LOCK_catalog_writer);
    cairn_lock_init(&catalog->readers_lock, CAIRN_LOCK_catalog_readers);
    cairn_condition_init(&catalog->work);
    return catalog;
}

enum cairn_code cairn_srv_catalog_open_memory(struct cairn_srv_catalog **ret,
                                              struct cairn_error *err) {
    struct cairn_srv_catalog *catalog = new_catalog();
    if (!catalog) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    catalog->in_memory = true;
    enum cairn_code code =
        cairn_srv_sqlite_open(CAIRN_SRV_SQLITE_MEMORY, false, &catalog->writer, err);
    if (!code) code = cairn_srv_sqlite_migrate(catalog->writer, err);
    if (!code) *ret = catalog;
    if (code) release_files(catalog);
    return code;
}

enum cairn_code cairn_srv_catalog_open(const char *folder, struct cairn_srv_catalog **ret,
                                       struct cairn_error *err) {
    struct cairn_srv_catalog *catalog = new_catalog();
    if (!catalog) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the catalog");
    enum cairn_code code = open_files(catalog, folder, err);
    if (!code && pthread_create(&catalog->thread, NULL, write_loop, catalog))
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no thread for the catalog");
    if (code) {
        release_files(catalog);
        return code;
    }
    *ret = catalog;
    return CAIRN_OK;
}

void cairn_srv_catalog_free(struct cairn_srv_catalog *catalog) {
    if (!catalog->in_memory) {
        {
            CAIRN_HOLD(&catalog->lock);
            catalog->locked.stopping = true;
            cairn_condition_signal(&catalog->work);
        }
        pthread_join(catalog->thread, NULL);
    }
    release_files(catalog);
}
