/* SPDX-License-Identifier: Apache-2.0 */
/* What a node does with a copy that it keeps, when the server says that it is to send it. Copies as
 * they are made request by request: tests/e2e/test_keeper.py. */
#include "tests/harness.h"
#include "uploader/partner/inside.h"

/* Of a copy that was whole when the server heard of it, and was described anew since. */
TEST(a_copy_of_which_pieces_are_missing_is_not_sent_when_the_server_says_so) /* Q57 */
{
    struct cairn_up up = {0};
    struct cairn_up_partner partner = {.up = &up};
    struct cairn_up_copy copy = {.version = {"ckpt_00000000-0000-4000-8000-000000000000"},
                                 .rank = 1,
                                 .piece_count = 3,
                                 .missing = 1};
    struct cairn_error err = {0};
    cairn_lock_init(&up.lock, CAIRN_LOCK_uploader_state);
    partner.copies = &copy;
    EXPECT_CODE(cairn_up_partner_finish(&partner, copy.version.text, 1, &err), CAIRN_NOT_FOUND);
    EXPECT(strstr(err.message, "whole") != NULL);
    copy.missing = 0;
    copy.entry = 5; /* it is being sent */
    EXPECT_CODE(cairn_up_partner_finish(&partner, copy.version.text, 1, &err), CAIRN_OK);
    EXPECT_CODE(cairn_up_partner_finish(&partner, copy.version.text, 2, &err), CAIRN_NOT_FOUND);
    cairn_lock_release(&up.lock);
}
