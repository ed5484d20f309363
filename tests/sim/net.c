/* SPDX-License-Identifier: Apache-2.0 */
/* common/http/http.h without sockets: a request is copied, travels, is served and comes back. */
#include "tests/sim/net.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/http/http.h"
#include "common/net.h"
#include "tests/sim/check.h"
#include "tests/sim/stories.h"

#define CONNECT_US UINT64_C(5000000)
#define RESEND_US UINT64_C(200000)
#define LATE_US_MAX UINT64_C(20000000)

struct sim_way sim_ways[SIM_NODES_MAX];

struct cairn_http_engine {
    uint32_t in_flight;
};

enum cairn_code cairn_http_engine_new(const struct cairn_http_options *options,
                                      struct cairn_http_engine **ret, struct cairn_error *err) {
    (void)options;
    *ret = calloc(1, sizeof **ret);
    return *ret ? CAIRN_OK : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an engine");
}

void cairn_http_engine_free(struct cairn_http_engine *engine) {
    free(engine);
}

/* The rest of the interface is store_s3's, which the simulation does not run. */
enum cairn_code cairn_http_submit(struct cairn_http_engine *engine,
                                  struct cairn_http_request *request, struct cairn_error *err) {
    (void)engine, (void)request, (void)err;
    abort();
}

void cairn_http_cancel(struct cairn_http_engine *engine, struct cairn_http_request *request) {
    (void)engine, (void)request;
    abort();
}

enum cairn_code cairn_http_poll(struct cairn_http_engine *engine, uint32_t timeout_ms,
                                struct cairn_error *err) {
    (void)engine, (void)timeout_ms, (void)err;
    abort();
}

void cairn_http_wake(struct cairn_http_engine *engine) {
    (void)engine;
}

uint32_t cairn_http_in_flight(const struct cairn_http_engine *engine) {
    return engine->in_flight;
}

/* ---- a request ---- */

static const char *path_of(const char *url) {
    const char *host = strstr(url, "://");
    const char *path = strchr(host ? host + 3 : url, '/');
    return path ? path : "/";
}

static void add_header(struct sim_exchange *exchange, const char *name, const char *value) {
    CAIRN_ASSERT(exchange->header_count < CAIRN_COUNT(exchange->headers));
    exchange->headers[exchange->header_count] = strdup(name);
    exchange->values[exchange->header_count++] = strdup(value);
}

static struct sim_exchange *copy_of(const struct cairn_http_request *request) {
    struct sim_exchange *exchange = calloc(1, sizeof *exchange);
    snprintf(exchange->method, sizeof exchange->method, "%s", request->method);
    exchange->target = strdup(path_of(request->url));
    for (size_t i = 0; i < request->header_count; i++) {
        char *line = strdup(request->headers[i]);
        char *colon = strstr(line, ": ");
        CAIRN_ASSERT(colon);
        *colon = '\0';
        add_header(exchange, line, colon + 2);
        free(line);
    }
    if (request->has_body) {
        char size[24];
        exchange->body_bytes = request->body.size;
        exchange->body = malloc(request->body.size + 1);
        if (request->body.size) memcpy(exchange->body, request->body.data, request->body.size);
        sim_stories_spoil(exchange);
        snprintf(size, sizeof size, "%zu", exchange->body_bytes);
        add_header(exchange, "Content-Length", size);
    }
    return exchange;
}

static enum cairn_code take_reply(struct cairn_http_request *request,
                                  const struct sim_exchange *exchange, struct cairn_error *err) {
    request->status = exchange->status;
    request->content_length = exchange->reply_bytes;
    request->reply_bytes = exchange->reply_bytes;
    for (size_t i = 0; request->on_header && i < exchange->reply_header_count; i++)
        request->on_header(request, cairn_view_of(exchange->reply_names[i]),
                           cairn_view_of(exchange->reply_values[i]));
    if (!exchange->reply_bytes) return CAIRN_OK;
    if (request->reply_data && exchange->status < 300) {
        if (exchange->reply_bytes > request->reply_capacity)
            return cairn_fail(err, CAIRN_PROTOCOL, "a longer reply than was asked for");
        memcpy(request->reply_data, exchange->reply, exchange->reply_bytes);
        return CAIRN_OK;
    }
    return cairn_buf_append(request->reply_buf, exchange->reply, exchange->reply_bytes, err);
}

/* ---- the way ---- */

static void *deliver_late(void *argument) {
    sim_sleep_us(sim_between(1000, LATE_US_MAX));
    struct sim_exchange *exchange = argument;
    sim_note("late: %s %s", exchange->method, exchange->target);
    (void)sim_mhd_submit(exchange);
    return NULL;
}

static enum cairn_code nothing_came(uint64_t until_us, struct cairn_error *err) {
    if (until_us > sim_now_us()) sim_sleep_us(until_us - sim_now_us());
    return cairn_fail(err, CAIRN_TIMEOUT, "no whole reply");
}

/* A proxy of the site that does not know the server at the moment. */
static enum cairn_code answer_foreign(struct cairn_http_request *request, struct cairn_error *err) {
    static const char page[] = "<html>default backend - 404</html>";
    struct sim_exchange answer = {.status = 404,
                                  .reply = (uint8_t *)(uintptr_t)page,
                                  .reply_bytes = sizeof page - 1,
                                  .reply_header_count = 1};
    answer.reply_names[0] = (char *)(uintptr_t) "Content-Type";
    answer.reply_values[0] = (char *)(uintptr_t) "text/html";
    return take_reply(request, &answer, err);
}

/* A cut that is shorter than TCP's patience delays what was on the way; the rest is lost with its
 * connection. */
static bool comes_after_all(const struct sim_way *way, uint64_t until_us) {
    if (sim_chance(500)) return false;
    while (way->cut && sim_now_us() < until_us) sim_sleep_us(RESEND_US);
    return sim_now_us() < until_us;
}

static enum cairn_code travel(const struct sim_way *way, struct cairn_http_request *request,
                              struct cairn_error *err) {
    uint64_t total_ms = request->total_ms ? request->total_ms : 30000;
    uint64_t until_us = sim_now_us() + total_ms * UINT64_C(1000);
    if (way->cut) {
        uint64_t connect_us = cairn_min_u64(until_us, sim_now_us() + CONNECT_US);
        return nothing_came(connect_us, err);
    }
    sim_sleep_us(sim_between(20, way->us_max + 20));
    if (way->foreign) return answer_foreign(request, err);
    struct sim_exchange *exchange = copy_of(request);
    if (sim_chance(way->late)) {
        sim_spawn_alone(sim_process_of(1), deliver_late, exchange);
        return nothing_came(cairn_min_u64(until_us, sim_now_us() + CONNECT_US), err);
    }
    if (!sim_mhd_submit(exchange)) return cairn_fail(err, CAIRN_UNAVAILABLE, "connection refused");
    request->reached = true;
    while (!exchange->done && sim_now_us() < until_us) (void)sim_wait(exchange, until_us);
    if (!exchange->done) return cairn_fail(err, CAIRN_TIMEOUT, "no whole reply");
    if (exchange->broken || sim_chance(way->lost))
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the connection ended without a reply");
    sim_sleep_us(sim_between(20, way->us_max + 20));
    if (way->cut && !comes_after_all(way, until_us)) return nothing_came(until_us, err);
    return take_reply(request, exchange, err);
}

/* Q49: a node whose heartbeats the server refuses is a node that nobody hears. */
static void check_heartbeat(const struct sim_process *self,
                            const struct cairn_http_request *request) {
    bool refused = request->status >= 400 && request->status < 500;
    if (!refused || sim_ways[self->number].foreign || strcmp(request->method, "PUT") != 0 ||
        strncmp(path_of(request->url), "/v1/nodes/", 10) != 0)
        return;
    sim_violation("V33: the server answers %d to the heartbeat of node %d", request->status,
                  self->number);
}

enum cairn_code cairn_http_perform(struct cairn_http_engine *engine,
                                   struct cairn_http_request *request, struct cairn_error *err) {
    struct sim_process *self = sim_self();
    int node = self->kind == SIM_UPLOADER ? self->number : SIM_NODES_MAX - 1;
    struct cairn_error why = {0};
    engine->in_flight++;
    request->code = travel(&sim_ways[node], request, &why);
    engine->in_flight--;
    check_heartbeat(self, request);
    sim_note("%s %s -> %d %s", request->method, path_of(request->url), request->status,
             request->code ? why.message : "");
    if (request->code) {
        request->error = why;
        if (err) *err = why;
    }
    if (request->done) request->done(request);
    return request->code;
}

/* ---- the server's own acceptor ---- */

enum cairn_code __wrap_cairn_net_listen_tcp(const char *address, int *ret_fd, uint16_t *ret_port,
                                            struct cairn_error *err);
enum cairn_code __wrap_cairn_net_listen_tcp(const char *address, int *ret_fd, uint16_t *ret_port,
                                            struct cairn_error *err) {
    (void)address;
    *ret_fd = eventfd(0, EFD_CLOEXEC);
    *ret_port = 1;
    return *ret_fd < 0 ? cairn_fail_errno(err, "a descriptor") : CAIRN_OK;
}
