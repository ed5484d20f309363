/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: engines=again */
/* Puts of store.json that arrive late, on a store with and without puts that only create: nothing
 * is frozen by what a server once wrote itself (Q35). */
#include "tests/server/world.h"

#define err world.err /* of the macros */

static void expect_late_put_is_mended(bool create_only) {
    CAIRN_AUTO(world) world = {0};
    REQUIRE(world_start_inside(&world, NULL));
    world.store->profile.create_only_put = create_only;
    struct cairn_hand hand, next;
    struct cairn_hand_save save;
    struct cairn_key key, number;
    struct cairn_store_record mended = {0};
    CAIRN_AUTO(buf) late = {.limit = CAIRN_KIB}, now = {.limit = CAIRN_KIB};
    cairn_key_store_json(&key);
    REQUIRE_OK(hand_open(&world, &hand, "j1", 0, "latest", 1));
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &late, &err));
    REQUIRE_OK(inside_restart(&world.inside));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&late), false, &err));
    REQUIRE_OK(hand_open(&world, &next, "j2", 1, "latest", 1));
    REQUIRE_OK(hand_save_all(&next, 1, 1, "error", 10, &save));
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &now, &err));
    REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&now), &mended, &err));
    EXPECT_EQ_U64(mended.generation, world.inside.server.raising_to);
    /* A store that was put back lacks the object of that number, too. */
    cairn_key_generation(world.inside.server.raising_to, &number);
    REQUIRE_OK(cairn_store_delete(world.worker, number.text, &err));
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, cairn_buf_view(&late), false, &err));
    EXPECT_CODE(hand_open(&world, &next, "j3", 2, "latest", 1), CAIRN_CATALOG_BEHIND);
}

CASE(a_put_of_store_json_that_comes_after_its_servers_death_freezes_nothing_Q35,
     expect_late_put_is_mended(true));

/* Without puts that only create the number's object is all the same there, and tells a late put
 * from a store that was put back. */
CASE(a_late_put_of_store_json_freezes_nothing_where_puts_replace_Q35,
     expect_late_put_is_mended(false));

/* The store of a server whose earlier put of store.json is still on its way: it arrives behind each
 * of the next `left` puts, and is what the next look finds. */
static struct {
    const struct cairn_store_vtable *real;
    struct cairn_store_vtable vtable;
    char path[1400];
    struct cairn_view text;
    unsigned left, puts;
    bool is_due;
} late;

static void submit_behind_late_put(struct cairn_store_worker *worker,
                                   struct cairn_store_request *request) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    bool record = !strcmp(request->key, key.text), puts = request->op == CAIRN_STORE_PUT;
    if (record && !puts && late.is_due) {
        EXPECT(!cairn_file_replace(late.path, late.text, 0644, NULL));
        late.is_due = false;
    }
    if (record && puts) {
        late.puts++;
        late.is_due = late.left > 0;
        late.left -= late.is_due;
    }
    late.real->submit(worker, request);
}

static void late_puts(struct cairn_world *world, const struct cairn_buf *text, unsigned count) {
    struct cairn_key key;
    cairn_key_store_json(&key);
    if (world->store->vtable != &late.vtable) late.real = world->store->vtable;
    late.vtable = *late.real;
    late.vtable.submit = submit_behind_late_put;
    snprintf(late.path, sizeof(late.path), "%s/%s", world->store_path, key.text);
    late.text = cairn_buf_view(text);
    late.left = count;
    late.puts = 0;
    late.is_due = false;
    world->store->vtable = &late.vtable;
}

TEST(a_raised_generation_is_put_again_behind_two_older_puts_and_a_third_freezes_Q35) {
    INSIDE();
    struct cairn_key key;
    struct cairn_store_record kept = {0};
    cairn_key_store_json(&key);
    CAIRN_AUTO(buf) before = {0}, after = {0};
    HAND(1);
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &before, &err));
    uint64_t raised = world.inside.server.raising_to;
    late_puts(&world, &before, 2);
    inside_pass(&world.inside, 11 * MINUTE_MS);
    EXPECT_ALL_U64(late.puts, 3, world.inside.server.raising_to, raised + 1);
    REQUIRE_OK(cairn_store_get_small(world.worker, key.text, &after, &err));
    REQUIRE_OK(cairn_store_record_decode(cairn_buf_view(&after), &kept, &err));
    EXPECT_EQ_U64(kept.generation, raised + 1);
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
    late_puts(&world, &before, 3);
    inside_pass(&world.inside, 11 * MINUTE_MS);
    EXPECT_EQ_U64(late.puts, 3);
    EXPECT_REFUSED(CAIRN_CATALOG_BEHIND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
}

/* What a server took for its own is asked for again where the store does not say. */
static struct {
    const struct cairn_store_vtable *real;
    struct cairn_store_vtable vtable;
    unsigned left, asked;
} unread;

static void submit_unreadable(struct cairn_store_worker *worker,
                              struct cairn_store_request *request) {
    bool number = cairn_text_starts(request->key, ".cairn/generations/");
    if (!number || request->op != CAIRN_STORE_GET || !unread.left) {
        unread.real->submit(worker, request);
        return;
    }
    unread.left--;
    unread.asked++;
    request->code = cairn_fail(&request->error, CAIRN_UNAVAILABLE, "503 for a moment");
    request->done(request);
}

static void unreadable(struct cairn_world *world, unsigned count) {
    unread.real = world->store->vtable;
    unread.vtable = *unread.real;
    unread.vtable.submit = submit_unreadable;
    unread.left = count;
    unread.asked = 0;
    world->store->vtable = &unread.vtable;
}

TEST(a_number_that_cannot_be_read_for_a_moment_is_asked_for_again_and_freezes_nothing_Q35) {
    INSIDE();
    struct cairn_hand hand;
    struct cairn_key key;
    cairn_key_store_json(&key);
    WITH_OK(buf, before, cairn_store_get_small(world.worker, key.text, &before, &err));
    REQUIRE_OK(inside_restart(&world.inside));
    struct cairn_view old = cairn_buf_view(&before);
    REQUIRE_OK(cairn_store_put_small(world.worker, key.text, old, false, &err));
    unreadable(&world, 1);
    EXPECT_CODE(hand_open(&world, &hand, "j1", 0, "latest", 1), CAIRN_UNAVAILABLE);
    EXPECT_EQ_U64(unread.asked, 1);
    REQUIRE_OK(hand_open(&world, &hand, "j1", 0, "latest", 1));
    /* The same while the generation is raised. */
    world.store->vtable = unread.real;
    late_puts(&world, &before, 1);
    unreadable(&world, 1);
    inside_pass(&world.inside, 11 * MINUTE_MS);
    EXPECT_EQ_U64(unread.asked, 1);
    EXPECT_REFUSED(CAIRN_NOT_FOUND, "GET", WORLD_RUN "/checkpoints/latest", NULL);
    REQUIRE_OK(hand_open(&world, &hand, "j2", 1, "latest", 1));
}
