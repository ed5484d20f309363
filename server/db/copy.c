/* SPDX-License-Identifier: Apache-2.0 */
/* Open both ends; page by page, in the order of the keys, behind what the target has; then both
 * are read again side by side. What the target holds is the only note of how far it came. */
#include "server/db/copy.h"

#include "common/hooks.h"
#include "common/text.h"
#include "server/db/copy_compare.h"
#include "server/db/copy_page.h"
#include "server/db/values.h"

/* The name of a row of the target's `meta`, by which it is known as half done; its value is the
 * uuid of the source's store. The empty one stands before all others: what is behind it is the
 * source's table whole. */
#define MARK ""
#define REINDEX "reindex" /* its value where a reindex fills the catalog */

struct copying {
    const struct cairn_srv_copy_options *options;
    struct cairn_srv_copied *result;
    struct cairn_srv_tables tables;
    struct cairn_srv_copy_end from, to;
    struct cairn_srv_copy_progress progress;
};

static void release(struct copying *copying) {
    cairn_srv_copy_end_close(&copying->from);
    cairn_srv_copy_end_close(&copying->to);
    cairn_srv_tables_release(&copying->tables);
}

/* ---- the ends ---- */

struct mark {
    char uuid[CAIRN_UUID_TEXT_BYTES];
    bool found;
};

static enum cairn_code read_mark(struct cairn_srv_tx *tx, struct mark *ret,
                                 struct cairn_error *err) {
    CAIRN_AUTO(srv_rows) rows = {0};
    CAIRN_TRY(cairn_srv_sql_open(tx, &rows, err, SQL(meta_get), SQL_T(MARK)));
    CAIRN_TRY(cairn_srv_rows_next(&rows, &ret->found, err));
    (void)cairn_text_copy(ret->uuid, sizeof(ret->uuid),
                          ret->found ? cairn_srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

static enum cairn_code look_at(struct cairn_srv_copy_end *end, struct mark *ret_mark,
                               struct cairn_srv_store_seen *ret_seen, struct cairn_error *err) {
    CAIRN_TRY(end->engine->begin_read(end->reader, err));
    enum cairn_code code = read_mark(end->reader, ret_mark, err);
    if (!code) code = cairn_srv_store_seen_get(end->reader, ret_seen, err);
    end->engine->end_read(end->reader);
    return code;
}

static enum cairn_code begin_fresh(struct copying *copying, const char *uuid,
                                   struct cairn_error *err) {
    struct cairn_srv_tx *tx = copying->to.writer;
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < copying->tables.count && !code; i++)
        code = cairn_srv_copy_clear(&copying->to, i, err);
    if (!code) code = cairn_srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(MARK), SQL_T(uuid));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

/* What a new catalog holds, and nothing else? */
static enum cairn_code judge_empty(struct copying *copying, struct cairn_error *err) {
    struct cairn_srv_copy_end fresh = {0};
    CAIRN_TRY(cairn_srv_copy_end_of(&copying->tables, &fresh, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < copying->tables.count && !code; i++) {
        struct cairn_srv_copy_compared same = {0};
        code = cairn_srv_copy_compare(&fresh, &copying->to, i, NULL, &same, NULL);
        if (code == CAIRN_CORRUPT)
            code = cairn_fail(err, CAIRN_CONFLICT,
                              "%s is not empty (table %s): it must be a new catalog, or one that "
                              "the same command has begun",
                              copying->to.called, copying->tables.at[i].name);
        else if (code)
            code = cairn_fail(err, code, "%s cannot be read", copying->to.called);
    }
    cairn_srv_copy_end_close(&fresh);
    return code;
}

static enum cairn_code open_source(struct copying *copying, struct cairn_srv_store_seen *ret_seen,
                                   struct cairn_error *err) {
    struct mark mark;
    CAIRN_TRY(cairn_srv_copy_end_open(copying->options->from, true, &copying->tables,
                                      &copying->from, err));
    CAIRN_TRY(look_at(&copying->from, &mark, ret_seen, err));
    if (mark.found)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is itself a copy that was not finished",
                          copying->from.called);
    if (!ret_seen->uuid[0])
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s holds no catalog that a server has used",
                          copying->from.called);
    return CAIRN_OK;
}

/* *ret_other: it is not empty and no part of a copy, but of the same store: perhaps a copy that has
 * ended. */
static enum cairn_code open_target(struct copying *copying, const char *uuid, bool *ret_other,
                                   struct cairn_error *err) {
    struct mark mark;
    struct cairn_srv_store_seen seen;
    CAIRN_TRY(
        cairn_srv_copy_end_open(copying->options->to, false, &copying->tables, &copying->to, err));
    CAIRN_TRY(look_at(&copying->to, &mark, &seen, err));
    if (mark.found && strcmp(mark.uuid, uuid) != 0)
        return cairn_fail(err, CAIRN_CONFLICT,
                          "%s is a part of a copy of another catalog, of store %s: empty it first",
                          copying->to.called, mark.uuid);
    if (mark.found) return CAIRN_OK;
    enum cairn_code code = judge_empty(copying, err);
    *ret_other = code == CAIRN_CONFLICT && !strcmp(seen.uuid, uuid);
    return code ? code : begin_fresh(copying, uuid, err);
}

/* ---- rows ---- */

static void report(struct copying *copying) {
    if (copying->options->progress)
        copying->options->progress(copying->options->owner, &copying->progress);
}

static void count_rows(void *owner, uint64_t rows) {
    struct copying *copying = owner;
    copying->progress.rows += rows;
    report(copying);
}

static enum cairn_code count_all(struct copying *copying, struct cairn_error *err) {
    for (size_t i = 0; i < copying->tables.count; i++) {
        uint64_t there = 0, found = 0;
        CAIRN_TRY(cairn_srv_copy_count(&copying->from, i, &there, err));
        CAIRN_TRY(cairn_srv_copy_count(&copying->to, i, &found, err));
        copying->progress.rows_in_all += there;
        copying->progress.rows += found;
    }
    copying->progress.rows--; /* the mark */
    copying->result->rows_found = copying->progress.rows;
    return CAIRN_OK;
}

/* In key order, so that what the target has are the first rows of the source. */
static enum cairn_code copy_table(struct copying *copying, size_t table, struct cairn_error *err) {
    struct cairn_srv_tx *tx = copying->to.writer;
    CAIRN_AUTO(srv_copy_cursor) at = {0};
    copying->progress.table = copying->tables.at[table].name;
    CAIRN_TRY(cairn_srv_copy_last(&copying->to, table, &at, err));
    for (;;) {
        CAIRN_TRY(cairn_srv_copy_page(&copying->from, table, &at, err));
        if (!at.page.rows) break;
        CAIRN_TRY(
            tx->engine->load(tx, &copying->tables.at[table], cairn_buf_view(&at.page.bytes), err));
        CAIRN_CRASHPOINT("server.copy.after_page");
        count_rows(copying, at.page.rows);
    }
    return tx->engine->loaded(tx, &copying->tables.at[table], err);
}

static enum cairn_code compare_all(struct copying *copying, struct cairn_error *err) {
    struct cairn_srv_copied *result = copying->result;
    copying->progress.comparing = true;
    copying->progress.rows = 0;
    for (size_t i = 0; i < copying->tables.count; i++) {
        struct cairn_srv_copy_compared same = {.counted = count_rows, .owner = copying};
        const char *name = copying->tables.at[i].name;
        copying->progress.table = name;
        CAIRN_TRY(cairn_srv_copy_compare(&copying->from, &copying->to, i,
                                         strcmp(name, "meta") ? NULL : MARK, &same, err));
        CAIRN_ASSERT(result->table_count < CAIRN_SRV_COPY_TABLES_MAX);
        (void)cairn_text_copy(result->tables[i].name, sizeof(result->tables[i].name), name);
        memcpy(result->tables[i].sha256, same.sha256, sizeof(same.sha256));
        result->tables[i].rows = same.rows;
        result->rows += same.rows;
        result->table_count++;
    }
    return CAIRN_OK;
}

static enum cairn_code end_copy(struct copying *copying, struct cairn_error *err) {
    struct cairn_srv_tx *tx = copying->to.writer;
    CAIRN_CRASHPOINT("server.copy.before_end");
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = cairn_srv_sql_run(tx, NULL, err, SQL(meta_drop), SQL_T(MARK));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    if (!code) CAIRN_CRASHPOINT("server.copy.after_end");
    return code;
}

/* copy.h#2: one that was killed between its end and its answer. */
static bool is_over_already(struct copying *copying) {
    if (compare_all(copying, NULL)) return false; /* it was used since, or is another's copy */
    copying->result->rows_found = copying->result->rows;
    return true;
}

static enum cairn_code run(struct copying *copying, struct cairn_error *err) {
    struct cairn_srv_store_seen seen;
    CAIRN_TRY(cairn_srv_tables_read(&copying->tables, err));
    CAIRN_TRY(open_source(copying, &seen, err));
    bool other = false;
    struct cairn_error why = {0};
    enum cairn_code code = open_target(copying, seen.uuid, &other, &why);
    copying->result->from_folder = copying->from.engine->in_folder;
    copying->result->to_folder = copying->to.engine->in_folder;
    if (other && is_over_already(copying)) return CAIRN_OK;
    if (code && err) *err = why;
    if (code) return code;
    CAIRN_TRY(count_all(copying, err));
    for (size_t i = 0; i < copying->tables.count; i++) CAIRN_TRY(copy_table(copying, i, err));
    CAIRN_TRY(compare_all(copying, err));
    return end_copy(copying, err);
}

enum cairn_code cairn_srv_copy(const struct cairn_srv_copy_options *options,
                               struct cairn_srv_copied *ret, struct cairn_error *err) {
    if (!strcmp(options->from, options->to))
        return cairn_fail(err, CAIRN_INVALID, "source and target are the same catalog");
    struct copying copying = {.options = options, .result = ret};
    *ret = (struct cairn_srv_copied){0};
    enum cairn_code code = run(&copying, err);
    release(&copying);
    return code;
}

/* ---- the target before its end ---- */

static enum cairn_code look_for_mark(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    return read_mark(tx, argument, err);
}

enum cairn_code cairn_srv_copy_is_over(struct cairn_srv_catalog *catalog, struct cairn_error *err) {
    struct mark mark = {0};
    CAIRN_TRY(cairn_srv_catalog_read(catalog, look_for_mark, &mark, err));
    if (!mark.found) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT,
                      "this catalog is a %s again, or empty it",
                      strcmp(mark.uuid, REINDEX) != 0
                          ? "copy that was not finished: give `cairn catalog copy`"
                          : "reindex that was not finished: give `cairn reindex`");
}

/* ---- a catalog that is filled by a reindex ---- */

static enum cairn_code put_mark(struct copying *copying, struct cairn_error *err) {
    struct cairn_srv_tx *tx = copying->to.writer;
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code =
        cairn_srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(MARK), SQL_T(REINDEX));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

static enum cairn_code begin_reindex(struct copying *copying, struct cairn_error *err) {
    struct mark mark;
    struct cairn_srv_store_seen seen;
    CAIRN_TRY(cairn_srv_tables_read(&copying->tables, err));
    CAIRN_TRY(
        cairn_srv_copy_end_open(copying->options->to, false, &copying->tables, &copying->to, err));
    CAIRN_TRY(look_at(&copying->to, &mark, &seen, err));
    if (mark.found && strcmp(mark.uuid, REINDEX) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is a copy that was not finished: empty it first",
                          copying->to.called);
    if (mark.found) return CAIRN_OK;
    CAIRN_TRY(judge_empty(copying, err));
    return put_mark(copying, err);
}

enum cairn_code cairn_srv_copy_begin_reindex(const char *where, struct cairn_error *err) {
    struct cairn_srv_copy_options options = {.to = where};
    struct copying copying = {.options = &options};
    enum cairn_code code = begin_reindex(&copying, err);
    release(&copying);
    return code;
}

static enum cairn_code drop_mark(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    (void)argument;
    return cairn_srv_sql_run(tx, NULL, err, SQL(meta_drop), SQL_T(MARK));
}

enum cairn_code cairn_srv_copy_end_reindex(struct cairn_srv_catalog *catalog,
                                           struct cairn_error *err) {
    return cairn_srv_catalog_write(catalog, drop_mark, NULL, err);
}

/* ---- a backup ---- */

enum cairn_code cairn_srv_backup(const char *from, const char *file, struct cairn_srv_backup *ret,
                                 struct cairn_error *err) {
    const struct cairn_srv_engine *engine = cairn_srv_engine_of(from);
    *ret = (struct cairn_srv_backup){0};
    if (!engine->backup)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "a catalog of PostgreSQL is backed up by the database's own means: "
                          "pg_dump, or continuous archiving (docs/catalog.md, Backup)");
    enum cairn_code code = engine->backup(from, file, ret, err);
    return code ? cairn_within(err, code, "backup of %s", from) : CAIRN_OK;
}
