/* SPDX-License-Identifier: Apache-2.0 */
/* What a node does with a copy that it keeps, when the server says that it is to send it, and what
 * a new list of nodes wakes. Copies as they are made request by request:
 * tests/e2e/test_keeper.py. */
#include "tests/harness.h"
#include "uploader/partner/inside.h"

/* Of a copy that was whole when the server heard of it, and was described anew since. */
TEST(a_copy_of_which_pieces_are_missing_is_not_sent_when_the_server_says_so, err) { /* Q57 */
    struct cairn_up up = {0};
    struct cairn_up_partner partner = {.up = &up};
    struct cairn_up_copy copy = {.version = {"ckpt_00000000-0000-4000-8000-000000000000"},
                                 .rank = 1,
                                 .piece_count = 3,
                                 .missing = 1};
    cairn_lock_init(&up.lock, CAIRN_LOCK_uploader_state);
    partner.copies = &copy;
    EXPECT_FAILS(cairn_up_partner_finish(&partner, copy.version.text, 1, &err), CAIRN_NOT_FOUND,
                 "whole");
    copy.missing = 0;
    copy.entry = 5; /* it is being sent */
    EXPECT_CODE(cairn_up_partner_finish(&partner, copy.version.text, 1, &err), CAIRN_OK);
    EXPECT_CODE(cairn_up_partner_finish(&partner, copy.version.text, 2, &err), CAIRN_NOT_FOUND);
    cairn_lock_release(&up.lock);
}

static bool is_readable(int fd) {
    struct pollfd wanted = {.fd = fd, .events = POLLIN};
    return poll(&wanted, 1, 0) == 1;
}

TEST(a_new_list_of_nodes_makes_what_waits_for_a_partner_due_at_once) {
    struct cairn_up_partner partner = {0};
    struct cairn_up up = {.partner = &partner};
    struct cairn_up_attempt own = {.text = "the grant"}, other = {.text = "another"};
    struct cairn_up_save waits = {.attempt = &own, .partner.next_ms = UINT64_MAX},
                         handed = {.attempt = &own,
                                   .partner = {.next_ms = UINT64_MAX, .handed = true}},
                         of_other = {.attempt = &other, .partner.next_ms = UINT64_MAX};
    struct cairn_up_save *saves[] = {&waits, &handed, &of_other};
    cairn_lock_init(&up.lock, CAIRN_LOCK_uploader_state);
    cairn_up_wakeup_init(&up.partner_work);
    up.locked.saves = saves;
    up.locked.save_count = CAIRN_COUNT(saves);
    cairn_up_partner_listed(&up, "the grant");
    EXPECT(waits.partner.next_ms == 0);
    EXPECT(handed.partner.next_ms == UINT64_MAX); /* that one is asked now and then */
    EXPECT(of_other.partner.next_ms == UINT64_MAX);
    EXPECT(up.partner_work.locked.raised);
    cairn_up_wakeup_release(&up.partner_work);
    cairn_lock_release(&up.lock);
}

TEST(who_waits_for_a_list_of_nodes_wakes_who_asks_for_it) {
    const struct cairn_run_name run = {"proj", "run"};
    struct cairn_up_members members = {0};
    cairn_up_members_init(&members);
    EXPECT(!is_readable(members.hurry_fd));
    cairn_up_members_hurry(&members);
    EXPECT(is_readable(members.hurry_fd));
    EXPECT(cairn_up_members_hurried(&members));
    EXPECT(!is_readable(members.hurry_fd)); /* told once */
    cairn_up_members_await(&members, &run, 0);
    EXPECT(is_readable(members.hurry_fd));
    cairn_up_members_release(&members);
}
