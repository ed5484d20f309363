/* SPDX-License-Identifier: Apache-2.0 */
/* "://" and what ends a host. */
#include "common/url.h"

bool cairn_url_split(const char *url, struct cairn_url *ret) {
    const char *mark = strstr(url, "://");
    if (!mark || mark == url) return false;
    const char *host = mark + 3;
    size_t size = strcspn(host, "/?#");
    if (!size) return false;
    *ret = (struct cairn_url){.scheme = {url, (size_t)(mark - url)},
                              .host = {host, size},
                              .origin = {url, (size_t)(host + size - url)},
                              .path = host + size};
    return true;
}

bool cairn_url_split_http(const char *url, struct cairn_url *ret) {
    struct cairn_url parts;
    if (!cairn_url_split(url, &parts)) return false;
    if (!cairn_url_is(&parts, "http") && !cairn_url_is(&parts, "https")) return false;
    *ret = parts;
    return true;
}

bool cairn_url_is(const struct cairn_url *url, const char *scheme) {
    return url->scheme.size == strlen(scheme) &&
           !memcmp(url->scheme.data, scheme, url->scheme.size);
}

struct cairn_view cairn_url_host(const struct cairn_url *url) {
    const char *port = cairn_url_is(url, "http") ? ":80" : ":443";
    size_t size = url->host.size, port_size = strlen(port);
    const char *end = (const char *)url->host.data + size;
    bool own = size > port_size && !memcmp(end - port_size, port, port_size);
    return (struct cairn_view){url->host.data, own ? size - port_size : size};
}
