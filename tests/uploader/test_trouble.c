/* SPDX-License-Identifier: Apache-2.0 */
/* A server that fails at one save, for as long as it is asked about it. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/uploader/trainer.h"

#define REQUEST_BYTES_MAX (256 * CAIRN_KIB)

/* Between uploader and server: one request a connection. A POST that has `poison` in it is answered
 * 500; while `away`, everything is answered 503. */
struct proxy {
    int fd;
    uint16_t port, server_port;
    pthread_t thread;
    pthread_mutex_t lock;
    char poison[128];
    bool away;
    _Atomic bool stop;
    _Atomic unsigned failed, passed, served;
};
struct visit {
    struct proxy *proxy;
    int fd;
};

/* The whole request, or 0. */
static size_t read_request(int fd, char *into) {
    size_t size = 0;
    for (;;) {
        ssize_t got = recv(fd, into + size, REQUEST_BYTES_MAX - 1 - size, 0);
        if (got <= 0) return 0;
        size += (size_t)got;
        into[size] = '\0';
        const char *end = strstr(into, "\r\n\r\n");
        const char *length = strcasestr(into, "\r\ncontent-length:");
        if (!end) continue;
        size_t head = (size_t)(end + 4 - into);
        size_t body = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
        if (size >= head + body) return size;
    }
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t wrote = send(fd, data, size, MSG_NOSIGNAL);
        if (wrote <= 0) return;
        data += wrote;
        size -= (size_t)wrote;
    }
}

static void refuse(int fd, int status, const char *code) {
    char body[200], page[400];
    snprintf(body, sizeof(body), "{\"code\":\"%s\",\"title\":\"no\",\"status\":%d}", code, status);
    snprintf(page, sizeof(page),
             "HTTP/1.1 %d No\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             status, strlen(body), body);
    send_all(fd, page, strlen(page));
}

static int dial(uint16_t port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0) return fd;
    close(fd);
    return -1;
}

static void pass_on(struct proxy *proxy, int fd, const char *request, size_t size) {
    static const char closing[] = "\r\nConnection: close";
    const char *line = strstr(request, "\r\n");
    char bytes[16384];
    int server = dial(proxy->server_port);
    if (server < 0) return;
    send_all(server, request, (size_t)(line - request));
    send_all(server, closing, sizeof(closing) - 1);
    send_all(server, line, size - (size_t)(line - request));
    for (ssize_t got; (got = recv(server, bytes, sizeof(bytes), 0)) > 0;)
        send_all(fd, bytes, (size_t)got);
    close(server);
}

static void *visit_main(void *argument) {
    struct visit *visit = argument;
    struct proxy *proxy = visit->proxy;
    char *request = malloc(REQUEST_BYTES_MAX);
    size_t size = request ? read_request(visit->fd, request) : 0;
    pthread_mutex_lock(&proxy->lock);
    bool away = proxy->away;
    bool poisoned = size && *proxy->poison && !strncmp(request, "POST", 4) &&
                    memmem(request, size, proxy->poison, strlen(proxy->poison));
    pthread_mutex_unlock(&proxy->lock);
    if (size && poisoned) proxy->failed++;
    if (size && away) {
        refuse(visit->fd, 503, "unavailable");
    } else if (size && poisoned) {
        refuse(visit->fd, 500, "internal");
    } else if (size) {
        proxy->passed++;
        pass_on(proxy, visit->fd, request, size);
    }
    close(visit->fd);
    free(request);
    free(visit);
    proxy->served--;
    return NULL;
}

static void *proxy_main(void *argument) {
    struct proxy *proxy = argument;
    while (!proxy->stop) {
        struct pollfd waiting = {.fd = proxy->fd, .events = POLLIN};
        pthread_t thread;
        if (poll(&waiting, 1, 50) <= 0) continue;
        struct visit *visit = malloc(sizeof(*visit));
        *visit = (struct visit){proxy, accept4(proxy->fd, NULL, NULL, SOCK_CLOEXEC)};
        proxy->served++;
        if (pthread_create(&thread, NULL, visit_main, visit) == 0) pthread_detach(thread);
    }
    return NULL;
}

static bool proxy_start(struct proxy *proxy) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *proxy = (struct proxy){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                            .lock = PTHREAD_MUTEX_INITIALIZER};
    if (bind(proxy->fd, (struct sockaddr *)&at, sizeof(at)) || listen(proxy->fd, 64) ||
        getsockname(proxy->fd, (struct sockaddr *)&at, &size))
        return false;
    proxy->port = ntohs(at.sin_port);
    return !pthread_create(&proxy->thread, NULL, proxy_main, proxy);
}

static void cairn_proxy_release(struct proxy *proxy) {
    if (!proxy->thread) return;
    proxy->stop = true;
    pthread_join(proxy->thread, NULL);
    (void)COMES(!proxy->served);
    close(proxy->fd);
}

static void set(struct proxy *proxy, const char *poison, bool away) {
    pthread_mutex_lock(&proxy->lock);
    snprintf(proxy->poison, sizeof(proxy->poison), "%s", poison);
    proxy->away = away;
    pthread_mutex_unlock(&proxy->lock);
}

/* A world whose uploader asks the server through the proxy; the proxy ends after it. */
static bool open_behind(struct cairn_up_world *world, struct proxy *proxy) {
    static char flag[64];
    static const char *args[] = {flag, NULL};
    if (!proxy_start(proxy)) return false;
    snprintf(flag, sizeof(flag), "--server=http://127.0.0.1:%u", proxy->port);
    if (!world_open(world, &(struct world_options){.no_server = true, .uploader_args = args}))
        return false;
    if (!world_server_start(world)) return false;
    proxy->server_port = world->port;
    return true;
}

static struct trainer_options options_of(const struct cairn_up_world *world, uint32_t rank,
                                         uint32_t ranks) {
    return (struct trainer_options){.socket = world->socket_path,
                                    .job = "job-1",
                                    .rank = rank,
                                    .world_size = ranks,
                                    .local_world_size = ranks};
}

#define BEHIND                                                                                     \
    __attribute__((cleanup(cairn_proxy_release))) struct proxy proxy = {0};                        \
    CAIRN_AUTO(up_world) world = {0};                                                              \
    REQUIRE(open_behind(&world, &proxy))

/* ---- tests ---- */

TEST(a_save_that_the_server_fails_at_holds_up_no_other_and_its_rank_is_told) /* Q6, Q9, Q43 */
{
    BEHIND;
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save bad, good;
    struct trainer_options options = options_of(&world, 0, 1);
    char state[32];
    REQUIRE(trainer_open(&trainer, &options));
    set(&proxy, "\"step\":77", false);
    REQUIRE(trainer_save(&trainer, 77, 0, 1, 1000, &bad));
    REQUIRE(trainer_save(&trainer, 8, 1, 1, 1000, &good));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, good.number, 30000, state), "committed");
    CAIRN_AUTO_JSON json_t *problem = trainer_event(&trainer, "problem", bad.number, 5000);
    REQUIRE(problem != NULL);
    const char *text = json_string_value(json_object_get(problem, "message"));
    EXPECT(text && strstr(text, "the server has failed"));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(problem, "code")), "unavailable");
    unsigned tried = proxy.failed;
    EXPECT(tried >= 5 && tried < 40);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, bad.number, 100, state), "none"); /* not failed */
    set(&proxy, "", false);
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, bad.number, 60000, state), "committed");
    CAIRN_AUTO_JSON json_t *none = trainer_event(&trainer, "problem", UINT32_MAX, 10);
    EXPECT(none == NULL);
}

struct asked {
    struct cairn_up_world *world;
    const char *version;
};
static bool one_rank_is_sealed(void *owner) {
    struct asked *asked = owner;
    char path[200];
    snprintf(path, sizeof(path), "/v1/runs/llm/seven/checkpoints/%s", asked->version);
    CAIRN_AUTO_JSON json_t *version = world_get(asked->world, path);
    return json_integer_value(json_object_get(version, "ranks_sealed")) == 1;
}

TEST(what_is_told_with_a_save_that_the_server_fails_at_is_told_alone) /* Q6 */
{
    BEHIND;
    CAIRN_AUTO(trainer) first = {0}, second = {0};
    struct cairn_trainer *trainers[] = {&first, &second};
    struct trainer_save saves[2];
    char state[32];
    for (uint32_t i = 0; i < 2; i++) {
        struct trainer_options options = options_of(&world, i, 2);
        REQUIRE(trainer_open(trainers[i], &options));
        REQUIRE(trainer_begin(trainers[i], 1, 1, &saves[i]));
    }
    REQUIRE(world_await_state(&world, saves[0].version, "open", 10000));
    set(&proxy, "", true);
    for (uint32_t i = 0; i < 2; i++) {
        REQUIRE(trainer_stage(trainers[i], &saves[i], 0, 1, 1000));
        REQUIRE(trainer_seal(trainers[i], &saves[i]));
    }
    for (uint32_t i = 0; i < 2; i++) { /* both are due when the server is back */
        CAIRN_AUTO_JSON json_t *durable =
            trainer_event(trainers[i], "durable", saves[i].number, (uint32_t)cairn_test_hang_ms());
        REQUIRE(durable != NULL);
    }
    set(&proxy, "\"rank\":1", false);
    struct asked asked = {&world, saves[0].version};
    EXPECT(world_await(one_rank_is_sealed, &asked, 20000));
    EXPECT(proxy.failed > 0);
    set(&proxy, "", false);
    for (uint32_t i = 0; i < 2; i++)
        EXPECT_EQ_TEXT(trainer_verdict(trainers[i], saves[i].number, 60000, state), "committed");
}

TEST(a_trainer_of_the_socket_before_hears_no_problem) /* docs/socket.md */
{
    BEHIND;
    CAIRN_AUTO(trainer) trainer = {0};
    struct trainer_save bad, good;
    struct trainer_options options = options_of(&world, 0, 1);
    char state[32];
    options.socket_max = 2;
    REQUIRE(trainer_open(&trainer, &options));
    set(&proxy, "\"step\":77", false);
    REQUIRE(trainer_save(&trainer, 77, 0, 1, 1000, &bad));
    REQUIRE(trainer_save(&trainer, 8, 1, 1, 1000, &good));
    EXPECT_EQ_TEXT(trainer_verdict(&trainer, good.number, 30000, state), "committed");
    CAIRN_AUTO_JSON json_t *none = trainer_event(&trainer, "problem", UINT32_MAX, 3000);
    EXPECT(none == NULL);
}
