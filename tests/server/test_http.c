/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: labels=tsan engines=again */
/* What arrives at the port: malformed shapes, limits and deadlines (B01-B05, B07). */
#include "tests/server/world.h"
#include "tests/support/route_path.h"

struct shape {
    const char *what;
    const char *request;
    size_t size;
};
#define SHAPE(what, request)                                                                       \
    { what, request, sizeof(request) - 1 }
#define GET "GET /livez HTTP/1.1\r\nHost: localhost\r\n"
#define PUT "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

/* None of these may be answered as if it had been understood, and nothing behind it be parsed. */
static const struct shape malformed[] = {
    SHAPE("two lengths", PUT "Content-Length: 2\r\n"
                             "Content-Length: 2\r\n\r\n{}"),
    SHAPE("length and chunks",
          PUT "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    SHAPE("chunks", PUT "Transfer-Encoding: chunked\r\n\r\n"
                        "2\r\n{}\r\n0\r\n\r\n"),
    SHAPE("identity coding", GET "Transfer-Encoding: identity\r\n\r\n"),
    SHAPE("LF after the request line", "GET /livez HTTP/1.1\nHost: localhost\r\n\r\n"),
    SHAPE("LF after a header", "GET /livez HTTP/1.1\r\nHost: localhost\nX: b\r\n\r\n"),
    SHAPE("LF at the end", GET "\n"),
    SHAPE("only LF", "GET /livez HTTP/1.1\nHost: localhost\n\n"),
    SHAPE("space before the colon", GET "X : b\r\n\r\n"),
    SHAPE("tab before the colon", GET "X\t: b\r\n\r\n"),
    SHAPE("a folded line", GET "X: a\r\n b\r\n\r\n"),
    SHAPE("a folded line that looks like a header", GET "X: a\r\n B: 9\r\n\r\n"),
    SHAPE("a line folded with a tab", GET "X: a\r\n\tb\r\n\r\n"),
    SHAPE("NUL in a value", GET "X: a\0b\r\n\r\n"),
    SHAPE("NUL in a name", GET "X\0Y: b\r\n\r\n"),
    SHAPE("NUL in the target", "GET /live\0z HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("a control byte in a value", GET "X: a\001b\r\n\r\n"),
    SHAPE("DEL in a value", GET "X: a\177b\r\n\r\n"),
    SHAPE("CR in a value", GET "X: a\rb\r\n\r\n"),
    SHAPE("no Host", "GET /livez HTTP/1.1\r\nX: a\r\n\r\n"),
    SHAPE("two Hosts", GET "Host: b\r\n\r\n"),
    SHAPE("a fragment", "GET /livez#x HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("absolute form of another scheme",
          "GET ftp://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("absolute form without a host", "GET http:///livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("absolute form with a user",
          "GET http://localhost@a/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("absolute form without Host", "GET http://localhost/livez HTTP/1.1\r\nX: a\r\n\r\n"),
    SHAPE("asterisk form", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("a negative length", PUT "Content-Length: -1\r\n\r\n"),
    SHAPE("a signed length", PUT "Content-Length: +2\r\n\r\n{}"),
    SHAPE("a length beyond 2^64", PUT "Content-Length: 18446744073709551621\r\n\r\n{}"),
    SHAPE("a list of lengths", PUT "Content-Length: 2, 2\r\n\r\n{}"),
    SHAPE("a hexadecimal length", PUT "Content-Length: 0x2\r\n\r\n{}"),
    SHAPE("an empty length", PUT "Content-Length: \r\n\r\n"),
    SHAPE("a junk header name", GET "@a: b\r\n\r\n"),
    SHAPE("a name with brackets", GET "a(b): b\r\n\r\n"),
    SHAPE("a header without a colon", GET "nocolon\r\n\r\n"),
    SHAPE("an empty header name", GET ": b\r\n\r\n"),
    SHAPE("two spaces in the request line", "GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("a tab in the request line", "GET\t/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("a space at the end of the request line",
          "GET /livez HTTP/1.1 \r\nHost: localhost\r\n\r\n"),
    SHAPE("a space in the target", "GET /livez x HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("a byte above 7e in the target",
          "GET /livez\303\251 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("HTTP/2.0", "GET /livez HTTP/2.0\r\nHost: localhost\r\n\r\n"),
    SHAPE("HTTP/0.9", "GET /livez\r\nHost: localhost\r\n\r\n"),
    SHAPE("a lower-case version", "GET /livez http/1.1\r\nHost: localhost\r\n\r\n"),
};

TEST(b03_malformed_requests_are_refused_and_nothing_behind_them_is_parsed) { /* B03 */
    WORLD();
    static const char second[] = "GET /version HTTP/1.1\r\nHost: localhost\r\nX: smuggled\r\n\r\n";
    for (size_t i = 0; i < CAIRN_COUNT(malformed); i++) {
        const struct shape *shape = &malformed[i];
        char bytes[1024];
        memcpy(bytes, shape->request, shape->size);
        memcpy(bytes + shape->size, second, sizeof(second) - 1);
        CAIRN_AUTO(buf) reply = {0};
        WITH(raw, raw, cairn_raw_open(&raw, world.server.port));
        (void)cairn_raw_send(&raw, bytes, shape->size + sizeof(second) - 1);
        int status = cairn_raw_reply(&raw, HANG_MS, &reply);
        cairn_test_check(status == 0 || (status >= 400 && status < 600), __FILE__, __LINE__,
                         "%s: status %d", shape->what, status);
        cairn_test_check(cairn_raw_closed(&raw, HANG_MS), __FILE__, __LINE__, "%s: still open",
                         shape->what);
        cairn_test_check(!reply.data || !strstr(reply.data, "schema"), __FILE__, __LINE__,
                         "%s: the request behind it was answered", shape->what);
    }
}

/* RFC 9112: what a client may send although hardly one does. */
static const struct shape legal[] = {
    SHAPE("no space behind the colon", GET "X:b\r\n\r\n"),
    SHAPE("two spaces behind the colon", GET "X:  b\r\n\r\n"),
    SHAPE("a tab behind the colon", GET "X:\tb\r\n\r\n"),
    SHAPE("a space at the end of a value", GET "X: b \r\n\r\n"),
    SHAPE("a value without a byte", GET "X:\r\n\r\n"),
    SHAPE("a value of spaces", GET "X: \r\n\r\n"),
    SHAPE("several of them", GET "X:\r\nY:\r\nA:b\r\nB:   c d\r\n\r\n"),
    SHAPE("a Host without a space", "GET /livez HTTP/1.1\r\nHost:localhost\r\n\r\n"),
    /* 3.2.2: a server takes the absolute form */
    SHAPE("absolute form", "GET http://localhost:7420/livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    SHAPE("absolute form of https", "GET HTTPS://localhost/livez HTTP/1.1\r\nHost: a\r\n\r\n"),
};

TEST(every_spacing_and_target_that_rfc_9112_allows_is_taken) {
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(legal); i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status = cairn_raw_exchange(world.server.port, legal[i].request, legal[i].size, &reply);
        cairn_test_check(status == 200, __FILE__, __LINE__, "%s: status %d", legal[i].what, status);
    }
}

static size_t occurrences(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = text; at && (at = strstr(at, what)); at++) count++;
    return count;
}

/* libmicrohttpd refuses these before its first callback; its own page could have two header blocks.
 * What is too long is `begin`, `count` times `again`, and `end`. */
#define END "\r\n\r\n"
static const struct early {
    int status;
    const char *begin, *again;
    size_t count;
    const char *end, *detail;
} refused_early[] = {
    {400, PUT "Content-Length: -1" END, "", 0, "", "Content-Length is not a number"},
    {400, PUT "Content-Length: 2x" END "{}", "", 0, "", "Content-Length is not a number"},
    {400, PUT "Content-Length: 2, 2" END, "", 0, "", "Content-Length is not a number"},
    {400, PUT "Content-Length: " END, "", 0, "", "Content-Length is not a number"},
    {413, PUT "Content-Length: 18446744073709551621" END, "", 0, "", "Content-Length is larger"},
    {411, PUT "Transfer-Encoding: chunked" END "zz\r\n", "", 0, "", "send Content-Length"},
    {400, "GET /livez HTTP/1.1\r\nX: a" END, "", 0, "", "one Host"},
    {400, "GET /livez HTTP/1.0\r\nHost: a\r\nHost: b" END, "", 0, "", "one Host"},
    {400, GET "nocolon" END, "", 0, "", "Name: value"},
    {400, GET "nocolon\r\nX: y" END, "", 0, "", "Name: value"},
    {400, "GET /livez" END, "", 0, "", "METHOD /path"},
    {400, "GET /livez http/1.1\r\nHost: localhost" END, "", 0, "", "METHOD /path"},
    {400, "GET /livez HTTP/1.1x\r\nHost: localhost" END, "", 0, "", "METHOD /path"},
    {400, "hello world" END, "", 0, "", "METHOD /path"},
    {505, "GET /livez HTTP/2.0\r\nHost: localhost" END, "", 0, "", "HTTP/1.1 and"},
    {505, "PRI * HTTP/2.0" END "SM" END, "", 0, "", "HTTP/1.1 and"},
    {414, "GET /", "a", 10000, " HTTP/1.1\r\nHost: localhost" END, "at most 8193 bytes"},
    {414, "GET /", "a", 40000, " HTTP/1.1\r\nHost: localhost" END, "at most 8193 bytes"},
    {414, "GET /", "a", 900000, " HTTP/1.1\r\nHost: localhost" END, "at most 8193 bytes"},
    {414, "GET /", "a", 5000, " HTTP/1.1\r\nHost: localhost" END, "longer than 4096 bytes"},
    {414, "", "A", 40000, " /livez HTTP/1.1\r\nHost: localhost" END, "at most 8193 bytes"},
    {431, "GET /livez?a", "&a=b", 1500, " HTTP/1.1\r\nHost: localhost" END, "fewer or shorter"},
    {431, GET "X: ", "a", 40000, END, "fewer or shorter"},
    {431, GET, "X: y\r\n", 600, "\r\n", "fewer or shorter"},
    {431, GET, "X: y\r\n", 6000, "\r\n", "fewer or shorter"},
    {431, GET "Cookie: a=1", "; a=1", 1000, END, "fewer or shorter"},
};

static bool send_early(struct cairn_raw *raw, const struct early *early) {
    CAIRN_AUTO(buf) text = {0};
    bool ok = !cairn_buf_printf(&text, NULL, "%s", early->begin);
    for (size_t i = 0; ok && i < early->count; i++)
        ok = !cairn_buf_append(&text, early->again, strlen(early->again), NULL);
    ok = ok && !cairn_buf_append(&text, early->end, strlen(early->end), NULL);
    /* Of what is too long the last may find the connection closed. */
    return ok && (cairn_raw_send(raw, text.data, text.size) || early->count);
}

/* libmicrohttpd 1.0 closes the connection without an answer where there is no third word, or no
 * second one within its buffer. */
static bool may_close(const struct early *early) {
    return !strcmp(early->begin, "hello world" END) || !strcmp(early->again, "A");
}

/* One answer, in our words, and the end of the connection; before it that to /livez, if so. */
static void expect_problem(struct cairn_raw *raw, const struct early *early, bool behind) {
    CAIRN_AUTO(buf) all = {0};
    while (cairn_raw_more(raw, 3000, &all)) continue;
    const char *reply = behind && all.data ? strstr(all.data, "\"alive\"}") : all.data;
    if (behind && reply) reply += strcspn(reply, "H");
    if (may_close(early) && (!reply || !strstr(reply, "HTTP/1.1"))) {
        EXPECT(cairn_raw_closed(raw, HANG_MS));
        return;
    }
    int status = reply && strlen(reply) > 12 ? (int)strtol(reply + 9, NULL, 10) : 0;
    cairn_test_check(status == early->status, __FILE__, __LINE__, "%d instead of %d: %.60s%s",
                     status, early->status, early->begin, early->again);
    cairn_test_check(reply && strstr(reply, early->detail), __FILE__, __LINE__,
                     "\"%s\" is not said: %.60s%s", early->detail, early->begin, early->again);
    EXPECT_ALL_U64(occurrences(reply, "Content-Length: "), 1,
                   occurrences(reply, "Content-Type: application/problem+json"), 1,
                   occurrences(reply, "\"code\":"), 1, occurrences(reply, "<html"), 0);
}

/* Requests that arrive on other connections must not get the answer of one that is refused. */
static const char *const halves[][2] = {
    {"GET /li", "vez HTTP/1.1\r\nHost: localhost" END},
    {"GET /livez HTTP/1.1\r\nX: y\r\n", "Host: localhost" END},
    {GET "X: y\r", "\n\r\n"},
    {"\r\n", GET "\r\n"},
};

TEST(what_the_library_refuses_is_one_problem_too) { /* server/http/http.h#1 */
    WORLD("--request-timeout=10min");               /* halves stay open meanwhile */
    struct cairn_raw slow[4 * CAIRN_COUNT(halves)];
    for (size_t i = 0; i < CAIRN_COUNT(slow); i++) {
        REQUIRE(cairn_raw_open(&slow[i], world.server.port));
        REQUIRE(cairn_raw_text(&slow[i], halves[i % CAIRN_COUNT(halves)][0]));
    }
    for (size_t i = 0; i < 2 * CAIRN_COUNT(refused_early); i++) {
        const struct early *early = &refused_early[i / 2];
        CAIRN_AUTO(raw) raw = {0};
        CAIRN_AUTO(buf) first = {0};
        REQUIRE(cairn_raw_open(&raw, world.server.port));
        if (i % 2) REQUIRE(cairn_raw_text(&raw, GET "\r\n")); /* on a connection that was kept */
        if (i % 4 == 1) EXPECT(cairn_raw_reply(&raw, HANG_MS, &first) == 200);
        REQUIRE(send_early(&raw, early));
        expect_problem(&raw, early, i % 4 == 3); /* then it came behind another one */
    }
    for (size_t i = 0; i < CAIRN_COUNT(slow); i++) {
        CAIRN_AUTO(buf) reply = {0};
        EXPECT(cairn_raw_text(&slow[i], halves[i % CAIRN_COUNT(halves)][1]));
        EXPECT(cairn_raw_reply(&slow[i], HANG_MS, &reply) == 200);
        cairn_raw_release(&slow[i]);
    }
}

/* What is no request line at all: nothing behind it is parsed. libmicrohttpd 0.9 closes the
 * connection, 1.0 has one problem sent for some. */
static const char *const no_requests[] = {
    "hello" END, "GET /livez x HTTP/1.1\r\nHost: localhost" END,
    "  GET /livez HTTP/1.1\r\nHost: localhost" END,
    "\x16\x03\x01\x02\x01\x01\xfc\x03\x03" END, /* TLS */
};

TEST(a_first_line_of_other_than_three_words_closes_the_connection) { /* server/http/http.h#1 */
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(no_requests); i++) {
        CAIRN_AUTO(buf) reply = {0};
        WITH(raw, raw, cairn_raw_open(&raw, world.server.port));
        REQUIRE(cairn_raw_text(&raw, no_requests[i]));
        (void)cairn_raw_text(&raw, GET "\r\n");
        while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
        EXPECT(occurrences(reply.data, "HTTP/1.1 ") == occurrences(reply.data, "HTTP/1.1 400"));
        EXPECT(occurrences(reply.data, "HTTP/1.1 ") <= 1);
        EXPECT_EQ_U64(occurrences(reply.data, "alive"), 0);
        EXPECT(cairn_raw_closed(&raw, HANG_MS));
    }
}

/* Well-shaped, but not to be taken. */
static const struct {
    int status;
    const char *request;
} refused[] = {
    {400, "GET /v1/runs/a%00b/c HTTP/1.1\r\nHost: localhost\r\n\r\n"}, /* B01 */
    {400, "GET /v1/runs/../c HTTP/1.1\r\nHost: localhost\r\n\r\n"},    /* B02 from here */
    {400, "GET /v1/runs/%2e%2e/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/a%252fb/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/a%2fb/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs//c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/a%5cb/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/%c0%af/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/a%zz/c HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs/a%0d%0aX:%20b/c HTTP/1.1\r\nHost: localhost\r\n\r\n"}, /* B07 */
    {400, "GET /v1/runs?limit=1&limit=2 HTTP/1.1\r\nHost: localhost\r\n\r\n"}, /* B04 from here */
    {400, "GET /v1/runs?unknown=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs?limit=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /v1/runs?cursor=zz HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {404, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {405, "DELETE /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {405, "TRACE /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"},
    {400, "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"},
    {413, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n"},
    {415, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
          "Content-Length: 2\r\n\r\n{}"},
    {415, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"},
    {400, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 2\r\n\r\n[]"},
    {400, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 9\r\n\r\n{\"no\": 1}"}, /* M06 */
    {400, "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
          "Content-Length: 27\r\n\r\n{\"labels\":{},\"labels\":{}}  "}, /* M02 */
};

TEST(what_a_path_does_not_take_is_a_problem_of_its_status) {
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(refused); i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status = cairn_raw_exchange(world.server.port, refused[i].request,
                                        strlen(refused[i].request), &reply);
        cairn_test_check(status == refused[i].status, __FILE__, __LINE__,
                         "%d wanted, %d got: %.60s", refused[i].status, status, refused[i].request);
        EXPECT(reply.data && strstr(reply.data, "application/problem+json"));
        EXPECT(reply.data && !strstr(reply.data, "100 Continue"));
    }
}

/* As a proxy does: the answer is looked for when all of the body is out. */
static int send_whole_first(uint16_t port, const char *head, size_t body_bytes,
                            struct cairn_buf *ret) {
    static const char zeros[64 * CAIRN_KIB];
    CAIRN_AUTO(raw) raw = {0};
    if (!cairn_raw_open(&raw, port)) return -1;
    bool sent = cairn_raw_text(
        &raw, TEXT("%sHost: localhost\r\nContent-Length: %zu\r\n\r\n", head, body_bytes));
    for (size_t left = body_bytes; sent && left; left -= cairn_min_u64(left, sizeof(zeros)))
        sent = cairn_raw_send(&raw, zeros, (size_t)cairn_min_u64(left, sizeof(zeros)));
    int status = sent ? cairn_raw_reply(&raw, HANG_MS, ret) : -1;
    return status > 0 && !cairn_raw_closed(&raw, HANG_MS) ? -2 : status;
}

TEST(a_refusal_reaches_who_sends_the_whole_body_first) { /* server/http/http.h#2 */
    static const struct {
        int status;
        const char *head;
        size_t body_bytes;
    } cases[] = {
        {413, "PUT /v1/runs/a/b HTTP/1.1\r\nContent-Type: application/json\r\n", 5 * CAIRN_MIB},
        {413, "PUT /v1/runs/a/b HTTP/1.1\r\nContent-Type: application/json\r\n", 60 * CAIRN_MIB},
        {415, "PUT /v1/runs/a/b HTTP/1.1\r\nContent-Type: text/plain\r\n", CAIRN_MIB},
        {404, "PUT /nothing HTTP/1.1\r\nContent-Type: application/json\r\n", 3 * CAIRN_MIB},
        {405, "POST /livez HTTP/1.1\r\nContent-Type: application/json\r\n", 3 * CAIRN_MIB},
        {400, "GET /livez HTTP/1.1\r\n", 2 * CAIRN_MIB},
        {403,
         "PUT /v1/runs/a/b HTTP/1.1\r\nContent-Type: application/json\r\n"
         "Origin: http://evil.example\r\n",
         900 * CAIRN_KIB},
    };
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(cases); i++) {
        CAIRN_AUTO(buf) reply = {0};
        int status =
            send_whole_first(world.server.port, cases[i].head, cases[i].body_bytes, &reply);
        cairn_test_check(status == cases[i].status, __FILE__, __LINE__, "%d instead of %d: %.40s",
                         status, cases[i].status, cases[i].head);
        EXPECT_EQ_U64(occurrences(reply.data, "Content-Length: "), 1);
        EXPECT(reply.data && strstr(reply.data, "Connection: close"));
        EXPECT(status != 405 || strstr(reply.data, "Allow: GET, HEAD"));
    }
    CAIRN_AUTO(buf) reply = {0}; /* more than that is nobody's body */
    EXPECT(send_whole_first(world.server.port, cases[0].head, 160 * CAIRN_MIB, &reply) == -1);
}

TEST(b01_a_nul_in_a_path_names_no_other_run) {
    WORLD();
    CAIRN_AUTO(buf) made = {0};
    static const char put[] = "PUT /v1/runs/p/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                              "application/json\r\nContent-Length: 2\r\n\r\n{}";
    EXPECT(cairn_raw_exchange(world.server.port, put, sizeof(put) - 1, &made) == 201);
    EACH_TEXT(text, "a%00b", "a%00", "%00a", "a%00/checkpoints", "a/%00") {
        CAIRN_AUTO(buf) reply = {0};
        char request[128];
        int size = snprintf(request, sizeof(request),
                            "GET /v1/runs/p/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", text);
        EXPECT(cairn_raw_exchange(world.server.port, request, (size_t)size, &reply) == 400);
    }
}

TEST(b04_every_route_refuses_a_query_name_that_it_does_not_have) { /* B04 */
    WORLD();
    for (int i = 0; i < CAIRN_ROUTE_COUNT; i++) {
        const struct cairn_route *route = cairn_route_at((enum cairn_route_id)i);
        CAIRN_AUTO(buf) reply = {0};
        char path[512];
        cairn_route_path(route, path);
        const char *text = TEXT("%s %s?dry_run=1 HTTP/1.1\r\nHost: localhost\r\nX-Cairn: 1\r\n"
                                "Connection: close\r\n\r\n",
                                route->method, path);
        WITH(raw, raw, cairn_raw_open(&raw, world.server.port));
        REQUIRE(cairn_raw_text(&raw, text));
        while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
        bool head = !strcmp(route->method, "HEAD");
        cairn_test_check(reply.data && !strncmp(reply.data, "HTTP/1.1 400", 12) &&
                             (head || strstr(reply.data, "dry_run")),
                         __FILE__, __LINE__, "%s: %.200s", text, reply.data ? reply.data : "");
    }
}

/* A value that is none is answered with its name. */
static const char *const named[][2] = {
    {"/v1/runs?limit=-1", "limit: "},
    {"/v1/runs?limit=1001", "limit must be 1 to 1000"},
    {"/v1/runs?limit=1&limit=2", "\\\"limit\\\" twice"},
    {"/v1/runs?project=..", "project: want"},
    {"/v1/runs/a/b/checkpoints?state=x", "state must be open, committed"},
    {"/v1/runs/a/b/checkpoints?order=x", "order must be step, -step, attempt or -attempt"},
    {"/v1/runs/a/b/checkpoints/1/shards?rank=x", "rank: "},
    {"/nothing", "GET /openapi.yaml"},
    {"/v1/runs/a/b/checkpoints/1/tensors/", "a '/' that belongs to a name is written %2F"},
    {"/v1/runs/a/b/checkpoints/1/tensors/a//b", "a '/' that belongs to a name is written %2F"},
    {"/v1/runs/a/b/checkpoints/1/tensors/a%00b", "the path has %00"},
    {"/v1/runs/a/b/checkpoints/1/tensors/a%zzb/data", "a '%' itself is written %25"},
    {"/v1/runs/a/b/checkpoints/1/tensors/%2e%2e/data", "comes by ?name="},
    {"/v1/runs/a/b/checkpoints/1/tensors/a/../b", "comes by ?name="},
    {"/v1/runs/a/b/checkpoints/1/tensors/x?name=x", "unknown query parameter \\\"name\\\""},
    {"/v1/runs/a/b/checkpoints/1/tensor?name=", "name is wanted"},
    {"/v1/runs/a/b/checkpoints/1/tensor/data?name=a%00", "the query has %00"},
};

TEST(what_is_wrong_in_a_query_is_told_with_its_name) {
    WORLD();
    for (size_t i = 0; i < CAIRN_COUNT(named); i++) {
        CAIRN_AUTO(buf) reply = {0};
        const char *text = TEXT("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", named[i][0]);
        EXPECT(cairn_raw_exchange(world.server.port, text, strlen(text), &reply) >= 400);
        cairn_test_check(reply.data && strstr(reply.data, named[i][1]), __FILE__, __LINE__,
                         "%s: %s is not said", named[i][0], named[i][1]);
    }
}

TEST(good_requests_arrive_in_pieces_of_any_size_and_in_a_row) {
    WORLD();
    static const char good[] = "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json; charset=utf-8\r\nX-Odd: \r\nContent-Length: "
                               "24\r\n\r\n{\"labels\":{\"k\":\"value\"}}";
    CAIRN_AUTO(raw) raw = {0};
    CAIRN_AUTO(buf) reply = {0};
    REQUIRE(cairn_raw_open(&raw, world.server.port));
    for (size_t piece = 1; piece < 60; piece += 7) {
        size_t size = sizeof(good) - 1;
        for (size_t at = 0; at < size; at += piece)
            REQUIRE(cairn_raw_send(&raw, good + at, cairn_min_u64(piece, size - at)));
        EXPECT(cairn_raw_reply(&raw, HANG_MS, &reply) == (piece == 1 ? 201 : 200));
    }
    for (size_t i = 0; i < 200; i++)
        REQUIRE(cairn_raw_text(&raw, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    size_t answered = 0;
    CAIRN_AUTO(buf) all = {0};
    while (answered < 200 && cairn_raw_more(&raw, HANG_MS, &all)) {
        answered = 0;
        for (const char *at = all.data; (at = strstr(at, "{\"status\":\"alive\"}")); at++)
            answered++;
    }
    EXPECT_EQ_U64(answered, 200);
}

/* A request that begins so, and goes on with a byte 8 minutes later. */
static void expect_cut_after_10_minutes(const struct cairn_world *world,
                                        struct cairn_passing *passing, const char *begin) {
    WITH(raw, raw, cairn_raw_open(&raw, world->server.port));
    EXPECT(cairn_raw_text(&raw, begin));
    REQUIRE_AWAIT(cairn_raw_all_read(world->server.port));
    cairn_passing_pass(passing, 8 * MINUTE_MS);
    EXPECT(cairn_raw_text(&raw, "z"));
    REQUIRE_AWAIT(cairn_raw_all_read(world->server.port));
    EXPECT(!cairn_raw_closed(&raw, 300)); /* looked at each 200 ms */
    cairn_passing_pass(passing, 3 * MINUTE_MS);
    AWAIT(cairn_raw_closed(&raw, 0));
}

TEST(b05_slow_and_idle_peers_are_cut_at_their_deadline) { /* B05 */
    WITH(passing, passing, cairn_passing_open(&passing));
    WITH(world, world,
         world_start(&world, WORLD_ARGS("--request-timeout=10min", "--idle-timeout=1h"),
                     passing.env));
    EACH_TEXT(begin, "GET /livez", "GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ",
              "PUT /v1/runs/a/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
              "application/json\r\nContent-Length: 1000\r\n\r\n")
        expect_cut_after_10_minutes(&world, &passing, begin);
    CAIRN_AUTO(raw) idle = {0};
    CAIRN_AUTO(buf) reply = {0};
    REQUIRE(cairn_raw_open(&idle, world.server.port));
    REQUIRE(cairn_raw_text(&idle, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT(cairn_raw_reply(&idle, HANG_MS, &reply) == 200);
    cairn_passing_pass(&passing, 59 * MINUTE_MS);
    EXPECT(!cairn_raw_closed(&idle, 300));
    cairn_passing_pass(&passing, 2 * MINUTE_MS);
    AWAIT(cairn_raw_closed(&idle, 0));
}

TEST(g02_it_listens_beyond_loopback_only_with_allow_remote) {
    CAIRN_AUTO(world) world = {0};
    const char *args[] = {"--listen=0.0.0.0:0", NULL};
    EXPECT(!world_start(&world, args, NULL));
    EXPECT(strstr(world.err.message, "beyond loopback"));
}

TEST(a_stop_answers_parked_requests_and_ends_cleanly) {
    JOB(1);
    BEGUN(save, 1);
    CAIRN_AUTO(raw) raw = {0};
    CAIRN_AUTO(buf) reply = {0};
    const char *request = TEXT("GET %s?wait=30s HTTP/1.1\r\nHost: localhost\r\n\r\n", save.path);
    REQUIRE(cairn_raw_open(&raw, world.server.port));
    REQUIRE(cairn_raw_text(&raw, request));
    REQUIRE_AWAIT(cairn_raw_all_read(world.server.port));
    EXPECT(cairn_raw_reply(&raw, 300, &reply) == -1);
    cairn_world_release(&world); /* checks the exit status */
    world = (struct cairn_world){0};
    EXPECT(cairn_raw_reply(&raw, HANG_MS, &reply) ==
           200); /* server/http/http.h#3: it is open yet */
    EXPECT(reply.data && strstr(reply.data, "\"state\":\"open\""));
    EXPECT(reply.data && strstr(reply.data, "Connection: close"));
}

#define DOWNLOAD_BYTES (40 * CAIRN_MIB) /* more than the buffers of a connection hold */

/* The status of a further request over a connection that is there. */
static int ask_runs(struct cairn_raw *raw, struct cairn_buf *reply) {
    cairn_buf_clear(reply);
    if (!cairn_raw_text(raw, "GET /v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n")) return 0;
    return cairn_raw_reply(raw, HANG_MS, reply);
}

TEST(a_download_that_has_begun_ends_after_a_stop_and_new_requests_get_503, err) {
    struct cairn_hand_save save;
    JOB(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", DOWNLOAD_BYTES, &save));
    CAIRN_AUTO(raw) raw = {0}, other = {0};
    CAIRN_AUTO(buf) reply = {.limit = CAIRN_GIB};
    CAIRN_AUTO(buf) second = {0};
    const char *request = hand_download(&save);
    REQUIRE(cairn_raw_open(&raw, world.server.port));
    REQUIRE(cairn_raw_open(&other, world.server.port));
    REQUIRE(cairn_raw_text(&other, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    EXPECT(cairn_raw_reply(&other, HANG_MS, &second) == 200);
    REQUIRE(cairn_raw_text(&raw, request));
    REQUIRE(cairn_raw_more(&raw, HANG_MS, &reply)); /* it has begun */
    REQUIRE(!kill(world.server.pid, SIGTERM));
    int status = 200; /* as long as it has not heard the signal */
    bool closes = false;
    AWAIT((status = ask_runs(&other, &second)) != 200 ||
          (closes = occurrences(second.data, "Connection: close")));
    /* Heard while it answered, it says with the answer that the connection ends. */
    EXPECT(closes || status == 503);
    EXPECT(closes || occurrences(second.data, "Retry-After: ") == 1);
    while (cairn_raw_more(&raw, HANG_MS, &reply)) continue;
    EXPECT(reply.size > DOWNLOAD_BYTES);
    EXPECT(cairn_daemon_ended(&world.server, HANG_MS));
    EXPECT(world.server.status == 0);
    world.server.pid = 0; /* reaped */
}

/* What /readyz answers, whatever it says. */
static json_t *ready_of(struct cairn_world *world) {
    json_t *said = NULL;
    (void)!world_call(world, "GET", "/readyz", NULL, &said);
    return said ? said : json_incref((json_t *)(uintptr_t)cairn_rest_problem(world->rest));
}

TEST(a_stop_is_announced_by_readyz_while_all_else_is_served, err) {
    WORLD_IN("CAIRN_STOP_NOTICE=1h");
    struct cairn_hand_save save;
    json_t *said = NULL;
    HAND(1);
    REQUIRE_OK(world_call(&world, "GET", "/readyz", NULL, &said));
    EXPECT(json_is_true(json_object_get(said, "ready")));
    REQUIRE(kill(world.server.pid, SIGTERM) == 0);
    AWAIT((json_decref(said), said = ready_of(&world),
           json_is_false(json_object_get(said, "ready"))));
    const char *why = world_text(json_object_get(said, "checks"), "server");
    EXPECT(strstr(why, "stopping") != NULL);
    json_decref(said);
    /* A whole save is taken and committed meanwhile. */
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", 4096, &save));
    /* A second signal ends it. */
    EXPECT(cairn_daemon_stop(&world.server, SIGTERM, HANG_MS) == 0);
}

/* Its drain has begun: a request over this connection is refused, or its answer ends it. */
static bool is_draining(struct cairn_raw *kept, struct cairn_buf *reply) {
    return ask_runs(kept, reply) != 200 || occurrences(reply->data, "Connection: close");
}

TEST(a_stop_waits_for_a_download_no_longer_than_its_drain_time, err) {
    WITH(passing, passing, cairn_passing_open(&passing));
    WITH(world, world,
         world_start(&world, WORLD_ARGS("--http-drain=5min", "--request-timeout=10min"),
                     passing.env));
    struct cairn_hand_save save;
    HAND(1);
    REQUIRE_OK(hand_save_all(&hand, 1, 1, "error", DOWNLOAD_BYTES, &save));
    const char *request =
        TEXT("GET %s/shards/rank-00000%%2Fx/data HTTP/1.1\r\nHost: localhost\r\n\r\n", save.path);
    WITH(raw, raw, cairn_raw_open(&raw, world.server.port));
    REQUIRE(cairn_raw_text(&raw, request));
    WITH(buf, reply, cairn_raw_more(&raw, HANG_MS, &reply)); /* it takes no more */
    CAIRN_AUTO(raw) kept = {0};
    CAIRN_AUTO(buf) answer = {0};
    REQUIRE(cairn_raw_open(&kept, world.server.port) && ask_runs(&kept, &answer) == 200);
    REQUIRE(!kill(world.server.pid, SIGTERM));
    REQUIRE_AWAIT(is_draining(&kept, &answer));
    cairn_passing_pass(&passing, 4 * MINUTE_MS);
    EXPECT(!cairn_daemon_ended(&world.server, 300));
    cairn_passing_pass(&passing, 2 * MINUTE_MS);
    EXPECT(cairn_daemon_ended(&world.server, HANG_MS));
    EXPECT(world.server.status == 0);
}
