/* SPDX-License-Identifier: Apache-2.0 */
/* cairn uploads: multipart uploads in the store that no save will end, and the end of one
 * version's. */
#include <poll.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

#define UPLOADS_MAX 100000
#define UPLOADS_ASK_MS 200

static const struct cairn_cli_flag uploads_flags[] = {
    {"now", 0, CAIRN_CLI_SWITCH, CAIRN_CLI_AT(now), 0, NULL,
     "Of ls: let the server look at the store first; by itself it does once an hour."},
};

static void cell_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24] = "?";
    if (row->upload.bytes != CAIRN_MESSAGE_NONE) cairn_cli_size(row->upload.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_begun(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->upload.begun_at ? row->upload.begun_at : "");
}
static void cell_state(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->upload.state);
}
static void cell_key(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->upload.key);
}
static const struct cairn_cli_column upload_columns[] = {
    {"SIZE", true, cell_size},
    {"BEGUN", false, cell_begun},
    {"VERSION IS", false, cell_state},
    {"KEY", false, cell_key},
};
static const union cairn_cli_row none = {.upload = {.bytes = CAIRN_MESSAGE_NONE}};
static const struct cairn_cli_table upload_table = {
    CAIRN_MESSAGE_upload_row, upload_columns, CAIRN_COUNT(upload_columns), cell_key, &none};

static enum cairn_code note_sum(const json_t *uploads, struct cairn_error *err) {
    uint64_t bytes = 0;
    char size[24];
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach((json_t *)(uintptr_t)uploads, index, item) {
        struct cairn_msg_upload_row row = {.bytes = CAIRN_MESSAGE_NONE};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_upload_row, item, &row, err));
        if (row.bytes != CAIRN_MESSAGE_NONE) bytes += row.bytes;
    }
    cairn_cli_size(bytes, size);
    cairn_cli_note("%s, %s",
                   cairn_cli_counted(json_array_size(uploads), "upload", "uploads").text, size);
    return CAIRN_OK;
}

/* The server looks once an hour by itself; here until one that began now is over. */
static enum cairn_code look_for_uploads(const struct cairn_cli *cli, struct cairn_error *err) {
    const struct cairn_cli_call call = {.method = "POST", .tail = "/uploads"};
    for (;;) {
        CAIRN_AUTO_JSON json_t *json = NULL;
        struct cairn_msg_upload_look said = {0};
        CAIRN_TRY(cairn_cli_call(cli, NULL, call, &json, err));
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_upload_look, json, &said, err));
        if (!said.looking) return CAIRN_OK;
        (void)poll(NULL, 0, UPLOADS_ASK_MS);
    }
}

static enum cairn_code list_uploads(const struct cairn_cli *cli, struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *uploads = json_array();
    if (cli->now) CAIRN_TRY(look_for_uploads(cli, err));
    CAIRN_TRY(cairn_cli_list(cli, "/v1/uploads", UPLOADS_MAX, uploads, NULL, err));
    CAIRN_TRY(cairn_cli_print(cli, uploads, &upload_table, err));
    return cli->output == CAIRN_CLI_TABLE ? note_sum(uploads, err) : CAIRN_OK;
}

static enum cairn_code abort_one(const struct cairn_cli *cli, const char *version,
                                 struct cairn_error *err) {
    char tail[CAIRN_VERSION_ID_BYTES + 16];
    CAIRN_AUTO_JSON json_t *json = NULL;
    struct cairn_msg_upload_aborted aborted = {0};
    const char *at = strrchr(version, '@'); /* `cairn gc -o name` prints project/run@id */
    if (at) version = at + 1;
    if (!cairn_version_id_valid(cairn_view_of(version)))
        return cairn_fail(err, CAIRN_INVALID,
                          "\"%.80s\" is no version id: `cairn uploads ls -o json` has them",
                          version);
    snprintf(tail, sizeof tail, "/uploads/%s", version);
    const struct cairn_cli_call call = {.method = "DELETE", .tail = tail};
    CAIRN_TRY(cairn_cli_call(cli, NULL, call, &json, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_upload_aborted, json, &aborted, err));
    if (cli->output != CAIRN_CLI_TABLE) return cairn_cli_print_json(json, true, err);
    printf("%s (%s): %s\n", aborted.version, aborted.state,
           aborted.done ? "its uploads are ended"
                        : "the server's sweep ends its uploads and deletes what is there");
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static enum cairn_code run_uploads(struct cairn_cli *cli, struct cairn_error *err) {
    const char *what = cli->arguments[0];
    if (!strcmp(what, "ls") && cli->argument_count == 1) return list_uploads(cli, err);
    if (!strcmp(what, "abort") && cli->argument_count == 2)
        return abort_one(cli, cli->arguments[1], err);
    return cairn_fail(err, CAIRN_INVALID, "want ls, or abort VERSION-ID, not \"%.40s\"; usage: %s",
                      what, cairn_cli_verb_uploads.synopsis);
}

const struct cairn_cli_verb cairn_cli_verb_uploads = {
    .name = "uploads",
    .synopsis = "cairn uploads ls|abort [flags] [VERSION-ID]",
    .purpose = "Uploads in the store that no save will end.",
    .examples = "  cairn uploads ls\n  cairn uploads ls --now --json\n"
                "  cairn uploads abort ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01\n",
    .flags = uploads_flags,
    .flag_count = CAIRN_COUNT(uploads_flags),
    .arguments_min = 1,
    .arguments_max = 2,
    .run = run_uploads,
};
