/* SPDX-License-Identifier: Apache-2.0 */
/*
 * certificate: self-signed certificates for tests, good or wrong in one thing.
 *
 * Why:     what a client does with a wrong certificate is only seen with one.
 * Promise: 1   key and certificate are files of the test's own folder, made anew for each test.
 * Limits:  one name or address each.
 * Threads: main thread only.
 * Next:    tests/s3faults/test_names.c.
 */
#pragma once

#include <stdint.h>

struct cairn_certificate {
    char certificate[600], key[600]; /* files, PEM */
};
/* subject: "IP:127.0.0.1" or "DNS:localhost". Valid from `from_s` to `until_s`, counted from now.
 * Aborts when it cannot be made. */
void cairn_certificate_make(const char *name, const char *subject, int64_t from_s, int64_t until_s,
                            struct cairn_certificate *ret);
