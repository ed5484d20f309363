/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selftest: two requests to ourselves at start.
 *
 * Why:     the check of a request's shape reads what libmicrohttpd has parsed from where that
 *          library keeps it, and another release may keep it elsewhere.
 * Promise: 1   a server that takes a request with a bare line feed, or refuses a good one, does not
 *              start.
 * Limits:  two requests to the address that is listened on.
 * Threads: main thread, once the port is open.
 * Next:    server/http/shape.c.
 */
#pragma once

#include "common/error.h"

/* One good and one bare-LF request, sent to ourselves: the proof rests on the library's insides. */
enum cairn_code cairn_srv_http_self_test(const char *listen, uint16_t port,
                                         struct cairn_error *err) CAIRN_MUST_USE;
