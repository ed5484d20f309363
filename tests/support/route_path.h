/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route_path: a path that a route takes, made from its template.
 *
 * Why:     tests that go over every route shall need no word of a route that is new.
 * Promise: 1   the path matches its route and no other one.
 * Limits:  511 bytes.
 * Threads: any.
 * Next:    api/routes.def; tests/api/test_routes.c, which shows 1.
 */
#pragma once

#include <stdio.h>

#include "api/wire/routes.h"

/* A place that does not take any word has a value here, each other one gets the same. */
static inline void cairn_route_path(const struct cairn_route *route, char ret[512]) {
    static const char *const places[][2] = {
        {"{ref}", "latest"},
        {"{token}", "4f1c9a0b7d22e6c3"},
        {"{digest}", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
    };
    size_t used = 0;
    for (const char *at = route->template_text; *at;) {
        size_t length = *at == '{' ? strcspn(at, "}") + 1 : 1;
        const char *value = *at == '{' ? "a-1" : NULL;
        for (size_t i = 0; i < CAIRN_COUNT(places); i++)
            if (!strncmp(at, places[i][0], strlen(places[i][0]))) value = places[i][1];
        used +=
            (size_t)snprintf(ret + used, 512 - used, "%.*s", value ? 64 : 1, value ? value : at);
        at += length;
    }
}
