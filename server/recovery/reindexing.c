/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments, the new catalog, what is told; see reindexing.h. */
#include "server/recovery/reindexing.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/text.h"
#include "server/db/copy.h"
#include "server/health.h"
#include "server/http/waiters.h"
#include "server/recovery/reindex.h"
#include "store/record.h"

#define PROGRESS_MS 5000
#define SIGN_LATE_MS 15000     /* of a sign: the requests before it */
#define SIGN_LOOK_MS 500
#define CLOCKS_APART_MS 120000 /* this machine's and the store's */

struct command {
    const struct cairn_srv_reindexing *asked;
    uint64_t printed_ms;
};

static const char *take_value(int *argc, char **argv, const char *flag) {
    for (int i = 1; i < *argc; i++) {
        if (!cairn_text_starts(argv[i], flag)) continue;
        const char *value = argv[i] + strlen(flag);
        memmove(argv + i, argv + i + 1, sizeof *argv * (size_t)(*argc - i));
        --*argc;
        return value;
    }
    return NULL;
}

void cairn_srv_reindexing_take(int *argc, char **argv, struct cairn_srv_reindexing *ret) {
    *ret = (struct cairn_srv_reindexing){.wanted = cairn_config_take(argc, argv, "--reindex")};
    if (!ret->wanted) return;
    ret->dry = cairn_config_take(argc, argv, "--dry-run");
    ret->json = cairn_config_take(argc, argv, "--json");
    ret->force = cairn_config_take(argc, argv, "--force");
    ret->quiet = cairn_config_take(argc, argv, "--progress=none");
    ret->json_progress = cairn_config_take(argc, argv, "--progress=json");
    ret->without = take_value(argc, argv, "--without=");
}

/* ---- what is told ---- */

static void progress(void *owner, const struct cairn_run_name *name, uint64_t number,
                     uint64_t runs) {
    struct command *command = owner;
    if (command->asked->quiet || cairn_mono_ms() < command->printed_ms + PROGRESS_MS) return;
    command->printed_ms = cairn_mono_ms();
    if (command->asked->json_progress)
        fprintf(stderr, "{\"phase\":\"%s\",\"run\":\"%s%s%s\",\"number\":%llu,\"runs\":%llu}\n",
                name ? "reading" : "listing", name ? name->project : "", name ? "/" : "",
                name ? name->run : "", (unsigned long long)number, (unsigned long long)runs);
    else if (name)
        fprintf(stderr, "reading run %llu of %llu: %s/%s\n", (unsigned long long)number,
                (unsigned long long)runs, name->project, name->run);
    else
        fprintf(stderr, "listing the store: %llu runs so far\n", (unsigned long long)runs);
}

static void print_line(const json_t *line) {
    CAIRN_AUTO(buf) text = {0};
    if (line && !cairn_json_show(line, &text, NULL)) fprintf(stderr, "%s\n", text.data);
}

static void problem(void *owner, const char *what, enum cairn_code code, const char *cause) {
    const struct command *command = owner;
    const char *kind = code == CAIRN_CORRUPT       ? "damaged"
                       : code == CAIRN_UNSUPPORTED ? "newer"
                                                   : "unread";
    if (!command->asked->json) {
        fprintf(stderr, "%s: %s: %s\n", kind, what, cause);
        return;
    }
    CAIRN_AUTO_JSON json_t *line =
        json_pack("{s:s, s:s, s:s}", "problem", kind, "what", what, "cause", cause);
    print_line(line);
}

static json_t *stores_json(const struct cairn_srv_reindexed *done) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    for (size_t i = 0; i < done->store_count; i++) {
        const struct cairn_srv_reindexed_store *store = &done->stores[i];
        json_t *one = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "store", store->name,
                                "url", store->url, "read", !store->left_out, "whole",
                                (json_int_t)store->whole, "alone", (json_int_t)store->alone,
                                "unfinished", (json_int_t)store->unfinished, "damaged",
                                (json_int_t)store->damaged, "remains", (json_int_t)store->remains);
        if (json_array_append_new(array, one)) return NULL;
    }
    return CAIRN_TAKE(array);
}

/* The output of a program that no other one reads (docs/command.md), so no row of messages.def. */
static enum cairn_code print_json(const struct cairn_srv *server, const char *where,
                                  const struct cairn_srv_reindex *reindex,
                                  struct cairn_error *err) {
    const struct cairn_srv_reindexed *done = &reindex->done;
    CAIRN_AUTO_JSON json_t *answer = json_pack(
        "{s:s, s:s?, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "store",
        cairn_store_url(server->store), "catalog", reindex->dry ? NULL : where, "dry_run",
        reindex->dry, "generation", (json_int_t)server->raising_to, "runs", (json_int_t)done->runs,
        "attempts", (json_int_t)done->attempts, "versions", (json_int_t)done->versions, "found",
        (json_int_t)done->found, "remains", (json_int_t)done->remains, "said",
        (json_int_t)done->said, "damaged", (json_int_t)done->damaged, "unread",
        (json_int_t)done->unread, "newer", (json_int_t)done->newer, "stores", stores_json(done));
    CAIRN_AUTO(buf) text = {0};
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(cairn_json_show(answer, &text, err));
    printf("%s\n", text.data);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static void print_stores(const struct cairn_srv_reindexed *done) {
    for (size_t i = 0; done->store_count > 1 && i < done->store_count; i++) {
        const struct cairn_srv_reindexed_store *store = &done->stores[i];
        if (store->left_out)
            printf("%s (%s): not read (--without): versions that lie there alone are missing until "
                   "a server that has it in `stores` starts\n",
                   store->name, store->url);
        else
            printf("%s (%s): %llu whole copies, %llu of them in no other store; %llu unfinished, "
                   "%llu damaged\n",
                   store->name, store->url, (unsigned long long)store->whole,
                   (unsigned long long)store->alone, (unsigned long long)store->unfinished,
                   (unsigned long long)store->damaged);
    }
}

static enum cairn_code print_text(const struct cairn_srv *server, const char *where,
                                  const struct cairn_srv_reindex *reindex,
                                  struct cairn_error *err) {
    const struct cairn_srv_reindexed *done = &reindex->done;
    printf("%s: %llu runs, %llu attempts, %llu committed versions", cairn_store_url(server->store),
           (unsigned long long)done->runs, (unsigned long long)done->attempts,
           (unsigned long long)(done->versions + done->found));
    if (done->found) printf(" (%llu from before)", (unsigned long long)done->found);
    printf("; %llu rows of what people have said; %llu records of deleted "
           "versions, %llu damaged, %llu unread\n",
           (unsigned long long)done->said, (unsigned long long)done->remains,
           (unsigned long long)done->damaged,
           (unsigned long long)done->unread);
    if (done->newer)
        printf("%llu documents were written by a newer release and are not in the catalog: reindex "
               "with that release\n",
               (unsigned long long)done->newer);
    print_stores(done);
    if (reindex->dry)
        printf("nothing was written (--dry-run)\n");
    else if (!done->unread)
        printf("start the server on %s\n", where);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

void cairn_srv_reindexing_tell(const struct cairn_srv_reindexing *asked,
                               const struct cairn_error *why) {
    const struct cairn_code_info *info = cairn_code_info(why->code);
    CAIRN_AUTO_JSON json_t *answer =
        asked->json ? json_pack("{s:s, s:i, s:b}", "verb", "reindex", "exit", info->exit_status,
                                "retryable", info->retryable)
                    : NULL;
    if (answer && cairn_failure_put(answer, "message", why))
        print_line(answer);
    else
        fprintf(stderr, "cairn reindex: %s\n", why->message);
}

/* ---- the new catalog ---- */

/* Grants that jobs hold are signed with it: under a new one every save that is under way ends. */
static enum cairn_code look_for_key(const struct cairn_srv_settings *settings,
                                    struct cairn_error *err) {
    char path[1024];
    bool given = settings->grant_key_file[0];
    snprintf(path, sizeof(path), "%.900s%s", given ? settings->grant_key_file : settings->data_dir,
             given ? "" : "/grant.key");
    if (settings->new_grant_key || !access(path, F_OK)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND,
                      "%s is missing: put it back from the backup of the old server's data_dir; if "
                      "it is lost for good, say --new-grant-key, which ends all saves under way",
                      path);
}

static enum cairn_code open_catalog(struct cairn_srv *server, const char *where, bool dry,
                                    struct cairn_error *err) {
    if (dry) {
        CAIRN_TRY(cairn_srv_catalog_open_memory(&server->catalog, err));
    } else {
        CAIRN_TRY(cairn_dir_make(server->settings->data_dir, 0700, err));
        CAIRN_TRY(cairn_dir_check_own(server->settings->data_dir, "data_dir", err));
        CAIRN_TRY(look_for_key(server->settings, err));
        cairn_srv_catalog_password_from(server->settings->catalog_password_file);
        CAIRN_TRY(cairn_srv_copy_begin_reindex(where, err));
        CAIRN_TRY(cairn_srv_catalog_open(where, &server->catalog, err));
    }
    cairn_srv_catalog_set_clock(server->catalog, server->clock);
    return cairn_srv_waiters_new(&server->waiters, err);
}

/* ---- a server that goes on ---- */

static void say_looking(const struct command *command, uint64_t wait_ms) {
    if (command->asked->quiet || command->asked->json_progress) return;
    fprintf(stderr,
            "looking for %llu s whether a server still works on the store (--force: do not look)\n",
            (unsigned long long)(wait_ms + 999) / 1000);
}

/* Its sign of life (health.h) is another one within the interval that the last one names, unless it
 * said that it stopped and none has started since. A sign that is older by far is nobody's. */
static enum cairn_code look_for_server(const struct command *command,
                                       struct cairn_store_worker *worker,
                                       struct cairn_error *err) {
    struct cairn_srv_sign first = {0}, now;
    struct cairn_store_record record;
    struct cairn_error why = {0};
    if (command->asked->force || command->asked->dry) return CAIRN_OK;
    if (cairn_store_record_get(worker, 0, &record, &why)) return CAIRN_OK; /* told later */
    if (cairn_srv_sign_read(worker, &first, &why)) return CAIRN_OK; /* none, or damaged */
    uint64_t wait_ms = first.interval_ms + SIGN_LATE_MS;
    int64_t age_ms = cairn_clock_real.wall_ms(&cairn_clock_real) - first.modified_ms;
    bool old = first.modified_ms && age_ms > (int64_t)wait_ms + CLOCKS_APART_MS;
    if (first.stopped_at >= record.generation || old)
        return CAIRN_OK;
    say_looking(command, wait_ms);
    for (uint64_t until_ms = cairn_mono_ms() + wait_ms; cairn_mono_ms() < until_ms;) {
        (void)poll(NULL, 0, SIGN_LOOK_MS);
        if (cairn_srv_sign_read(worker, &now, &why) || !strcmp(now.mark, first.mark)) continue;
        if (now.stopped_at >= record.generation) return CAIRN_OK; /* it has just ended */
        return cairn_fail(err, CAIRN_CONFLICT,
                          "a server works on this store: its sign in .cairn/health.json was "
                          "written just now. Stop it first; or say --force, which makes it change "
                          "nothing any more");
    }
    return CAIRN_OK;
}

static enum cairn_code leave_out(struct cairn_srv *server, const char *names,
                                 struct cairn_error *err) {
    for (const char *at = names; at && *at;) {
        char name[CAIRN_SRV_TIER_NAME_BYTES];
        size_t size = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)cairn_min_u64(size, sizeof(name) - 1), at);
        struct cairn_srv_tier *tier = cairn_srv_tier_find(server, name);
        if (!tier || cairn_srv_tier_is_main(server, tier) || size >= sizeof(name))
            return cairn_fail(err, CAIRN_INVALID,
                              "--without: \"%.*s\" is no further store of --stores", (int)size, at);
        tier->left_out = true;
        at += size + (at[size] == ',');
    }
    return CAIRN_OK;
}

/* What was read has nothing to be compared again. */
static enum cairn_code put_read(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_srv_reindexed *done = argument;
    for (size_t i = 1; i < done->store_count; i++)
        if (!done->stores[i].left_out)
            CAIRN_TRY(cairn_srv_tier_unread_put(tx, done->stores[i].name, false, err));
    return CAIRN_OK;
}

static enum cairn_code end(struct cairn_srv *server, struct cairn_srv_reindexed *done,
                           struct cairn_error *err) {
    CAIRN_TRY(cairn_srv_catalog_write(server->catalog, put_read, done, err));
    return cairn_srv_copy_end_reindex(server->catalog, err);
}

static enum cairn_code judge(const struct cairn_srv_reindex *reindex, struct cairn_error *err) {
    const struct cairn_srv_reindexed *done = &reindex->done;
    if (done->unread)
        return cairn_fail(err, CAIRN_UNAVAILABLE,
                          "%llu runs could not be read%s", (unsigned long long)done->unread,
                          reindex->dry ? "" : ": give the same command again, no server starts on "
                                              "this catalog before that");
    if (done->newer)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%llu documents were written by a newer release, and only that reads "
                          "them: reindex with it. The rest is %s",
                          (unsigned long long)done->newer,
                          reindex->dry ? "whole or named above" : "in the catalog");
    if (done->damaged)
        return cairn_fail(err, CAIRN_CORRUPT, "%llu objects are damaged; the rest is %s",
                          (unsigned long long)done->damaged,
                          reindex->dry ? "whole" : "in the catalog, which is ready for a server");
    return CAIRN_OK;
}

enum cairn_code cairn_srv_reindexing_run(const struct cairn_srv_reindexing *asked,
                                         struct cairn_srv *server,
                                         struct cairn_srv_settings *settings,
                                         struct cairn_error *err) {
    const char *where = settings->catalog[0] ? settings->catalog : settings->data_dir;
    struct command command = {.asked = asked, .printed_ms = cairn_mono_ms()};
    struct cairn_srv_reindex reindex = {.server = server,
                                        .dry = asked->dry,
                                        .progress = progress,
                                        .problem = problem,
                                        .owner = &command};
    struct cairn_store_worker *worker = NULL;
    settings->adopt_store = true; /* the store is ahead of an empty catalog, which is why */
    CAIRN_TRY(leave_out(server, asked->without, err));
    CAIRN_TRY(cairn_store_worker_new(server->store, &worker, err));
    enum cairn_code code = look_for_server(&command, worker, err);
    if (!code) code = open_catalog(server, where, asked->dry, err);
    if (!code) code = cairn_srv_reindex(&reindex, worker, err);
    cairn_store_worker_free(worker);
    if (!code && !asked->dry && !reindex.done.unread)
        code = end(server, &reindex.done, err);
    CAIRN_TRY(code);
    CAIRN_TRY(asked->json ? print_json(server, where, &reindex, err)
                          : print_text(server, where, &reindex, err));
    return judge(&reindex, err);
}
