/* SPDX-License-Identifier: Apache-2.0 */
/*
 * url: a URL cut into its parts, nothing copied.
 *
 * Why:     where the host of a URL ends decides where keys and bodies go; two places that cut it
 *          differently are a way around one of them.
 * Promise: 1   a host ends at the first '/', '?' or '#'; a user before it is kept in it, so that
 *              who allows none sees the '@'.
 *          2   what has no scheme or no host is no URL.
 * Limits:  none of its own; what may stand in a part is for the caller to judge.
 * Threads: stateless.
 * Next:    common/http/link.c, store/s3/config.c, store/keys/credentials.c.
 */
#pragma once

#include "common/base.h"

struct cairn_url {
    struct cairn_view scheme; /* "https" */
    struct cairn_view host;   /* with its port, and with a user if one stands there */
    struct cairn_view origin; /* scheme://host */
    const char *path;         /* what follows the host, with query and fragment; may be "" */
};
bool cairn_url_split(const char *url, struct cairn_url *ret);
/* False also where the scheme is neither http nor https. */
bool cairn_url_split_http(const char *url, struct cairn_url *ret);
bool cairn_url_is(const struct cairn_url *url, const char *scheme);
/* The host without the port that http or https has anyway, as it stands in a Host header. */
struct cairn_view cairn_url_host(const struct cairn_url *url);
