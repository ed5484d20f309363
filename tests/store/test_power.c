/* SPDX-License-Identifier: Apache-2.0 */
/* What the folder store has acknowledged is there after a power cut. */
#include <sys/mount.h>

#include "common/trace.h"
#include "store/dir/inside.h"
#include "tests/store/place.h"
#include "tests/support/power.h"

#define PART_BYTES (5 * CAIRN_MIB)

static bool open_watched(struct cairn_place *place) {
    struct cairn_error err = {0};
    const char *root = TEXT("%s/store", cairn_test_folder());
    bool ok = mkdir(root, 0700) == 0 && place_open(place, root, NULL, &err) == CAIRN_OK;
    return cairn_test_check(ok, __FILE__, __LINE__, "open: %s", err.message);
}

static bool is_in_image(const struct cairn_place *place, const char *key, const void *data,
                        size_t size) {
    static unsigned count;
    CAIRN_AUTO(buf) found = {.limit = CAIRN_GIB};
    const char *image = TEXT("%s/image-%u", cairn_test_folder(), count++);
    const char *path = TEXT("%s/%s", image, key);
    return cairn_power_cut(place->folder, image) &&
           cairn_file_load(path, &found, NULL) == CAIRN_OK && found.size == size &&
           !memcmp(found.data, data, size);
}

static void rename_away(unsigned number) {
    const char *from = TEXT("%s/store", cairn_test_folder());
    EXPECT(rename(from, TEXT("%s-%u", from, number)) == 0);
}

TEST(an_acknowledged_put_is_there_after_a_power_cut_with_all_its_folders, err) /* inside.h#2, O1 */
{
    static char bytes[CAIRN_MIB + 77];
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    EACH_TEXT(text, "one", "a/b/c/two", "a/b/three", "a/d/four", "a/d/e/five") {
        memset(bytes, 'a' + (int)AT_OF(text), sizeof(bytes));
        PERFORMED(put, place.worker, put_of(text, bytes, AT_OF(text) % 2 ? sizeof(bytes) : 1000));
        EXPECT(is_in_image(&place, text, bytes, put.body.size));
    }
    REQUIRE_OK(cairn_store_put_same(place.worker, "a/f/manifest", CAIRN_VIEW("{}"), &err));
    EXPECT(is_in_image(&place, "a/f/manifest", "{}", 2));
}

#define TOGETHER 40

/* Puts that are submitted at once, in as many folders as they have a fifth of. */
struct together {
    char keys[TOGETHER][64], bytes[TOGETHER][16], tokens[TOGETHER][CAIRN_UUID_TEXT_BYTES];
    struct cairn_store_request puts[TOGETHER];
    size_t ended;
    const struct cairn_place *place; /* an acknowledged one is looked for at once; NULL: none is */
};

static void one_ended(struct cairn_store_request *request) {
    struct together *together = request->owner;
    together->ended++;
    if (together->place && !request->code)
        EXPECT(is_in_image(together->place, request->key, request->body.data, request->body.size));
}

static void put_together(const struct cairn_place *place, struct together *ret) {
    struct cairn_error err = {0};
    for (int i = 0; i < TOGETHER; i++) {
        snprintf(ret->keys[i], sizeof(ret->keys[i]), "run/%d/data/%d", i / 5, i);
        int size = snprintf(ret->bytes[i], sizeof(ret->bytes[i]), "bytes of %d", i);
        ret->puts[i] = put_of(ret->keys[i], ret->bytes[i], (size_t)size);
        cairn_uuid_random(ret->tokens[i]);
        ret->puts[i].token = ret->tokens[i];
        ret->puts[i].owner = ret;
        ret->puts[i].done = one_ended;
        cairn_store_submit(place->worker, &ret->puts[i]);
    }
    while (ret->ended < TOGETHER) REQUIRE_OK(cairn_store_poll(place->worker, 1000, &err));
}

TEST(small_puts_that_are_synced_together_are_there_after_a_power_cut, err) { /* inside.h#3, O1 */
    static struct together together;
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    if (!cairn_store_profile(place.store)->together_max) return;
    REQUIRE_OK(cairn_store_put_small(place.worker, "run/3/data/17", CAIRN_VIEW("x"), true, &err));
    together.place = &place;
    put_together(&place, &together);
    for (int i = 0; i < TOGETHER; i++)
        EXPECT_EQ_U64(together.puts[i].code, i == 17 ? CAIRN_PRECONDITION : CAIRN_OK);
}

/* inside.h#3 */
TEST(small_puts_below_the_mount_point_of_another_file_system_are_there_after_a_power_cut, err) {
    static struct together together;
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    if (!cairn_store_profile(place.store)->together_max) return;
    const char *mounted = TEXT("%s/run/3", place.folder);
    REQUIRE_OK(cairn_dir_make(mounted, 0700, &err));
    if (mount("none", mounted, "tmpfs", 0, "size=2m") != 0) SKIP("mounting needs root");
    together.place = &place;
    put_together(&place, &together);
    for (int i = 0; i < TOGETHER; i++) EXPECT_EQ_U64(together.puts[i].code, CAIRN_OK);
    EXPECT(umount(mounted) == 0);
}

TEST(n02_a_sync_of_many_puts_that_fails_once_is_final_for_all_of_them) {
    for (unsigned at = 0; at < 2; at++) {
        CAIRN_AUTO(place) place = {0};
        struct together together = {0};
        POWER_RECORDED();
        if (!open_watched(&place)) return;
        if (!cairn_store_profile(place.store)->together_max) return;
        cairn_power_fail_once(at);
        put_together(&place, &together);
        cairn_power_fail_once((unsigned)-1 / 2);
        for (int i = 0; i < TOGETHER; i++) EXPECT_EQ_U64(together.puts[i].code, CAIRN_IO);
        cairn_place_release(&place);
        place = (struct cairn_place){0};
        rename_away(100 + at);
    }
}

TEST(a_completed_upload_is_there_after_a_power_cut, err) { /* inside.h#2, I2 */
    static uint8_t bytes[2 * PART_BYTES];
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 31 >> 3);
    PERFORMED(create, place.worker,
              {.op = CAIRN_STORE_UPLOAD_CREATE,
               .key = "run/ckpt/data/shard",
               .token = TOKEN,
               .length = sizeof(bytes)});
    struct cairn_store_part parts[2] = {{.number = 1}, {.number = 2}};
    for (size_t i = 0; i < 2; i++) {
        struct cairn_store_request part = {.op = CAIRN_STORE_UPLOAD_PART,
                                           .key = create.key,
                                           .upload_id_in = create.upload_id,
                                           .part_number = parts[i].number,
                                           .offset = i * PART_BYTES,
                                           .body = {bytes + i * PART_BYTES, PART_BYTES},
                                           .has_crc32c = true};
        part.crc32c = parts[i].crc32c = cairn_crc32c(0, part.body.data, PART_BYTES);
        REQUIRE_OK(cairn_store_perform(place.worker, &part, &err));
        parts[i].has_crc32c = true;
        parts[i].size_bytes = PART_BYTES;
        memcpy(parts[i].etag, part.etag, sizeof(parts[i].etag));
    }
    PERFORMED(complete, place.worker,
              {.op = CAIRN_STORE_UPLOAD_COMPLETE,
               .key = create.key,
               .create = true,
               .token = TOKEN,
               .upload_id_in = create.upload_id,
               .parts = parts,
               .part_count = 2,
               .length = sizeof(bytes),
               .has_crc32c = true,
               .crc32c = cairn_crc32c(0, bytes, sizeof(bytes))});
    EXPECT(is_in_image(&place, create.key, bytes, sizeof(bytes)));
}

/* Another server's put of the same bytes got its name and died before it synced the folder. */
TEST(q53_put_same_that_finds_its_own_object_makes_it_durable, err) {
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    REQUIRE_OK(cairn_store_put_small(place.worker, "a/other", CAIRN_VIEW("x"), true, &err));
    FILE *file = fopen(TEXT("%s/a/manifest", place.folder), "wx");
    REQUIRE(file && fputs("{}", file) >= 0 && fclose(file) == 0);
    EXPECT(!is_in_image(&place, "a/manifest", "{}", 2));
    REQUIRE_OK(cairn_store_put_same(place.worker, "a/manifest", CAIRN_VIEW("{}"), &err));
    EXPECT(is_in_image(&place, "a/manifest", "{}", 2));
}

/* N02, R7. After a failed sync the kernel calls pages clean that never reached the disk, and the
 * next sync of them succeeds: what failed once stays failed, and nothing of it is acknowledged. */
TEST(n02_a_sync_that_fails_once_is_final_for_a_put) {
    for (unsigned at = 0; at < 8; at++) {
        CAIRN_AUTO(place) place = {0};
        struct cairn_error err = {0};
        POWER_RECORDED();
        if (!open_watched(&place)) return;
        struct cairn_store_request first = put_of("a/b/first", "1", 1);
        if (at % 2) REQUIRE_OK(cairn_store_perform(place.worker, &first, &err));
        struct cairn_store_request put = put_of("a/b/x", "bytes", 5);
        cairn_power_fail_once(at / 2);
        enum cairn_code code = cairn_store_perform(place.worker, &put, &err);
        cairn_power_fail_once((unsigned)-1 / 2);
        if (code == CAIRN_OK) /* it took fewer syncs than that */
            EXPECT(is_in_image(&place, "a/b/x", "bytes", 5));
        else
            EXPECT_CODE(code, CAIRN_IO);
        EXPECT(at / 2 > 1 || code != CAIRN_OK);
        cairn_place_release(&place);
        place = (struct cairn_place){0};
        rename_away(at);
    }
}

static void sync_fails(int os_errno, enum cairn_code expected) {
    CAIRN_AUTO(place) place = {0};
    struct cairn_error err = {0};
    static uint8_t bytes[PART_BYTES];
    POWER_RECORDED();
    REQUIRE(open_watched(&place));
    struct cairn_store_request create = {
        .op = CAIRN_STORE_UPLOAD_CREATE, .key = "a/x", .token = TOKEN, .length = PART_BYTES};
    REQUIRE_OK(cairn_store_perform(place.worker, &create, &err));
    struct cairn_store_request part = put_of("a/x", bytes, PART_BYTES);
    part.op = CAIRN_STORE_UPLOAD_PART;
    part.upload_id_in = create.upload_id;
    part.part_number = 1;
    REQUIRE_OK(cairn_store_perform(place.worker, &part, &err));
    struct cairn_store_part parts[1] = {{1, PART_BYTES, true, part.crc32c, ""}};
    struct cairn_store_request complete = {.op = CAIRN_STORE_UPLOAD_COMPLETE,
                                           .key = "a/x",
                                           .upload_id_in = create.upload_id,
                                           .token = TOKEN,
                                           .create = true,
                                           .parts = parts,
                                           .part_count = 1,
                                           .length = PART_BYTES,
                                           .has_crc32c = true,
                                           .crc32c = part.crc32c};
    cairn_power_fail_once_with(0, os_errno);
    EXPECT_CODE(cairn_store_perform(place.worker, &complete, &err), expected);
    EXPECT_EQ_U64(err.os_errno, os_errno); /* a gap, says the uploader by that */
    EXPECT_CODE(cairn_store_perform(place.worker, &complete, &err), CAIRN_NOT_FOUND);
    struct cairn_store_request head = {.op = CAIRN_STORE_HEAD, .key = "a/x", .token = TOKEN};
    EXPECT_CODE(cairn_store_perform(place.worker, &head, &err), CAIRN_NOT_FOUND);
}

CASE(n02_an_upload_whose_sync_failed_cannot_be_completed_any_more, sync_fails(EIO, CAIRN_IO));

/* Its bytes may have died with the mount: the shard is sent anew, not completed again. */
CASE(q55_an_upload_whose_sync_found_the_mount_away_is_gone, sync_fails(ESTALE, CAIRN_NOT_FOUND));

TEST(q55_a_put_that_found_the_mount_away_may_be_sent_again, err) {
    POWER_RECORDED();
    WITH(place, place, open_watched(&place));
    struct cairn_store_request put = put_of("a/b/x", "bytes", 5);
    cairn_power_fail_once_with(0, ESTALE);
    EXPECT_CODE(cairn_store_perform(place.worker, &put, &err), CAIRN_UNAVAILABLE);
    REQUIRE_OK(cairn_store_perform(place.worker, &put, &err));
    EXPECT(is_in_image(&place, "a/b/x", "bytes", 5));
}
