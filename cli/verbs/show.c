/* SPDX-License-Identifier: Apache-2.0 */
/* cairn show: one checkpoint with its shards and tensors, from the server or the store alone. */
#include <stdio.h>

#include "cli/call.h"
#include "cli/output.h"
#include "cli/stored.h"
#include "common/text.h"

#define LIST_MAX 1000

static const struct cairn_cli_flag flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "Read the store itself, without a server: a folder or s3://bucket/prefix."},
};

static void cell_name(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "name"));
}
static void cell_rank(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%llu", (unsigned long long)cairn_cli_number_of(item, "rank"));
}
static void cell_bytes(const json_t *item, char *ret, size_t capacity) {
    char text[24];
    uint64_t size = cairn_cli_number_of(item, "size");
    cairn_size_text(size ? size : cairn_cli_number_of(item, "bytes"), text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_crc(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "crc32c"));
}
static void cell_dtype(const json_t *item, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", cairn_cli_text_of(item, "dtype"));
}
static void cell_shape(const json_t *item, char *ret, size_t capacity) {
    size_t used = 0, index;
    json_t *dimension;
    ret[0] = '\0';
    json_array_foreach(json_object_get(item, "shape"), index, dimension) {
        if (used < capacity)
            used += (size_t)snprintf(ret + used, capacity - used, "%s%lld", index ? "x" : "",
                                     (long long)json_integer_value(dimension));
    }
    /* An alias may name no element type; then its shape is that of what it stands for. */
    if (!used && *cairn_cli_text_of(item, "dtype")) snprintf(ret, capacity, "scalar");
}
static void cell_kind(const json_t *item, char *ret, size_t capacity) {
    const char *alias = cairn_cli_text_of(item, "alias_of");
    snprintf(ret, capacity, "%s%s%s", cairn_cli_text_of(item, "kind"), *alias ? " of " : "", alias);
}
static const struct cairn_cli_column shard_columns[] = {
    {"SHARD", false, cell_name},
    {"RANK", true, cell_rank},
    {"SIZE", true, cell_bytes},
    {"CRC32C", false, cell_crc},
};
static const struct cairn_cli_column tensor_columns[] = {
    {"TENSOR", false, cell_name}, {"DTYPE", false, cell_dtype}, {"SHAPE", false, cell_shape},
    {"SIZE", true, cell_bytes},   {"KIND", false, cell_kind},
};

static enum cairn_code print_list(struct cairn_cli *cli, const json_t *items, const char *what,
                                  bool more, const struct cairn_cli_column *columns, size_t count,
                                  struct cairn_error *err) {
    if (!json_array_size(items)) return CAIRN_OK;
    printf("\n");
    CAIRN_TRY(cairn_cli_print(cli, items, columns, count, "name", err));
    if (more) printf("... and more: curl the API's list of %s with its cursor\n", what);
    return CAIRN_OK;
}

static enum cairn_code print_lists(struct cairn_cli *cli, const struct cairn_cli_stored *shown,
                                   bool more_shards, bool more_tensors, struct cairn_error *err) {
    cairn_cli_print_version(shown->version);
    CAIRN_TRY(print_list(cli, shown->shards, "shards", more_shards, shard_columns,
                         CAIRN_COUNT(shard_columns), err));
    if (*cairn_cli_text_of(shown->version, "layout"))
        return print_list(cli, shown->tensors, "tensors", more_tensors, tensor_columns,
                          CAIRN_COUNT(tensor_columns), err);
    puts("\nopaque content: no shard is described as tensors, only names and bytes are known");
    return CAIRN_OK;
}

/* The first page of a list. */
static enum cairn_code ask_list(struct cairn_cli *cli, const struct cairn_cli_ref *ref,
                                const char *what, json_t **ret, bool *ret_more,
                                struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char tail[64];
    snprintf(tail, sizeof tail, "/%s?limit=%d", what, LIST_MAX);
    CAIRN_TRY(cairn_cli_call(cli, ref, (struct cairn_cli_call){.tail = tail}, &reply, err));
    *ret = json_incref(json_object_get(reply, "items"));
    *ret_more = json_is_string(json_object_get(reply, "next_cursor"));
    return CAIRN_OK;
}

static enum cairn_code print_whole(struct cairn_cli *cli, const json_t *version,
                                   struct cairn_error *err) {
    if (cli->output == CAIRN_CLI_NAME) {
        puts(cairn_cli_text_of(version, "version"));
        return CAIRN_OK;
    }
    return cairn_cli_print_json(version, cli->output == CAIRN_CLI_JSON, err);
}

static enum cairn_code show(struct cairn_cli *cli, struct cairn_cli_stored *shown,
                            struct cairn_error *err) {
    struct cairn_cli_ref ref;
    bool more_shards = false, more_tensors = false;
    CAIRN_TRY(cairn_cli_ref_latest(cli, &ref, err));
    if (cli->store)
        CAIRN_TRY(cairn_cli_stored_version(cli, &ref, shown, err));
    else
        CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){0}, &shown->version, err));
    if (cli->output != CAIRN_CLI_TABLE) return print_whole(cli, shown->version, err);
    if (!cli->store) {
        /* By its id: a step may mean another version by now. */
        cairn_text_copy(ref.version, sizeof ref.version,
                        cairn_cli_text_of(shown->version, "version"));
        CAIRN_TRY(ask_list(cli, &ref, "shards", &shown->shards, &more_shards, err));
        if (*cairn_cli_text_of(shown->version, "layout"))
            CAIRN_TRY(ask_list(cli, &ref, "tensors", &shown->tensors, &more_tensors, err));
    }
    return print_lists(cli, shown, more_shards, more_tensors, err);
}

static enum cairn_code run(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_stored shown = {0};
    enum cairn_code code = show(cli, &shown, err);
    cairn_cli_stored_release(&shown);
    return code;
}

const struct cairn_cli_verb cairn_cli_verb_show = {
    .name = "show",
    .synopsis = "cairn show [flags] project/run[@step|@latest|@ckpt_...]",
    .purpose = "Show one checkpoint: state, shards, tensors.",
    .examples = "  cairn show llm/7b@latest\n  cairn show llm/7b@1200 --json\n"
                "  cairn show llm/7b@latest --store s3://bucket/cairn   (no server needed)\n",
    .flags = flags,
    .flag_count = CAIRN_COUNT(flags),
    .arguments_min = 1,
    .arguments_max = 1,
    .run = run,
};
