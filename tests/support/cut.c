/* SPDX-License-Identifier: Apache-2.0 */
/* One thread accepts, and each connection has one, which counts messages by their lengths; see
 * cut.h. */
#include "tests/support/cut.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    char folder[64];
    int door;
    atomic_bool stopping;
    atomic_int left[2]; /* messages until the cut, to the client and to the server; 0: no order */
    atomic_bool torn;
    atomic_uint silences; /* orders; a connection from before the newest one is silent */
    atomic_uint slow_ms;
    pthread_t thread;
} own = {.door = -1};

static const char listens[] = "cairn-listen"; /* what a session that listens is named by itself */

/* One way of one connection: where the message that goes through ends. */
struct way {
    int from, to;
    bool typed; /* the first message of a client has no type */
    uint8_t head[5];
    size_t head_size, body_left;
};

/* How many of these bytes are passed on at a cut, where the head of its message ends at `end`. */
static size_t passed_on(const struct way *way, size_t end, size_t wanted, size_t size) {
    if (!atomic_load(&own.torn)) return end > wanted ? end - wanted : 0;
    if (!way->body_left) return end - 1; /* nothing but a head, which is torn itself */
    size_t here = way->body_left < size - end ? way->body_left : size - end;
    return end + here / 2;
}

/* Passes on what it may; false: cut here. */
static bool walk(struct way *way, bool to_server, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size;) {
        if (way->body_left) {
            size_t step = way->body_left < size - i ? way->body_left : size - i;
            way->body_left -= step;
            i += step;
            continue;
        }
        way->head[way->head_size++] = data[i++];
        size_t wanted = way->typed ? 5 : 4;
        if (way->head_size < wanted) continue;
        const uint8_t *at = way->head + wanted - 4;
        size_t told = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];
        way->body_left = told - 4;
        way->head_size = 0;
        way->typed = true;
        int left = atomic_load(&own.left[to_server]);
        if (left > 0 && atomic_fetch_sub(&own.left[to_server], 1) == 1) {
            atomic_store(&own.left[to_server], -1);
            size_t some = passed_on(way, i, wanted, size);
            if (some) (void)!send(way->to, data, some, MSG_NOSIGNAL);
            return false;
        }
    }
    return send(way->to, data, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* Nothing is read: what one side sends stays in its socket. Until the client gives up. */
static void be_silent(int client) {
    struct pollfd fd = {.fd = client, .events = POLLRDHUP};
    while (!atomic_load(&own.stopping) && poll(&fd, 1, 100) == 0) {
    }
}

static void *relay(void *argument) {
    int client = (int)(intptr_t)argument;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/.s.PGSQL.5432", own.folder);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool good = server >= 0 && !connect(server, (struct sockaddr *)&name, sizeof(name));
    struct way ways[2] = {{.from = server, .to = client, .typed = true},
                          {.from = client, .to = server}};
    unsigned silences = atomic_load(&own.silences);
    bool marked = false;
    while (good && !atomic_load(&own.stopping)) {
        struct pollfd fds[2] = {{.fd = server, .events = POLLIN}, {.fd = client, .events = POLLIN}};
        if (poll(fds, 2, 100) < 0) break;
        if (marked && atomic_load(&own.silences) != silences) {
            be_silent(client);
            break;
        }
        for (int i = 0; i < 2 && good; i++) {
            uint8_t data[16384];
            if (!fds[i].revents) continue;
            ssize_t size = read(ways[i].from, data, sizeof(data));
            if (i == 1 && size > 0 && memmem(data, (size_t)size, listens, strlen(listens)))
                marked = true;
            if (i == 1 && size > 0) /* pause of a stand-in: a slow link */
                usleep((useconds_t)(1000 * own.slow_ms * (size_t)size / sizeof(data)));
            good = size > 0 && walk(&ways[i], i == 1, data, (size_t)size);
        }
    }
    close(client);
    if (server >= 0) close(server);
    return NULL;
}

static void *accept_all(void *argument) {
    (void)argument;
    while (!atomic_load(&own.stopping)) {
        struct pollfd fd = {.fd = own.door, .events = POLLIN};
        if (poll(&fd, 1, 100) <= 0) continue;
        int client = accept4(own.door, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) continue;
        pthread_t thread;
        if (pthread_create(&thread, NULL, relay, (void *)(intptr_t)client)) {
            close(client);
            continue;
        }
        pthread_detach(thread);
    }
    return NULL;
}

bool cairn_cut_start(const char *folder) {
    snprintf(own.folder, sizeof(own.folder), "%s", folder);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/.s.PGSQL.5433", own.folder);
    unlink(name.sun_path);
    atomic_store(&own.stopping, false);
    own.door = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return own.door >= 0 && !bind(own.door, (struct sockaddr *)&name, sizeof(name)) &&
           !listen(own.door, 16) && !pthread_create(&own.thread, NULL, accept_all, NULL);
}

void cairn_cut_stop(void) {
    atomic_store(&own.stopping, true);
    pthread_join(own.thread, NULL);
    close(own.door);
    own.door = -1;
}

void cairn_cut_order(bool to_server, unsigned count, bool torn) {
    atomic_store(&own.left[!to_server], 0);
    atomic_store(&own.torn, torn);
    atomic_store(&own.left[to_server], (int)count);
}

void cairn_cut_slow(unsigned ms) {
    atomic_store(&own.slow_ms, ms);
}

void cairn_cut_silence(void) {
    atomic_fetch_add(&own.silences, 1);
}

bool cairn_cut_done(void) {
    bool done = atomic_load(&own.left[0]) < 0 || atomic_load(&own.left[1]) < 0;
    atomic_store(&own.left[0], 0);
    atomic_store(&own.left[1], 0);
    return done;
}
