/* SPDX-License-Identifier: Apache-2.0 */
/* One rank that restores all of what its attempt resumed from, and says how long it took:
 * restorer RUN RANK WORLD LOCAL_WORLD. RESTORER_HOLD: once the restore is open it waits for that
 * path. RESTORER_OUT: a folder that gets the shards' bytes. RESTORER_SLICE: MiB of one read, 64 by
 * default. RESTORER_SHARDS: "own" reads those of its own rank alone. RESTORER_BYTES: of memory for
 * saves. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cairn/cairn.h>

#define TIMEOUT_MS 300000
#define MIB (UINT64_C(1) << 20)

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void say(const char *name, enum cairn_code code, const struct cairn_error *err) {
    printf("{\"%s\":\"%s\"}\n", name, cairn_code_info(code)->slug);
    fflush(stdout);
    if (code != CAIRN_OK) fprintf(stderr, "%s\n", err->message);
}

/* The whole shard, slice by slice, and into a file of its name where one is wanted. */
static enum cairn_code read_shard(struct cairn_restore *restore,
                                  const struct cairn_shard_info *shard, uint64_t slice, char *into,
                                  struct cairn_error *err) {
    const char *folder = getenv("RESTORER_OUT");
    char path[4096], flat[513];
    snprintf(flat, sizeof flat, "%s", shard->name);
    for (char *at = flat; *at; at++)
        if (*at == '/') *at = '_';
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "", flat);
    FILE *file = folder ? fopen(path, "wb") : NULL;
    enum cairn_code code = CAIRN_OK;
    for (uint64_t at = 0; at < shard->bytes && code == CAIRN_OK; at += slice) {
        uint64_t left = shard->bytes - at, bytes = left < slice ? left : slice;
        struct cairn_read read = {.size = sizeof read,
                                  .shard = shard->name,
                                  .offset = at,
                                  .bytes = bytes,
                                  .into = into,
                                  .into_bytes = bytes};
        code = cairn_restore_read(restore, &read, 1, TIMEOUT_MS, err);
        if (code == CAIRN_OK && file && fwrite(into, 1, bytes, file) != bytes) code = CAIRN_IO;
    }
    if (file && fclose(file)) code = CAIRN_IO;
    return code;
}

static enum cairn_code read_all(struct cairn_restore *restore, uint32_t rank, uint64_t slice,
                                char *into, uint64_t *ret_bytes, struct cairn_error *err) {
    const char *which = getenv("RESTORER_SHARDS");
    enum cairn_code code = CAIRN_OK;
    struct cairn_shard_info shard;
    for (uint32_t i = 0; code == CAIRN_OK; i++) {
        if (cairn_restore_shard_at(restore, i, &shard, NULL) != CAIRN_OK) break;
        if (which && !strcmp(which, "own") && shard.rank != rank) continue;
        code = read_shard(restore, &shard, slice, into, err);
        *ret_bytes += shard.bytes;
    }
    return code;
}

int main(int argc, char **argv) {
    struct cairn_session *session = NULL;
    struct cairn_restore *restore = NULL;
    struct cairn_resume resume = {0};
    struct cairn_error err;
    memset(&err, 0, sizeof err);
    const char *bytes_text = getenv("RESTORER_BYTES");
    if (argc < 5) return 2;
    struct cairn_open_options options = {.size = sizeof options,
                                         .run = argv[1],
                                         .rank = (uint32_t)strtoul(argv[2], NULL, 10),
                                         .world_size = (uint32_t)strtoul(argv[3], NULL, 10),
                                         .local_world_size = (uint32_t)strtoul(argv[4], NULL, 10),
                                         .bytes = bytes_text ? strtoull(bytes_text, NULL, 10) : 0,
                                         .timeout_ms = TIMEOUT_MS};
    enum cairn_code code = cairn_open(&options, &session, &resume, &err);
    say("open", code, &err);
    if (code != CAIRN_OK) return 1;
    struct cairn_restore_options wanted = {.size = sizeof wanted, .timeout_ms = TIMEOUT_MS};
    const char *slice_text = getenv("RESTORER_SLICE");
    uint64_t slice = (slice_text ? strtoull(slice_text, NULL, 10) : 64) * MIB;
    char *into = malloc(slice);
    if (!into) return 1;
    memset(into, 1, slice); /* as a trainer's tensors are there before a restore into them */
    code = cairn_restore_open(session, &wanted, &restore, NULL, &err);
    say("restore", code, &err);
    const char *hold = getenv("RESTORER_HOLD");
    while (code == CAIRN_OK && hold && access(hold, F_OK))
        (void)poll(NULL, 0, 2); /* step of a poll */
    uint64_t since_ms = now_ms(), bytes = 0;
    if (code == CAIRN_OK) code = read_all(restore, options.rank, slice, into, &bytes, &err);
    if (code == CAIRN_OK)
        printf("{\"bytes\":%llu,\"ms\":%llu}\n", (unsigned long long)bytes,
               (unsigned long long)(now_ms() - since_ms));
    else
        say("read", code, &err);
    fflush(stdout);
    free(into);
    cairn_restore_free(restore);
    (void)cairn_close(session, &err);
    return code == CAIRN_OK ? 0 : 1;
}
