/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of the daemons, and waiting until they listen. */
#include "tests/support/world.h"

#include "tests/harness.h"

bool cairn_world_possible(void) {
    const char *folder = getenv("CAIRN_BIN_DIR");
    char path[600];
    snprintf(path, sizeof path, "%s/cairn-server", folder ? folder : ".");
    if (access(path, X_OK) != 0) return false;
    snprintf(path, sizeof path, "%s/cairn-uploader", folder ? folder : ".");
    return access(path, X_OK) == 0;
}

static enum cairn_code make_folder(const struct cairn_world *world, const char *name,
                                   struct cairn_error *err) {
    const char *path = TEXT("%s/%s", world->folder, name);
    return cairn_dir_make(path, 0755, err);
}

enum cairn_code cairn_world_server_start(struct cairn_world *world, struct cairn_error *err) {
    char listen[64], store[1100], data[300];
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%u", world->server.port);
    snprintf(store, sizeof store, "--store=%s", world->store);
    snprintf(data, sizeof data, "--data-dir=%s/catalog", world->folder);
    const char *const arguments[] = {listen, store, data, "--sweep-interval=1s", NULL};
    const struct cairn_daemon_options options = {
        .program = "cairn-server", .folder = world->folder, .args = arguments};
    return cairn_daemon_start(&options, &world->server, err);
}

void cairn_world_server_kill(struct cairn_world *world) {
    uint16_t port = world->server.port;
    cairn_daemon_release(&world->server);
    world->server.port = port;
}

static enum cairn_code wait_until_ready(struct cairn_daemon *daemon, const char *ready_file,
                                        struct cairn_error *err) {
    uint64_t deadline_ms = cairn_mono_ms() + HANG_MS;
    while (access(ready_file, F_OK) != 0) {
        if (cairn_daemon_ended(daemon, 0))
            return cairn_fail(err, CAIRN_UNAVAILABLE, "cairn-uploader ended; see %s", daemon->log);
        if (cairn_mono_ms() > deadline_ms)
            return cairn_fail(err, CAIRN_TIMEOUT, "cairn-uploader does not listen");
        cairn_test_pause_ms(5); /* step of a poll */
    }
    return CAIRN_OK;
}

enum cairn_code cairn_world_uploader_start(struct cairn_world *world, uint32_t node,
                                           const char *crash_at, struct cairn_error *err) {
    char name[32], server[100], store[1100], run[300], state[300], socket[200], ready[300],
        flag[320];
    char budget[64], part[64], crash[200];
    snprintf(name, sizeof name, "--node=node-%u", node);
    snprintf(server, sizeof server, "--server=http://127.0.0.1:%u", world->server.port);
    snprintf(store, sizeof store, "--store=%s", world->store);
    snprintf(run, sizeof run, "--run-dir=%s/run", world->folder);
    snprintf(state, sizeof state, "--state-dir=%s/state-%u", world->folder, node);
    snprintf(socket, sizeof socket, "--socket=%s", world->sockets[node]);
    snprintf(budget, sizeof budget, "--memory-budget=%s", world->budget);
    snprintf(part, sizeof part, "--part-size=%s", world->part_size);
    snprintf(ready, sizeof ready, "%s/ready-%u", world->folder, node);
    snprintf(flag, sizeof flag, "--ready-file=%s", ready);
    snprintf(crash, sizeof crash, "CAIRN_CRASH_AT=%s", crash_at ? crash_at : "");
    const char *const arguments[] = {name,
                                     server,
                                     store,
                                     run,
                                     state,
                                     socket,
                                     budget,
                                     part,
                                     flag,
                                     "--heartbeat=200ms",
                                     "--log-level=debug",
                                     NULL};
    const char *const environment[] = {crash_at ? crash : NULL, NULL};
    const struct cairn_daemon_options options = {.program = "cairn-uploader",
                                                 .folder = world->folder,
                                                 .args = arguments,
                                                 .env = environment,
                                                 .no_port = true};
    (void)unlink(ready);
    CAIRN_TRY(cairn_daemon_start(&options, &world->uploaders[node], err));
    return wait_until_ready(&world->uploaders[node], ready, err);
}

void cairn_world_uploader_kill(struct cairn_world *world, uint32_t node) {
    cairn_daemon_release(&world->uploaders[node]);
}

static enum cairn_code start_all(struct cairn_world *world, struct cairn_error *err) {
    CAIRN_TRY(make_folder(world, "store", err));
    CAIRN_TRY(make_folder(world, "catalog", err));
    CAIRN_TRY(make_folder(world, "run", err));
    CAIRN_TRY(cairn_world_server_start(world, err));
    for (uint32_t node = 0; node < world->nodes; node++) {
        const char *state = TEXT("state-%u", node);
        CAIRN_TRY(make_folder(world, state, err));
        CAIRN_TRY(cairn_world_uploader_start(world, node, NULL, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_world_open(const struct cairn_world_options *options, struct cairn_world *ret,
                                 struct cairn_error *err) {
    *ret = (struct cairn_world){.nodes = options->nodes ? options->nodes : 1};
    snprintf(ret->folder, sizeof ret->folder, "%s", cairn_test_folder());
    if (options->store)
        snprintf(ret->store, sizeof ret->store, "%s", options->store);
    else
        snprintf(ret->store, sizeof ret->store, "%s/store", cairn_test_folder());
    snprintf(ret->budget, sizeof ret->budget, "%s", options->budget ? options->budget : "512MiB");
    snprintf(ret->part_size, sizeof ret->part_size, "%s",
             options->part_size ? options->part_size : "1MiB");
    for (uint32_t node = 0; node < ret->nodes; node++)
        if (snprintf(ret->sockets[node], sizeof ret->sockets[node], "%s/run/%u.sock",
                     cairn_test_folder(), node) >= (int)sizeof ret->sockets[node])
            return cairn_fail(err, CAIRN_TOO_LARGE, "the test's folder is too long for a socket");
    enum cairn_code code = start_all(ret, err);
    if (code) cairn_world_release(ret);
    return code;
}

void cairn_world_release(struct cairn_world *world) {
    for (uint32_t node = 0; node < world->nodes; node++) cairn_daemon_end(&world->uploaders[node]);
    cairn_daemon_end(&world->server);
}
