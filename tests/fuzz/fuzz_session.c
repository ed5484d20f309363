/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One trainer's session, from its first frame to its end, over a real socket with descriptors: the
 * uploader's own code with all that it reaches, but for its senders, and for a server, which is
 * away. An input is a list of frames: a byte that says what goes with each (its lower four bits:
 * which descriptors, its upper four: how much blob), two bytes of length, and the message.
 * `attempt` needs a server, so what comes of it is put in place here.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "store/open.h"
#include "store/store.h"
#include "tests/fuzz/fuzz.h"
#include "uploader/daemon.h"
#include "uploader/fetch/fetch.h"
#include "uploader/mail.h"
#include "uploader/saves/ranks.h"
#include "uploader/saves/slabs.h"
#include "uploader/send/send.h"
#include "uploader/server/outbox.h"
#include "uploader/server/watch.h"
#include "uploader/trainers/session.h"

#define CONN 1
#define FRAMES_MAX 64
#define SEND_MS 2000
#define ANSWER_MS 150 /* some wait longer, such as for memory: they are not waited for */
#define UUID "6f1c2b3a-4d5e-8f70-9a1b-2c3d4e5f6071"
#define NONCE "0123456789abcdef0123456789abcdef"

struct scene {
    struct cairn_up up;
    struct cairn_up_session *session; /* NULL: it has ended */
    struct cairn_frame_reader reader;
    int ends[2]; /* the trainer's, the uploader's */
    char folder[64], grant[CAIRN_GRANT_BYTES_MAX];
    json_int_t awaited; /* id of the last request; 0: it is answered */
    bool hung_up;
};

static char *no_text(void) {
    static char empty[1];
    return empty;
}

/* Every setting has some value, those that count have a good one. */
#define FILL_TEXT(name) settings->name = no_text();
#define FILL_FLAG FILL_TEXT
#define FILL_COUNT(name) settings->name = 1;
#define FILL_SIZE(name) settings->name##_bytes = CAIRN_MIB;
#define FILL_TIME(name) settings->name##_ms = 1000;
#define FILL_BOOL(name) settings->name = false;
static void fill_settings(struct cairn_up_settings *settings) {
#define CONFIG(type, name, fallback, min, max, why) FILL_##type(name)
#include "uploader/settings.def"
#undef CONFIG
    static char server[] = "http://127.0.0.1:9"; /* where nobody listens */
    settings->server = server;
    settings->connections_max = 8;
}

static enum cairn_code replay_nothing(void *owner, const struct cairn_up_replayed *record,
                                      struct cairn_error *err) {
    (void)owner;
    (void)record;
    (void)err;
    return CAIRN_OK;
}

/* As uploader/daemon.c, but that nothing is sent and nobody is told. */
static void open_up(struct cairn_up *up, char *folder) {
    struct cairn_error err = {0};
    fill_settings(&up->settings);
    up->settings.store = folder;
    snprintf(up->places.node, sizeof up->places.node, "n1");
    snprintf(up->places.journal_path, sizeof up->places.journal_path, "%s/j", up->settings.store);
    up->places.budget_bytes = 12 * CAIRN_MIB;
    cairn_lock_init(&up->lock, CAIRN_LOCK_uploader_state);
    cairn_condition_init(&up->changed);
    cairn_up_wakeup_init(&up->outbox_work);
    cairn_up_wakeup_init(&up->partner_work);
    cairn_budget_init(&up->budget, up->places.budget_bytes);
    cairn_uuid_random(up->uuid);
    const struct cairn_store_options store = {.url = up->settings.store};
    const struct cairn_up_journal_options journal = {.path = up->places.journal_path,
                                                     .node = up->places.node,
                                                     .replay = replay_nothing,
                                                     .lost = cairn_up_save_unwritten,
                                                     .lost_owner = up};
    FUZZ_HOLDS(cairn_store_open(&store, &up->store, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_mail_new(&up->mail, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_tasks_new(up, &up->tasks, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_queue_new(up, &up->queue, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_send_new(up, &up->send, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_fetch_new(up, &up->fetch, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_journal_open(&journal, &up->journal, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_outbox_new(up, &up->outbox, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_up_watch_new(up, &up->watch, &err) == CAIRN_OK);
}

/* ---- what goes with a frame ---- */

static int a_slab(uint64_t bytes, int seals) {
    int fd = memfd_create("fuzz-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_HOLDS(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    FUZZ_HOLDS(!seals || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static int a_file(const char *text, int flags) {
    int fd = memfd_create("fuzz-file", MFD_CLOEXEC);
    char path[40];
    FUZZ_HOLDS(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int opened = open(path, flags | O_CLOEXEC);
    FUZZ_HOLDS(opened >= 0);
    close(fd);
    return opened;
}

static int a_socket(void) {
    int pair[2];
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    close(pair[1]);
    return pair[0];
}

static size_t descriptors(unsigned which, int ret[CAIRN_NET_FDS_MAX]) {
    const int good = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    switch (which) {
    case 1:
        ret[0] = a_file("12345", O_RDONLY);
        return 1;
    case 2:
        ret[0] = a_slab(2 * CAIRN_MIB, good);
        return 1;
    case 3:
        ret[0] = a_slab(2 * CAIRN_MIB, 0);
        return 1;
    case 4:
        ret[0] = a_socket();
        return 1;
    case 5:
        ret[0] = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return 1;
    case 6:
        ret[0] = open("/", O_PATH | O_CLOEXEC);
        return 1;
    case 7:
        ret[0] = open("/dev/zero", O_RDONLY | O_CLOEXEC);
        return 1;
    case 8:
        ret[0] = a_file("12345", O_WRONLY);
        return 1;
    case 9:
        ret[0] = a_slab(2 * CAIRN_MIB, good), ret[1] = a_slab(4096, good);
        return 2;
    case 10:
        ret[0] = a_file("12345", O_RDONLY), ret[1] = a_socket();
        return 2;
    case 11:
        for (size_t i = 0; i < CAIRN_NET_FDS_MAX; i++) ret[i] = a_file("12345", O_RDONLY);
        return CAIRN_NET_FDS_MAX;
    default:
        return 0;
    }
}

/* ---- one session ---- */

/* What the socket's thread does with what was posted (uploader/trainers/socket.c). */
static void read_mail(struct scene *scene) {
    struct cairn_up_mail_item *item = cairn_up_mail_take(scene->up.mail);
    for (struct cairn_up_mail_item *next; item; item = next) {
        next = item->next;
        if (item->run) {
            item->run(item->owner, item->conn == CONN ? scene->session : NULL);
            continue;
        }
        struct cairn_up_message *message = (struct cairn_up_message *)item;
        const json_t *id = json_object_get(message->message, "id");
        if (id && json_integer_value(id) == scene->awaited) scene->awaited = 0;
        scene->hung_up |= message->hang_up;
        cairn_up_message_free(message);
    }
}

/* The answer comes before the next frame, be it of a helper or of the journal, so that an input
 * always does the same. */
static void await_answer(struct scene *scene) {
    uint64_t until_ms = cairn_mono_ms() + ANSWER_MS;
    for (;;) {
        bool busy = scene->session->attempting || scene->session->reserving;
        struct pollfd mail = {.fd = cairn_up_mail_fd(scene->up.mail), .events = POLLIN};
        cairn_up_slabs_serve(&scene->up);
        if (poll(&mail, 1, busy || scene->awaited ? 20 : 0) > 0) read_mail(scene);
        if (scene->hung_up || cairn_mono_ms() >= until_ms) return;
        if (!scene->awaited && !scene->session->attempting && !scene->session->reserving) return;
    }
}

/* The right that a server would have given. */
static void attempt(struct scene *scene) {
    struct cairn_error err = {0};
    if (!scene->session->greeted || scene->session->attempt) return;
    CAIRN_HOLD(&scene->up.lock);
    FUZZ_HOLDS(cairn_up_attempt_join(&scene->up, scene->grant, &scene->session->attempt, &err) ==
               CAIRN_OK);
    scene->session->attempt->sessions++;
}

static bool take_frames(struct scene *scene) {
    bool closed = false, ready = true;
    struct cairn_error err = {0};
    while (ready && !closed && !scene->hung_up) {
        CAIRN_AUTO(frame) frame = {0};
        enum cairn_code code = cairn_frame_fill(&scene->reader, scene->ends[1], &closed, &err);
        if (code == CAIRN_OK) code = cairn_frame_next(&scene->reader, &frame, &ready, &err);
        bool stands_in = code == CAIRN_OK && ready && !strcmp(frame.name, "attempt");
        scene->awaited = 0;
        if (code == CAIRN_OK && ready && !stands_in && strcmp(frame.name, "staged") != 0)
            scene->awaited = json_integer_value(json_object_get(frame.message, "id"));
        if (stands_in)
            attempt(scene);
        else if (code == CAIRN_OK && ready)
            code = cairn_up_session_frame(scene->session, &frame, &err);
        FUZZ_SAYS_WHY(code, err);
        if (code != CAIRN_OK) return false;
        await_answer(scene);
    }
    return !scene->hung_up;
}

static bool send_frame(struct scene *scene, struct cairn_view message, unsigned with) {
    CAIRN_AUTO(buf) bytes = {0};
    uint8_t head[8], blob[15 * 4] = {1, 2, 3, 4};
    int fds[CAIRN_NET_FDS_MAX];
    size_t blob_bytes = 4 * (with >> 4), fd_count = descriptors(with & 15, fds);
    cairn_store_u32le(head, (uint32_t)message.size);
    cairn_store_u32le(head + 4, (uint32_t)blob_bytes);
    struct cairn_error err = {0};
    bool sent = cairn_buf_append(&bytes, head, sizeof head, &err) == CAIRN_OK &&
                cairn_buf_append(&bytes, message.data, message.size, &err) == CAIRN_OK &&
                cairn_buf_append(&bytes, blob, blob_bytes, &err) == CAIRN_OK &&
                cairn_net_send(scene->ends[0], cairn_buf_view(&bytes), fds, fd_count,
                               cairn_mono_ms() + SEND_MS, &err) == CAIRN_OK;
    for (size_t i = 0; i < fd_count; i++) close(fds[i]);
    return sent;
}

static void remove_folder(const char *folder) {
    char path[80];
    EACH_TEXT(text, "j", "j.lock", "j.new") {
        snprintf(path, sizeof path, "%s/%s", folder, text);
        unlink(path);
    }
    FUZZ_HOLDS(rmdir(folder) == 0);
}

static void play(struct scene *scene, struct cairn_view input) {
    const uint8_t *at = (const uint8_t *)input.data, *end = at + input.size;
    for (int i = 0; i < FRAMES_MAX && end - at >= 3; i++) {
        size_t size = (size_t)at[1] | (size_t)at[2] << 8;
        if (size > (size_t)(end - at) - 3) size = (size_t)(end - at) - 3;
        struct cairn_view message = {(const char *)at + 3, size};
        if (!send_frame(scene, message, at[0]) || !take_frames(scene)) return;
        at += 3 + size;
    }
}

void cairn_fuzz_session(struct cairn_view input) {
    static const uint8_t key[CAIRN_GRANT_KEY_BYTES] = {7};
    static struct scene scene;
    struct cairn_error err = {0};
    scene = (struct scene){0};
    int lowest = dup(0);
    close(lowest);
    FUZZ_HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, scene.ends) == 0);
    const struct cairn_grant grant = {
        .store_uuid = UUID, .name = {"llm", "7b"}, .attempt = 3, .nonce = NONCE};
    cairn_grant_sign(&grant, key, scene.grant);
    snprintf(scene.folder, sizeof scene.folder, "/tmp/cairn-fuzz-XXXXXX");
    FUZZ_HOLDS(mkdtemp(scene.folder));
    open_up(&scene.up, scene.folder);
    struct cairn_up_attempt *known = NULL; /* for offers: a save of the rank still has it */
    cairn_lock_take(&scene.up.lock);
    FUZZ_HOLDS(cairn_up_attempt_join(&scene.up, scene.grant, &known, &err) == CAIRN_OK);
    cairn_lock_give(&scene.up.lock);
    FUZZ_HOLDS(cairn_up_session_new(&scene.up, CONN, getuid(), getpid(), &scene.session, &err) ==
               CAIRN_OK);
    play(&scene, input);
    struct cairn_up_session *session = scene.session;
    scene.session = NULL;
    cairn_up_session_end(session);
    read_mail(&scene);
    cairn_frame_reader_release(&scene.reader);
    close(scene.ends[0]);
    close(scene.ends[1]);
    cairn_lock_take(&scene.up.lock);
    cairn_up_attempt_leave(&scene.up, known);
    cairn_lock_give(&scene.up.lock);
    cairn_up_stop(&scene.up, 99); /* a helper that hangs ends the process with that */
    remove_folder(scene.folder);
    int free_again = dup(0);
    close(free_again);
    FUZZ_HOLDS(free_again == lowest); /* U02: nothing is kept open */
}
