/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of rows, each exported by one statement and imported by one function; see said.h. */
#include "server/ledger/said.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/documents/records.h"
#include "server/ledger/versions.h"

#define FORMAT 1
#define FORMAT_IN_PIECES 2
#define KIND "cairn_catalog"
#define KIND_OF_PIECE "cairn_catalog_versions"

void srv_said_release(struct srv_said *said) {
    cairn_buf_release(&said->before);
    cairn_buf_release(&said->behind);
}

static const char *text_of(const json_t *row, const char *name) {
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

static int64_t number_of(const json_t *row, const char *name) {
    return json_integer_value(json_object_get(row, name));
}

/* ---- import of rows; *ret: imported ---- */

static enum cairn_code name_of(const json_t *row, struct cairn_run_name *ret,
                               struct cairn_error *err) {
    char text[2 * CAIRN_NAME_BYTES_MAX + 2];
    snprintf(text, sizeof(text), "%.128s/%.128s", text_of(row, "project"), text_of(row, "run"));
    return cairn_run_name_parse(text, ret, err);
}

/* Finds a version that is committed in the bucket; data of others is dropped. */
static enum cairn_code find_version(struct srv_tx *tx, const json_t *row, struct srv_version *ret,
                                    bool *ret_found, struct cairn_error *err) {
    struct cairn_error why = {0};
    enum cairn_code code = srv_version_get(tx, text_of(row, "version"), ret, &why);
    *ret_found = !code && ret->state == CAIRN_STATE_COMMITTED;
    if (!code || code == CAIRN_NOT_FOUND) return CAIRN_OK;
    return cairn_pass(err, code, &why);
}

static enum cairn_code take_alias(struct srv_tx *tx, const json_t *row, bool *ret,
                                  struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    CAIRN_TRY(find_version(tx, row, &version, ret, err));
    if (!*ret) return CAIRN_OK;
    return srv_alias_put(tx, version.run_id, text_of(row, "alias"), version.id.text, 0, err);
}

static enum cairn_code take_policy(struct srv_tx *tx, const json_t *row, bool *ret,
                                   struct cairn_error *err) {
    *ret = true;
    return srv_sql_run(tx, NULL, err, SQL(policy_put), SQL_T(text_of(row, "project")),
                       SQL_T(text_of(row, "run")), SQL_T(text_of(row, "policy")));
}

static enum cairn_code take_quota(struct srv_tx *tx, const json_t *row, bool *ret,
                                  struct cairn_error *err) {
    *ret = true;
    return srv_sql_run(tx, NULL, err, SQL(quota_put), SQL_T(text_of(row, "project")),
                       SQL_I(number_of(row, "versions_max")), SQL_I(number_of(row, "bytes_max")));
}

/* said.h#2: a removed run without newer data in the bucket stays removed, and keeps its number. */
static enum cairn_code take_run(struct srv_tx *tx, const json_t *row, bool *ret,
                                struct cairn_error *err) {
    struct cairn_run_name name;
    uint64_t attempt = (uint64_t)number_of(row, "attempt");
    *ret = true;
    CAIRN_TRY(name_of(row, &name, err));
    SRV_GET(run, run, srv_run_take(tx, &name, 1, &run, err));
    CAIRN_TRY(srv_run_annotate(tx, run.id, text_of(row, "labels"), text_of(row, "note"), err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(run_set_origin), SQL_I(run.id),
                          SQL_T(text_of(row, "from_run")), SQL_T(text_of(row, "from_version")),
                          SQL_I(number_of(row, "from_attempt")),
                          SQL_I(number_of(row, "from_step"))));
    if (attempt > run.attempt)
        CAIRN_TRY(srv_run_set_attempt(tx, run.id, attempt, text_of(row, "nonce"), err));
    return number_of(row, "removed") && attempt >= run.attempt ? srv_run_hide(tx, run.id, err)
                                                               : CAIRN_OK;
}

static enum cairn_code take_token(struct srv_tx *tx, const json_t *row, bool *ret,
                                  struct cairn_error *err) {
    uint8_t digest[CAIRN_SHA256_BYTES];
    const char *id = text_of(row, "token");
    *ret = true;
    CAIRN_TRY(cairn_hex_decode(cairn_view_of(text_of(row, "digest")), digest, sizeof(digest), err));
    CAIRN_TRY(srv_sql_run(tx, NULL, err, SQL(token_drop), SQL_T(id)));
    return srv_sql_run(tx, NULL, err, SQL(token_put), SQL_T(id), SQL_D(digest),
                       SQL_T(text_of(row, "name")), SQL_I(number_of(row, "scopes")),
                       SQL_T(text_of(row, "projects")), SQL_I(number_of(row, "created_ms")),
                       SQL_I(number_of(row, "expires_ms")), SQL_T(text_of(row, "who")),
                       SQL_T(text_of(row, "parent")));
}

static enum cairn_code take_version(struct srv_tx *tx, const json_t *row, bool *ret,
                                    struct cairn_error *err) {
    SRV_AUTO(version) version = {0};
    CAIRN_TRY(find_version(tx, row, &version, ret, err));
    if (!*ret) return CAIRN_OK;
    CAIRN_AUTO_JSON json_t *metrics = json_loads(text_of(row, "metrics"), 0, NULL);
    if (!metrics) return cairn_fail(err, CAIRN_CORRUPT, "metrics of %s", version.id.text);
    struct srv_annotations said = {.labels = text_of(row, "labels"),
                                   .metrics = text_of(row, "metrics"),
                                   .note = text_of(row, "note"),
                                   .pinned = number_of(row, "pinned") != 0};
    CAIRN_TRY(srv_version_annotate(tx, &version, &said, err));
    return srv_metrics_put(tx, &version, metrics, err);
}

/* columns: type (i, t, b; b in hexadecimal) and name of each. Sorted by name: canonical. */
static const struct section {
    const char *name;
    enum srv_statement_number statement;
    const char *columns[12];
    enum cairn_code (*take)(struct srv_tx *tx, const json_t *row, bool *ret,
                            struct cairn_error *err);
} sections[] = {
    {"aliases", SRV_STATEMENT_said_aliases, {"talias", "tproject", "trun", "tversion"}, take_alias},
    {"policies", SRV_STATEMENT_said_policies, {"tpolicy", "tproject", "trun"}, take_policy},
    {"quotas", SRV_STATEMENT_said_quotas, {"ibytes_max", "tproject", "iversions_max"}, take_quota},
    {"runs",
     SRV_STATEMENT_said_runs,
     {"iattempt", "ifrom_attempt", "tfrom_run", "ifrom_step", "tfrom_version", "tlabels", "tnonce",
      "tnote", "tproject", "iremoved", "trun"},
     take_run},
    {"tokens",
     SRV_STATEMENT_said_tokens,
     {"icreated_ms", "bdigest", "iexpires_ms", "tname", "tparent", "tprojects", "iscopes", "ttoken",
      "twho"},
     take_token},
    {"versions",
     SRV_STATEMENT_said_versions,
     {"tlabels", "tmetrics", "tnote", "ipinned", "tversion"},
     take_version},
};

#define VERSIONS (&sections[CAIRN_COUNT(sections) - 1])

static json_t *value_of(const struct srv_rows *rows, int column, char type) {
    char hex[2 * CAIRN_SHA256_BYTES + 1] = "";
    if (type == 'i') return json_integer(srv_rows_i64(rows, column));
    if (type == 't') return json_string(srv_rows_text(rows, column));
    struct cairn_view bytes = srv_rows_blob(rows, column);
    if (bytes.size == CAIRN_SHA256_BYTES) cairn_hex_encode(bytes.data, bytes.size, hex);
    return json_string(hex);
}

static enum cairn_code print_row(const struct section *section, const struct srv_rows *rows,
                                 struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *row = json_object();
    bool good = row;
    for (int i = 0; good && section->columns[i]; i++)
        good = !json_object_set_new(row, section->columns[i] + 1,
                                    value_of(rows, i, section->columns[i][0]));
    if (!good) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a row");
    return cairn_json_dump(row, ret, err);
}

static enum cairn_code print_rows(const struct section *section, struct srv_rows *rows,
                                  struct cairn_buf *ret, uint64_t *rows_count,
                                  struct cairn_error *err) {
    bool more = false;
    CAIRN_TRY(cairn_buf_printf(ret, err, "\"%s\":[", section->name));
    CAIRN_TRY(srv_rows_next(rows, &more, err));
    while (more) {
        CAIRN_TRY(print_row(section, rows, ret, err));
        ++*rows_count;
        CAIRN_TRY(srv_rows_next(rows, &more, err));
        if (more) CAIRN_TRY(cairn_buf_append_text(ret, ",", err));
    }
    return cairn_buf_append_text(ret, "]", err);
}

static enum cairn_code print_section(struct srv_tx *tx, const struct section *section,
                                     struct cairn_buf *ret, uint64_t *rows_count,
                                     struct cairn_error *err) {
    SQL_OPEN(rows, tx, err, &srv_statements[section->statement]);
    return print_rows(section, &rows, ret, rows_count, err);
}

enum cairn_code srv_said_piece(struct srv_tx *tx, const char *from, const char *to,
                               struct cairn_buf *ret, uint64_t *ret_rows, struct cairn_error *err) {
    *ret_rows = 0;
    cairn_buf_clear(ret);
    CAIRN_TRY(cairn_buf_printf(ret, err, "{\"format\":%d,\"kind\":\"" KIND_OF_PIECE "\",",
                               FORMAT_IN_PIECES));
    SQL_OPEN(rows, tx, err, SQL(said_versions_between), SQL_T(from), SQL_T(to));
    CAIRN_TRY(print_rows(VERSIONS, &rows, ret, ret_rows, err));
    return cairn_buf_append_text(ret, "}", err);
}

enum cairn_code srv_said_make(struct srv_tx *tx, bool whole, struct srv_said *ret,
                              struct cairn_error *err) {
    uint8_t digests[2][CAIRN_SHA256_BYTES];
    ret->before.limit = ret->behind.limit = SRV_SAID_BYTES_MAX / 2;
    cairn_buf_clear(&ret->before);
    cairn_buf_clear(&ret->behind);
    ret->rows = 0;
    CAIRN_TRY(print_section(tx, &sections[0], &ret->before, &ret->rows, err));
    for (size_t i = 1; i < CAIRN_COUNT(sections) && (whole || &sections[i] != VERSIONS); i++) {
        if (i > 1) CAIRN_TRY(cairn_buf_append_text(&ret->behind, ",", err));
        CAIRN_TRY(print_section(tx, &sections[i], &ret->behind, &ret->rows, err));
    }
    cairn_sha256_of(cairn_buf_view(&ret->before), digests[0]);
    cairn_sha256_of(cairn_buf_view(&ret->behind), digests[1]);
    cairn_sha256_of((struct cairn_view){digests, sizeof(digests)}, ret->sha256);
    return CAIRN_OK;
}

enum cairn_code srv_said_print(const struct srv_said *said, uint64_t generation, const char *pieces,
                               struct cairn_buf *ret, struct cairn_error *err) {
    CAIRN_TRY(cairn_buf_append_text(ret, "{", err));
    CAIRN_TRY(cairn_buf_append(ret, said->before.data, said->before.size, err));
    CAIRN_TRY(cairn_buf_printf(ret, err,
                               ",\"format\":%d,\"generation\":%" PRIu64 ",\"kind\":\"" KIND "\",%s",
                               *pieces ? FORMAT_IN_PIECES : FORMAT, generation, pieces));
    CAIRN_TRY(cairn_buf_append(ret, said->behind.data, said->behind.size, err));
    return cairn_buf_append_text(ret, "}", err);
}

enum cairn_code srv_said_take(struct srv_tx *tx, const json_t *document, uint64_t *ret_rows,
                              struct cairn_error *err) {
    *ret_rows = 0;
    int64_t format = number_of(document, "format");
    bool is_piece = !strcmp(text_of(document, "kind"), KIND_OF_PIECE);
    if (format > FORMAT_IN_PIECES)
        return cairn_newer(err, "one that knows its format %" PRId64 " (this one: %d)", format,
                           FORMAT_IN_PIECES);
    if ((!is_piece && strcmp(text_of(document, "kind"), KIND) != 0) ||
        (format != FORMAT && format != FORMAT_IN_PIECES))
        return cairn_fail(err, CAIRN_CORRUPT, "it is no " KIND " of format %d or %d", FORMAT,
                          FORMAT_IN_PIECES);
    for (size_t i = 0; i < CAIRN_COUNT(sections); i++) {
        bool of_piece = format == FORMAT_IN_PIECES && &sections[i] == VERSIONS;
        if (is_piece != of_piece) continue;
        const json_t *rows = json_object_get(document, sections[i].name);
        if (!json_is_array(rows))
            return cairn_fail(err, CAIRN_CORRUPT, "it has no %s", sections[i].name);
        for (size_t j = 0; j < json_array_size(rows); j++) {
            bool taken = false;
            enum cairn_code code = sections[i].take(tx, json_array_get(rows, j), &taken, err);
            if (code) return cairn_within(err, code, "%s %zu", sections[i].name, j);
            *ret_rows += taken;
        }
    }
    return CAIRN_OK;
}
