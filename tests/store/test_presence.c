/* SPDX-License-Identifier: Apache-2.0 */
/* A look at many objects over a store that answers in the order that the test says. */
#include "store/whole.h"
#include "tests/harness.h"

#define OBJECTS_MAX 2500
#define PENDING_MAX 64

enum order { ALL_AT_ONCE, OLDEST_FIRST, NEWEST_FIRST, SHUFFLED, ORDER_COUNT };
enum list_reply { LIST_FORBIDDEN, LIST_ALL, LIST_NONE, LIST_ENDLESS };

/* Its objects are named by their number; every 7th is missing, every 11th is a byte too long. */
struct scripted_store {
    struct cairn_store store;
    struct cairn_store_worker worker;
    enum order order;
    enum list_reply list_reply;
    size_t count;
    size_t fails_at; /* the HEAD with this number fails; 0: none does */
    bool poll_fails; /* the worker fails instead of that HEAD */
    uint64_t random;
    struct cairn_store_request *pending[PENDING_MAX];
    size_t pending_count, most_pending, heads, cancelled, pages;
};

static bool is_missing(size_t i) {
    return i % 7 == 3;
}

static uint64_t bytes_of(size_t i) {
    return i % 11 == 5 ? 5 : 4;
}

static struct scripted_store *of(struct cairn_store_worker *worker) {
    return (struct scripted_store *)(void *)worker->store;
}

static void submit(struct cairn_store_worker *worker, struct cairn_store_request *request) {
    struct scripted_store *store = of(worker);
    CAIRN_ASSERT(store->pending_count < PENDING_MAX);
    store->pending[store->pending_count++] = request;
    if (store->pending_count > store->most_pending) store->most_pending = store->pending_count;
}

static void remove_at(struct scripted_store *store, size_t at) {
    store->pending_count--;
    memmove(&store->pending[at], &store->pending[at + 1],
            (store->pending_count - at) * sizeof store->pending[0]);
}

static void cancel(struct cairn_store_worker *worker, struct cairn_store_request *request) {
    struct scripted_store *store = of(worker);
    for (size_t i = 0; i < store->pending_count; i++) {
        if (store->pending[i] != request) continue;
        remove_at(store, i);
        store->cancelled++;
        request->code = CAIRN_CANCELLED;
        request->done(request);
        return;
    }
}

static void answer_list(struct scripted_store *store, struct cairn_store_request *request) {
    struct cairn_store_listing *listing = request->listing;
    store->pages++;
    if (store->list_reply == LIST_FORBIDDEN) request->code = CAIRN_FORBIDDEN;
    if (store->list_reply == LIST_ENDLESS) listing->next_page = strdup("next");
    if (store->list_reply != LIST_ALL) return;
    listing->entries = calloc(store->count + 1, sizeof *listing->entries);
    for (size_t i = 0; i < store->count; i++) {
        if (is_missing(i)) continue;
        const char *key = TEXT("v/%05zu", i);
        listing->entries[listing->count++] =
            (struct cairn_store_entry){.key = strdup(key), .size_bytes = bytes_of(i)};
    }
}

static void answer_head(struct scripted_store *store, struct cairn_store_request *request) {
    uint64_t i = 0;
    CAIRN_ASSERT(!cairn_parse_u64(cairn_view_of(request->key + 2), &i, NULL));
    store->heads++;
    if (store->heads == store->fails_at)
        request->code = cairn_fail(&request->error, CAIRN_UNAVAILABLE, "it does not answer");
    else if (is_missing(i))
        request->code = CAIRN_NOT_FOUND;
    else
        request->object_bytes = bytes_of(i);
}

static void answer(struct scripted_store *store, size_t at) {
    struct cairn_store_request *request = store->pending[at];
    remove_at(store, at);
    if (request->op == CAIRN_STORE_LIST)
        answer_list(store, request);
    else
        answer_head(store, request);
    request->done(request);
}

static enum cairn_code poll_once(struct cairn_store_worker *worker, uint32_t timeout_ms,
                                 struct cairn_error *err) {
    struct scripted_store *store = of(worker);
    (void)timeout_ms;
    CAIRN_ASSERT(store->pending_count); /* else a real worker would wait for nothing */
    if (store->poll_fails && store->heads + store->pending_count >= store->fails_at)
        return cairn_fail(err, CAIRN_IO, "the worker fails");
    size_t answers = store->order == ALL_AT_ONCE ? store->pending_count
                     : store->order == SHUFFLED
                         ? cairn_test_random(&store->random) % (store->pending_count + 1)
                         : 1;
    while (answers--) {
        size_t last = store->pending_count - 1;
        answer(store, store->order == NEWEST_FIRST ? last
                      : store->order == SHUFFLED
                          ? cairn_test_random(&store->random) % store->pending_count
                          : 0);
    }
    return CAIRN_OK;
}

static const struct cairn_store_vtable vtable = {
    .submit = submit, .cancel = cancel, .poll = poll_once};

static void start(struct scripted_store *store) {
    store->store.vtable = &vtable;
    store->worker.store = &store->store;
    store->random = 1;
}

struct look {
    struct cairn_store_presence presence;
    struct cairn_store_object objects[OBJECTS_MAX + 1];
    char keys[OBJECTS_MAX][16];
};

static struct look *look_new(size_t count) {
    struct look *look = calloc(1, sizeof *look);
    CAIRN_ASSERT(look && count <= OBJECTS_MAX);
    look->presence =
        (struct cairn_store_presence){.prefix = "v/", .count = count, .objects = look->objects};
    for (size_t i = 0; i < count; i++) {
        snprintf(look->keys[i], sizeof look->keys[i], "v/%05u", (unsigned)i);
        look->objects[i].key = look->keys[i];
        look->objects[i].size_bytes = 4;
    }
    return look;
}

static void expect_right(const struct look *look) {
    size_t wrong = 0, there = 0;
    for (size_t i = 0; i < look->presence.count; i++) {
        const struct cairn_store_object *object = &look->objects[i];
        bool is_there = !is_missing(i) && bytes_of(i) == 4;
        struct cairn_error why = {0};
        there += is_there;
        wrong += !object->known || object->found == is_missing(i) || object->there != is_there;
        if (object->known) wrong += is_there != !cairn_store_object_check(object, &why);
    }
    EXPECT_ALL_U64(wrong, 0, look->presence.there_count, there);
}

static const size_t counts[] = {0, 1, 31, 32, 33, 64, 65, 500, 2500};

TEST(every_object_is_asked_about_however_many_there_are_and_in_whatever_order_answers_come) {
    for (size_t c = 0; c < CAIRN_COUNT(counts); c++)
        for (int order = 0; order < ORDER_COUNT; order++) {
            struct cairn_error err = {0};
            struct scripted_store store = {.count = counts[c], .order = (enum order)order};
            CAIRN_AUTO_HEAP struct look *look = look_new(counts[c]);
            start(&store);
            REQUIRE_OK(cairn_store_presence_look(&look->presence, &store.worker, &err));
            EXPECT_EQ_U64(store.heads, counts[c]);
            EXPECT(store.most_pending <= 32);
            EXPECT(!look->presence.listed);
            expect_right(look);
        }
}

TEST(every_object_is_asked_about_also_where_a_listing_showed_it) {
    for (size_t c = 0; c < CAIRN_COUNT(counts); c++)
        for (int order = 0; order < ORDER_COUNT; order++) {
            struct cairn_error err = {0};
            struct scripted_store store = {
                .count = counts[c], .order = (enum order)order, .list_reply = LIST_ALL};
            CAIRN_AUTO_HEAP struct look *look = look_new(counts[c]);
            look->presence.ask_each = true;
            start(&store);
            REQUIRE_OK(cairn_store_presence_look(&look->presence, &store.worker, &err));
            EXPECT_EQ_U64(store.heads, counts[c]);
            expect_right(look);
        }
}

TEST(where_a_listing_shows_what_is_there_only_the_others_are_asked_about) {
    for (int order = 0; order < ORDER_COUNT; order++) {
        struct cairn_error err = {0};
        struct scripted_store store = {
            .count = 2500, .order = (enum order)order, .list_reply = LIST_ALL};
        CAIRN_AUTO_HEAP struct look *look = look_new(2500);
        size_t others = 0;
        for (size_t i = 0; i < 2500; i++) others += is_missing(i) || bytes_of(i) != 4;
        start(&store);
        REQUIRE_OK(cairn_store_presence_look(&look->presence, &store.worker, &err));
        EXPECT_EQ_U64(store.heads, others);
        expect_right(look);
    }
}

/* The look is an error then, not a finding; what is under way is cancelled before it returns. */
TEST(a_head_or_a_worker_that_fails_ends_the_look_and_no_object_is_called_missing) {
    for (int order = 0; order < ORDER_COUNT; order++)
        for (size_t fails_at = 1; fails_at <= 500; fails_at += 83)
            for (int poll_fails = 0; poll_fails < 2; poll_fails++) {
                struct cairn_error err = {0};
                struct scripted_store store = {.count = 500,
                                               .order = (enum order)order,
                                               .list_reply = LIST_NONE,
                                               .poll_fails = poll_fails,
                                               .fails_at = fails_at};
                CAIRN_AUTO_HEAP struct look *look = look_new(500);
                start(&store);
                EXPECT_CODE(cairn_store_presence_look(&look->presence, &store.worker, &err),
                            poll_fails ? CAIRN_IO : CAIRN_UNAVAILABLE);
                EXPECT_ALL_U64(store.pending_count, 0, look->presence.there_count, 0);
            }
}

TEST(a_listing_without_an_end_is_an_error, err) {
    struct scripted_store store = {.count = 3, .list_reply = LIST_ENDLESS};
    CAIRN_AUTO_HEAP struct look *look = look_new(3);
    start(&store);
    EXPECT_CODE(cairn_store_presence_look(&look->presence, &store.worker, &err), CAIRN_TOO_LARGE);
    EXPECT_ALL_U64(store.heads, 0, store.pages, 65536);
}
