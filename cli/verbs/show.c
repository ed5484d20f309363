/* SPDX-License-Identifier: Apache-2.0 */
/* cairn show: one checkpoint with its shards, tensors and events, from the server; from the store
 * alone without what only a catalog knows. */
#include <stdio.h>

#include "cli/bucket/stored.h"
#include "cli/shell/output.h"
#include "cli/shell/said.h"
#include "cli/shell/sizes.h"
#include "cli/verbs/liveness.h"
#include "common/text.h"

#define LIST_MAX 1000

static const struct cairn_cli_flag show_flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
    {"why", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(why), 0, NULL,
     "What an open one waits for: ranks, shards, and nodes with what went wrong there last."},
};

static void cell_shard(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->shard.name);
}
static void cell_rank(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)row->shard.rank);
}
static void cell_shard_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->shard.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_crc(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->shard.crc32c ? row->shard.crc32c : "");
}
static void cell_content(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->shard.content ? row->shard.content : "");
}
static const struct cairn_cli_column shard_columns[] = {
    {"SHARD", false, cell_shard},
    {"RANK", true, cell_rank},
    {"SIZE", true, cell_shard_size},
    {"CRC32C", false, cell_crc},
    {"CONTENT", false, cell_content},
};
static const struct cairn_cli_table shard_table = {CAIRN_MESSAGE_shard_row, shard_columns,
                                                   CAIRN_COUNT(shard_columns), cell_shard, NULL};

static enum cairn_code print_list(const struct cairn_cli *cli, const json_t *items,
                                  const char *what, bool more, const struct cairn_cli_table *table,
                                  struct cairn_error *err) {
    if (!json_array_size(items)) return CAIRN_OK;
    printf("\n");
    CAIRN_TRY(cairn_cli_print(cli, items, table, err));
    if (more) printf("... and more; the HTTP API lists all %s (docs/http.md)\n", what);
    return CAIRN_OK;
}

static void print_opaque(const json_t *shards) {
    size_t count = cairn_cli_opaque_count(shards);
    if (count)
        printf("\nopaque content: %s of %zu (CONTENT above), of which only names and bytes are "
               "known\n",
               cairn_cli_counted(count, "shard", "shards").text, json_array_size(shards));
}

static enum cairn_code list_part(const struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                 const char *what, json_t **ret, bool *ret_more,
                                 struct cairn_error *err) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_TRY(cairn_cli_path(ref, what, &path, err));
    *ret = json_array();
    return cairn_cli_list(cli, path.data, LIST_MAX, *ret, ret_more, err);
}

/* An ornament: where it cannot be had it is left out. */
static void print_sparks(const struct cairn_cli *cli, const struct cairn_cli_ref *run) {
    CAIRN_AUTO(buf) path = {0};
    CAIRN_AUTO_JSON json_t *versions = json_array();
    if (cairn_cli_path(run, "/checkpoints?state=committed", &path, NULL) ||
        cairn_cli_list(cli, path.data, CAIRN_CLI_SPARK_MAX + 1, versions, NULL, NULL))
        return;
    cairn_cli_spark_versions(versions);
}

/* The step that was asked for has no save but this one, which was never committed and will not be.
 * Who names a version by its id asks for that. */
static bool has_failed(const struct cairn_cli_ref *ref,
                       const struct cairn_msg_version_row *version) {
    uint64_t step;
    bool of_step = cairn_parse_u64(cairn_view_of(ref->version), &step, NULL) == CAIRN_OK;
    return of_step && !version->committed_at && strcmp(version->state, "open") != 0 &&
           strcmp(version->state, "committed") != 0;
}

static enum cairn_code show(const struct cairn_cli *cli, struct cairn_cli_stored *shown,
                            struct cairn_error *err) {
    struct cairn_cli_ref ref, run;
    struct cairn_msg_version_row version = {0};
    bool more_shards = false, more_tensors = false;
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &run, err));
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    enum cairn_code code = CAIRN_OK;
    bool of_run = !cli->store && !run.version[0] && cli->output == CAIRN_CLI_TABLE;
    if (cli->store)
        CAIRN_TRY(cairn_cli_stored_version(cli, &ref, shown, err));
    else
        code = cairn_cli_version_or_failed(cli, &ref, &shown->version, err);
    /* Nothing is committed yet: what is being saved is told all the same. */
    if (code == CAIRN_NOT_FOUND && of_run) (void)!cairn_cli_print_liveness(cli, &run, NULL);
    CAIRN_TRY(code);
    CAIRN_TRY(cairn_cli_print_version(cli, shown->version, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_version_row, shown->version, &version, err));
    if (!cli->store && has_failed(&ref, &version) && !fflush(stdout))
        return cairn_fail(err, CAIRN_ABORTED, "%s is %s: %s", cli->arguments[0], version.state,
                          version.reason ? version.reason : "no reason is given");
    if (cli->output != CAIRN_CLI_TABLE) return CAIRN_OK;
    if (of_run) CAIRN_TRY(cairn_cli_print_liveness(cli, &run, err));
    if (of_run && cairn_cli_paint_terminal()) print_sparks(cli, &run);
    if (!cli->store) {
        /* By its id: a step may mean another version by now. */
        cairn_text_copy(ref.version, sizeof ref.version, version.version);
        CAIRN_TRY(list_part(cli, &ref, "/shards", &shown->shards, &more_shards, err));
        if (version.layout)
            CAIRN_TRY(list_part(cli, &ref, "/tensors", &shown->tensors, &more_tensors, err));
    }
    CAIRN_TRY(print_list(cli, shown->shards, "shards", more_shards, &shard_table, err));
    if (version.layout) {
        CAIRN_TRY(print_list(cli, shown->tensors, "tensors", more_tensors, &cairn_cli_tensor_table,
                             err));
        print_opaque(shown->shards);
    } else {
        puts("\nopaque content: no shard is described as tensors, only names and bytes are known");
    }
    if (!cli->store) CAIRN_TRY(cairn_cli_print_happened(cli, &ref, err));
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* Of a run: of its newest save, which `latest` is not before it is committed. */
static enum cairn_code show_why(const struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_ref ref;
    if (cli->store) return cairn_fail(err, CAIRN_INVALID, "--why asks the server; drop --store");
    CAIRN_TRY(cairn_cli_ref_parse(cli->arguments[0], &ref, err));
    return cairn_cli_print_why(cli, &ref, err);
}

static enum cairn_code run_show(struct cairn_cli *cli, struct cairn_error *err) {
    if (cli->why) return show_why(cli, err);
    struct cairn_cli_stored shown = {0};
    enum cairn_code code = show(cli, &shown, err);
    cairn_cli_stored_release(&shown);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_show = {
    .name = "show",
    .synopsis = "cairn show [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Show one checkpoint: what is known of it, shards, tensors, what has happened.",
    .examples = "  cairn show llm/7b\n"
                "  cairn show llm/7b --why                         (what does the save wait for?)\n"
                "  cairn show llm/7b@latest --store s3://bucket/cairn   (no server needed)\n",
    .flags = show_flags,
    .flag_count = CAIRN_COUNT(show_flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run_show,
};
