/* SPDX-License-Identifier: Apache-2.0 */
/* A listener that answers one question; see scrape.h. */
#include "uploader/scrape.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
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
#define CALLERS_MAX CAIRN_UP_SCRAPE_CALLERS_MAX
#define PAGE_BYTES_MAX (4 * CAIRN_MIB)

/* fd -1: a free place. answer: empty until its head is whole. */
struct caller {
    int fd;
    uint64_t since_ms; /* mono clock: it came, or its answer was made */
    char head[HEAD_BYTES_MAX + 1];
    size_t head_size;
    struct cairn_buf answer;
    size_t sent;
};

struct cairn_up_scrape {
    struct cairn_up *up;
    int listen_fd, stop_fd;
    bool started;
    pthread_t thread;
    struct caller callers[CALLERS_MAX]; /* of the thread */
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
        count = (int64_t)up->queue->locked.depth;
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

static const char *status_of(const char *head) {
    if (cairn_text_starts(head, "GET /metrics HTTP/1.")) return "200 OK";
    if (cairn_text_starts(head, "GET /")) return "404 Not Found";
    return "405 Method Not Allowed\r\nAllow: GET";
}

static void drop(struct caller *caller) {
    if (caller->fd >= 0) close(caller->fd);
    cairn_buf_release(&caller->answer);
    *caller = (struct caller){.fd = -1};
}

static enum cairn_code write_answer(struct cairn_up *up, struct caller *caller,
                                    struct cairn_error *err) {
    CAIRN_AUTO(buf) page = {.limit = PAGE_BYTES_MAX};
    const char *status = status_of(caller->head);
    caller->answer.limit = PAGE_BYTES_MAX + HEAD_BYTES_MAX;
    caller->since_ms = cairn_mono_ms();
    if (*status == '2') CAIRN_TRY(write_page(up, &page, err));
    CAIRN_TRY(cairn_buf_printf(&caller->answer, err,
                               "HTTP/1.1 %s\r\nContent-Type: " CAIRN_METRICS_TYPE
                               "\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                               "Connection: close\r\n\r\n",
                               status, page.size));
    return cairn_buf_append(&caller->answer, page.data, page.size, err);
}

/* The head of a request; its body, if it has one, is nobody's business. False: it is over. */
static bool read_head(struct cairn_up *up, struct caller *caller) {
    struct cairn_error err = {0};
    ssize_t got =
        read(caller->fd, caller->head + caller->head_size, HEAD_BYTES_MAX - caller->head_size);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (!got) return false;
    caller->head_size += (size_t)got;
    caller->head[caller->head_size] = '\0';
    if (!strstr(caller->head, "\r\n\r\n")) return caller->head_size < HEAD_BYTES_MAX;
    if (!write_answer(up, caller, &err)) return true;
    cairn_log(DEBUG, "metrics.unanswered", "cause=\"%s\"", err.message);
    return false;
}

static bool send_answer(struct caller *caller) {
    ssize_t sent = send(caller->fd, caller->answer.data + caller->sent,
                        caller->answer.size - caller->sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    caller->sent += (size_t)sent;
    return caller->sent < caller->answer.size;
}

/* As far as it goes without waiting. */
static void serve(struct cairn_up *up, struct caller *caller) {
    bool open = true;
    if (!caller->answer.size) open = read_head(up, caller);
    if (open && caller->answer.size) open = send_answer(caller);
    if (!open) drop(caller);
}

/* ---- all of them ---- */

/* Who goes where all places are taken: the oldest head that is not whole, else the oldest answer
 * that is not taken. */
static struct caller *next_to_go(struct cairn_up_scrape *scrape) {
    struct caller *found = &scrape->callers[0];
    for (size_t i = 1; i < CALLERS_MAX; i++) {
        struct caller *one = &scrape->callers[i];
        bool answered = one->answer.size, before = found->answer.size;
        if (answered == before ? one->since_ms < found->since_ms : before) found = one;
    }
    return found;
}

static struct caller *make_place(struct cairn_up_scrape *scrape) {
    for (size_t i = 0; i < CALLERS_MAX; i++)
        if (scrape->callers[i].fd < 0) return &scrape->callers[i];
    struct caller *caller = next_to_go(scrape);
    drop(caller);
    return caller;
}

/* Its request may have come already. False: one is to pause (K08). */
static bool take_caller(struct cairn_up_scrape *scrape) {
    struct cairn_error err = {0};
    int fd = -1;
    if (cairn_net_accept(scrape->listen_fd, &fd, &err)) return false;
    if (fd < 0) return true;
    struct caller *caller = make_place(scrape);
    caller->fd = fd;
    caller->since_ms = cairn_mono_ms();
    serve(scrape->up, caller);
    return true;
}

/* Drops who has had its time; for how long to wait for the others, -1: there are none. */
static int cut_overdue(struct cairn_up_scrape *scrape) {
    uint64_t now_ms = cairn_mono_ms(), left_ms = UINT64_MAX;
    for (size_t i = 0; i < CALLERS_MAX; i++) {
        struct caller *one = &scrape->callers[i];
        if (one->fd < 0) continue;
        uint64_t until_ms = one->since_ms + CAIRN_UP_SCRAPE_MS;
        if (until_ms <= now_ms)
            drop(one);
        else
            left_ms = cairn_min_u64(left_ms, until_ms - now_ms);
    }
    return left_ms == UINT64_MAX ? -1 : (int)left_ms;
}

/* ---- the thread ---- */

static void *scrape_main(void *argument) {
    struct cairn_up_scrape *scrape = argument;
    pthread_setname_np(pthread_self(), "scrape");
    for (;;) {
        struct pollfd waiting[2 + CALLERS_MAX] = {{.fd = scrape->stop_fd, .events = POLLIN},
                                                  {.fd = scrape->listen_fd, .events = POLLIN}};
        int left_ms = cut_overdue(scrape);
        for (size_t i = 0; i < CALLERS_MAX; i++)
            waiting[2 + i] = (struct pollfd){
                .fd = scrape->callers[i].fd,
                .events = scrape->callers[i].answer.size ? POLLOUT : POLLIN};
        (void)poll(waiting, CAIRN_COUNT(waiting), left_ms);
        if (waiting[0].revents) return NULL;
        for (size_t i = 0; i < CALLERS_MAX; i++)
            if (waiting[2 + i].revents) serve(scrape->up, &scrape->callers[i]);
        if (waiting[1].revents && !take_caller(scrape))
            (void)poll(&waiting[0], 1, CAIRN_NET_ACCEPT_PAUSE_MS);
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
    for (size_t i = 0; i < CALLERS_MAX; i++) scrape->callers[i].fd = -1;
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
    for (size_t i = 0; i < CALLERS_MAX; i++) drop(&scrape->callers[i]);
    if (scrape->listen_fd >= 0) close(scrape->listen_fd);
    if (scrape->stop_fd >= 0) close(scrape->stop_fd);
    free(scrape);
}
