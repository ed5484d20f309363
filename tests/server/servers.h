/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers: a second server beside a world's, over the same catalog and the same store.
 *
 * Why:     what several servers share is tested by modules that need them set up alike.
 * Promise: 1   the second one has a data_dir of its own, in the first one's folder, with its key.
 * Limits:  the catalog is in PostgreSQL whatever CAIRN_TEST_CATALOG says.
 * Threads: main thread only.
 * Next:    tests/server/test_servers.c, tests/server/test_notify.c.
 */
#pragma once

#include "tests/server/world.h"

/* false, here and below: said why on standard error, or in ret->err. */
bool servers_first(struct cairn_world *ret, const char *const *extra, const char *const *env);
/* Where it is to be: folders and the catalog, without a key; nothing is started. */
bool servers_place(const struct cairn_world *first, struct cairn_world *ret);
bool servers_copy_key(const struct cairn_world *first, struct cairn_world *second);
/* All of it; what is added to the catalog's URL (NULL: nothing) is for the second alone. */
bool servers_second(const struct cairn_world *first, struct cairn_world *ret,
                    const char *const *extra);
bool servers_second_by(const struct cairn_world *first, struct cairn_world *ret,
                       const char *const *extra, const char *added_to_url);
/* Both, as `one` and `two`; the test is skipped where there is no PostgreSQL. */
#define TWO_SERVERS()                                                                              \
    NEED_POSTGRES;                                                                                 \
    CAIRN_AUTO(world) one = {0}, two = {0};                                                        \
    REQUIRE(servers_first(&one, NULL, NULL));                                                      \
    REQUIRE(servers_second(&one, &two, NULL))
