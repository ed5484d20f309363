/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan */
/* URLs, registration and the blocking helpers. */
#include "tests/store/place.h"

static enum cairn_code refuse_s3(const struct cairn_store_options *options,
                                 struct cairn_store **ret, struct cairn_error *err) {
    (void)ret;
    return cairn_fail(err, CAIRN_FORBIDDEN, "asked for %s", options->url);
}

TEST(a_url_chooses_its_store_or_is_refused, err) {
    struct cairn_store *store = NULL;
    EACH_TEXT(text, "", "ftp://relative", "file://host/x", "file://", "http://x/y", "S3://x") {
        struct cairn_store_options options = {.url = text};
        EXPECT_CODE(cairn_store_open(&options, &store, &err), CAIRN_INVALID);
    }
    struct cairn_store_options s3 = {.url = "s3://bucket/prefix"};
    cairn_store_register(CAIRN_STORE_SCHEME_S3, NULL);
    EXPECT_CODE(cairn_store_open(&s3, &store, &err), CAIRN_UNSUPPORTED);
    cairn_store_register(CAIRN_STORE_SCHEME_S3, refuse_s3);
    EXPECT_CODE(cairn_store_open(&s3, &store, &err), CAIRN_FORBIDDEN);
    cairn_store_register(CAIRN_STORE_SCHEME_S3, NULL);
    struct cairn_store_options absent = {.url = "/proc/none/none"};
    EXPECT_FAILS(cairn_store_open(&absent, &store, &err), CAIRN_IO, "/proc/none");
}

TEST(a_relative_folder_is_taken_from_where_the_program_was_started, err) {
    CAIRN_AUTO_PTR(store) store = NULL;
    CAIRN_AUTO_HEAP char *here = getcwd(NULL, 0);
    REQUIRE(here && !chdir(cairn_test_folder()));
    bool made = !mkdir(TEXT("%s/objects", cairn_test_folder()), 0700);
    struct cairn_store_options options = {.url = "./objects"};
    enum cairn_code code = cairn_store_open(&options, &store, &err);
    REQUIRE(!chdir(here));
    EXPECT(made);
    REQUIRE_OK(code);
    EXPECT(strstr(cairn_store_url(store), "objects"));
}

TEST(put_same_is_content_with_equal_bytes_and_conflicts_with_others, err) { /* Q22, V11 */
    PLACE(NULL);
    EXPECT_CODE(cairn_store_put_same(place.worker, "m", CAIRN_VIEW("bytes"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "m", CAIRN_VIEW("bytes"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "m", CAIRN_VIEW("bytez"), &err), CAIRN_CONFLICT);
    EXPECT_CODE(cairn_store_put_same(place.worker, "m", CAIRN_VIEW("byte"), &err), CAIRN_CONFLICT);
    EXPECT_CODE(cairn_store_put_same(place.worker, "m", CAIRN_VIEW("bytes, more"), &err),
                CAIRN_CONFLICT);
    EXPECT_CODE(cairn_store_put_same(place.worker, "e", CAIRN_VIEW(""), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "e", CAIRN_VIEW(""), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "e", CAIRN_VIEW("x"), &err), CAIRN_CONFLICT);
}

TEST(get_small_appends_and_keeps_its_limit, err) {
    PLACE(NULL);
    REQUIRE_OK(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("12345"), true, &err));
    CAIRN_AUTO(buf) buf = {.limit = 9};
    REQUIRE_OK(cairn_store_get_small(place.worker, "a", &buf, &err));
    EXPECT_EQ_TEXT(buf.data, "12345");
    EXPECT_CODE(cairn_store_get_small(place.worker, "a", &buf, &err), CAIRN_TOO_LARGE);
    EXPECT_EQ_U64(buf.size, 5);
    EXPECT_FAILS(cairn_store_get_small(place.worker, "none", &buf, &err), CAIRN_NOT_FOUND, "none");
    REQUIRE_OK(cairn_store_put_small(place.worker, "empty", CAIRN_VIEW(""), true, &err));
    EXPECT_CODE(cairn_store_get_small(place.worker, "empty", &buf, &err), CAIRN_OK);
    EXPECT_EQ_TEXT(buf.data, "12345");
    buf.size = 9;
    EXPECT_CODE(cairn_store_get_small(place.worker, "a", &buf, &err), CAIRN_TOO_LARGE);
    EXPECT_CODE(cairn_store_get_small(place.worker, "empty", &buf, &err), CAIRN_OK);
}

/* Counts what the helpers ask for, and puts another object there between two requests. */
static struct {
    const struct cairn_store_vtable *real;
    struct cairn_store_vtable vtable;
    unsigned asked, replacements;
} seen;

static void submit_seen(struct cairn_store_worker *worker, struct cairn_store_request *request) {
    bool second = request->op == CAIRN_STORE_GET && request->offset;
    if (second && seen.replacements) {
        seen.replacements--;
        struct cairn_error err = {0};
        CAIRN_AUTO_PTR(store_worker) other = NULL;
        CAIRN_AUTO(buf) body = {0};
        worker->store->vtable = seen.real;
        REQUIRE_OK(cairn_store_worker_new(worker->store, &other, &err));
        for (int i = 0; i < 100000; i++) REQUIRE_OK(cairn_buf_append(&body, "y", 1, &err));
        REQUIRE_OK(cairn_store_put_small(other, request->key, cairn_buf_view(&body), false, &err));
        worker->store->vtable = &seen.vtable;
    }
    seen.asked++;
    seen.real->submit(worker, request);
}

TEST(a_document_takes_one_request_a_long_one_two_and_one_that_is_replaced_is_of_one_piece, err) {
    PLACE(NULL);
    CAIRN_AUTO(buf) shorter = {0}, longer = {0}, got = {0}, twice = {0};
    for (int i = 0; i < 64 << 10; i++) REQUIRE_OK(cairn_buf_append(&shorter, "s", 1, &err));
    for (int i = 0; i < 65537; i++) REQUIRE_OK(cairn_buf_append(&longer, "x", 1, &err));
    REQUIRE_OK(cairn_store_put_small(place.worker, "s", cairn_buf_view(&shorter), true, &err));
    REQUIRE_OK(cairn_store_put_small(place.worker, "x", cairn_buf_view(&longer), true, &err));
    seen.real = place.store->vtable;
    seen.vtable = *seen.real;
    seen.vtable.submit = submit_seen;
    seen.asked = seen.replacements = 0;
    place.store->vtable = &seen.vtable;
    REQUIRE_OK(cairn_store_get_small(place.worker, "s", &got, &err));
    EXPECT_EQ_U64(seen.asked, 1);
    REQUIRE_OK(cairn_store_get_small(place.worker, "x", &got, &err));
    EXPECT_EQ_U64(seen.asked, 3);
    REQUIRE(got.size == shorter.size + longer.size);
    EXPECT(!memcmp(got.data, shorter.data, shorter.size));
    EXPECT(!memcmp(got.data + shorter.size, longer.data, longer.size));
    seen.replacements = 1;
    REQUIRE_OK(cairn_store_get_small(place.worker, "x", &twice, &err));
    EXPECT_EQ_U64(twice.size, 100000);
    EXPECT(twice.data[0] == 'y' && twice.data[99999] == 'y');
    place.store->vtable = seen.real;
}

static void *wake_later(void *worker) {
    (void)COMES(cairn_test_thread_sleeps(getpid())); /* the test waits for something to happen */
    cairn_store_wake(worker);
    return NULL;
}

TEST(a_wake_from_another_thread_ends_the_poll, err) {
    PLACE(NULL);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, wake_later, place.worker) == 0);
    uint64_t start = cairn_mono_ms();
    EXPECT_CODE(cairn_store_poll(place.worker, HANG_MS, &err), CAIRN_OK);
    EXPECT(cairn_mono_ms() - start < HANG_MS);
    pthread_join(thread, NULL);
    EXPECT_CODE(cairn_store_poll(place.worker, 0, &err), CAIRN_OK);
}

/* ---- many workers in one folder ---- */

struct crew {
    struct cairn_store *store;
    int number, failures;
    char why[320];
};

/* Puts and deletes the only object of a folder, so that others prune what this one is making. */
static void *put_and_delete(void *argument) {
    struct crew *crew = argument;
    struct cairn_error err = {0};
    struct cairn_store_worker *worker = NULL;
    if (cairn_store_worker_new(crew->store, &worker, &err) != CAIRN_OK) return NULL;
    for (int i = 0; i < 60; i++) {
        const char *key = TEXT("shared/deep/%d/%d", i % 2, crew->number);
        bool ok = cairn_store_put_small(worker, key, CAIRN_VIEW("x"), true, &err) == CAIRN_OK &&
                  cairn_store_delete(worker, key, &err) == CAIRN_OK;
        crew->failures += !ok;
        if (!ok) memcpy(crew->why, err.message, sizeof crew->why);
    }
    cairn_store_worker_free(worker);
    return NULL;
}

TEST(creators_and_pruners_of_one_folder_do_not_disturb_each_other, err) {
    PLACE(NULL);
    struct crew crews[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        crews[i] = (struct crew){.store = place.store, .number = i};
        REQUIRE(pthread_create(&threads[i], NULL, put_and_delete, &crews[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        EXPECT_EQ_U64(crews[i].failures, 0);
        if (crews[i].failures) EXPECT_EQ_TEXT(crews[i].why, "");
    }
    CAIRN_AUTO(store_listing) listing = {0};
    EXPECT_PERFORMED(CAIRN_OK, list, place.worker,
                     {.op = CAIRN_STORE_LIST, .key = "", .listing = &listing});
    EXPECT_EQ_U64(listing.count, 0);
}
