/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions and statements on one SQLite connection, prepared once and kept by the address of
 * their text; see engine.h. */
#include "server/db/engine_sqlite.h"

static sqlite3 *db_of(struct cairn_srv_tx *tx) {
    return cairn_srv_sqlite_of(tx)->db;
}

/* ---- connections ---- */

/* SQLite is where no other engine knows the place: a folder. */
static bool knows(const char *where) {
    (void)where;
    return true;
}

static const char *describe(const void *place) {
    return ((const struct cairn_srv_sqlite_place *)place)->path;
}

static const char *server_of(const void *place) {
    return ((const struct cairn_srv_sqlite_place *)place)->server;
}

/* One process has it, and a file that is put back is not under a living server. */
static bool behind(const void *place) {
    (void)place;
    return false;
}

static bool shared(const void *place) {
    (void)place;
    return false;
}

static enum cairn_code lives(struct cairn_srv_tx *tx, const char *server, bool *ret,
                             struct cairn_error *err) {
    (void)tx, (void)server, (void)err;
    *ret = false;
    return CAIRN_OK;
}

static enum cairn_code join(struct cairn_srv_tx *tx, bool lasting, bool *ret_others,
                            struct cairn_error *err) {
    (void)tx, (void)lasting, (void)err;
    *ret_others = false;
    return CAIRN_OK;
}

/* The place's lock keeps all others out. */
static enum cairn_code alone(struct cairn_srv_tx *tx, struct cairn_error *err) {
    (void)tx, (void)err;
    return CAIRN_OK;
}

static enum cairn_code connect_to(void *place, bool read_only, struct cairn_srv_tx **ret,
                                  struct cairn_error *err) {
    struct cairn_srv_tx *tx = NULL;
    CAIRN_TRY(cairn_srv_sqlite_open(describe(place), read_only, &tx, err));
    enum cairn_code code = read_only ? CAIRN_OK : cairn_srv_sqlite_check(place, tx, err);
    if (code)
        cairn_srv_sqlite_free(tx);
    else
        *ret = tx;
    return code;
}

/* ---- transactions ---- */

static enum cairn_code begin_read(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sqlite_exec(tx, "BEGIN", err);
}

static void end_read(struct cairn_srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "COMMIT", NULL, NULL, NULL);
}

static enum cairn_code begin_write(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sqlite_exec(tx, "BEGIN IMMEDIATE", err);
}

static enum cairn_code commit(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sqlite_exec(tx, "COMMIT", err);
}

static void rollback(struct cairn_srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "ROLLBACK", NULL, NULL, NULL);
}

/* A full disk, a failed read or write and want of memory undo the whole transaction. */
static bool is_open(struct cairn_srv_tx *tx) {
    return !sqlite3_get_autocommit(db_of(tx));
}

static enum cairn_code savepoint(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sqlite_exec(tx, "SAVEPOINT change", err);
}

static enum cairn_code keep(struct cairn_srv_tx *tx, struct cairn_error *err) {
    return cairn_srv_sqlite_exec(tx, "RELEASE change", err);
}

static void undo(struct cairn_srv_tx *tx) {
    (void)sqlite3_exec(db_of(tx), "ROLLBACK TO change; RELEASE change", NULL, NULL, NULL);
}

/* ---- statements ---- */

/* A statement that is not in use by an outer loop; a second user of one text gets its own. */
static enum cairn_code prepare(struct cairn_srv_tx *tx, const char *sql, sqlite3_stmt **ret,
                               struct cairn_error *err) {
    struct cairn_srv_sqlite *own = cairn_srv_sqlite_of(tx);
    size_t room = CAIRN_SRV_STATEMENTS_MAX;
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) {
        if (own->kept[i].sql == sql && !own->kept[i].busy) {
            own->kept[i].busy = true;
            *ret = own->kept[i].statement;
            return CAIRN_OK;
        }
        if (!own->kept[i].busy && (room == CAIRN_SRV_STATEMENTS_MAX || !own->kept[i].sql)) room = i;
    }
    /* More loops inside each other than statements are kept is a bug of ours. */
    CAIRN_ASSERT(room < CAIRN_SRV_STATEMENTS_MAX);
    sqlite3_finalize(own->kept[room].statement);
    own->kept[room].sql = NULL;
    own->kept[room].statement = NULL;
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v3(own->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    if (result != SQLITE_OK) return cairn_srv_sqlite_fail(tx, result, sql, err);
    own->kept[room].sql = sql;
    own->kept[room].statement = statement;
    own->kept[room].busy = true;
    *ret = statement;
    return CAIRN_OK;
}

static void finish(struct cairn_srv_tx *tx, void *running) {
    struct cairn_srv_sqlite *own = cairn_srv_sqlite_of(tx);
    sqlite3_reset(running);
    sqlite3_clear_bindings(running);
    for (size_t i = 0; i < CAIRN_SRV_STATEMENTS_MAX; i++) {
        if (own->kept[i].statement == running) own->kept[i].busy = false;
    }
}

static int bind(sqlite3_stmt *statement, int index, const struct cairn_srv_value *value) {
    switch (value->type) {
    case 'i':
        return sqlite3_bind_int64(statement, index, value->number);
    case 't':
        return sqlite3_bind_text(statement, index, value->text, -1, SQLITE_STATIC);
    default:
        if (!value->bytes.data) return sqlite3_bind_null(statement, index);
        return sqlite3_bind_blob64(statement, index, value->bytes.data, value->bytes.size,
                                   SQLITE_STATIC);
    }
}

static enum cairn_code start(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                             const struct cairn_srv_value *values, void **ret_running,
                             struct cairn_error *err) {
    sqlite3_stmt *prepared = NULL;
    CAIRN_TRY(prepare(tx, statement->sql, &prepared, err));
    for (int i = 0; statement->types[i]; i++) {
        int result = bind(prepared, i + 1, &values[i]);
        if (result == SQLITE_OK) continue;
        enum cairn_code code = cairn_srv_sqlite_fail(tx, result, statement->name, err);
        finish(tx, prepared);
        return code;
    }
    *ret_running = prepared;
    return CAIRN_OK;
}

static enum cairn_code next(struct cairn_srv_tx *tx, void *running, bool *ret_more,
                            struct cairn_error *err) {
    int result = sqlite3_step(running);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        return cairn_srv_sqlite_fail(tx, result, sqlite3_sql(running), err);
    *ret_more = result == SQLITE_ROW;
    return CAIRN_OK;
}

static enum cairn_code run(struct cairn_srv_tx *tx, const struct cairn_srv_statement *statement,
                           const struct cairn_srv_value *values, uint64_t *ret_changed,
                           struct cairn_error *err) {
    void *running = NULL;
    bool more = false;
    CAIRN_TRY(start(tx, statement, values, &running, err));
    enum cairn_code code = next(tx, running, &more, err);
    if (!code && ret_changed) *ret_changed = (uint64_t)sqlite3_changes64(db_of(tx));
    finish(tx, running);
    return code;
}

static bool is_null(void *running, int column) {
    return sqlite3_column_type(running, column) == SQLITE_NULL;
}

static int64_t number(void *running, int column) {
    return sqlite3_column_int64(running, column);
}

static const char *text(void *running, int column) {
    const unsigned char *found = sqlite3_column_text(running, column);
    return found ? (const char *)found : "";
}

static struct cairn_view bytes(void *running, int column) {
    const void *data = sqlite3_column_blob(running, column);
    return (struct cairn_view){data, (size_t)sqlite3_column_bytes(running, column)};
}

const struct cairn_srv_engine cairn_srv_engine_sqlite = {
    .name = "sqlite",
    .knows = knows,
    .take = cairn_srv_sqlite_take,
    .leave = cairn_srv_sqlite_leave,
    .describe = describe,
    .server = server_of,
    .behind = behind,
    .join = join,
    .shared = shared,
    .lives = lives,
    .connect = connect_to,
    .disconnect = cairn_srv_sqlite_free,
    .migrate = cairn_srv_sqlite_migrate,
    .begin_read = begin_read,
    .end_read = end_read,
    .begin_write = begin_write,
    .commit = commit,
    .rollback = rollback,
    .is_open = is_open,
    .savepoint = savepoint,
    .keep = keep,
    .undo = undo,
    .run = run,
    .start = start,
    .next = next,
    .finish = finish,
    .is_null = is_null,
    .number = number,
    .text = text,
    .bytes = bytes,
    .in_folder = true,
    .is_there = cairn_srv_sqlite_is_there,
    .alone = alone,
    .load = cairn_srv_sqlite_load,
    .loaded = cairn_srv_sqlite_loaded,
    .backup = cairn_srv_sqlite_backup,
    .log_bytes = cairn_srv_sqlite_log_bytes,
    .checked = cairn_srv_sqlite_checked,
};
