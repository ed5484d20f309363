/* SPDX-License-Identifier: Apache-2.0 */
/* One good and one bare-LF request to ourselves at start: the shape proof rests on where
 * libmicrohttpd keeps what it parsed, and another release may do that differently. */
#include "server/http/selftest.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/text.h"
#include "server/http/inside.h"

static enum cairn_code connect_to(const char *listen, uint16_t port, int *ret_fd,
                                  struct cairn_error *err) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } to = {0};
    bool six = listen[0] == '[';
    if (six) {
        to.v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        to.v6.sin6_addr = in6addr_loopback;
    } else {
        to.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        to.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        char host[64];
        snprintf(host, sizeof(host), "%.*s", (int)strcspn(listen, ":"), listen);
        struct in_addr given;
        /* An address of one interface only answers there. */
        if (inet_pton(AF_INET, host, &given) == 1 && given.s_addr != htonl(INADDR_ANY))
            to.v4.sin_addr = given;
    }
    CAIRN_AUTO_FD fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return cairn_fail_errno(err, "self-test socket");
    struct timeval timeout = {.tv_sec = 10};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    if (connect(fd, &to.any, six ? sizeof(to.v6) : sizeof(to.v4)))
        return cairn_fail_errno(err, "self-test connection");
    *ret_fd = fd;
    fd = -1;
    return CAIRN_OK;
}

/* The first 12 bytes of the answer. */
static enum cairn_code ask_plain(int fd, const char *text, char *answer, struct cairn_error *err) {
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text))
        return cairn_fail_errno(err, "self-test request");
    size_t size = 0;
    while (size < 12) {
        ssize_t got = recv(fd, answer + size, 12 - size, 0);
        if (got <= 0) break;
        size += (size_t)got;
    }
    answer[size] = 0;
    return CAIRN_OK;
}

static enum cairn_code exchange(const char *listen, uint16_t port, const char *text,
                                const char *wanted, struct cairn_error *err) {
    int fd_value = -1;
    CAIRN_TRY(connect_to(listen, port, &fd_value, err));
    CAIRN_AUTO_FD fd = fd_value;
    char answer[64] = "";
    if (cairn_srv_tls_is_on())
        CAIRN_TRY(cairn_srv_tls_exchange(fd, text, answer, 13, err));
    else
        CAIRN_TRY(ask_plain(fd, text, answer, err));
    if (!strcmp(answer, wanted)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_UNSUPPORTED,
                      "self-test: \"%s\" instead of \"%s\": this libmicrohttpd is not the one that "
                      "the checks of requests were made for",
                      answer, wanted);
}

enum cairn_code cairn_srv_http_self_test(const char *listen, uint16_t port,
                                         struct cairn_error *err) {
    CAIRN_TRY(exchange(listen, port,
                       "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                       "HTTP/1.1 200", err));
    return exchange(listen, port,
                    "GET /livez HTTP/1.1\r\nHost: localhost\nConnection: close\r\n\r\n",
                    "HTTP/1.1 400", err);
}
