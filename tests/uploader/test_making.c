/* SPDX-License-Identifier: Apache-2.0 */
/* How much of unfinished frames is read, and when one is given up. */
#include "uploader/trainers/socket.h"

#include "tests/harness.h"

#define LARGE (60 * CAIRN_MIB)

TEST(large_frames_of_one_user_are_read_in_their_order_as_far_as_they_fit) { /* socket.h#3 #4 */
    struct cairn_up_makings makings;
    struct cairn_up_making one, two, three, other;
    cairn_up_makings_init(&makings, 128 * CAIRN_MIB); /* one at a time */
    cairn_up_making_add(&makings, &one, 7, NULL);
    cairn_up_making_add(&makings, &two, 7, NULL);
    cairn_up_making_add(&makings, &three, 7, NULL);
    cairn_up_making_add(&makings, &other, 8, NULL);
    EXPECT(cairn_up_making_begin(&makings, &one, LARGE));
    EXPECT(cairn_up_making_begin(&makings, &one, LARGE)); /* the same one goes on */
    EXPECT(cairn_up_making_begin(&makings, &other, LARGE));
    EXPECT(!cairn_up_making_begin(&makings, &two, LARGE));
    EXPECT(!cairn_up_making_begin(&makings, &three, CAIRN_MIB)); /* it fits, but two came before */
    EXPECT(cairn_up_making_begin(&makings, &three, CAIRN_UP_SMALL_FRAME_BYTES));
    EXPECT(!cairn_up_making_next(&makings));
    cairn_up_making_end(&one);
    EXPECT(cairn_up_making_next(&makings) == &two);
    EXPECT(cairn_up_making_next(&makings) == &three);
    EXPECT(!cairn_up_making_next(&makings));
    EXPECT(!cairn_up_making_begin(&makings, &one, LARGE));
    cairn_up_making_remove(&makings, &two);
    EXPECT(cairn_up_making_next(&makings) == &one);
}

TEST(a_frame_or_a_hello_of_which_nothing_comes_is_given_up_and_one_that_waits_is_not) { /* #3 */
    struct cairn_up_makings makings;
    struct cairn_up_making quiet, waits;
    cairn_up_makings_init(&makings, 0);
    cairn_up_making_add(&makings, &quiet, 7, NULL);
    cairn_up_making_add(&makings, &waits, 7, NULL);
    EXPECT(cairn_up_making_begin(&makings, &quiet, LARGE));
    EXPECT(!cairn_up_making_begin(&makings, &waits, LARGE));
    for (int i = 0; i < CAIRN_UP_FRAME_QUIET_LOOKS; i++) {
        EXPECT(!cairn_up_making_look(&quiet, true));
        EXPECT(!cairn_up_making_look(&waits, true));
    }
    EXPECT(cairn_up_making_look(&quiet, true));
    EXPECT(!cairn_up_making_look(&waits, true));
    quiet.quiet_looks = 0; /* a byte has come */
    EXPECT(!cairn_up_making_look(&quiet, true));
    for (int i = 0; i < 2 * CAIRN_UP_FRAME_QUIET_LOOKS; i++)
        EXPECT(!cairn_up_making_look(&quiet, false)); /* between two frames */
}
