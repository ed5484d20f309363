/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: on=disk */
/* The folder store on real files. */
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/trace.h"
#include "store/dir/inside.h"
#include "tests/store/place.h"

#define OTHER "6f0f1c1e-5a55-4c6b-9d4b-0b3f6a5f9f02"
#define KEY "proj/run/000000000001/ckpt/data/rank-00000"

static const char *path_of(const struct cairn_place *place, const char *key) {
    static char path[2048];
    snprintf(path, sizeof path, "%s/%s", place->folder, key);
    return path;
}
static bool exists(const struct cairn_place *place, const char *key) {
    struct stat st;
    return lstat(path_of(place, key), &st) == 0;
}

/* Bytes that are aligned as a slab's are; freed by the test. */
static uint8_t *random_bytes(size_t size, uint64_t seed) {
    uint8_t *bytes = aligned_alloc(4096, cairn_round_up(size ? size : 1, 4096));
    uint64_t state = seed + cairn_test_seed();
    for (size_t i = 0; bytes && i < size; i += 8) {
        uint64_t word = cairn_test_random(&state);
        memcpy(bytes + i, &word, size - i < 8 ? size - i : 8);
    }
    return bytes;
}
static enum cairn_code upload_create(struct cairn_place *place, const char *key, uint64_t size,
                                     struct cairn_error *err) {
    struct cairn_store_request request = {
        .op = CAIRN_STORE_UPLOAD_CREATE, .key = key, .token = TOKEN, .length = size};
    enum cairn_code code = cairn_store_perform(place->worker, &request, err);
    if (code == CAIRN_OK) EXPECT_EQ_TEXT(request.upload_id, TOKEN);
    return code;
}
static enum cairn_code upload_part(struct cairn_place *place, const char *key, const uint8_t *data,
                                   struct cairn_store_part *part, uint64_t offset,
                                   struct cairn_error *err) {
    part->has_crc32c = true;
    part->crc32c = cairn_crc32c(0, data + offset, part->size_bytes);
    struct cairn_store_request request = {.op = CAIRN_STORE_UPLOAD_PART,
                                          .key = key,
                                          .upload_id_in = TOKEN,
                                          .part_number = part->number,
                                          .offset = offset,
                                          .body = {data + offset, part->size_bytes},
                                          .has_crc32c = true,
                                          .crc32c = part->crc32c};
    enum cairn_code code = cairn_store_perform(place->worker, &request, err);
    memcpy(part->etag, request.etag, sizeof part->etag);
    return code;
}
static struct cairn_store_request complete_of(const char *key, struct cairn_store_part *parts,
                                              size_t count, const uint8_t *data, uint64_t size) {
    return (struct cairn_store_request){.op = CAIRN_STORE_UPLOAD_COMPLETE,
                                        .key = key,
                                        .create = true,
                                        .token = TOKEN,
                                        .upload_id_in = TOKEN,
                                        .parts = parts,
                                        .part_count = count,
                                        .length = size,
                                        .has_crc32c = true,
                                        .crc32c = cairn_crc32c(0, data, size)};
}
static enum cairn_code list(struct cairn_place *place, enum cairn_store_op op, const char *prefix,
                            const char *page, struct cairn_store_listing *listing,
                            struct cairn_error *err) {
    struct cairn_store_request request = {
        .op = op, .key = prefix, .page = page, .listing = listing};
    return cairn_store_perform(place->worker, &request, err);
}

TEST(a_put_is_read_back_with_its_size_token_and_checksum, err) {
    PLACE(NULL);
    EACH_OF(size_t, one, 0, 1, 4095, 4096, 1000003, 9 * CAIRN_MIB + 5) {
        CAIRN_AUTO_HEAP uint8_t *data = random_bytes(one, AT_OF(one)),
                                *back = random_bytes(one, 99);
        const char *key = TEXT("proj/run/%zu/data", AT_OF(one));
        PERFORMED(put, place.worker, put_of(key, data, one));
        PERFORMED(head, place.worker, {.op = CAIRN_STORE_HEAD, .key = key, .token = TOKEN});
        EXPECT_EQ_U64(head.object_bytes, one);
        if (cairn_store_profile(place.store)->head_has_token) {
            EXPECT_EQ_TEXT(head.object_token, TOKEN);
            EXPECT(head.object_has_crc32c);
            EXPECT_EQ_U64(head.object_crc32c, put.crc32c);
        }
        struct cairn_store_request get = {
            .op = CAIRN_STORE_GET, .key = key, .length = one, .into = back};
        memcpy(get.etag, head.etag, sizeof get.etag);
        REQUIRE_OK(cairn_store_perform(place.worker, &get, &err));
        EXPECT(memcmp(data, back, one) == 0);
    }
}

TEST(create_never_replaces_an_object_and_leaves_no_temporary, err) { /* O1 */
    PLACE(NULL);
    PERFORMED(put, place.worker, put_of(KEY, "first", 5));
    put = put_of(KEY, "other", 5);
    EXPECT_CODE(cairn_store_perform(place.worker, &put, &err), CAIRN_PRECONDITION);
    WITH_OK(buf, there, cairn_store_get_small(place.worker, KEY, &there, &err));
    EXPECT_EQ_TEXT(there.data, "first");
    CAIRN_AUTO(store_listing) uploads = {0};
    REQUIRE_OK(list(&place, CAIRN_STORE_UPLOADS, "", NULL, &uploads, &err));
    EXPECT_EQ_U64(uploads.count, 0);
}

TEST(without_create_the_object_is_replaced_as_a_whole, err) {
    PLACE(NULL);
    const char *key = ".cairn/store.json";
    REQUIRE_OK(cairn_store_put_small(place.worker, key, CAIRN_VIEW("one, longer"), false, &err));
    REQUIRE_OK(cairn_store_put_small(place.worker, key, CAIRN_VIEW("two"), false, &err));
    WITH_OK(buf, there, cairn_store_get_small(place.worker, key, &there, &err));
    EXPECT_EQ_TEXT(there.data, "two");
}

TEST(a_get_with_the_etag_of_a_replaced_object_fails, err) {
    PLACE(NULL);
    REQUIRE_OK(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("one"), false, &err));
    PERFORMED(head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "a"});
    REQUIRE_OK(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("two"), false, &err));
    char into[3];
    struct cairn_store_request get = {.op = CAIRN_STORE_GET, .key = "a", .length = 3, .into = into};
    memcpy(get.etag, head.etag, sizeof get.etag);
    EXPECT_CODE(cairn_store_perform(place.worker, &get, &err), CAIRN_PRECONDITION);
}

TEST(a_range_beyond_the_end_fails_and_an_inner_one_is_exact, err) { /* O2 */
    PLACE(NULL);
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(5 * CAIRN_MIB + 77, 1);
    CAIRN_AUTO_HEAP uint8_t *back = random_bytes(5 * CAIRN_MIB, 2);
    PERFORMED(put, place.worker, put_of(KEY, data, 5 * CAIRN_MIB + 77));
    uint64_t ranges[][2] = {
        {0, 4096}, {4096, 4 * CAIRN_MIB + 4096}, {4097, 1000001}, {5 * CAIRN_MIB, 77}};
    for (size_t i = 0; i < CAIRN_COUNT(ranges); i++) {
        PERFORMED(get, place.worker,
                  {.op = CAIRN_STORE_GET,
                   .key = KEY,
                   .offset = ranges[i][0],
                   .length = ranges[i][1],
                   .into = back});
        EXPECT(memcmp(back, data + ranges[i][0], ranges[i][1]) == 0);
    }
    EXPECT_PERFORMED(
        CAIRN_RANGE, beyond, place.worker,
        {.op = CAIRN_STORE_GET, .key = KEY, .offset = 5 * CAIRN_MIB, .length = 78, .into = back});
}

TEST(absent_keys_and_folders_are_not_found, err) {
    PLACE(NULL);
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/b", CAIRN_VIEW("x"), true, &err));
    EACH_TEXT(text, "none", "a", "a/none", "a/b/c", "none/none") {
        EXPECT_PERFORMED(CAIRN_NOT_FOUND, head, place.worker,
                         {.op = CAIRN_STORE_HEAD, .key = text});
        EXPECT_CODE(cairn_store_delete(place.worker, text, &err), CAIRN_OK);
    }
    EXPECT(exists(&place, "a/b"));
}

TEST(b02_no_key_leaves_the_root_and_no_link_is_followed, err) { /* inside.h#1 */
    PLACE(NULL);
    EACH_TEXT(text, "", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a/./b") {
        EXPECT_CODE(cairn_store_put_small(place.worker, text, CAIRN_VIEW("x"), true, &err),
                    CAIRN_INVALID);
    }
    REQUIRE(symlink("/tmp", path_of(&place, "link")) == 0);
    REQUIRE(symlink("/etc/hostname", path_of(&place, "file")) == 0);
    EXPECT_CODE(cairn_store_put_small(place.worker, "link/x", CAIRN_VIEW("x"), true, &err),
                CAIRN_STORE);
    EXPECT_PERFORMED(CAIRN_STORE, head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "file"});
    head = (struct cairn_store_request){.op = CAIRN_STORE_HEAD, .key = "link/x"};
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_STORE);
}

TEST(an_upload_appears_only_when_it_is_completed, err) {
    PLACE(NULL);
    size_t size = 3 * CAIRN_MIB - 1000;
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 3);
    struct cairn_store_part parts[3] = {{1, CAIRN_MIB, false, 0, ""},
                                        {2, CAIRN_MIB, false, 0, ""},
                                        {3, CAIRN_MIB - 1000, false, 0, ""}};
    REQUIRE_OK(upload_create(&place, KEY, size, &err));
    int order[] = {2, 0, 1};
    for (int i = 0; i < 3; i++) {
        int at = order[i];
        REQUIRE_OK(upload_part(&place, KEY, data, &parts[at], (uint64_t)at * CAIRN_MIB, &err));
    }
    EXPECT(!exists(&place, KEY));
    struct cairn_store_listing listing = {0};
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "", NULL, &listing, &err));
    EXPECT_EQ_U64(listing.count, 0);
    cairn_store_listing_release(&listing);
    REQUIRE_OK(list(&place, CAIRN_STORE_UPLOADS, "proj/run/", NULL, &listing, &err));
    EXPECT_EQ_U64(listing.count, 1);
    if (listing.count) EXPECT_EQ_TEXT(listing.entries[0].upload_id, TOKEN);
    cairn_store_listing_release(&listing);
    PERFORMED(complete, place.worker, complete_of(KEY, parts, 3, data, size));
    WITH_OK(buf, back, cairn_store_get_small(place.worker, KEY, &back, &err));
    EXPECT(back.size == size && memcmp(back.data, data, size) == 0);
    EXPECT_CODE(cairn_store_perform(place.worker, &complete, &err), CAIRN_NOT_FOUND);
}

TEST(complete_refuses_missing_bytes_wrong_parts_and_an_existing_name, err) {
    PLACE(NULL);
    size_t size = 2 * CAIRN_MIB;
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 4);
    struct cairn_store_part parts[2] = {{1, CAIRN_MIB, false, 0, ""}, {2, CAIRN_MIB, false, 0, ""}};
    REQUIRE_OK(upload_create(&place, KEY, size, &err));
    REQUIRE_OK(upload_part(&place, KEY, data, &parts[0], 0, &err));
    parts[1].crc32c = cairn_crc32c(0, data + CAIRN_MIB, CAIRN_MIB);
    parts[1].has_crc32c = true;
    EXPECT_PERFORMED(CAIRN_INVALID, complete, place.worker, complete_of(KEY, parts, 2, data, size));
    REQUIRE_OK(upload_part(&place, KEY, data, &parts[1], CAIRN_MIB, &err));
    parts[1].crc32c ^= 1;
    EXPECT_CODE(cairn_store_perform(place.worker, &complete, &err), CAIRN_INVALID);
    parts[1].crc32c ^= 1;
    REQUIRE_OK(cairn_store_put_small(place.worker, KEY, CAIRN_VIEW("foreign"), true, &err));
    EXPECT_CODE(cairn_store_perform(place.worker, &complete, &err), CAIRN_PRECONDITION);
    WITH_OK(buf, back, cairn_store_get_small(place.worker, KEY, &back, &err));
    EXPECT_EQ_TEXT(back.data, "foreign");
    EXPECT_PERFORMED(CAIRN_OK, abort, place.worker,
                     {.op = CAIRN_STORE_UPLOAD_ABORT, .key = KEY, .upload_id_in = TOKEN});
    EXPECT_CODE(cairn_store_perform(place.worker, &abort, &err), CAIRN_OK);
    EXPECT_CODE(upload_part(&place, KEY, data, &parts[0], 0, &err), CAIRN_NOT_FOUND);
}

TEST(a_part_that_never_arrived_is_missed_between_others_and_zeros_are_not, err) {
    PLACE(NULL);
    size_t part = 9 * CAIRN_MIB, size = 3 * part; /* longer than a step */
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 6);
    struct cairn_store_part parts[3] = {
        {1, part, false, 0, ""}, {2, part, false, 0, ""}, {3, part, false, 0, ""}};
    REQUIRE_OK(upload_create(&place, KEY, size, &err));
    REQUIRE_OK(upload_part(&place, KEY, data, &parts[0], 0, &err));
    REQUIRE_OK(upload_part(&place, KEY, data, &parts[2], 2 * part, &err));
    parts[1].crc32c = cairn_crc32c(0, data + part, part);
    parts[1].has_crc32c = true;
    EXPECT_PERFORMED(CAIRN_INVALID, complete, place.worker, complete_of(KEY, parts, 3, data, size));
    EXPECT(!exists(&place, KEY));
    memset(data + part, 0, part); /* the hole's bytes are right now */
    parts[1].crc32c = cairn_crc32c(0, data + part, part);
    complete = complete_of(KEY, parts, 3, data, size);
    REQUIRE_OK(cairn_store_perform(place.worker, &complete, &err));
    CAIRN_AUTO(buf) back = {.limit = 64 * CAIRN_MIB};
    REQUIRE_OK(cairn_store_get_small(place.worker, KEY, &back, &err));
    EXPECT(back.size == size && memcmp(back.data, data, size) == 0);
}

TEST(v26_bytes_that_changed_after_staging_are_not_accepted, err) { /* inside.h#4, P4, Q42 */
    PLACE(NULL);
    struct cairn_store_request put = put_of(KEY, "some bytes", 10);
    put.crc32c ^= 1;
    EXPECT_CODE(cairn_store_perform(place.worker, &put, &err), CAIRN_SOURCE_CHANGED);
    EXPECT(!exists(&place, KEY));
}

TEST(parts_that_arrived_before_a_restart_are_found_by_their_bytes, err) { /* Q17 */
    PLACE(NULL);
    size_t size = 12 * CAIRN_MIB + 123;
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 5);
    struct cairn_store_part part[] = {{1, 5 * CAIRN_MIB, false, 0, ""},
                                      {3, 2 * CAIRN_MIB + 123, false, 0, ""}};
    REQUIRE_OK(upload_create(&place, KEY, size, &err));
    REQUIRE_OK(upload_part(&place, KEY, data, &part[0], 0, &err));
    REQUIRE_OK(upload_part(&place, KEY, data, &part[1], 10 * CAIRN_MIB, &err));
    struct cairn_store_part found[3] = {0};
    PERFORMED(parts, place.worker,
              {.op = CAIRN_STORE_UPLOAD_PARTS,
               .key = KEY,
               .upload_id_in = TOKEN,
               .length = 5 * CAIRN_MIB,
               .parts = found,
               .part_count = 3});
    EXPECT_ALL_U64(parts.part_count, 3, found[0].crc32c, part[0].crc32c);
    EXPECT(found[1].crc32c != cairn_crc32c(0, data + 5 * CAIRN_MIB, 5 * CAIRN_MIB));
    EXPECT_ALL_U64(found[2].crc32c, part[1].crc32c, found[2].size_bytes, part[1].size_bytes);
    parts.upload_id_in = OTHER;
    EXPECT_CODE(cairn_store_perform(place.worker, &parts, &err), CAIRN_NOT_FOUND);
}

TEST(listings_come_in_key_order_page_by_page_without_temporaries, err) {
    PLACE(NULL);
    for (int i = 0; i < 1300; i++) {
        const char *key = TEXT("p/r%s/%04d", i % 3 == 0 ? "" : i % 3 == 1 ? "-x" : ".y", i);
        int fd = -1;
        if (i < 3) {
            REQUIRE_OK(cairn_store_put_small(place.worker, key, CAIRN_VIEW("x"), true, &err));
        } else {
            fd = open(path_of(&place, key), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
            REQUIRE(fd >= 0);
            close(fd);
        }
    }
    REQUIRE_OK(upload_create(&place, "p/r/upload", 0, &err));
    struct cairn_store_listing first = {0}, second = {0}, some = {0};
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "p/", NULL, &first, &err));
    EXPECT_EQ_U64(first.count, 1000);
    REQUIRE(first.next_page);
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "p/", first.next_page, &second, &err));
    EXPECT_EQ_U64(second.count, 300);
    EXPECT(!second.next_page);
    bool in_order = true;
    for (size_t i = 0; i + 1 < first.count; i++) {
        in_order &= strcmp(first.entries[i].key, first.entries[i + 1].key) < 0;
    }
    EXPECT(in_order);
    if (second.count) EXPECT(strcmp(first.next_page, second.entries[0].key) < 0);
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "p/r-x/00", NULL, &some, &err));
    EXPECT_EQ_U64(some.count, 33); /* 1, 4, ..., 97 */
    cairn_store_listing_release(&some);
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "q/none", NULL, &some, &err));
    EXPECT_EQ_U64(some.count, 0);
    cairn_store_listing_release(&first);
    cairn_store_listing_release(&second);
    cairn_store_listing_release(&some);
}

static const char *key_of(const void *owner, size_t at) {
    return ((const char *const *)owner)[at];
}

TEST(of_given_keys_those_are_listed_that_are_objects_page_by_page, err) {
    static const char *keys[1800];
    PLACE(NULL);
    const char *upload = TEXT("p/r/.%s.tmp", TOKEN);
    for (size_t i = 0; i < CAIRN_COUNT(keys); i++) {
        keys[i] = TEXT("p/r%s/%04zu", i < 700 ? "" : "-x", i);
        if (i % 3 == 0) continue; /* not there, nor asked for by its folder's name */
        if (i == 1 || i == 700)
            REQUIRE_OK(cairn_store_put_small(place.worker, keys[i], CAIRN_VIEW("x"), true, &err));
        int fd = open(path_of(&place, keys[i]), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        REQUIRE(fd >= 0);
        close(fd);
    }
    REQUIRE_OK(upload_create(&place, "p/r/upload", 0, &err));
    REQUIRE(exists(&place, upload));
    REQUIRE(!mkdir(path_of(&place, "p/r/folder"), 0700));
    REQUIRE(!symlink("0001", path_of(&place, "p/r/link")));
    REQUIRE(!symlink("r", path_of(&place, "p/linked")));
    const char *const others[] = {upload, "p/r/folder", "p/r/link", "p/r/none/there"};
    struct cairn_store_listing listing = {0};
    struct cairn_store_request request = {.op = CAIRN_STORE_LIST,
                                          .key = "p/",
                                          .listing = &listing,
                                          .only = key_of,
                                          .only_owner = others,
                                          .only_count = CAIRN_COUNT(others)};
    REQUIRE_OK(cairn_store_perform(place.worker, &request, &err));
    EXPECT_EQ_U64(listing.count, 0);
    const char *const behind_a_link[] = {"p/linked/0001"};
    request.only_owner = behind_a_link;
    request.only_count = 1;
    EXPECT_CODE(cairn_store_perform(place.worker, &request, &err), CAIRN_STORE);
    request.only_owner = keys;
    request.only_count = CAIRN_COUNT(keys);
    size_t count = 0, pages = 0;
    for (char *page = NULL; !pages++ || page;) {
        request.page = page;
        REQUIRE_OK(cairn_store_perform(place.worker, &request, &err));
        free(page);
        for (size_t i = 0; i < listing.count; i++) {
            while (count % 3 == 0) count++;
            EXPECT_EQ_TEXT(listing.entries[i].key, keys[count++]);
        }
        EXPECT_EQ_U64(listing.count, pages == 1 ? 1000 : 200);
        page = CAIRN_TAKE(listing.next_page);
        cairn_store_listing_release(&listing);
    }
    EXPECT_EQ_U64(count, CAIRN_COUNT(keys));
}

TEST(deleting_the_last_object_removes_its_empty_folders, err) {
    PLACE(NULL);
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/b/c/one", CAIRN_VIEW("1"), true, &err));
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/two", CAIRN_VIEW("2"), true, &err));
    REQUIRE_OK(cairn_store_delete(place.worker, "a/b/c/one", &err));
    EXPECT(!exists(&place, "a/b"));
    EXPECT(exists(&place, "a/two"));
    /* The worker believes the folders durable; they must be made again all the same. */
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/b/c/one", CAIRN_VIEW("1"), true, &err));
    EXPECT(exists(&place, "a/b/c/one"));
}

TEST(many_keys_are_deleted_each_for_itself, err) { /* S27 */
    PLACE(NULL);
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/b/one", CAIRN_VIEW("1"), true, &err));
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/two", CAIRN_VIEW("2"), true, &err));
    struct cairn_store_deletion deletions[] = {
        {.key = "a/b/one"}, {.key = "a/never"}, {.key = "a/../x"}, {.key = "a/two"}};
    int free_fd = dup(STDERR_FILENO), free_fd_after;
    close(free_fd);
    EXPECT_FAILS(cairn_store_delete_many(place.worker, "a/", deletions, 4, &err), CAIRN_INVALID,
                 "a/../x");
    EXPECT(!exists(&place, "a"));
    for (size_t i = 0; i < 4; i++) EXPECT_EQ_U64(deletions[i].deleted, i != 2);
    EXPECT(deletions[2].refused);
    deletions[2] = (struct cairn_store_deletion){.key = "a/x"};
    REQUIRE_OK(cairn_store_delete_many(place.worker, "a/", deletions, 4, &err));
    REQUIRE_OK(cairn_store_delete_many(place.worker, "a/", NULL, 0, &err));
    free_fd_after = dup(STDERR_FILENO);
    close(free_fd_after);
    EXPECT_EQ_U64(free_fd, free_fd_after); /* no folder was left open */
}

static void note_done(struct cairn_store_request *request) {
    *(bool *)request->owner = true;
}

TEST(a_small_get_is_not_stuck_behind_a_large_put, err) { /* inside.h#5 */
    PLACE(NULL);
    size_t size = 64 * CAIRN_MIB;
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 6);
    REQUIRE_OK(cairn_store_put_small(place.worker, "small", CAIRN_VIEW("x"), true, &err));
    struct cairn_store_request put = put_of(KEY, data, size);
    bool put_done = false;
    put.owner = &put_done;
    put.done = note_done;
    cairn_store_submit(place.worker, &put);
    PERFORMED(head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "small"});
    EXPECT(!put_done);
    while (!put_done) REQUIRE_OK(cairn_store_poll(place.worker, 1000, &err));
    EXPECT_EQ_U64(put.code, CAIRN_OK);
}

TEST(a_cancelled_put_leaves_nothing_and_is_answered_once, err) { /* O4 */
    PLACE(NULL);
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(16 * CAIRN_MIB, 7);
    struct cairn_store_request put = put_of(KEY, data, 16 * CAIRN_MIB), unbegun = put;
    bool put_done = false, unbegun_done = false;
    put.done = unbegun.done = note_done;
    put.owner = &put_done;
    unbegun.owner = &unbegun_done;
    cairn_store_submit(place.worker, &put);
    REQUIRE_OK(cairn_store_poll(place.worker, 0, &err));
    cairn_store_submit(place.worker, &unbegun);
    cairn_store_cancel(place.worker, &unbegun);
    EXPECT(unbegun_done && unbegun.code == CAIRN_CANCELLED);
    EXPECT(!put_done);
    cairn_store_cancel(place.worker, &put);
    EXPECT(put_done && put.code == CAIRN_CANCELLED);
    cairn_store_cancel(place.worker, &put);
    CAIRN_AUTO(store_listing) listing = {0};
    REQUIRE_OK(list(&place, CAIRN_STORE_UPLOADS, "", NULL, &listing, &err));
    EXPECT_EQ_U64(listing.count, 0);
    put_done = false;
    cairn_store_submit(place.worker, &put);
    cairn_store_worker_free(CAIRN_TAKE(place.worker));
    EXPECT(put_done && put.code == CAIRN_CANCELLED);
}

TEST(a_deadline_that_passed_ends_the_request, err) {
    PLACE(NULL);
    struct cairn_store_request put = put_of(KEY, "x", 1);
    put.deadline_ms = 1;
    EXPECT_CODE(cairn_store_perform(place.worker, &put, &err), CAIRN_TIMEOUT);
    EXPECT(!exists(&place, KEY));
}

TEST(a_store_opened_for_reading_writes_nothing, err) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_store_options options = {.url = cairn_test_folder(), .read_only = true};
    REQUIRE_OK(cairn_store_open(&options, &place.store, &err));
    REQUIRE_OK(cairn_store_worker_new(place.store, &place.worker, &err));
    EXPECT_CODE(cairn_store_put_small(place.worker, "a", CAIRN_VIEW("x"), true, &err),
                CAIRN_FORBIDDEN);
    EXPECT_CODE(cairn_store_delete(place.worker, "a", &err), CAIRN_FORBIDDEN);
    EXPECT_PERFORMED(CAIRN_NOT_FOUND, head, place.worker,
                     {.op = CAIRN_STORE_HEAD, .key = "a", .token = TOKEN});
}

static unsigned mode_of(const char *path) {
    struct stat status;
    return stat(path, &status) ? 0 : status.st_mode & 07777;
}

TEST(files_and_folders_have_the_mode_that_was_asked_for_whatever_the_umask_is, err) {
    mode_t before = umask(077);
    EACH(one, FIELDS(unsigned asked, file, folder), {0, 0640, 0750}, {0644, 0644, 0755},
         {0600, 0600, 0700}, {0660, 0660, 0770}) {
        CAIRN_AUTO(place) place = {0};
        const char *root = TEXT("%s/store-%zu", cairn_test_folder(), AT(one));
        place.folder = root;
        struct cairn_store_options options = {.url = root, .file_mode = one->asked};
        REQUIRE_OK(cairn_store_open(&options, &place.store, &err));
        REQUIRE_OK(cairn_store_worker_new(place.store, &place.worker, &err));
        EXPECT_CODE(cairn_store_put_small(place.worker, "a/b", CAIRN_VIEW("x"), true, &err),
                    CAIRN_OK);
        EXPECT_ALL_U64(mode_of(path_of(&place, "a/b")), one->file, mode_of(path_of(&place, "a")),
                       one->folder, mode_of(root), one->folder);
    }
    umask(before);
}

TEST(the_root_itself_may_be_a_symbolic_link, err) {
    const char *real = TEXT("%s/real", cairn_test_folder());
    const char *link_path = TEXT("%s/li nk", cairn_test_folder());
    const char *url = TEXT("file://%s/li%%20nk", cairn_test_folder());
    REQUIRE(mkdir(real, 0755) == 0 && symlink(real, link_path) == 0);
    struct cairn_store_options options = {.url = url};
    WITH_OK(place, place, cairn_store_open(&options, &place.store, &err));
    REQUIRE_OK(cairn_store_worker_new(place.store, &place.worker, &err));
    EXPECT_CODE(cairn_store_put_small(place.worker, "a/b", CAIRN_VIEW("x"), true, &err), CAIRN_OK);
}

TEST(two_workers_write_parts_of_one_upload_and_prune_beside_creators, err) {
    PLACE(NULL);
    struct cairn_store_worker *other = NULL;
    REQUIRE_OK(cairn_store_worker_new(place.store, &other, &err));
    struct cairn_place second = {place.store, other, place.folder};
    size_t size = 2 * CAIRN_MIB;
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(size, 8);
    struct cairn_store_part parts[2] = {{1, CAIRN_MIB, false, 0, ""}, {2, CAIRN_MIB, false, 0, ""}};
    EXPECT_CODE(upload_create(&place, KEY, size, &err), CAIRN_OK);
    EXPECT_CODE(upload_part(&second, KEY, data, &parts[1], CAIRN_MIB, &err), CAIRN_OK);
    EXPECT_CODE(upload_part(&place, KEY, data, &parts[0], 0, &err), CAIRN_OK);
    EXPECT_PERFORMED(CAIRN_OK, complete, other, complete_of(KEY, parts, 2, data, size));
    cairn_store_worker_free(other);
}

TEST(without_openat2_the_same_rules_hold, err) { /* inside.h#1 */
    PLACE(NULL);
    ((struct cairn_store_dir *)place.store)->beneath = false;
    REQUIRE(symlink("/tmp", path_of(&place, "link")) == 0);
    REQUIRE(symlink("/etc/hostname", path_of(&place, "file")) == 0);
    EXPECT_CODE(cairn_store_put_small(place.worker, "link/x", CAIRN_VIEW("x"), true, &err),
                CAIRN_STORE);
    EXPECT_PERFORMED(CAIRN_STORE, head, place.worker, {.op = CAIRN_STORE_HEAD, .key = "file"});
    head = (struct cairn_store_request){.op = CAIRN_STORE_HEAD, .key = "link/x"};
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_STORE);
    EXPECT_CODE(cairn_store_put_same(place.worker, "a/b/c", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_put_same(place.worker, "a/b/c", CAIRN_VIEW("x"), &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_delete(place.worker, "a/b/c", &err), CAIRN_OK);
    EXPECT(!exists(&place, "a"));
}

TEST(k09_a_full_file_system_is_said_with_the_object_and_leaves_nothing, err) { /* K09 */
    CAIRN_AUTO(place) place = {0};
    const char *folder = TEXT("%s/small", cairn_test_folder());
    REQUIRE(mkdir(folder, 0755) == 0);
    if (mount("none", folder, "tmpfs", 0, "size=2m") != 0) SKIP("mounting needs root");
    struct cairn_store_options options = {.url = folder};
    CAIRN_AUTO_HEAP uint8_t *data = random_bytes(3 * CAIRN_MIB, 9);
    struct cairn_store_request put = put_of(KEY, data, 3 * CAIRN_MIB);
    EXPECT_CODE(cairn_store_open(&options, &place.store, &err), CAIRN_OK);
    EXPECT_CODE(cairn_store_worker_new(place.store, &place.worker, &err), CAIRN_OK);
    EXPECT_FAILS(cairn_store_perform(place.worker, &put, &err), CAIRN_NO_SPACE, KEY);
    EXPECT_CODE(upload_create(&place, KEY, 3 * CAIRN_MIB, &err), CAIRN_NO_SPACE);
    put = put_of(KEY, data, CAIRN_MIB);
    EXPECT_CODE(cairn_store_perform(place.worker, &put, &err), CAIRN_OK);
    CAIRN_AUTO(store_listing) listing = {0};
    EXPECT_CODE(list(&place, CAIRN_STORE_UPLOADS, "", NULL, &listing, &err), CAIRN_OK);
    EXPECT_EQ_U64(listing.count, 0);
    cairn_store_worker_free(CAIRN_TAKE(place.worker));
    cairn_store_free(CAIRN_TAKE(place.store));
    EXPECT(umount(folder) == 0);
}

/* ---- the ballast ---- */

struct small_disk {
    struct cairn_place place;
    const char *folder;
};
static void small_disk_release(struct small_disk *disk) {
    cairn_place_release(&disk->place);
    if (disk->folder) EXPECT(umount(disk->folder) == 0);
}
/* False: nothing can be mounted here. */
static bool small_disk_open(struct small_disk *disk, const char *options, struct cairn_error *err) {
    const char *folder = TEXT("%s/small", cairn_test_folder());
    if (mkdir(folder, 0755) != 0 || mount("none", folder, "tmpfs", 0, options) != 0) return false;
    disk->folder = folder;
    EXPECT(place_open(&disk->place, folder, NULL, err) == CAIRN_OK);
    return true;
}
static uint64_t free_bytes(const struct small_disk *disk) {
    struct statvfs room;
    return statvfs(disk->folder, &room) == 0 ? room.f_bavail * room.f_bsize : 0;
}
static enum cairn_code mark(struct small_disk *disk, unsigned number, struct cairn_error *err) {
    return cairn_store_put_to_free(disk->place.worker, TEXT("proj/run/%u/trashed.json", number),
                                   CAIRN_VIEW("mark"), false, err);
}
static uint64_t ballast_bytes(const struct small_disk *disk) {
    uint64_t bytes = 0;
    for (int i = 0; i < CAIRN_STORE_DIR_BALLAST_PIECES; i++) {
        struct stat st;
        if (stat(TEXT("%s/.cairn/.ballast-%d", disk->folder, i), &st) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    return bytes;
}
#define BALLAST_BYTES (CAIRN_STORE_DIR_BALLAST_PIECES * CAIRN_STORE_DIR_BALLAST_PIECE_BYTES)
#define SMALL_DISK(options)                                                                        \
    CAIRN_RELEASED(small_disk_release) struct small_disk disk = {0};                               \
    if (!small_disk_open(&disk, options, &err)) SKIP("mounting needs root")

TEST(k09_a_full_file_system_takes_what_precedes_a_deletion_and_nothing_else, err) { /* inside.h#7 */
    SMALL_DISK("size=8m");
    struct cairn_store_worker *worker = disk.place.worker;
    struct cairn_view body = CAIRN_VIEW("x");
    REQUIRE_OK(cairn_store_put_same(worker, ".cairn/store.json", body, &err));
    EXPECT_EQ_U64(ballast_bytes(&disk), 0); /* the store is not yet known to be the server's */
    REQUIRE_OK(mark(&disk, 0, &err));
    EXPECT_EQ_U64(ballast_bytes(&disk), BALLAST_BYTES);
    CAIRN_AUTO_FD filler = open(TEXT("%s/filler", disk.folder), O_WRONLY | O_CREAT, 0600);
    REQUIRE(posix_fallocate(filler, 0, (off_t)free_bytes(&disk)) == 0);
    EXPECT_FAILS(cairn_store_put_same(worker, "a", body, &err), CAIRN_NO_SPACE, "a");
    EXPECT_EQ_U64(ballast_bytes(&disk), BALLAST_BYTES);
    unsigned marks = 1;
    while (marks < 1000 && mark(&disk, marks, &err) == CAIRN_OK) {
        EXPECT_EQ_U64(free_bytes(&disk), 0); /* what is left of a piece is taken back at once */
        EXPECT_FAILS(cairn_store_put_same(worker, "a", body, &err), CAIRN_NO_SPACE, "a");
        marks++;
    }
    EXPECT_EQ_U64(marks, 1 + BALLAST_BYTES / 4096);
    EXPECT_CODE(mark(&disk, marks, &err), CAIRN_NO_SPACE);
    REQUIRE_OK(cairn_store_delete(worker, "proj/run/1/trashed.json", &err));
    REQUIRE_OK(mark(&disk, marks, &err)); /* by the room that a deletion made */
    REQUIRE(ftruncate(filler, 0) == 0);
    REQUIRE_OK(mark(&disk, marks + 1, &err));
    EXPECT_EQ_U64(ballast_bytes(&disk), BALLAST_BYTES);
}

TEST(a_replaced_document_that_precedes_a_deletion_is_taken_by_a_full_file_system, err) {
    SMALL_DISK("size=8m");
    struct cairn_store_worker *worker = disk.place.worker;
    const char *key = ".cairn/store.json";
    REQUIRE_OK(cairn_store_put_to_free(worker, key, CAIRN_VIEW("one"), true, &err));
    CAIRN_AUTO_FD filler = open(TEXT("%s/filler", disk.folder), O_WRONLY | O_CREAT, 0600);
    REQUIRE(posix_fallocate(filler, 0, (off_t)free_bytes(&disk)) == 0);
    EXPECT_CODE(cairn_store_put_small(worker, key, CAIRN_VIEW("two"), false, &err), CAIRN_NO_SPACE);
    for (int i = 0; i < 1000; i++)
        REQUIRE_OK(cairn_store_put_to_free(worker, key, CAIRN_VIEW("two"), true, &err));
    WITH_OK(buf, there, cairn_store_get_small(worker, key, &there, &err));
    EXPECT_EQ_TEXT(there.data, "two");
    EXPECT_EQ_U64(ballast_bytes(&disk),
                  BALLAST_BYTES); /* the document before has given its block */
}

TEST(a_file_system_without_an_inode_takes_what_precedes_a_deletion, err) { /* inside.h#7 */
    SMALL_DISK("size=8m,nr_inodes=64");
    struct cairn_store_worker *worker = disk.place.worker;
    REQUIRE_OK(cairn_store_put_same(worker, ".cairn/store.json", CAIRN_VIEW("x"), &err));
    REQUIRE_OK(mark(&disk, 0, &err));
    REQUIRE_OK(
        cairn_store_put_small(worker, "proj/run/1/committed.json", CAIRN_VIEW("x"), true, &err));
    for (int i = 0; i < 64; i++) {
        CAIRN_AUTO_FD file = open(TEXT("%s/file-%d", disk.folder, i), O_WRONLY | O_CREAT, 0600);
        if (file < 0) break;
    }
    EXPECT_CODE(cairn_store_put_small(worker, "proj/run/1/x", CAIRN_VIEW("x"), true, &err),
                CAIRN_NO_SPACE);
    REQUIRE_OK(mark(&disk, 1, &err));
    EXPECT_CODE(cairn_store_put_small(worker, "proj/run/1/x", CAIRN_VIEW("x"), true, &err),
                CAIRN_NO_SPACE);
}

TEST(the_last_room_of_a_file_system_is_not_taken_for_the_ballast, err) {
    SMALL_DISK("size=3m");
    REQUIRE_OK(cairn_store_put_same(disk.place.worker, ".cairn/store.json", CAIRN_VIEW("x"), &err));
    REQUIRE_OK(mark(&disk, 0, &err));
    EXPECT_EQ_U64(ballast_bytes(&disk), 0);
}

TEST(no_listing_shows_the_ballast, err) { /* inside.h#7 */
    PLACE(NULL);
    struct cairn_store_worker *worker = place.worker;
    REQUIRE_OK(cairn_store_put_to_free(worker, ".cairn/a", CAIRN_VIEW("x"), false, &err));
    EXPECT(exists(&place, ".cairn/.ballast-0"));
    const char *const prefixes[] = {"", ".cairn/", ".cairn/.b"};
    for (size_t i = 0; i < CAIRN_COUNT(prefixes); i++) {
        const char *prefix = prefixes[i];
        CAIRN_AUTO(store_listing) objects = {0}, uploads = {0};
        REQUIRE_OK(list(&place, CAIRN_STORE_LIST, prefix, NULL, &objects, &err));
        REQUIRE_OK(list(&place, CAIRN_STORE_UPLOADS, prefix, NULL, &uploads, &err));
        EXPECT_EQ_U64(objects.count, i < 2);
        EXPECT_EQ_U64(uploads.count, 0);
    }
    /* The name belongs to the ballast in that folder alone. */
    REQUIRE_OK(cairn_store_put_same(worker, "proj/run/.ballast-0", CAIRN_VIEW("x"), &err));
    CAIRN_AUTO(store_listing) others = {0};
    REQUIRE_OK(list(&place, CAIRN_STORE_LIST, "proj/", NULL, &others, &err));
    EXPECT_EQ_U64(others.count, 1);
}
