/* SPDX-License-Identifier: Apache-2.0 */
/* cairn-server --reindex: fills an empty catalog from the stores alone: raise the generation, wait,
 * list the stores for runs, then treat each run as a reconcile does. It is the server's program
 * that reindexes, since it has both engines and the store's settings; `cairn` is installed on
 * machines without the databases' libraries.
 *  Q37  A version is committed if it has its record, the manifest with that digest and every object
 *     with its length. Attempt records, in the order of their numbers, give numbers, nonces, jobs
 *     and what is superseded, so no number is used twice; marks give the trash.
 *  Q35  The store's generation is raised first, which stops a server on the old catalog; then
 *     `reconcile-wait` passes; then the bucket is listed.
 *  1  Unreadable objects are reported and skipped; documents of a newer release are reported as
 *     such, not as damage. A repeated call retries runs for which the store did not answer, and
 *     resumes after a kill.
 *  2  A dry run writes neither the store nor a catalog on disk.
 *  3  Before any write, each other store must answer and name this main store; a store left out by
 *     the caller is not contacted.
 *  4  A version is imported if one store has it whole, with a row for each copy; a damaged copy is
 *     reported with its store.
 *  5  The catalog is new, or was begun by the same command; no server starts on it before the
 *     command has ended with nothing unread.
 *  6  Without grant.key in the data_dir the command refuses, unless new-grant-key says that the key
 *     is lost for good.
 *  7  Results go to standard output; progress, findings and failures to standard error; the exit
 *     status is that of docs/codes.md: 7 if anything is damaged, 5 if a store did not answer.
 * 1,000,000 runs; of a run its ids, and 64 manifests at a time. */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/file.h"
#include "common/hooks.h"
#include "server/guard/identity.h"
#include "server/guard/said_copy.h"
#include "server/health.h"
#include "server/http/waiters.h"
#include "server/recovery/mend.h"
#include "server/recovery/recovery.h"

#define PAGES_MAX 1000000
#define RUNS_MAX 1000000
#define TAKEN_AT_ONCE 64
/* then the store counts as unreachable */
#define UNREAD_IN_A_ROW_MAX 16
#define COPIES_MAX 1000 /* of user metadata; mostly there are two */
#define PROGRESS_MS 5000
#define SIGN_LATE_MS 15000 /* time for the requests before a sign of life */
#define SIGN_LOOK_MS 500
#define CLOCKS_APART_MS 120000 /* between this machine's clock and the store's */

struct store_count {
    const char *name, *url;
    bool left_out;
    uint64_t whole, alone; /* alone: whole in no other store */
    uint64_t unfinished;   /* copies without a record */
    uint64_t damaged, remains;
};
struct counts {
    /* main, then nearest first, then those left out */
    struct store_count stores[SRV_TIERS_MAX];
    size_t store_count;
    uint64_t runs, attempts;
    uint64_t versions, found; /* imported now; imported by an earlier call */
    uint64_t remains;         /* records of deleted versions */
    uint64_t said;
    uint64_t damaged, unread; /* damaged objects; unanswered requests */
    uint64_t newer;           /* documents of a newer release, reported and not imported */
};
struct reindex {
    struct srv *server;
    const struct srv_reindexing *asked;
    uint64_t printed_ms;
    struct counts done;
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

void srv_reindexing_take(int *argc, char **argv, struct srv_reindexing *ret) {
    *ret = (struct srv_reindexing){.wanted = cairn_config_take(argc, argv, "--reindex")};
    if (!ret->wanted) return;
    ret->dry = cairn_config_take(argc, argv, "--dry-run");
    ret->json = cairn_config_take(argc, argv, "--json");
    ret->force = cairn_config_take(argc, argv, "--force");
    ret->quiet = cairn_config_take(argc, argv, "--progress=none");
    ret->json_progress = cairn_config_take(argc, argv, "--progress=json");
    ret->without = take_value(argc, argv, "--without=");
}

/* ---- progress and findings ---- */

/* name: the current run, NULL while the stores are listed. */
static void progress(struct reindex *reindex, const struct cairn_run_name *name, uint64_t number,
                     uint64_t runs) {
    if (reindex->asked->quiet || cairn_mono_ms() < reindex->printed_ms + PROGRESS_MS) return;
    reindex->printed_ms = cairn_mono_ms();
    if (reindex->asked->json_progress)
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

/* Reports an object that is damaged, of a newer release (CAIRN_UNSUPPORTED), or unreadable. */
static void tell_problem(struct reindex *reindex, const char *what, enum cairn_code code,
                         const char *cause) {
    bool damaged = code == CAIRN_CORRUPT, newer = code == CAIRN_UNSUPPORTED;
    const char *kind = damaged ? "damaged" : newer ? "newer" : "unread";
    reindex->done.damaged += damaged;
    reindex->done.newer += newer;
    reindex->done.unread += !damaged && !newer;
    if (!reindex->asked->json) {
        fprintf(stderr, "%s: %s: %s\n", kind, what, cause);
        return;
    }
    CAIRN_AUTO_JSON json_t *line =
        json_pack("{s:s, s:s, s:s}", "problem", kind, "what", what, "cause", cause);
    print_line(line);
}

/* ---- listing the runs ---- */

/* Another program's folder in the bucket has no record of Cairn's and makes no run. */
static bool run_of(const char *key, struct cairn_run_name *ret) {
    const char *rest = NULL;
    struct cairn_key_parts parts;
    if (!cairn_key_run(key, ret, &rest)) return false;
    cairn_key_read(rest, &parts);
    return parts.kind == CAIRN_KEY_ATTEMPT || parts.kind == CAIRN_KEY_ATTEMPT_COPY ||
           parts.kind == CAIRN_KEY_COMMITTED;
}

static int by_name(const void *a, const void *b) {
    const struct cairn_run_name *left = a, *right = b;
    int order = strcmp(left->project, right->project);
    return order ? order : strcmp(left->run, right->run);
}

/* A run's keys are adjacent in a listing; if a store breaks that, sorting finds duplicates. */
static enum cairn_code add_run(struct srv_run_names *names, const struct cairn_run_name *name,
                               struct cairn_error *err) {
    if (names->count && !by_name(&names->names[names->count - 1], name)) return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(names->names, names->count, names->capacity, RUNS_MAX,
                               "runs of a bucket", err));
    names->names[names->count++] = *name;
    return CAIRN_OK;
}

static void sort_names(struct srv_run_names *names) {
    size_t kept = 0;
    if (names->count) qsort(names->names, names->count, sizeof(*names->names), by_name);
    for (size_t i = 0; i < names->count; i++)
        if (!kept || by_name(&names->names[kept - 1], &names->names[i]))
            names->names[kept++] = names->names[i];
    names->count = kept;
}

static enum cairn_code list_one(struct reindex *reindex, struct cairn_store_worker *worker,
                                struct srv_run_names *ret, struct cairn_error *err) {
    CAIRN_AUTO(store_pages) pages = {.list = {.op = CAIRN_STORE_LIST, .key = ""}};
    while (!pages.ended && pages.count < PAGES_MAX) {
        CAIRN_TRY(cairn_store_pages_next(&pages, worker, err));
        for (size_t i = 0; i < pages.listing.count; i++) {
            struct cairn_run_name name;
            if (run_of(pages.listing.entries[i].key, &name)) CAIRN_TRY(add_run(ret, &name, err));
        }
        progress(reindex, NULL, 0, ret->count);
    }
    if (pages.ended) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "the store has more than %d pages", PAGES_MAX);
}

static enum cairn_code list_runs(struct reindex *reindex, const struct srv_run_stores *stores,
                                 struct srv_run_names *ret, struct cairn_error *err) {
    for (size_t i = 0; i < stores->count; i++) {
        enum cairn_code code = list_one(reindex, stores->stores[i].worker, ret, err);
        if (code) return srv_run_store_within(stores, i, code, err);
        sort_names(ret);
    }
    return CAIRN_OK;
}

/* ---- one run ---- */

struct making {
    struct srv *server;
    const struct cairn_run_name *name;
};
SRV_CHANGE(make_run, const struct making *making) {
    SRV_AUTO(run) run = {0};
    return srv_run_take(tx, making->name, srv_wall_ms(making->server), &run, err);
}

/* With several stores, puts the store's name before the key. */
static void tell_wrong(void *owner, const char *store, const char *key, enum cairn_code code,
                       const char *cause) {
    struct reindex *reindex = owner;
    char text[CAIRN_KEY_BYTES_MAX + SRV_TIER_NAME_BYTES + 4];
    bool several = reindex->done.store_count > 1;
    snprintf(text, sizeof(text), "%s%s%s", several ? store : "", several ? ": " : "", key);
    tell_problem(reindex, text, code, cause);
}

static void count_version(struct reindex *reindex, const struct srv_mend_version *one,
                          size_t stores) {
    struct counts *done = &reindex->done;
    size_t whole = 0;
    done->found += one->known;
    done->versions += !one->known && one->verified;
    done->remains += !one->known && !one->verified && !one->damaged && !one->newer;
    for (size_t i = 0; i < stores; i++)
        whole += one->copies[i] == SRV_SEEN_WHOLE || one->copies[i] == SRV_SEEN_RECORD;
    for (size_t i = 0; i < stores; i++) {
        struct store_count *store = &done->stores[i];
        enum srv_copy_seen seen = one->copies[i];
        bool there = seen == SRV_SEEN_WHOLE || seen == SRV_SEEN_RECORD;
        store->whole += there;
        store->alone += there && whole == 1;
        store->unfinished += seen == SRV_SEEN_OBJECTS;
        store->damaged += seen == SRV_SEEN_DAMAGED;
        store->remains += seen == SRV_SEEN_REMAINS;
    }
}

/* Imports versions as they are verified: at most 64 manifests are in memory. */
static enum cairn_code take_versions(struct reindex *reindex, struct srv_mend *mend,
                                     struct cairn_error *err) {
    CAIRN_TRY(srv_mend_versions_new(mend, err));
    for (size_t from = 0; from < mend->version_count; from += TAKEN_AT_ONCE) {
        size_t to = cairn_min_u64(from + TAKEN_AT_ONCE, mend->version_count);
        for (size_t i = from; i < to; i++) {
            CAIRN_TRY(srv_mend_read_version(mend, i, err));
            count_version(reindex, &mend->versions[i], mend->stores.count);
        }
        CAIRN_TRY(srv_mend_take(mend, from, to, err));
    }
    return CAIRN_OK;
}

static enum cairn_code take_attempts(struct reindex *reindex, struct srv_mend *mend,
                                     struct cairn_error *err) {
    CAIRN_TRY(srv_mend_read_attempts(mend, err));
    for (size_t i = 0; i < mend->attempt_count; i++) {
        struct cairn_key key;
        cairn_key_attempt(&mend->objects.name, mend->attempts[i].number, &key);
        if (!mend->attempts[i].readable)
            tell_problem(reindex, key.text,
                         mend->attempts[i].newer ? CAIRN_UNSUPPORTED : CAIRN_CORRUPT,
                         mend->attempts[i].cause);
    }
    reindex->done.attempts += mend->attempt_count;
    return CAIRN_OK;
}

static enum cairn_code take_run(struct reindex *reindex, struct cairn_store_worker *worker,
                                const struct cairn_run_name *name, struct cairn_error *err) {
    struct making making = {reindex->server, name};
    SRV_AUTO(mend)
    mend = {.server = reindex->server, .objects.name = *name, .tell = tell_wrong, .owner = reindex};
    CAIRN_TRY(srv_catalog_write(reindex->server->catalog, make_run, &making, err));
    CAIRN_TRY(srv_mend_open(&mend, worker, err));
    CAIRN_TRY(take_attempts(reindex, &mend, err));
    CAIRN_TRY(take_versions(reindex, &mend, err));
    return srv_mend_apply(&mend, err);
}

/* ---- all runs ---- */

static enum cairn_code take_runs(struct reindex *reindex, struct cairn_store_worker *worker,
                                 const struct srv_run_names *names, struct cairn_error *err) {
    unsigned in_a_row = 0;
    for (size_t i = 0; i < names->count; i++) {
        const struct cairn_run_name *name = &names->names[i];
        struct cairn_error why = {0};
        char text[2 * CAIRN_NAME_BYTES_MAX + 2];
        progress(reindex, name, i + 1, names->count);
        enum cairn_code code = take_run(reindex, worker, name, &why);
        reindex->done.runs += code == CAIRN_OK;
        in_a_row = code ? in_a_row + 1 : 0;
        CAIRN_CRASHPOINT("server.reindex.after_run");
        if (!code) continue;
        CAIRN_TRY(srv_catalog_writable(reindex->server->catalog, err));
        snprintf(text, sizeof(text), "%s/%s", name->project, name->run);
        bool of_document = code == CAIRN_CORRUPT || code == CAIRN_UNSUPPORTED;
        tell_problem(reindex, text, of_document ? CAIRN_STORE : code, why.message);
        if (in_a_row < UNREAD_IN_A_ROW_MAX) continue;
        return cairn_fail(err, code, "%u runs one after the other could not be read, the last: %s",
                          in_a_row, why.message);
    }
    return CAIRN_OK;
}

/* Imports user metadata after the versions that it refers to. If its newest copy is damaged,
 * imports the one before, and loses what was added in between. */
static enum cairn_code take_said(struct reindex *reindex, struct cairn_store_worker *worker,
                                 struct cairn_error *err) {
    for (size_t before = 0; before < COPIES_MAX; before++) {
        struct cairn_key key;
        struct cairn_error why = {0};
        enum cairn_code code =
            srv_said_copy_take(reindex->server, worker, before, &key, &reindex->done.said, &why);
        if (!code) return CAIRN_OK;
        CAIRN_TRY(srv_catalog_writable(reindex->server->catalog, err));
        tell_problem(reindex, key.text[0] ? key.text : ".cairn/catalog/", code, why.message);
        if (code != CAIRN_CORRUPT) return CAIRN_OK;
    }
    return CAIRN_OK;
}

/* Refuses a missing store.json: created anew, it would look like a store that lost all its runs. */
static enum cairn_code must_be_store(struct reindex *reindex, struct cairn_store_worker *worker,
                                     struct cairn_error *err) {
    struct cairn_store_record record = {0};
    struct srv *server = reindex->server;
    const char *url = cairn_store_url(server->store);
    enum cairn_code code = cairn_store_record_get(worker, 0, &record, err);
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, code,
                          "%s has no .cairn/store.json: is it the right folder or bucket, with its "
                          "prefix, and is it mounted?",
                          url);
    if (code) return cairn_within(err, code, "store.json of %s", url);
    (void)cairn_text_copy(server->store_uuid, sizeof(server->store_uuid), record.uuid);
    return CAIRN_OK;
}

static void add_store(struct reindex *reindex, const char *name, const struct cairn_store *store,
                      bool left_out) {
    CAIRN_ASSERT(reindex->done.store_count < SRV_TIERS_MAX);
    reindex->done.stores[reindex->done.store_count++] =
        (struct store_count){.name = name, .url = cairn_store_url(store), .left_out = left_out};
}

/* 3. A store that is read has the same index as in run_stores. */
static enum cairn_code must_be_ours(struct reindex *reindex, struct cairn_error *err) {
    struct srv *server = reindex->server;
    struct srv_tiers *tiers = server->tiers;
    add_store(reindex, SRV_TIER_MAIN, server->store, false);
    for (int left_out = 0; left_out < 2; left_out++)
        for (size_t i = 0; tiers && i < tiers->count; i++)
            if (i != tiers->main && tiers->tiers[i].left_out == (left_out != 0))
                add_store(reindex, tiers->tiers[i].name, tiers->tiers[i].store, left_out);
    for (size_t i = 0; tiers && i < tiers->count; i++) {
        struct srv_tier *tier = &tiers->tiers[i];
        struct cairn_store_worker *worker = NULL;
        struct cairn_error why = {0};
        if (i == tiers->main || tier->left_out) continue;
        enum cairn_code code = srv_tier_borrow(server, tier, &worker, &why);
        if (!code) code = srv_tier_is_ours(server, tier, worker, &why);
        srv_tier_return(server, tier, worker);
        if (code == CAIRN_FORBIDDEN) return cairn_fail(err, code, "%s", why.message);
        if (code)
            return cairn_fail(err, code,
                              "%s cannot be read; with --without %s a reindex goes on, and what "
                              "lies there alone is not had: %s",
                              tier->name, tier->name, why.message);
    }
    return CAIRN_OK;
}

static enum cairn_code reindex_all(struct reindex *reindex, struct cairn_store_worker *worker,
                                   struct cairn_error *err) {
    const struct srv_settings *settings = reindex->server->settings;
    SRV_AUTO(run_stores) stores = {0};
    SRV_AUTO(run_names) names = {0};
    CAIRN_TRY(must_be_store(reindex, worker, err));
    CAIRN_TRY(must_be_ours(reindex, err));
    if (!reindex->asked->dry) {
        /* the new catalog's generation is behind */
        CAIRN_ASSERT(settings->adopt_store);
        CAIRN_TRY(srv_identity_start(reindex->server, worker, err));
        /* Q35: requests in flight from the old catalog's server have ended then. */
        struct timespec left = {.tv_sec = (time_t)(settings->reconcile_wait_ms / 1000),
                                .tv_nsec = (long)(settings->reconcile_wait_ms % 1000) * 1000000L};
        while (nanosleep(&left, &left) && errno == EINTR) continue;
    }
    CAIRN_TRY(srv_run_stores_open(&stores, reindex->server, worker, err));
    CAIRN_TRY(list_runs(reindex, &stores, &names, err));
    CAIRN_TRY(take_runs(reindex, worker, &names, err));
    return take_said(reindex, worker, err);
}

/* ---- results ---- */

static json_t *stores_json(const struct counts *done) {
    CAIRN_AUTO_JSON json_t *array = json_array();
    for (size_t i = 0; i < done->store_count; i++) {
        const struct store_count *store = &done->stores[i];
        json_t *one = json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "store", store->name,
                                "url", store->url, "read", !store->left_out, "whole",
                                (json_int_t)store->whole, "alone", (json_int_t)store->alone,
                                "unfinished", (json_int_t)store->unfinished, "damaged",
                                (json_int_t)store->damaged, "remains", (json_int_t)store->remains);
        if (json_array_append_new(array, one)) return NULL;
    }
    return CAIRN_TAKE(array);
}

/* Not a row of messages.def: no other program reads this output (docs/command.md). */
static enum cairn_code print_json(const struct srv *server, const char *where,
                                  const struct reindex *reindex, struct cairn_error *err) {
    const struct counts *done = &reindex->done;
    bool dry = reindex->asked->dry;
    CAIRN_AUTO_JSON json_t *answer = json_pack(
        "{s:s, s:s?, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "store",
        cairn_store_url(server->store), "catalog", dry ? NULL : where, "dry_run", dry, "generation",
        (json_int_t)server->raising_to, "runs", (json_int_t)done->runs, "attempts",
        (json_int_t)done->attempts, "versions", (json_int_t)done->versions, "found",
        (json_int_t)done->found, "remains", (json_int_t)done->remains, "said",
        (json_int_t)done->said, "damaged", (json_int_t)done->damaged, "unread",
        (json_int_t)done->unread, "newer", (json_int_t)done->newer, "stores", stores_json(done));
    CAIRN_AUTO(buf) text = {0};
    if (!answer) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the answer");
    CAIRN_TRY(cairn_json_show(answer, &text, err));
    printf("%s\n", text.data);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

static void print_stores(const struct counts *done) {
    for (size_t i = 0; done->store_count > 1 && i < done->store_count; i++) {
        const struct store_count *store = &done->stores[i];
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

static enum cairn_code print_text(const struct srv *server, const char *where,
                                  const struct reindex *reindex, struct cairn_error *err) {
    const struct counts *done = &reindex->done;
    printf("%s: %llu runs, %llu attempts, %llu committed versions", cairn_store_url(server->store),
           (unsigned long long)done->runs, (unsigned long long)done->attempts,
           (unsigned long long)(done->versions + done->found));
    if (done->found) printf(" (%llu from before)", (unsigned long long)done->found);
    printf("; %llu rows of what people have said; %llu records of deleted "
           "versions, %llu damaged, %llu unread\n",
           (unsigned long long)done->said, (unsigned long long)done->remains,
           (unsigned long long)done->damaged, (unsigned long long)done->unread);
    if (done->newer)
        printf("%llu documents were written by a newer release and are not in the catalog: reindex "
               "with that release\n",
               (unsigned long long)done->newer);
    print_stores(done);
    if (reindex->asked->dry)
        printf("nothing was written (--dry-run)\n");
    else if (!done->unread)
        printf("start the server on %s\n", where);
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

void srv_reindexing_tell(const struct srv_reindexing *asked, const struct cairn_error *why) {
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

/* Jobs hold grants signed with this key: a new key would end every save under way. */
static enum cairn_code look_for_key(const struct srv_settings *settings, struct cairn_error *err) {
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

static enum cairn_code open_catalog(struct srv *server, const char *where, bool dry,
                                    struct cairn_error *err) {
    if (dry) {
        CAIRN_TRY(srv_catalog_open_memory(&server->catalog, err));
    } else {
        CAIRN_TRY(cairn_dir_make(server->settings->data_dir, 0700, err));
        CAIRN_TRY(cairn_dir_check_own(server->settings->data_dir, "data_dir", err));
        CAIRN_TRY(look_for_key(server->settings, err));
        srv_catalog_password_from(server->settings->catalog_password_file);
        CAIRN_TRY(srv_copy_begin_reindex(where, err));
        CAIRN_TRY(srv_catalog_open(where, &server->catalog, err));
    }
    srv_catalog_set_clock(server->catalog, server->clock);
    return srv_waiters_new(&server->waiters, err);
}

/* ---- is a server running? ---- */

/* A server is alive if its sign of life (health.h) changes within the announced interval, unless it
 * reported a stop and none has started since. A much older sign is ignored. */
static enum cairn_code look_for_server(const struct srv_reindexing *asked,
                                       struct cairn_store_worker *worker, struct cairn_error *err) {
    struct srv_sign first = {0}, now;
    struct cairn_store_record record;
    struct cairn_error why = {0};
    if (asked->force || asked->dry) return CAIRN_OK;
    if (cairn_store_record_get(worker, 0, &record, &why)) return CAIRN_OK;
    if (srv_sign_read(worker, &first, &why)) return CAIRN_OK;
    uint64_t wait_ms = first.interval_ms + SIGN_LATE_MS;
    int64_t age_ms = cairn_clock_real.wall_ms(&cairn_clock_real) - first.modified_ms;
    bool old = first.modified_ms && age_ms > (int64_t)wait_ms + CLOCKS_APART_MS;
    if (first.stopped_at >= record.generation || old) return CAIRN_OK;
    if (!asked->quiet && !asked->json_progress)
        fprintf(stderr,
                "looking for %llu s whether a server still works on the store (--force: do not "
                "look)\n",
                (unsigned long long)(wait_ms + 999) / 1000);
    for (uint64_t until_ms = cairn_mono_ms() + wait_ms; cairn_mono_ms() < until_ms;) {
        (void)poll(NULL, 0, SIGN_LOOK_MS);
        if (srv_sign_read(worker, &now, &why) || !strcmp(now.mark, first.mark)) continue;
        if (now.stopped_at >= record.generation) return CAIRN_OK;
        return cairn_fail(err, CAIRN_CONFLICT,
                          "a server works on this store: its sign in .cairn/health.json was "
                          "written just now. Stop it first; or say --force, which makes it change "
                          "nothing any more");
    }
    return CAIRN_OK;
}

static enum cairn_code leave_out(struct srv *server, const char *names, struct cairn_error *err) {
    for (const char *at = names; at && *at;) {
        char name[SRV_TIER_NAME_BYTES];
        size_t size = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)cairn_min_u64(size, sizeof(name) - 1), at);
        struct srv_tier *tier = srv_tier_find(server, name);
        if (!tier || srv_tier_is_main(server, tier) || size >= sizeof(name))
            return cairn_fail(err, CAIRN_INVALID,
                              "--without: \"%.*s\" is no further store of --stores", (int)size, at);
        tier->left_out = true;
        at += size + (at[size] == ',');
    }
    return CAIRN_OK;
}

/* The next start need not compare stores that were read here. */
SRV_CHANGE(put_read, const struct counts *done) {
    for (size_t i = 1; i < done->store_count; i++)
        if (!done->stores[i].left_out)
            CAIRN_TRY(srv_tier_unread_put(tx, done->stores[i].name, false, err));
    return CAIRN_OK;
}

static enum cairn_code judge_end(const struct reindex *reindex, struct cairn_error *err) {
    const struct counts *done = &reindex->done;
    bool dry = reindex->asked->dry;
    if (done->unread)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "%llu runs could not be read%s",
                          (unsigned long long)done->unread,
                          dry ? ""
                              : ": give the same command again, no server starts on "
                                "this catalog before that");
    if (done->newer)
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%llu documents were written by a newer release, and only that reads "
                          "them: reindex with it. The rest is %s",
                          (unsigned long long)done->newer,
                          dry ? "whole or named above" : "in the catalog");
    if (done->damaged)
        return cairn_fail(err, CAIRN_CORRUPT, "%llu objects are damaged; the rest is %s",
                          (unsigned long long)done->damaged,
                          dry ? "whole" : "in the catalog, which is ready for a server");
    return CAIRN_OK;
}

enum cairn_code srv_reindexing_run(const struct srv_reindexing *asked, struct srv *server,
                                   struct srv_settings *settings, struct cairn_error *err) {
    const char *where = settings->catalog[0] ? settings->catalog : settings->data_dir;
    struct reindex reindex = {.server = server, .asked = asked, .printed_ms = cairn_mono_ms()};
    struct cairn_store_worker *worker = NULL;
    settings->adopt_store = true; /* the store is ahead of an empty catalog by intent */
    CAIRN_TRY(leave_out(server, asked->without, err));
    CAIRN_TRY(cairn_store_worker_new(server->store, &worker, err));
    enum cairn_code code = look_for_server(asked, worker, err);
    if (!code) code = open_catalog(server, where, asked->dry, err);
    if (!code) code = reindex_all(&reindex, worker, err);
    cairn_store_worker_free(worker);
    CAIRN_TRY(code);
    if (!asked->dry && !reindex.done.unread) {
        CAIRN_TRY(srv_catalog_write(server->catalog, put_read, &reindex.done, err));
        CAIRN_TRY(srv_copy_end_reindex(server->catalog, err));
    }
    CAIRN_TRY(asked->json ? print_json(server, where, &reindex, err)
                          : print_text(server, where, &reindex, err));
    return judge_end(&reindex, err);
}
