/* SPDX-License-Identifier: Apache-2.0 */
/* Opens both sides, copies page by page in key order after the target's last row, then reads both
 * again side by side. The target's own rows are the only record of progress. */
#include "server/db/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/hooks.h"

/* Name of a row in the target's `meta` that marks an unfinished copy; its value is the uuid of the
 * source's store. The empty name sorts first: the rows after it are the source's table. */
#define MARK ""
#define REINDEX "reindex" /* the mark's value while a reindex fills the catalog */

struct copying {
    const struct srv_copy_options *options;
    struct srv_copied *result;
    struct srv_tables tables;
    struct srv_copy_end from, to;
    struct srv_copy_progress progress;
};

static void release(struct copying *copying) {
    srv_copy_end_close(&copying->from);
    srv_copy_end_close(&copying->to);
    srv_tables_release(&copying->tables);
}

/* Equal pages are compared as a whole, the others row by row. */

#define SHOWN_BYTES 48

struct shown {
    char text[2 * SHOWN_BYTES + 16];
};
static struct shown show(const struct srv_table *table, const struct srv_unpacked *row,
                         size_t column) {
    struct shown ret = {"null"};
    struct cairn_view value = row->columns[column];
    if (!value.data) return ret;
    size_t size = value.size < SHOWN_BYTES ? value.size : SHOWN_BYTES;
    const char *cut = size < value.size ? "..." : "";
    char hex[2 * SHOWN_BYTES + 1];
    if (table->types[column] == 'i') {
        snprintf(ret.text, sizeof(ret.text), "%" PRId64, srv_unpacked_number(row, column));
    } else if (table->types[column] == 't') {
        snprintf(ret.text, sizeof(ret.text), "\"%.*s%s\"", (int)size, (const char *)value.data,
                 cut);
    } else {
        cairn_hex_encode(value.data, size, hex);
        snprintf(ret.text, sizeof(ret.text), "x'%s%s'", hex, cut);
    }
    return ret;
}

struct named {
    char text[256];
};
static struct named name(const struct srv_table *table, const struct srv_unpacked *row) {
    struct named ret = {""};
    for (size_t i = 0, size = 0; i < table->key_count && size < sizeof(ret.text); i++) {
        size_t column = table->key[i];
        struct shown value = show(table, row, column);
        size += (size_t)snprintf(ret.text + size, sizeof(ret.text) - size, "%s%s %s", i ? ", " : "",
                                 table->columns[column], value.text);
    }
    return ret;
}

static enum cairn_code fail_alone(const struct srv_copy_end *has, const struct srv_copy_end *lacks,
                                  const struct srv_table *table, const struct srv_unpacked *row,
                                  struct cairn_error *err) {
    return cairn_fail(err, CAIRN_CORRUPT, "table %s: the row with %s is in %s and not in %s",
                      table->name, name(table, row).text, has->called, lacks->called);
}

static enum cairn_code fail_column(const struct srv_table *table, const struct srv_unpacked *a,
                                   const struct srv_unpacked *b, struct cairn_error *err) {
    for (size_t i = 0; i < table->column_count; i++) {
        struct cairn_view left = a->columns[i], right = b->columns[i];
        if (!left.data == !right.data && left.size == right.size &&
            (!left.size || !memcmp(left.data, right.data, left.size)))
            continue;
        return cairn_fail(err, CAIRN_CORRUPT,
                          "table %s, row with %s: %s is %s in the source and %s in the target",
                          table->name, name(table, a).text, table->columns[i],
                          show(table, a, i).text, show(table, b, i).text);
    }
    return cairn_fail(err, CAIRN_INTERNAL, "table %s: rows differ in no column", table->name);
}

static enum cairn_code find_difference(const struct srv_copy_end *from,
                                       const struct srv_copy_end *to, const struct srv_table *table,
                                       const struct srv_pack *left, const struct srv_pack *right,
                                       struct cairn_error *err) {
    struct srv_unpacked a = {.left = cairn_buf_view(&left->bytes)};
    struct srv_unpacked b = {.left = cairn_buf_view(&right->bytes)};
    for (;;) {
        bool is_a = srv_unpack(&a), is_b = srv_unpack(&b);
        if (!is_a && !is_b) return CAIRN_OK;
        int order = !is_a ? 1 : !is_b ? -1 : srv_unpacked_compare(table, &a, &b);
        if (order < 0) return fail_alone(from, to, table, &a, err);
        if (order > 0) return fail_alone(to, from, table, &b, err);
        if (a.row.size != b.row.size || memcmp(a.row.data, b.row.data, a.row.size) != 0)
            return fail_column(table, &a, &b, err);
    }
}

static enum cairn_code compare_pages(struct srv_copy_end *from, struct srv_copy_end *to,
                                     size_t table, struct srv_copy_cursor *left,
                                     struct srv_copy_cursor *right, struct cairn_error *err) {
    CAIRN_TRY(srv_copy_page(from, table, left, err));
    CAIRN_TRY(srv_copy_page(to, table, right, err));
    size_t size = left->page.bytes.size;
    if (size == right->page.bytes.size &&
        (!size || !memcmp(left->page.bytes.data, right->page.bytes.data, size)))
        return CAIRN_OK;
    return find_difference(from, to, &from->tables->at[table], &left->page, &right->page, err);
}

/* behind: starts after the row with this key; NULL: all rows. */
static enum cairn_code compare_table(struct srv_copy_end *from, struct srv_copy_end *to,
                                     size_t table, const char *behind,
                                     struct srv_copy_compared *ret, struct cairn_error *err) {
    SRV_AUTO(copy_cursor) left = {0}, right = {0};
    CAIRN_AUTO(sha256) read_left, read_right;
    uint8_t digest[CAIRN_SHA256_BYTES];
    cairn_sha256_init(&read_left);
    cairn_sha256_init(&read_right);
    ret->rows = 0;
    if (behind) CAIRN_TRY(srv_copy_behind(from, table, behind, &left, err));
    if (behind) CAIRN_TRY(srv_copy_behind(to, table, behind, &right, err));
    for (;;) {
        CAIRN_TRY(compare_pages(from, to, table, &left, &right, err));
        if (!left.page.rows) break;
        cairn_sha256_update(&read_left, left.page.bytes.data, left.page.bytes.size);
        cairn_sha256_update(&read_right, right.page.bytes.data, right.page.bytes.size);
        ret->rows += left.page.rows;
        if (ret->counted) ret->counted(ret->owner, left.page.rows);
    }
    cairn_sha256_final(&read_left, ret->sha256);
    cairn_sha256_final(&read_right, digest);
    if (!memcmp(digest, ret->sha256, sizeof(digest))) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "table %s differs", from->tables->at[table].name);
}

struct mark {
    char uuid[CAIRN_UUID_TEXT_BYTES];
    bool found;
};

static enum cairn_code read_mark(struct srv_tx *tx, struct mark *ret, struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, SQL(meta_get), SQL_T(MARK));
    CAIRN_TRY(srv_rows_next(&rows, &ret->found, err));
    (void)cairn_text_copy(ret->uuid, sizeof(ret->uuid), ret->found ? srv_rows_text(&rows, 0) : "");
    return CAIRN_OK;
}

static enum cairn_code look_at(struct srv_copy_end *end, struct mark *ret_mark,
                               struct srv_store_seen *ret_seen, struct cairn_error *err) {
    CAIRN_TRY(end->engine->begin_read(end->reader, err));
    enum cairn_code code = read_mark(end->reader, ret_mark, err);
    if (!code) code = srv_store_seen_get(end->reader, ret_seen, err);
    end->engine->end_read(end->reader);
    return code;
}

static enum cairn_code begin_fresh(struct copying *copying, const char *uuid,
                                   struct cairn_error *err) {
    struct srv_tx *tx = copying->to.writer;
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < copying->tables.count && !code; i++)
        code = srv_copy_clear(&copying->to, i, err);
    if (!code) code = srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(MARK), SQL_T(uuid));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

/* Checks that the target holds exactly a new catalog's rows. */
static enum cairn_code judge_empty(struct copying *copying, struct cairn_error *err) {
    struct srv_copy_end fresh = {0};
    CAIRN_TRY(srv_copy_end_of(&copying->tables, &fresh, err));
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; i < copying->tables.count && !code; i++) {
        struct srv_copy_compared same = {0};
        code = compare_table(&fresh, &copying->to, i, NULL, &same, NULL);
        if (code == CAIRN_CORRUPT)
            code = cairn_fail(err, CAIRN_CONFLICT,
                              "%s is not empty (table %s): it must be a new catalog, or one that "
                              "the same command has begun",
                              copying->to.called, copying->tables.at[i].name);
        else if (code)
            code = cairn_fail(err, code, "%s cannot be read", copying->to.called);
    }
    srv_copy_end_close(&fresh);
    return code;
}

static enum cairn_code open_source(struct copying *copying, struct srv_store_seen *ret_seen,
                                   struct cairn_error *err) {
    struct mark mark;
    CAIRN_TRY(
        srv_copy_end_open(copying->options->from, true, &copying->tables, &copying->from, err));
    CAIRN_TRY(look_at(&copying->from, &mark, ret_seen, err));
    if (mark.found)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is itself a copy that was not finished",
                          copying->from.called);
    if (!ret_seen->uuid[0])
        return cairn_fail(err, CAIRN_NOT_FOUND, "%s holds no catalog that a server has used",
                          copying->from.called);
    return CAIRN_OK;
}

/* *ret_other: neither empty nor a partial copy, but of the same store: perhaps a finished copy. */
static enum cairn_code open_target(struct copying *copying, const char *uuid, bool *ret_other,
                                   struct cairn_error *err) {
    struct mark mark;
    struct srv_store_seen seen;
    CAIRN_TRY(srv_copy_end_open(copying->options->to, false, &copying->tables, &copying->to, err));
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
        CAIRN_TRY(srv_copy_count(&copying->from, i, &there, err));
        CAIRN_TRY(srv_copy_count(&copying->to, i, &found, err));
        copying->progress.rows_in_all += there;
        copying->progress.rows += found;
    }
    copying->progress.rows--; /* the mark */
    copying->result->rows_found = copying->progress.rows;
    return CAIRN_OK;
}

/* In key order, so that the target always holds the first rows of the source. */
static enum cairn_code copy_table(struct copying *copying, size_t table, struct cairn_error *err) {
    struct srv_tx *tx = copying->to.writer;
    SRV_AUTO(copy_cursor) at = {0};
    copying->progress.table = copying->tables.at[table].name;
    CAIRN_TRY(srv_copy_last(&copying->to, table, &at, err));
    for (;;) {
        CAIRN_TRY(srv_copy_page(&copying->from, table, &at, err));
        if (!at.page.rows) break;
        CAIRN_TRY(
            tx->engine->load(tx, &copying->tables.at[table], cairn_buf_view(&at.page.bytes), err));
        CAIRN_CRASHPOINT("server.copy.after_page");
        count_rows(copying, at.page.rows);
    }
    return tx->engine->loaded(tx, &copying->tables.at[table], err);
}

static enum cairn_code compare_all(struct copying *copying, struct cairn_error *err) {
    struct srv_copied *result = copying->result;
    copying->progress.comparing = true;
    copying->progress.rows = 0;
    for (size_t i = 0; i < copying->tables.count; i++) {
        struct srv_copy_compared same = {.counted = count_rows, .owner = copying};
        const char *name = copying->tables.at[i].name;
        copying->progress.table = name;
        CAIRN_TRY(compare_table(&copying->from, &copying->to, i, strcmp(name, "meta") ? NULL : MARK,
                                &same, err));
        CAIRN_ASSERT(result->table_count < SRV_COPY_TABLES_MAX);
        (void)cairn_text_copy(result->tables[i].name, sizeof(result->tables[i].name), name);
        memcpy(result->tables[i].sha256, same.sha256, sizeof(same.sha256));
        result->tables[i].rows = same.rows;
        result->rows += same.rows;
        result->table_count++;
    }
    return CAIRN_OK;
}

static enum cairn_code end_copy(struct copying *copying, struct cairn_error *err) {
    struct srv_tx *tx = copying->to.writer;
    CAIRN_CRASHPOINT("server.copy.before_end");
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = srv_sql_run(tx, NULL, err, SQL(meta_drop), SQL_T(MARK));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    if (!code) CAIRN_CRASHPOINT("server.copy.after_end");
    return code;
}

/* copy.h#2: an earlier run was killed between the end of the copy and its report. */
static bool is_over_already(struct copying *copying) {
    if (compare_all(copying, NULL)) return false; /* used since, or another's copy */
    copying->result->rows_found = copying->result->rows;
    return true;
}

static enum cairn_code run(struct copying *copying, struct cairn_error *err) {
    struct srv_store_seen seen;
    CAIRN_TRY(srv_tables_read(&copying->tables, err));
    CAIRN_TRY(open_source(copying, &seen, err));
    bool other = false;
    struct cairn_error why = {0};
    enum cairn_code code = open_target(copying, seen.uuid, &other, &why);
    copying->result->from_folder = copying->from.engine->in_folder;
    copying->result->to_folder = copying->to.engine->in_folder;
    if (other && is_over_already(copying)) return CAIRN_OK;
    CAIRN_TRY(cairn_pass(err, code, &why));
    CAIRN_TRY(count_all(copying, err));
    for (size_t i = 0; i < copying->tables.count; i++) CAIRN_TRY(copy_table(copying, i, err));
    CAIRN_TRY(compare_all(copying, err));
    return end_copy(copying, err);
}

enum cairn_code srv_copy(const struct srv_copy_options *options, struct srv_copied *ret,
                         struct cairn_error *err) {
    if (!strcmp(options->from, options->to))
        return cairn_fail(err, CAIRN_INVALID, "source and target are the same catalog");
    struct copying copying = {.options = options, .result = ret};
    *ret = (struct srv_copied){0};
    enum cairn_code code = run(&copying, err);
    release(&copying);
    return code;
}

enum cairn_code srv_copy_is_over(struct srv_catalog *catalog, struct cairn_error *err) {
    struct mark mark = {0};
    SRV_LOOK(look, catalog, err);
    CAIRN_TRY(read_mark(look.tx, &mark, err));
    if (!mark.found) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CONFLICT, "this catalog is a %s again, or empty it",
                      strcmp(mark.uuid, REINDEX) != 0
                          ? "copy that was not finished: give `cairn catalog copy`"
                          : "reindex that was not finished: give `cairn reindex`");
}

static enum cairn_code put_mark(struct copying *copying, struct cairn_error *err) {
    struct srv_tx *tx = copying->to.writer;
    CAIRN_TRY(tx->engine->begin_write(tx, err));
    enum cairn_code code = srv_sql_run(tx, NULL, err, SQL(meta_put), SQL_T(MARK), SQL_T(REINDEX));
    if (!code) code = tx->engine->commit(tx, err);
    if (code) tx->engine->rollback(tx);
    return code;
}

static enum cairn_code begin_reindex(struct copying *copying, struct cairn_error *err) {
    struct mark mark;
    struct srv_store_seen seen;
    CAIRN_TRY(srv_tables_read(&copying->tables, err));
    CAIRN_TRY(srv_copy_end_open(copying->options->to, false, &copying->tables, &copying->to, err));
    CAIRN_TRY(look_at(&copying->to, &mark, &seen, err));
    if (mark.found && strcmp(mark.uuid, REINDEX) != 0)
        return cairn_fail(err, CAIRN_CONFLICT, "%s is a copy that was not finished: empty it first",
                          copying->to.called);
    if (mark.found) return CAIRN_OK;
    CAIRN_TRY(judge_empty(copying, err));
    return put_mark(copying, err);
}

enum cairn_code srv_copy_begin_reindex(const char *where, struct cairn_error *err) {
    struct srv_copy_options options = {.to = where};
    struct copying copying = {.options = &options};
    enum cairn_code code = begin_reindex(&copying, err);
    release(&copying);
    return code;
}

static enum cairn_code drop_mark(struct srv_tx *tx, void *argument, struct cairn_error *err) {
    (void)argument;
    return srv_sql_run(tx, NULL, err, SQL(meta_drop), SQL_T(MARK));
}

enum cairn_code srv_copy_end_reindex(struct srv_catalog *catalog, struct cairn_error *err) {
    return srv_catalog_write(catalog, drop_mark, NULL, err);
}

enum cairn_code srv_backup(const char *from, const char *file, struct srv_backup *ret,
                           struct cairn_error *err) {
    const struct srv_engine *engine = srv_engine_of(from);
    *ret = (struct srv_backup){0};
    if (!engine->backup)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "a catalog of PostgreSQL is backed up by the database's own means: "
                          "pg_dump, or continuous archiving (docs/catalog.md, Backup)");
    enum cairn_code code = engine->backup(from, file, ret, err);
    return code ? cairn_within(err, code, "backup of %s", from) : CAIRN_OK;
}

#define PROGRESS_MS 5000

struct command {
    struct srv_copy_options options;
    bool json, json_progress, quiet;
    uint64_t printed_ms;
    struct srv_copied copied;
    char key_note[2400]; /* where grant.key is, and where it is needed */
};

static void progress(void *owner, const struct srv_copy_progress *at) {
    struct command *command = owner;
    if (command->quiet || cairn_mono_ms() < command->printed_ms + PROGRESS_MS) return;
    command->printed_ms = cairn_mono_ms();
    const char *what = at->comparing ? "comparing" : "copying";
    fprintf(stderr,
            command->json_progress
                ? "{\"phase\":\"%s\",\"table\":\"%s\",\"rows\":%llu,\"rows_in_all\":%llu}\n"
                : "%s %s: %llu of %llu rows\n",
            what, at->table, (unsigned long long)at->rows, (unsigned long long)at->rows_in_all);
}

static enum cairn_code copy_key(struct command *command, const char *from, const char *to,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) key = {.limit = 256}, there = {.limit = 256};
    enum cairn_code code = cairn_file_load(from, &key, err);
    if (code == CAIRN_NOT_FOUND) {
        snprintf(command->key_note, sizeof(command->key_note),
                 "there is no %s: a server with this catalog does not start without it", from);
        return CAIRN_OK;
    }
    CAIRN_TRY(code);
    code = cairn_file_load(to, &there, err);
    if (code == CAIRN_NOT_FOUND) {
        CAIRN_TRY(cairn_file_replace(to, cairn_buf_view(&key), 0600, err));
        snprintf(command->key_note, sizeof(command->key_note), "grant.key was copied, too");
        return CAIRN_OK;
    }
    CAIRN_TRY(code);
    bool same = key.size == there.size && !memcmp(key.data, there.data, key.size);
    snprintf(command->key_note, sizeof(command->key_note),
             same ? "%s is the one of the source" : "%s is not the one of the source: replace it",
             to);
    return CAIRN_OK;
}

static enum cairn_code see_to_key(struct command *command, struct cairn_error *err) {
    char from[1100], to[1100];
    snprintf(from, sizeof(from), "%.1000s/grant.key", command->options.from);
    snprintf(to, sizeof(to), "%.1000s/grant.key", command->options.to);
    if (command->copied.from_folder && command->copied.to_folder)
        return copy_key(command, from, to, err);
    if (command->copied.to_folder)
        snprintf(command->key_note, sizeof(command->key_note),
                 "%s must be the grant.key that the servers of the source have in their data_dir",
                 to);
    else if (command->copied.from_folder)
        snprintf(command->key_note, sizeof(command->key_note),
                 "each server of the target needs %s in its data_dir", from);
    else
        snprintf(command->key_note, sizeof(command->key_note),
                 "each server of the target needs the source's grant.key in its data_dir");
    return CAIRN_OK;
}

/* Not in messages.def: no other program of ours reads this output (docs/command.md). */
static enum cairn_code print_json(const struct command *command, uint64_t took_ms,
                                  struct cairn_error *err) {
    const struct srv_copied *copied = &command->copied;
    CAIRN_AUTO_JSON json_t *tables = json_array();
    bool good = tables;
    for (size_t i = 0; good && i < copied->table_count; i++) {
        char hex[2 * CAIRN_SHA256_BYTES + 1];
        cairn_hex_encode(copied->tables[i].sha256, CAIRN_SHA256_BYTES, hex);
        good = !json_array_append_new(
            tables, json_pack("{s:s, s:I, s:s}", "table", copied->tables[i].name, "rows",
                              (json_int_t)copied->tables[i].rows, "sha256", hex));
    }
    CAIRN_AUTO_JSON json_t *answer =
        good ? json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:O}", "from", command->options.from, "to",
                         command->options.to, "rows", (json_int_t)copied->rows, "rows_found",
                         (json_int_t)copied->rows_found, "took_ms", (json_int_t)took_ms,
                         "grant_key", command->key_note, "tables", tables)
             : NULL;
    CAIRN_AUTO(buf) text = {0};
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(cairn_json_show(answer, &text, err));
    printf("%s\n", text.data);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code print_table(const struct command *command, uint64_t took_ms,
                                   struct cairn_error *err) {
    const struct srv_copied *copied = &command->copied;
    char took[24];
    printf("%-18s %12s  %s\n", "TABLE", "ROWS", "SHA-256");
    for (size_t i = 0; i < copied->table_count; i++) {
        char hex[2 * CAIRN_SHA256_BYTES + 1];
        cairn_hex_encode(copied->tables[i].sha256, CAIRN_SHA256_BYTES, hex);
        printf("%-18s %12llu  %s\n", copied->tables[i].name,
               (unsigned long long)copied->tables[i].rows, hex);
    }
    cairn_duration_text(took_ms, took);
    printf("copied %s to %s: %llu rows in %s", command->options.from, command->options.to,
           (unsigned long long)copied->rows, took);
    if (copied->rows_found)
        printf(", %llu of them found there from before", (unsigned long long)copied->rows_found);
    printf("; each was read on both sides and is the same\n%s\n", command->key_note);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code copy(struct command *command, struct cairn_error *err) {
    uint64_t begun_ms = command->printed_ms = cairn_mono_ms();
    CAIRN_TRY(srv_copy(&command->options, &command->copied, err));
    CAIRN_TRY(see_to_key(command, err));
    uint64_t took_ms = cairn_mono_ms() - begun_ms;
    return command->json ? print_json(command, took_ms, err) : print_table(command, took_ms, err);
}

static enum cairn_code read_arguments(int argc, char **argv, struct command *command,
                                      struct cairn_error *err) {
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            command->json = true;
        } else if (!strcmp(argv[i], "--progress") && i + 1 < argc) {
            command->quiet = !strcmp(argv[++i], "none");
            command->json_progress = !strcmp(argv[i], "json");
        } else if (argv[i][0] == '-' || command->options.to) {
            return cairn_fail(err, CAIRN_INVALID, "--copy-catalog takes FROM and TO, not %s",
                              argv[i]);
        } else if (command->options.from) {
            command->options.to = argv[i];
        } else {
            command->options.from = argv[i];
        }
    }
    if (command->options.to && *command->options.from && *command->options.to) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "--copy-catalog takes FROM and TO: a data_dir, or postgresql://...");
}

static bool tell_json(enum cairn_code code, const struct cairn_error *why) {
    const struct cairn_code_info *info = cairn_code_info(code);
    CAIRN_AUTO_JSON json_t *answer = json_pack("{s:s, s:i, s:b}", "verb", "catalog", "exit",
                                               info->exit_status, "retryable", info->retryable);
    CAIRN_AUTO(buf) text = {0};
    if (!answer || !cairn_failure_put(answer, "message", why) ||
        cairn_json_show(answer, &text, NULL) != CAIRN_OK)
        return false;
    fprintf(stderr, "%s\n", text.data);
    return true;
}

int srv_copying_main(int argc, char **argv) {
    static struct command command;
    struct cairn_error err = {0};
    command = (struct command){.options = {.progress = progress, .owner = &command}};
    srv_catalog_password_from(getenv("CAIRN_CATALOG_PASSWORD_FILE"));
    enum cairn_code code = read_arguments(argc, argv, &command, &err);
    if (!code) code = copy(&command, &err);
    err.code = code;
    if (code && !(command.json && tell_json(code, &err)))
        fprintf(stderr, "cairn catalog: %s\n", err.message);
    return cairn_code_info(code)->exit_status;
}

static enum cairn_code print_backup(const char *from, const char *file, bool json,
                                    const struct srv_backup *backup, uint64_t took_ms,
                                    struct cairn_error *err) {
    char took[24], size[32];
    if (json) {
        CAIRN_AUTO_JSON json_t *answer =
            json_pack("{s:s, s:s, s:I, s:i, s:I}", "from", from, "file", file, "file_bytes",
                      (json_int_t)backup->bytes, "schema", (int)backup->schema, "took_ms",
                      (json_int_t)took_ms);
        CAIRN_AUTO(buf) text = {0};
        if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
        CAIRN_TRY(cairn_json_show(answer, &text, err));
        printf("%s\n", text.data);
    } else {
        cairn_duration_text(took_ms, took);
        cairn_size_text(backup->bytes, size);
        printf("backed up %s to %s: %s, schema %u, read again in %s\n"
               "grant.key is not in it: keep that of the server, too\n",
               from, file, size, backup->schema, took);
    }
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code back_up(int argc, char **argv, bool json, srv_backup_from *find_from,
                               struct cairn_error *err) {
    struct srv_backup backup;
    char found[SRV_FROM_BYTES];
    if (argc < 1 || argc > 2 || argv[0][0] == '-' || argv[argc - 1][0] == '-')
        return cairn_fail(err, CAIRN_INVALID, "--backup-catalog takes FILE, or FROM and FILE");
    if (argc < 2) CAIRN_TRY(find_from(found, err));
    const char *from = argc < 2 ? found : argv[0], *file = argv[argc - 1];
    uint64_t begun_ms = cairn_mono_ms();
    CAIRN_TRY(srv_backup(from, file, &backup, err));
    return print_backup(from, file, json, &backup, cairn_mono_ms() - begun_ms, err);
}

int srv_backup_main(int argc, char **argv, srv_backup_from *find_from) {
    struct cairn_error err = {0};
    bool json = argc > 0 && !strcmp(argv[argc - 1], "--json");
    enum cairn_code code = back_up(argc - json, argv, json, find_from, &err);
    err.code = code;
    if (code && !(json && tell_json(code, &err)))
        fprintf(stderr, "cairn catalog: %s\n", err.message);
    return cairn_code_info(code)->exit_status;
}
