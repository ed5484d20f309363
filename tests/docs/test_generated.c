/* SPDX-License-Identifier: Apache-2.0 */
/* Pages whose tables come from the code: docs/config.md and docs/codes.md. */

#include <spawn.h>

#include "api/wire/words.h"
#include "common/config.h"
#include "common/metrics.h"
#include "tests/docs/page.h"

extern char **environ;

/* ---- settings ---- */

struct s3_settings {
#define CONFIG(type, name, fallback, min, max, why) CAIRN_CONFIG_FIELD_##type(name)
#include "store/s3/settings.def"
#undef CONFIG
};
static const struct cairn_config_row s3_rows[] = {
#define CONFIG(type, name, fallback, min, max, why)                                                \
    CAIRN_CONFIG_ROW(s3_settings, type, name, fallback, min, max, why)
#include "store/s3/settings.def"
#undef CONFIG
};

static enum cairn_code s3_table(struct cairn_buf *ret, struct cairn_error *err) {
    const struct cairn_config config = {.rows = s3_rows, .row_count = CAIRN_COUNT(s3_rows)};
    return cairn_config_docs(&config, ret, err);
}

/* What `PROGRAM --print-docs` writes. */
static bool printed(const char *program, struct cairn_buf *ret) {
    const char *folder = getenv("CAIRN_BIN_DIR");
    char path[1000], out[1000];
    char *argv[] = {path, (char *)(uintptr_t) "--print-docs", NULL};
    if (!EXPECT(folder != NULL)) return false;
    snprintf(path, sizeof path, "%s/%s", folder, program);
    snprintf(out, sizeof out, "%s/printed", cairn_test_folder());
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    pid_t pid = 0;
    int failed = posix_spawn(&pid, path, &actions, NULL, argv, environ), status = -1;
    posix_spawn_file_actions_destroy(&actions);
    if (!EXPECT(failed == 0) || !EXPECT(waitpid(pid, &status, 0) == pid)) return false;
    return EXPECT(status == 0) && EXPECT(cairn_file_load(out, ret, NULL) == CAIRN_OK) &&
           EXPECT(ret->size > 0);
}

/* The program's own rows: what it shares with all programs that open a store has its own table. */
static void expect_own_table(const char *program) {
    CAIRN_AUTO(buf) all = {0}, s3 = {0}, own = {0};
    struct cairn_error err = {0};
    REQUIRE_OK(s3_table(&s3, &err));
    if (!printed(program, &all)) return;
    unsigned number = 0, shared = 0;
    for (char *line = all.data, *end; *line; line = end + 1, number++) {
        end = strchr(line, '\n');
        REQUIRE(end != NULL);
        *end = '\0';
        bool head = number < 2, is_shared = !head && strstr(s3.data, line);
        shared += is_shared;
        if (!is_shared) cairn_docs_add(&own, "%s\n", line);
    }
    EXPECT_EQ_U64(shared, CAIRN_COUNT(s3_rows)); /* so the page may say that all take them */
    cairn_docs_block_check("docs/config.md", program, cairn_buf_view(&own));
}

CASE(the_page_of_settings_has_every_setting_of_the_server, expect_own_table("cairn-server"));
CASE(the_page_of_settings_has_every_setting_of_the_uploader, expect_own_table("cairn-uploader"));

TEST(the_page_of_settings_has_every_setting_of_an_s3_store, err) {
    CAIRN_AUTO(buf) table = {0};
    REQUIRE_OK(s3_table(&table, &err));
    cairn_docs_block_check("docs/config.md", "s3", cairn_buf_view(&table));
}

TEST(the_page_of_the_command_has_every_state_that_can_be_waited_for) {
    CAIRN_AUTO(buf) table = {0};
    cairn_docs_add(&table, "| state | reached when |\n|---|---|\n");
#define AWAITED(id, text, when) cairn_docs_add(&table, "| `" text "` | " when " |\n");
#include "api/awaited.def"
#undef AWAITED
    cairn_docs_block_check("docs/command.md", "awaited", cairn_buf_view(&table));
}

TEST(the_description_of_the_api_has_every_state_that_can_be_waited_for) {
    CAIRN_AUTO(buf) pattern = {0}, page = {0};
    for (int i = 0; i < CAIRN_AWAITED_COUNT; i++) {
        enum cairn_awaited_state state = (enum cairn_awaited_state)i;
        struct cairn_view word = cairn_awaited_word(state);
        cairn_docs_add(&pattern, "%s%.*s%s", i ? "|" : "'^(", (int)word.size,
                       (const char *)word.data,
                       state == CAIRN_AWAITED_PROMOTED ? ":[a-z][a-z0-9-]{0,31}" : "");
    }
    cairn_docs_add(&pattern, ")$'");
    REQUIRE(cairn_docs_load("api/openapi.yaml", &page));
    if (!EXPECT(strstr(page.data, pattern.data))) fprintf(stderr, "%s\n", pattern.data);
}

TEST(the_page_of_s3_has_every_option_of_a_store_s_url) {
    CAIRN_AUTO(buf) table = {0};
    cairn_docs_add(&table, "| option | bytes | meaning |\n|---|---|---|\n");
#define OPTION(name, bytes, what)                                                                  \
    cairn_docs_add(&table, "| `" #name "` | " #bytes " | " what " |\n");
#include "store/s3/url.def"
#undef OPTION
    cairn_docs_block_check("docs/s3.md", "url", cairn_buf_view(&table));
}

/* ---- variables ---- */

static bool is_variable_byte(char byte) {
    return (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_';
}

static bool begins_as_variable(const char *text) {
    return cairn_text_starts(text, "CAIRN_") || cairn_text_starts(text, "AWS_") ||
           cairn_text_starts(text, "SLURM_") || cairn_text_starts(text, "TORCHELASTIC_") ||
           cairn_text_starts(text, "PMIX_") || cairn_text_starts(text, "TMPDIR");
}

/* Every name in `text` that stands between two marks is added to the list, as "name\n". */
static void add_variables(const char *text, char mark, struct cairn_buf *list) {
    for (const char *at = text; (at = strchr(at, mark)); at++) {
        size_t size = 0;
        while (is_variable_byte(at[1 + size])) size++;
        if (!begins_as_variable(at + 1) || at[1 + size] != mark) continue;
        cairn_docs_add(list, "%.*s\n", (int)size, at + 1);
    }
}

static void read_source(const char *path, void *owner) {
    CAIRN_AUTO(buf) text = {0};
    if (cairn_docs_load(path, &text)) add_variables(text.data, '"', owner);
}

static void expect_listed(const struct cairn_buf *names, const struct cairn_buf *list,
                          const char *what) {
    for (char *name = names->data, *end; name && *name; name = end + 1) {
        end = strchr(name, '\n');
        const char *line = TEXT("%.*s\n", (int)(end - name), name);
        bool found = false;
        for (const char *at = list->data; !found && at && (at = strstr(at, line)); at++)
            found = at == list->data || at[-1] == '\n';
        cairn_test_check(found, __FILE__, __LINE__, "%.*s %s", (int)(end - name), name, what);
    }
}

TEST(the_page_of_settings_has_every_variable_that_is_read_and_no_other) {
    /* The last: what a build for tests links into the uploader. */
    CAIRN_AUTO(buf) code = {0}, page = {0}, named = {0};
    EACH_TEXT(text, "common", "api", "store", "formats", "client", "uploader", "server", "cli",
              "tests/support/fault")
        cairn_docs_walk(text, ".c", read_source, &code);
    REQUIRE(code.size > 0);
    if (!cairn_docs_load("docs/config.md", &page)) return;
    cairn_docs_blank_blocks(page.data);
    add_variables(page.data, '`', &named);
    expect_listed(&code, &named, "is read by the code; docs/config.md names it");
    expect_listed(&named, &code, "stands in docs/config.md; the code reads it");
}

/* ---- metrics ---- */

struct metric {
    enum cairn_metric_kind kind;
    const char *name, *labels, *help;
};
#define METRIC(kind, name, labels, first, second, help) {CAIRN_METRIC_##kind, #name, labels, help},
static const struct metric of_server[] = {
#include "server/metrics.def"
};
static const struct metric of_uploader[] = {
#include "uploader/metrics.def"
};
#undef METRIC

static void add_labels(struct cairn_buf *table, const char *labels) {
    for (const char *at = labels; *at; at += strspn(at, ",")) {
        size_t size = strcspn(at, ",");
        cairn_docs_add(table, "%s`%.*s`", at == labels ? "" : ", ", (int)size, at);
        at += size;
    }
}

static void expect_metrics(const char *program, const struct metric *metrics, size_t count) {
    CAIRN_AUTO(buf) table = {0};
    cairn_docs_add(&table, "| series | type | labels | what it counts |\n|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        cairn_docs_add(&table, "| `cairn_%s` | %s | ", metrics[i].name,
                       cairn_metric_kind_text(metrics[i].kind));
        add_labels(&table, metrics[i].labels);
        cairn_docs_add(&table, " | %s |\n", metrics[i].help);
    }
    cairn_docs_block_check("docs/metrics.md", program, cairn_buf_view(&table));
}

TEST(the_page_of_metrics_has_every_series_of_server_and_uploader) {
    expect_metrics("server", of_server, CAIRN_COUNT(of_server));
    expect_metrics("uploader", of_uploader, CAIRN_COUNT(of_uploader));
}

/* ---- codes ---- */

static const struct {
    const char *name, *slug;
    int http, retry, exit;
    const char *meaning;
} codes[] = {
#define CODE(name, slug, http, retry, exit, meaning) {#name, slug, http, retry, exit, meaning},
    CAIRN_CODES(CODE)
#undef CODE
};

TEST(the_page_of_codes_has_every_code) {
    CAIRN_AUTO(buf) table = {0};
    cairn_docs_add(&table, "| code | C | HTTP | again? | exit | meaning |\n"
                           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < CAIRN_COUNT(codes); i++)
        cairn_docs_add(&table, "| `%s` | `CAIRN_%s` | %d | %s | %d | %s |\n", codes[i].slug,
                       codes[i].name, codes[i].http, codes[i].retry ? "yes" : "", codes[i].exit,
                       codes[i].meaning);
    cairn_docs_block_check("docs/codes.md", "codes", cairn_buf_view(&table));
}
