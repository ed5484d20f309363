/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments, the copy, what is told; see copying.h. */
#include "server/db/copying.h"

#include <stdio.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"
#include "server/db/copy.h"

#define PROGRESS_MS 5000

struct command {
    struct cairn_srv_copy_options options;
    bool json, json_progress, quiet;
    uint64_t printed_ms;
    struct cairn_srv_copied copied;
    char key_note[2400]; /* where grant.key is, and where it is needed */
};

static void progress(void *owner, const struct cairn_srv_copy_progress *at) {
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

/* ---- grant.key ---- */

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

/* ---- what is told ---- */

/* The output of a program that no other one reads (docs/command.md), so no row of messages.def. */
static enum cairn_code print_json(const struct command *command, uint64_t took_ms,
                                  struct cairn_error *err) {
    const struct cairn_srv_copied *copied = &command->copied;
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
    const struct cairn_srv_copied *copied = &command->copied;
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
    CAIRN_TRY(cairn_srv_copy(&command->options, &command->copied, err));
    CAIRN_TRY(see_to_key(command, err));
    uint64_t took_ms = cairn_mono_ms() - begun_ms;
    return command->json ? print_json(command, took_ms, err) : print_table(command, took_ms, err);
}

/* ---- arguments ---- */

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

int cairn_srv_copying_main(int argc, char **argv) {
    static struct command command;
    struct cairn_error err = {0};
    command = (struct command){.options = {.progress = progress, .owner = &command}};
    cairn_srv_catalog_password_from(getenv("CAIRN_CATALOG_PASSWORD_FILE"));
    enum cairn_code code = read_arguments(argc, argv, &command, &err);
    if (!code) code = copy(&command, &err);
    err.code = code;
    if (code && !(command.json && tell_json(code, &err)))
        fprintf(stderr, "cairn catalog: %s\n", err.message);
    return cairn_code_info(code)->exit_status;
}

/* ---- a backup ---- */

static enum cairn_code print_backup(const char *from, const char *file, bool json,
                                    const struct cairn_srv_backup *backup, uint64_t took_ms,
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

static enum cairn_code back_up(int argc, char **argv, bool json, struct cairn_error *err) {
    struct cairn_srv_backup backup;
    if (argc < 2 || argv[0][0] == '-' || argv[1][0] == '-')
        return cairn_fail(err, CAIRN_INVALID, "--backup-catalog takes FROM and FILE");
    uint64_t begun_ms = cairn_mono_ms();
    CAIRN_TRY(cairn_srv_backup(argv[0], argv[1], &backup, err));
    return print_backup(argv[0], argv[1], json, &backup, cairn_mono_ms() - begun_ms, err);
}

int cairn_srv_backup_main(int argc, char **argv) {
    struct cairn_error err = {0};
    bool json = argc == 3 && !strcmp(argv[2], "--json");
    enum cairn_code code = back_up(argc, argv, json, &err);
    err.code = code;
    if (code && !(json && tell_json(code, &err)))
        fprintf(stderr, "cairn catalog: %s\n", err.message);
    return cairn_code_info(code)->exit_status;
}
