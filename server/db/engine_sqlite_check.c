/* SPDX-License-Identifier: Apache-2.0 */
/* Is the file whole? A small one is read through before it is used. A large one takes half a minute
 * from a cold disk: after a clean stop it is believed, as long as it is the same file with the same
 * size and time; else it is read through by a thread with a connection of its own, while calls are
 * answered. */
#include "server/db/engine_sqlite.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "common/process.h"
#include "common/text.h"

#define BESIDE_BYTES (64 * 1024 * 1024) /* from here on it is not waited for */
#define STOP_EVERY 10000                /* steps of SQLite: a fraction of a second */

enum state { STATE_OK, STATE_RUNS, STATE_STOPPED, STATE_DAMAGED };
struct cairn_srv_sqlite_check {
    const struct cairn_srv_sqlite_place *place;
    struct cairn_thread thread;
    uint64_t began_ms;
    _Atomic enum state state;
    _Atomic bool stopping;
    char text[200]; /* once it is damaged: written before the state is */
};

/* ---- the sign of a clean stop ---- */

static void stamp_path(const struct cairn_srv_sqlite_place *place, char ret[1100]) {
    snprintf(ret, 1100, "%.*s.clean", 1000, place->path);
}

/* "": the file is not as a clean stop leaves it. */
static void stamp_text(const struct cairn_srv_sqlite_place *place, char ret[128]) {
    struct stat status;
    *ret = '\0';
    if (stat(place->path, &status) || cairn_srv_sqlite_log_bytes(place)) return;
    snprintf(ret, 128, "%" PRIu64 " %" PRIu64 " %" PRIu64 ".%09ld\n", (uint64_t)status.st_ino,
             (uint64_t)status.st_size, (uint64_t)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

/* It holds for one start. */
static bool take_stamp(const struct cairn_srv_sqlite_place *place) {
    char path[1100], wanted[128];
    CAIRN_AUTO(buf) found = {.limit = 128};
    struct cairn_error unused = {0};
    stamp_path(place, path);
    stamp_text(place, wanted);
    if (cairn_file_load(path, &found, &unused)) return false;
    (void)unlink(path);
    return wanted[0] && found.size == strlen(wanted) && !memcmp(found.data, wanted, found.size);
}

static void leave_stamp(const struct cairn_srv_sqlite_place *place) {
    char path[1100], text[128];
    struct cairn_error why = {0};
    stamp_path(place, path);
    stamp_text(place, text);
    if (text[0] && cairn_file_replace(path, cairn_view_of(text), 0600, &why))
        cairn_log(INFO, "catalog.stop_not_noted", "cause=\"%s\"", why.message);
}

/* ---- reading it through ---- */

static int asked_to_stop(void *owner) {
    const struct cairn_srv_sqlite_check *check = owner;
    return check->stopping;
}

static enum cairn_code read_through(struct cairn_srv_sqlite_check *check, struct cairn_error *err) {
    struct cairn_srv_tx *tx = NULL;
    CAIRN_TRY(cairn_srv_sqlite_open(check->place->path, true, &tx, err));
    sqlite3_progress_handler(cairn_srv_sqlite_of(tx)->db, STOP_EVERY, asked_to_stop, check);
    enum cairn_code code = cairn_srv_sqlite_demand(tx, "PRAGMA quick_check(1)", "ok", err);
    cairn_srv_sqlite_free(tx);
    return code;
}

static void run(struct cairn_thread *thread, void *owner) {
    struct cairn_srv_sqlite_check *check = owner;
    struct cairn_error why = {0};
    (void)thread;
    enum cairn_code code = read_through(check, &why);
    bool damaged = code == CAIRN_UNSUPPORTED || code == CAIRN_CORRUPT;
    if (damaged)
        cairn_log(ERROR, "catalog.damaged", "path=%s cause=\"%s\"", check->place->path,
                  why.message);
    else
        cairn_log(INFO, "catalog.read_through", "path=%s ms=%" PRIu64 "%s", check->place->path,
                  cairn_mono_ms() - check->began_ms, code ? " whole=unknown" : "");
    (void)cairn_text_copy(check->text, sizeof(check->text), why.message);
    check->state = damaged ? STATE_DAMAGED : code ? STATE_STOPPED : STATE_OK;
}

enum cairn_code cairn_srv_sqlite_check(struct cairn_srv_sqlite_place *place,
                                       struct cairn_srv_tx *writer, struct cairn_error *err) {
    struct stat status = {0};
    bool in_memory = !strcmp(place->path, CAIRN_SRV_SQLITE_MEMORY);
    bool large = !in_memory && !stat(place->path, &status) && status.st_size >= BESIDE_BYTES;
    bool clean = !in_memory && place->clean;
    if (!large) CAIRN_TRY(cairn_srv_sqlite_demand(writer, "PRAGMA quick_check(1)", "ok", err));
    struct cairn_srv_sqlite_check *check = calloc(1, sizeof(*check));
    if (!check) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a check of the catalog");
    check->place = place;
    check->began_ms = cairn_mono_ms();
    place->check = check;
    if (!large || clean) return CAIRN_OK;
    check->state = STATE_RUNS;
    check->thread = (struct cairn_thread){.name = "catalog-check", .run = run, .owner = check};
    return cairn_thread_start(&check->thread, err);
}

void cairn_srv_sqlite_check_begin(struct cairn_srv_sqlite_place *place) {
    place->clean = take_stamp(place);
}

void cairn_srv_sqlite_check_end(struct cairn_srv_sqlite_place *place) {
    struct cairn_srv_sqlite_check *check = place->check;
    if (!check) return;
    check->stopping = true;
    cairn_thread_stop(&check->thread);
    if (check->state == STATE_OK && place->lock_fd >= 0) leave_stamp(place);
    free(check);
    place->check = NULL;
}

enum cairn_srv_checked cairn_srv_sqlite_checked(const void *place,
                                                char ret[CAIRN_SRV_CHECKED_BYTES]) {
    const struct cairn_srv_sqlite_check *check =
        ((const struct cairn_srv_sqlite_place *)place)->check;
    enum state state = check ? check->state : STATE_OK;
    const char *text = "ok";
    if (state == STATE_DAMAGED) {
        snprintf(ret, CAIRN_SRV_CHECKED_BYTES,
                 "the file is damaged, nothing is written to it any more: restore a backup, or "
                 "make it again from the stores (docs/catalog.md): %s",
                 check->text);
        return CAIRN_SRV_CHECKED_DAMAGED;
    }
    if (state == STATE_RUNS)
        text = "the file is being read through, since the last stop was no clean one";
    else if (state == STATE_STOPPED)
        text = "the file could not be read through, see the log";
    (void)cairn_text_copy(ret, CAIRN_SRV_CHECKED_BYTES, text);
    return state == STATE_OK ? CAIRN_SRV_CHECKED_OK : CAIRN_SRV_CHECKED_NOT_YET;
}
