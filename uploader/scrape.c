/* SPDX-License-Identifier: Apache-2.0 */
/* A listener that answers one question; see scrape.h. */
#include "uploader/scrape.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/log.h"
#include "common/net.h"
#include "common/text.h"
#include "store/store.h"
#include "uploader/metrics.h"
#include "uploader/saves/kept.h"
#include "uploader/saves/save.h"
#include "uploader/saves/slabs.h"
#include "uploader/shards/queue.h"
#include "uploader/shards/shard.h"

#define HEAD_BYTES_MAX 8192
#define PAGE_BYTES_MAX (4 * CAIRN_MIB)

struct cairn_up_scrape {
    struct cairn_up *up;
    int listen_fd, stop_fd;
    bool started;
    pthread_t thread;
};

/* ---- what is counted now ---- */

static enum cairn_up_slab_use use_of(const struct cairn_up_slab *slab) {
    if (slab->state.owner) return CAIRN_UP_SLAB_HELD;
    return cairn_up_kept_is_spare(slab) ? CAIRN_UP_SLAB_KEPT : CAIRN_UP_SLAB_FREE;
}

static void measure_slabs(struct cairn_up *up) {
    int64_t bytes[CAIRN_UP_SLAB_USES] = {0}, kept = 0;
    {
        CAIRN_HOLD(&up->lock);
        for (const struct cairn_up_slab *slab = up->locked.slabs; slab; slab = slab->next)
            bytes[use_of(slab)] += (int64_t)slab->bytes;
        kept = (int64_t)cairn_up_kept_bytes_locked(up);
    }
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(kept_bytes), kept);
    for (size_t use = 0; use < CAIRN_UP_SLAB_USES; use++)
        cairn_metrics_set(up->metrics,
                          (struct cairn_metric_at){CAIRN_UP_METRIC_slab_bytes, use, 0}, bytes[use]);
}

static void measure_queue(struct cairn_up *up) {
    int64_t count = 0;
    {
        CAIRN_HOLD(&up->queue->lock);
        for (const struct cairn_up_shard *shard = up->queue->locked.first; shard;
             shard = shard->queue.next)
            count++;
    }
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(queue_depth), count);
}

static enum cairn_code write_page(struct cairn_up *up, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    measure_slabs(up);
    measure_queue(up);
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(saves_unfinished),
                      (int64_t)cairn_up_save_unfinished(up, NULL));
    cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(memory_budget_bytes),
                      (int64_t)up->budget.total_bytes);
    int64_t keys_until_ms = cairn_store_keys_until_ms(up->store);
    if (keys_until_ms)
        cairn_metrics_set(up->metrics, CAIRN_UP_METRIC(credential_expiry_timestamp_seconds),
                          keys_until_ms / 1000);
    return cairn_metrics_write(up->metrics, ret, err);
}

/* ---- one caller ---- */

/* False: nothing comes by then, or the uploader stops. */
static bool wait_for(const struct cairn_up_scrape *scrape, int fd, uint64_t deadline_ms) {
    uint64_t now_ms = cairn_mono_ms();
    struct pollfd waiting[] = {{.fd = fd, .events = POLLIN},
                               {.fd = scrape->stop_fd, .events = POLLIN}};
    int left_ms = deadline_ms > now_ms ? (int)(deadline_ms - now_ms) : 0;
    return poll(waiting, 2, left_ms) > 0 && !waiting[1].revents;
}

/* The head of a request; its body, if it has one, is nobody's business. */
static bool read_head(const struct cairn_up_scrape *scrape, int fd, char ret[HEAD_BYTES_MAX + 1]) {
    uint64_t deadline_ms = cairn_mono_ms() + CAIRN_UP_SCRAPE_MS;
    size_t size = 0;
    ret[0] = '\0';
    while (size < HEAD_BYTES_MAX && wait_for(scrape, fd, deadline_ms)) {
        ssize_t got = read(fd, ret + size, HEAD_BYTES_MAX - size);
        if (got <= 0) return false;
        size += (size_t)got;
        ret[size] = '\0';
        if (strstr(ret, "\r\n\r\n")) return true;
    }
    return false;
}

static const char *status_of(const char *head) {
    if (cairn_text_starts(head, "GET /metrics HTTP/1.")) return "200 OK";
    if (cairn_text_starts(head, "GET /")) return "404 Not Found";
    return "405 Method Not Allowed\r\nAllow: GET";
}

static void serve(struct cairn_up_scrape *scrape, int fd) {
    char head[HEAD_BYTES_MAX + 1];
    CAIRN_AUTO(buf) page = {.limit = PAGE_BYTES_MAX};
    CAIRN_AUTO(buf) answer = {.limit = PAGE_BYTES_MAX + HEAD_BYTES_MAX};
    struct cairn_error err = {0};
    if (!read_head(scrape, fd, head)) return;
    const char *status = status_of(head);
    enum cairn_code code = CAIRN_OK;
    if (*status == '2') code = write_page(scrape->up, &page, &err);
    if (!code)
        code = cairn_buf_printf(&answer, &err,
                                "HTTP/1.1 %s\r\nContent-Type: " CAIRN_METRICS_TYPE
                                "\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                                "Connection: close\r\n\r\n",
                                status, page.size);
    if (!code && page.size) code = cairn_buf_append(&answer, page.data, page.size, &err);
    if (!code)
        code = cairn_net_send(fd, cairn_buf_view(&answer), NULL, 0,
                              cairn_mono_ms() + CAIRN_UP_SCRAPE_MS, &err);
    if (code) cairn_log(DEBUG, "metrics.unanswered", "cause=\"%s\"", err.message);
}

/* ---- the thread ---- */

static void *scrape_main(void *argument) {
    struct cairn_up_scrape *scrape = argument;
    pthread_setname_np(pthread_self(), "scrape");
    for (;;) {
        struct pollfd waiting[] = {{.fd = scrape->listen_fd, .events = POLLIN},
                                   {.fd = scrape->stop_fd, .events = POLLIN}};
        struct cairn_error err = {0};
        int fd = -1;
        (void)poll(waiting, 2, -1);
        if (waiting[1].revents) return NULL;
        if (cairn_net_accept(scrape->listen_fd, &fd, &err)) /* K08: poll would return at once */
            (void)poll(&waiting[1], 1, CAIRN_NET_ACCEPT_PAUSE_MS);
        if (fd < 0) continue;
        serve(scrape, fd);
        close(fd);
    }
}

enum cairn_code cairn_up_scrape_start(struct cairn_up *up, struct cairn_up_scrape **ret,
                                      struct cairn_error *err) {
    const char *address = up->settings.metrics_listen;
    uint16_t port = 0;
    if (!*address) return CAIRN_OK;
    struct cairn_up_scrape *scrape = calloc(1, sizeof(*scrape));
    if (!scrape) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for metrics");
    scrape->up = up;
    scrape->listen_fd = -1;
    scrape->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum cairn_code code = scrape->stop_fd < 0 ? cairn_fail_errno(err, "metrics") : CAIRN_OK;
    if (!code) code = cairn_net_listen_tcp(address, &scrape->listen_fd, &port, err);
    if (code) code = cairn_within(err, code, "metrics_listen");
    if (!code) {
        errno = pthread_create(&scrape->thread, NULL, scrape_main, scrape);
        scrape->started = !errno;
        if (errno) code = cairn_fail_errno(err, "a thread for metrics");
    }
    if (code) {
        cairn_up_scrape_stop(scrape);
        return code;
    }
    cairn_log(INFO, "metrics.listening", "address=%s port=%u", address, port);
    *ret = scrape;
    return CAIRN_OK;
}

void cairn_up_scrape_stop(struct cairn_up_scrape *scrape) {
    const uint64_t one = 1;
    if (!scrape) return;
    if (scrape->started) {
        (void)!write(scrape->stop_fd, &one, sizeof(one));
        pthread_join(scrape->thread, NULL);
    }
    if (scrape->listen_fd >= 0) close(scrape->listen_fd);
    if (scrape->stop_fd >= 0) close(scrape->stop_fd);
    free(scrape);
}
