/* SPDX-License-Identifier: Apache-2.0 */
/* K07: a store, a journal and a server's calls, with each allocation failing once. */
#include "store/open.h"
#include "tests/support/server_inside.h"
#include "tests/torture/torture.h"
#include "uploader/journal/journal.h"

#define TOKEN "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f01"

static void be_quiet(void) {
    cairn_log_start("torture", CAIRN_LOG_ERROR, STDERR_FILENO);
}

/* ---- the folder store ---- */

static enum cairn_code store_round(struct cairn_store_worker *worker, uint64_t number,
                                   struct cairn_error *err) {
    static const char body[] = "bytes of a shard";
    char key[64], prefix[64]; /* a round of its own: what a failed one left is not listed */
    snprintf(key, sizeof key, "p/r/%" PRIu64 "/data/x", number);
    snprintf(prefix, sizeof prefix, "p/r/%" PRIu64 "/", number);
    struct cairn_store_request put = {.op = CAIRN_STORE_PUT,
                                      .key = key,
                                      .create = true,
                                      .token = TOKEN,
                                      .body = {body, sizeof body},
                                      .has_crc32c = true,
                                      .crc32c = cairn_crc32c(0, body, sizeof body)};
    CAIRN_TRY(cairn_store_perform(worker, &put, err));
    CAIRN_AUTO(buf) back = {.limit = 4096};
    CAIRN_TRY(cairn_store_get_small(worker, key, &back, err));
    CAIRN_AUTO(store_listing) listing = {0};
    struct cairn_store_request list = {.op = CAIRN_STORE_LIST, .key = prefix, .listing = &listing};
    CAIRN_TRY(cairn_store_perform(worker, &list, err));
    struct cairn_store_request gone = {.op = CAIRN_STORE_DELETE, .key = key};
    return cairn_store_perform(worker, &gone, err);
}

static enum cairn_code store_life(void *context, struct cairn_error *err) {
    static uint64_t number;
    struct cairn_store *store = NULL;
    struct cairn_store_worker *worker = NULL;
    const struct cairn_store_options options = {.url = context};
    enum cairn_code code = cairn_store_open(&options, &store, err);
    if (!code) code = cairn_store_worker_new(store, &worker, err);
    if (!code) code = store_round(worker, ++number, err);
    cairn_store_worker_free(worker);
    cairn_store_free(store);
    return code;
}

TEST(k07_a_folder_store_ends_each_failed_allocation_with_an_error) {
    be_quiet();
    char folder[512];
    snprintf(folder, sizeof folder, "%s", cairn_test_folder());
    cairn_torture("folder store", store_life, folder);
}

/* ---- the journal ---- */

static enum cairn_code take_record(void *owner, const struct cairn_up_replayed *record,
                                   struct cairn_error *err) {
    (void)owner;
    (void)record;
    (void)err;
    return CAIRN_OK;
}

static enum cairn_code journal_life(void *context, struct cairn_error *err) {
    struct cairn_up_journal *journal = NULL;
    const struct cairn_up_journal_options options = {
        .path = context, .node = "n1", .replay = take_record, .rewrite_bytes = CAIRN_MIB};
    CAIRN_TRY(cairn_up_journal_open(&options, &journal, err));
    CAIRN_AUTO_JSON json_t *begin = json_pack("{s:s}", "t", "begin");
    CAIRN_AUTO_JSON json_t *over = json_pack("{s:s}", "t", "over");
    uint64_t entry = cairn_up_journal_entry_new(journal);
    const struct cairn_up_record records[] = {{.entry = entry, .message = begin},
                                              {.entry = entry, .message = over, .closes = true}};
    enum cairn_code code = begin && over
                               ? cairn_up_journal_append(journal, records, 2, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the test");
    cairn_up_journal_free(journal);
    return code;
}

TEST(k07_a_journal_ends_each_failed_allocation_with_an_error_and_opens_again) {
    be_quiet();
    char path[512];
    snprintf(path, sizeof path, "%s/j", cairn_test_folder());
    cairn_torture("journal", journal_life, path);
}

/* ---- the server's calls: an answer is 2xx, or an error that may be asked again ---- */

struct calls {
    struct cairn_inside inside;
    uint64_t attempt;
};

static enum cairn_code list_runs(void *context, struct cairn_error *err) {
    struct calls *calls = context;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    enum cairn_code code = inside_call(&calls->inside, "GET", "/v1/runs", NULL, &reply);
    if (code) *err = calls->inside.err;
    return code;
}

/* Each call opens an attempt of its own, or says why it did not; half an attempt is none. */
static enum cairn_code open_attempt(void *context, struct cairn_error *err) {
    struct calls *calls = context;
    CAIRN_AUTO_JSON json_t *reply = NULL;
    char job[32]; /* TEXT takes memory, which may be what fails */
    snprintf(job, sizeof job, "job-%" PRIu64, calls->attempt);
    json_t *body =
        json_pack("{s:s, s:I, s:s, s:I, s:s, s:[{s:i, s:s}]}", "job", job, "world_size",
                  (json_int_t)1, "resume", "latest", "after", (json_int_t)calls->attempt, "node",
                  "n1", "ranks", "rank", 0, "proc", "5b2164b1-0bac-45fc-a51d-c51bbc8797d9");
    if (!body) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the test's body");
    enum cairn_code code =
        inside_call(&calls->inside, "POST", "/v1/runs/p/r/attempts", body, &reply);
    if (code) {
        *err = calls->inside.err;
        return code;
    }
    json_int_t attempt = json_integer_value(json_object_get(reply, "attempt"));
    EXPECT_EQ_U64((uint64_t)attempt, calls->attempt + 1);
    calls->attempt = (uint64_t)attempt;
    return CAIRN_OK;
}

TEST(k07_calls_of_the_server_end_each_failed_allocation_with_an_error) {
    be_quiet();
    struct calls calls = {0};
    REQUIRE(inside_start(&calls.inside, cairn_test_folder(), NULL) == CAIRN_OK);
    cairn_torture_loosely("GET /v1/runs", list_runs, &calls);
    cairn_torture_loosely("POST attempts", open_attempt, &calls);
    cairn_inside_release(&calls.inside);
}
