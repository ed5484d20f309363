/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, one poll loop; answers are built from the request alone. */
#include "tests/support/fake_uploader.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/crc.h"
#include "common/lock.h"
#include "common/text.h"
#include "common/trace.h"

#define LATE_MS 400
#define DEAF_MS 3000
#define CONNECTIONS_MAX 8
#define MESSAGES_MAX 4096
#define SEND_MS 5000

struct connection {
    int fd; /* -1: free */
    struct cairn_frame_reader reader;
    uint64_t slab_bytes;
};
struct recorded {
    json_t *message;
    struct cairn_buf blob;
};
struct cairn_fake_uploader {
    char path[120];
    char nonce[33];      /* one attempt for the fake's life */
    const char *weights; /* of attempts, borrowed; NULL: none */
    uint32_t slab_count;
    uint32_t speaks; /* version of the socket; 0: the newest */
    int wake_fd;
    pthread_t thread;
    struct cairn_lock lock;
    struct cairn_condition changed;
    struct {
        int listen_fd;
        struct connection connections[CONNECTIONS_MAX];
        struct recorded messages[MESSAGES_MAX];
        size_t message_count;
        char script_name[32], script_what[48], offer_state[32], node[65];
        bool verdict_behind_begun, names_tables;
        struct cairn_slab slabs[2], window;
        struct cairn_fake_version version;
        uint64_t read_bytes, read_blocks;
        uint64_t next_save;
        bool stop;
    } locked;
};

static void wake(struct cairn_fake_uploader *fake) {
    uint64_t one = 1;
    if (write(fake->wake_fd, &one, sizeof one) < 0) return;
}

static void disconnect(struct connection *connection) {
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
    cairn_frame_reader_release(&connection->reader);
}

static void send_message(struct connection *connection, json_t *take_message, const int *fds,
                         size_t fd_count) {
    CAIRN_AUTO_JSON json_t *message = take_message;
    CAIRN_AUTO(buf) bytes = {0};
    if (connection->fd < 0 || !message) return;
    if (cairn_frame_encode(message, (struct cairn_view){0}, &bytes, NULL) != CAIRN_OK ||
        cairn_net_send(connection->fd, cairn_buf_view(&bytes), fds, fd_count,
                       cairn_mono_ms() + SEND_MS, NULL) != CAIRN_OK)
        disconnect(connection);
}

static json_t *answer(const json_t *request, json_t *take_message) {
    json_object_set(take_message, "id", json_object_get(request, "id"));
    return take_message;
}

/* ---- answers that carry something ---- */

static void answer_slabs(struct cairn_fake_uploader *fake, struct connection *connection,
                         const json_t *request) {
    int fds[2] = {-1, -1};
    for (uint32_t i = 0; i < fake->slab_count; i++) {
        struct cairn_slab *slab = &fake->locked.slabs[i];
        cairn_slab_release(slab);
        if (cairn_slab_create("fake", connection->slab_bytes, false, slab, NULL) != CAIRN_OK)
            return;
        fds[i] = slab->fd;
    }
    json_t *message = CAIRN_PACK(slabs_given, .count = fake->slab_count,
                                 .bytes = fake->locked.slabs[0].size_bytes);
    send_message(connection, answer(request, message), fds, fake->slab_count);
}

static void answer_offer(struct cairn_fake_uploader *fake, struct connection *connection,
                         struct cairn_frame *frame) {
    CAIRN_AUTO_JSON json_t *states = json_array(), *owners = json_array();
    json_t *save;
    size_t index;
    const json_t *slabs = json_object_get(frame->message, "slabs");
    for (size_t i = 0; i < json_array_size(slabs) && i < frame->fd_count; i++) {
        uint64_t bytes =
            (uint64_t)json_integer_value(json_object_get(json_array_get(slabs, i), "bytes"));
        cairn_slab_release(&fake->locked.slabs[i]);
        if (cairn_slab_attach(frame->fds[i], bytes, false, &fake->locked.slabs[i], NULL) !=
            CAIRN_OK)
            disconnect(connection);
        frame->fds[i] = -1;
    }
    json_array_foreach(json_object_get(frame->message, "saves"), index, save) {
        const char *state = fake->locked.offer_state;
        size_t length = strcspn(state, "+");
        json_array_append_new(states,
                              json_pack("{s:O, s:s%, s:b}", "save", json_object_get(save, "save"),
                                        "state", state, length, "sealed", state[length] != 0));
    }
    for (size_t i = 0; i < json_array_size(slabs); i++) {
        json_t *owner = json_object_get(json_array_get(slabs, i), "owner");
        bool kept = strncmp(fake->locked.offer_state, "continues", 9) == 0;
        json_array_append_new(owners, kept ? json_incref(owner) : json_integer(0));
    }
    struct cairn_msg_offer told = {.session = ""};
    if (cairn_msg_offer_read(frame->message, "", &told, NULL) != CAIRN_OK) disconnect(connection);
    json_t *message =
        CAIRN_PACK(offered, .session = told.session, .saves = states, .owners = owners);
    send_message(connection, answer(frame->message, message), NULL, 0);
}

static void answer_begin(struct cairn_fake_uploader *fake, struct connection *connection,
                         const json_t *request) {
    char uuid[CAIRN_UUID_TEXT_BYTES], version[64];
    cairn_uuid_random(uuid);
    uuid[14] = '8'; /* version ids are version 8 UUIDs */
    snprintf(version, sizeof version, "ckpt_%s", uuid);
    uint32_t save = (uint32_t)fake->locked.next_save++;
    json_t *message = CAIRN_PACK(begun, .save = save, .version = version, .owner = save);
    send_message(connection, answer(request, message), NULL, 0);
    if (!fake->locked.verdict_behind_begun) return;
    send_message(connection,
                 CAIRN_PACK(verdict, .save = save, .state = "aborted", .code = "checkpoint-aborted",
                            .message = "right behind begun"),
                 NULL, 0);
}

/* The name is the table's checksum. */
static void answer_seal(struct cairn_fake_uploader *fake, struct connection *connection,
                        const struct cairn_frame *frame) {
    const struct cairn_buf *blob = &frame->blob;
    char name[16] = "";
    const char *named = json_string_value(json_object_get(frame->message, "table"));
    if (blob->size)
        snprintf(name, sizeof name, "crc-%08x", cairn_crc32c(0, blob->data, blob->size));
    if (named) snprintf(name, sizeof name, "%s", named);
    const char *told = fake->locked.names_tables && name[0] ? name : NULL;
    send_message(connection, answer(frame->message, CAIRN_PACK(sealed, .table = told)), NULL, 0);
}

void cairn_fake_uploader_speaks(struct cairn_fake_uploader *fake, uint32_t version) {
    CAIRN_HOLD(&fake->lock);
    fake->speaks = version;
}

void cairn_fake_uploader_weigh(struct cairn_fake_uploader *fake, const char *weights) {
    fake->weights = weights;
}

void cairn_fake_uploader_names_tables(struct cairn_fake_uploader *fake) {
    CAIRN_HOLD(&fake->lock);
    fake->locked.names_tables = true;
}

void cairn_fake_uploader_verdict_behind_begun(struct cairn_fake_uploader *fake) {
    CAIRN_HOLD(&fake->lock);
    fake->locked.verdict_behind_begun = true;
}

static void answer_hello(struct cairn_fake_uploader *fake, struct connection *connection,
                         const json_t *request) {
    char uuid[CAIRN_UUID_TEXT_BYTES];
    cairn_uuid_random(uuid);
    connection->slab_bytes = (uint64_t)json_integer_value(json_object_get(request, "bytes"));
    json_t *message =
        CAIRN_PACK(welcome, .version = fake->speaks ? fake->speaks : CAIRN_SOCKET_VERSION_MAX,
                   .session = uuid, .node = fake->locked.node, .uploader = "fake");
    send_message(connection, answer(request, message), NULL, 0);
}

static json_t *attempted(const struct cairn_fake_uploader *fake, const json_t *request) {
    return answer(request, CAIRN_PACK(attempted, .attempt = 7, .nonce = fake->nonce,
                                      .resume_version = "", .weights = fake->weights));
}

static json_t *listed(const json_t *request) {
    struct cairn_msg_list told = {0};
    CAIRN_AUTO_JSON json_t *items = json_array(), *none = json_object();
    if (cairn_msg_list_read(request, "", &told, NULL) != CAIRN_OK) return NULL;
    json_array_append_new(
        items,
        CAIRN_PACK(checkpoint_row, .version = "ckpt_00000000-0000-8000-8000-000000000000",
                   .state = "committed", .step = told.cursor ? 1 : 2, .attempt = 1, .bytes = 99,
                   .shards = 3, .latest = !told.cursor, .created_at = "2026-03-02T10:14:07Z",
                   .format = "", .labels = none, .metrics = none));
    CAIRN_AUTO_JSON json_t *reply =
        CAIRN_PACK(checkpoint_page, .items = items, .next_cursor = told.cursor ? NULL : "more");
    return answer(request, CAIRN_PACK(listed, .reply = reply));
}

static void answer_restore(struct cairn_fake_uploader *fake, struct connection *connection,
                           const json_t *request) {
    const struct cairn_fake_version *version = &fake->locked.version;
    int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct cairn_view parts[2] = {version->manifest, version->layout};
    for (size_t i = 0; i < 2; i++)
        if (parts[i].size && write(fd, parts[i].data, parts[i].size) != (ssize_t)parts[i].size)
            disconnect(connection);
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    json_t *message =
        CAIRN_PACK(restored, .restore = 5, .version = "", .manifest_bytes = version->manifest.size,
                   .layout_bytes = version->layout.size);
    send_message(connection, answer(request, message), &fd, 1);
    close(fd);
}

static void answer_window(struct cairn_fake_uploader *fake, struct connection *connection,
                          const json_t *request) {
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(request, "bytes"));
    struct cairn_slab *window = &fake->locked.window;
    cairn_slab_release(window);
    if (!bytes) { /* the client gives it back */
        send_message(connection, answer(request, CAIRN_PACK(window_given, .bytes = 0)), NULL, 0);
        return;
    }
    bool writable = json_is_true(json_object_get(request, "writable"));
    if (cairn_slab_create("fake", cairn_min_u64(bytes, 8 * CAIRN_MIB), !writable, window, NULL))
        return;
    json_t *message = CAIRN_PACK(window_given, .window = 1, .bytes = window->size_bytes);
    send_message(connection, answer(request, message), &window->fd, 1);
}

static void answer_read(struct cairn_fake_uploader *fake, struct connection *connection,
                        const json_t *request) {
    json_t *range;
    size_t index;
    json_array_foreach(json_object_get(request, "ranges"), index, range) {
        size_t shard = (size_t)json_integer_value(json_object_get(range, "shard"));
        uint64_t offset = (uint64_t)json_integer_value(json_object_get(range, "offset"));
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(range, "bytes"));
        uint64_t at = (uint64_t)json_integer_value(json_object_get(range, "at"));
        const struct cairn_view *from = &fake->locked.version.shards[shard];
        if (shard >= fake->locked.version.shard_count || offset + bytes > from->size ||
            at + bytes > fake->locked.window.size_bytes) {
            disconnect(connection);
            return;
        }
        memcpy(fake->locked.window.data + at, (const uint8_t *)from->data + offset, (size_t)bytes);
        fake->locked.read_bytes += bytes;
        fake->locked.read_blocks +=
            cairn_div_up(offset + bytes, CAIRN_BLOCK_BYTES) - offset / CAIRN_BLOCK_BYTES;
    }
    send_message(connection, answer(request, CAIRN_PACK(read_done, 0)), NULL, 0);
}

/* ---- taking in ---- */

static void record(struct cairn_fake_uploader *fake, const struct cairn_frame *frame) {
    if (fake->locked.message_count == MESSAGES_MAX) return;
    struct recorded *record = &fake->locked.messages[fake->locked.message_count++];
    record->message = json_incref(frame->message);
    record->blob = (struct cairn_buf){.limit = CAIRN_FRAME_BLOB_BYTES_MAX};
    if (cairn_buf_append(&record->blob, frame->blob.data, frame->blob.size, NULL) != CAIRN_OK)
        record->blob.size = 0;
    cairn_condition_broadcast(&fake->changed);
}

static bool scripted(struct cairn_fake_uploader *fake, struct connection *connection,
                     const struct cairn_frame *frame) {
    if (strcmp(fake->locked.script_name, frame->name) != 0) return false;
    fake->locked.script_name[0] = 0;
    if (strcmp(fake->locked.script_what, "mute") == 0) return true;
    if (strcmp(fake->locked.script_what, "late") == 0) {
        uint64_t until_ms = cairn_mono_ms() + LATE_MS;
        while (cairn_condition_wait(&fake->changed, &fake->lock, until_ms)) continue;
        return false;
    }
    if (strcmp(fake->locked.script_what, "deaf") == 0) {
        uint64_t until_ms = cairn_mono_ms() + DEAF_MS;
        while (cairn_condition_wait(&fake->changed, &fake->lock, until_ms)) continue;
        return false;
    }
    if (strcmp(fake->locked.script_what, "drop") == 0) {
        disconnect(connection);
        return true;
    }
    bool ended = strcmp(fake->locked.script_what, "ended") == 0;
    uint64_t save = (uint64_t)json_integer_value(json_object_get(frame->message, "save"));
    if (ended)
        send_message(connection,
                     CAIRN_PACK(verdict, .save = (uint32_t)save, .state = "aborted",
                                .code = "no-space", .message = "the server says so"),
                     NULL, 0);
    json_t *message =
        CAIRN_PACK(error, .code = ended ? "not-found" : fake->locked.script_what,
                   .message = "as the script says", .http_status = 507, .request_id = "script-1");
    send_message(connection, answer(frame->message, message), NULL, 0);
    return true;
}

static void take(struct cairn_fake_uploader *fake, struct connection *connection,
                 struct cairn_frame *frame) {
    const json_t *request = frame->message;
    record(fake, frame);
    if (scripted(fake, connection, frame)) return;
    if (strcmp(frame->name, "hello") == 0)
        answer_hello(fake, connection, request);
    else if (strcmp(frame->name, "attempt") == 0)
        send_message(connection, attempted(fake, request), NULL, 0);
    else if (strcmp(frame->name, "slabs") == 0)
        answer_slabs(fake, connection, request);
    else if (strcmp(frame->name, "begin") == 0)
        answer_begin(fake, connection, request);
    else if (strcmp(frame->name, "offer") == 0)
        answer_offer(fake, connection, frame);
    else if (strcmp(frame->name, "list") == 0)
        send_message(connection, listed(request), NULL, 0);
    else if (strcmp(frame->name, "restore") == 0)
        answer_restore(fake, connection, request);
    else if (strcmp(frame->name, "window") == 0)
        answer_window(fake, connection, request);
    else if (strcmp(frame->name, "read") == 0)
        answer_read(fake, connection, request);
    else if (strcmp(frame->name, "seal") == 0)
        answer_seal(fake, connection, frame);
    else if (json_object_get(request, "id"))
        send_message(connection, answer(request, CAIRN_PACK(ok, 0)), NULL, 0);
}

static void receive(struct cairn_fake_uploader *fake, struct connection *connection) {
    bool closed = false, ready = true;
    if (cairn_frame_fill(&connection->reader, connection->fd, &closed, NULL) != CAIRN_OK)
        closed = true;
    while (ready && connection->fd >= 0) {
        CAIRN_AUTO(frame) frame = {0};
        ready = false;
        if (cairn_frame_next(&connection->reader, &frame, &ready, NULL) != CAIRN_OK) closed = true;
        if (ready) take(fake, connection, &frame);
    }
    if (closed) disconnect(connection);
}

static void accept_one(struct cairn_fake_uploader *fake, int fd) {
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &fake->locked.connections[i];
        if (connection->fd >= 0) continue;
        *connection = (struct connection){.fd = fd};
        return;
    }
    close(fd);
}

static size_t poll_list(struct cairn_fake_uploader *fake, struct pollfd *ret,
                        struct connection **ret_connections) {
    size_t count = 0;
    CAIRN_HOLD(&fake->lock);
    ret[count++] = (struct pollfd){.fd = fake->wake_fd, .events = POLLIN};
    ret[count++] = (struct pollfd){.fd = fake->locked.listen_fd, .events = POLLIN};
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (fake->locked.connections[i].fd < 0) continue;
        ret_connections[count] = &fake->locked.connections[i];
        ret[count++] = (struct pollfd){.fd = fake->locked.connections[i].fd, .events = POLLIN};
    }
    return count;
}

static void *run(void *argument) {
    struct cairn_fake_uploader *fake = argument;
    for (;;) {
        struct pollfd wanted[CONNECTIONS_MAX + 2];
        struct connection *connections[CONNECTIONS_MAX + 2];
        uint64_t woken;
        size_t count = poll_list(fake, wanted, connections);
        if (poll(wanted, (nfds_t)count, -1) < 0) continue;
        CAIRN_HOLD(&fake->lock);
        if (fake->locked.stop) return NULL;
        if (wanted[0].revents && read(fake->wake_fd, &woken, sizeof woken) < 0) continue;
        if (wanted[1].revents && wanted[1].fd == fake->locked.listen_fd) {
            int fd = accept4(wanted[1].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0) accept_one(fake, fd);
        }
        for (size_t i = 2; i < count; i++)
            if (wanted[i].revents && connections[i]->fd == wanted[i].fd)
                receive(fake, connections[i]);
    }
}

/* ---- for tests ---- */

enum cairn_code cairn_fake_uploader_new(const char *path, uint32_t slab_count,
                                        struct cairn_fake_uploader **ret, struct cairn_error *err) {
    struct cairn_fake_uploader *fake = calloc(1, sizeof *fake);
    if (!fake) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory");
    snprintf(fake->path, sizeof fake->path, "%s", path);
    fake->slab_count = slab_count;
    uint64_t random[2];
    cairn_random(random, sizeof random);
    cairn_hex_encode(random, sizeof random, fake->nonce);
    fake->locked.listen_fd = -1;
    fake->locked.next_save = 1;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) fake->locked.connections[i].fd = -1;
    cairn_lock_init(&fake->lock, CAIRN_LOCK_test_support);
    cairn_condition_init(&fake->changed);
    cairn_fake_uploader_offer_state(fake, "continues");
    cairn_fake_uploader_rename(fake, "fake");
    fake->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum cairn_code code = cairn_fake_uploader_up(fake, err);
    if (!code && pthread_create(&fake->thread, NULL, run, fake) != 0)
        code = cairn_fail(err, CAIRN_NO_MEMORY, "no thread");
    *ret = fake;
    return code;
}

static void close_all(struct cairn_fake_uploader *fake) {
    if (fake->locked.listen_fd >= 0) close(fake->locked.listen_fd);
    fake->locked.listen_fd = -1;
    unlink(fake->path);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) disconnect(&fake->locked.connections[i]);
    for (size_t i = 0; i < 2; i++) cairn_slab_release(&fake->locked.slabs[i]);
    cairn_slab_release(&fake->locked.window);
}

void cairn_fake_uploader_free(struct cairn_fake_uploader *fake) {
    if (!fake) return;
    cairn_lock_take(&fake->lock);
    fake->locked.stop = true;
    cairn_lock_give(&fake->lock);
    wake(fake);
    pthread_join(fake->thread, NULL);
    close_all(fake);
    for (size_t i = 0; i < fake->locked.message_count; i++) {
        json_decref(fake->locked.messages[i].message);
        cairn_buf_release(&fake->locked.messages[i].blob);
    }
    close(fake->wake_fd);
    cairn_condition_release(&fake->changed);
    cairn_lock_release(&fake->lock);
    free(fake);
}

void cairn_fake_uploader_script(struct cairn_fake_uploader *fake, const char *name,
                                const char *what) {
    CAIRN_HOLD(&fake->lock);
    snprintf(fake->locked.script_name, sizeof fake->locked.script_name, "%s", name);
    snprintf(fake->locked.script_what, sizeof fake->locked.script_what, "%s", what);
}

void cairn_fake_uploader_rename(struct cairn_fake_uploader *fake, const char *node) {
    cairn_lock_take(&fake->lock);
    snprintf(fake->locked.node, sizeof fake->locked.node, "%s", node);
    cairn_lock_give(&fake->lock);
}

void cairn_fake_uploader_offer_state(struct cairn_fake_uploader *fake, const char *state) {
    CAIRN_HOLD(&fake->lock);
    snprintf(fake->locked.offer_state, sizeof fake->locked.offer_state, "%s", state);
}

void cairn_fake_uploader_down(struct cairn_fake_uploader *fake) {
    cairn_lock_take(&fake->lock);
    close_all(fake);
    cairn_lock_give(&fake->lock);
    wake(fake);
}

enum cairn_code cairn_fake_uploader_up(struct cairn_fake_uploader *fake, struct cairn_error *err) {
    int fd = -1;
    CAIRN_TRY(cairn_net_listen_unix(fake->path, 0600, &fd, err));
    cairn_lock_take(&fake->lock);
    fake->locked.listen_fd = fd;
    cairn_lock_give(&fake->lock);
    wake(fake);
    return CAIRN_OK;
}

void cairn_fake_uploader_event(struct cairn_fake_uploader *fake, json_t *take_message) {
    CAIRN_HOLD(&fake->lock);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (fake->locked.connections[i].fd < 0) continue;
        send_message(&fake->locked.connections[i], take_message, NULL, 0);
        return;
    }
    json_decref(take_message);
}

void cairn_fake_uploader_serve(struct cairn_fake_uploader *fake,
                               const struct cairn_fake_version *version) {
    CAIRN_HOLD(&fake->lock);
    fake->locked.version = *version;
}

uint64_t cairn_fake_uploader_read_bytes(struct cairn_fake_uploader *fake) {
    CAIRN_HOLD(&fake->lock);
    return fake->locked.read_bytes;
}

uint64_t cairn_fake_uploader_read_blocks(struct cairn_fake_uploader *fake) {
    CAIRN_HOLD(&fake->lock);
    return fake->locked.read_blocks;
}

static size_t count_of(const struct cairn_fake_uploader *fake, const char *name, size_t *ret_last) {
    size_t count = 0;
    for (size_t i = 0; i < fake->locked.message_count; i++) {
        const json_t *message = fake->locked.messages[i].message;
        if (strcmp(json_string_value(json_object_get(message, "t")), name) != 0) continue;
        count++;
        *ret_last = i;
    }
    return count;
}

size_t cairn_fake_uploader_count(struct cairn_fake_uploader *fake, const char *name) {
    size_t last = 0;
    CAIRN_HOLD(&fake->lock);
    return count_of(fake, name, &last);
}

bool cairn_fake_uploader_saw(struct cairn_fake_uploader *fake, const char *name, size_t count,
                             struct cairn_fake_message *ret) {
    uint64_t deadline_ms = cairn_mono_ms() + SEND_MS;
    size_t last = 0;
    CAIRN_HOLD(&fake->lock);
    while (count_of(fake, name, &last) < count)
        if (!cairn_condition_wait(&fake->changed, &fake->lock, deadline_ms)) return false;
    if (ret) {
        ret->message = fake->locked.messages[last].message;
        ret->blob = cairn_buf_view(&fake->locked.messages[last].blob);
    }
    return true;
}

bool cairn_fake_uploader_at(struct cairn_fake_uploader *fake, const char *name, size_t index,
                            struct cairn_fake_message *ret) {
    size_t count = 0;
    CAIRN_HOLD(&fake->lock);
    for (size_t i = 0; i < fake->locked.message_count; i++) {
        const struct recorded *record = &fake->locked.messages[i];
        if (strcmp(json_string_value(json_object_get(record->message, "t")), name) != 0) continue;
        if (count++ < index) continue;
        *ret = (struct cairn_fake_message){record->message, cairn_buf_view(&record->blob)};
        return true;
    }
    return false;
}

size_t cairn_fake_uploader_connections(struct cairn_fake_uploader *fake) {
    uint64_t deadline_ms = cairn_mono_ms() + 1000;
    size_t open = 1;
    CAIRN_HOLD(&fake->lock);
    for (;;) {
        open = 0;
        for (size_t i = 0; i < CONNECTIONS_MAX; i++) open += fake->locked.connections[i].fd >= 0;
        if (!open || cairn_mono_ms() >= deadline_ms) return open;
        cairn_condition_wait(&fake->changed, &fake->lock, cairn_mono_ms() + 20);
    }
}

const uint8_t *cairn_fake_uploader_slab(struct cairn_fake_uploader *fake, uint32_t index) {
    CAIRN_HOLD(&fake->lock);
    return fake->locked.slabs[index].data;
}
