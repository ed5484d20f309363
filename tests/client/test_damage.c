/* SPDX-License-Identifier: Apache-2.0 */
/* ctest: races="full: as client/save and client/restore, of other content" */
/* Damage on the store, seen through libcairn: a restore gives the bytes that were saved, or it
 * fails and names run, step and what is damaged (P3). */
#include <ftw.h>

#include "tests/client/model.h"
#include "tests/client/stage.h"
#include "tests/support/world.h"

static struct cairn_model model;

/* ---- the one file below the store whose path ends so ---- */

static char found[1100];
static const char *wanted;

static int look(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    (void)place;
    size_t size = strlen(path), tail = strlen(wanted);
    if (kind == FTW_F && size >= tail && strcmp(path + size - tail, wanted) == 0)
        snprintf(found, sizeof found, "%s", path);
    return 0;
}

static bool find(const char *store, const char *tail) {
    wanted = tail;
    found[0] = '\0';
    return nftw(store, look, 8, FTW_PHYS) == 0 && found[0];
}

/* ---- what is done to it ---- */

#define MISSING INT64_MIN

/* at >= 0: that byte is flipped; below: so many bytes are cut off. */
static bool damage(int64_t at) {
    struct stat status;
    if (at == MISSING) return unlink(found) == 0;
    if (chmod(found, 0644) || stat(found, &status)) return false;
    if (at < 0) return truncate(found, status.st_size + at) == 0;
    unsigned char byte = 0;
    int fd = open(found, O_RDWR | O_CLOEXEC);
    bool done = fd >= 0 && pread(fd, &byte, 1, at) == 1;
    byte ^= 0x20;
    done = done && pwrite(fd, &byte, 1, at) == 1;
    if (fd >= 0) close(fd);
    return done;
}

static enum cairn_code save(const struct cairn_world *world, struct cairn_error *err) {
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .job = "job-1", .bytes = MODEL_RANK_BYTES,
              .socket = world->sockets[0], .timeout_ms = HANG_MS);
    struct cairn_session *session = NULL;
    struct cairn_save *made = NULL;
    CAIRN_TRY(cairn_open(&options, &session, NULL, err));
    enum cairn_code code = cairn_model_save(&model, session, 5, 0, 1, &made, err);
    if (!code) code = cairn_save_wait(made, CAIRN_COMMITTED, HANG_MS, err);
    cairn_save_free(made);
    (void)cairn_close(session, NULL);
    return code;
}

static enum cairn_code restore(const struct cairn_world *world, struct cairn_error *err) {
    const struct cairn_open_options options =
        SIZED(cairn_open_options, .run = "llm/7b", .socket = world->sockets[0],
              .timeout_ms = HANG_MS, .read_only = 1);
    const struct cairn_restore_options restore_options = SIZED(cairn_restore_options, .ref = "5");
    struct cairn_session *session = NULL;
    struct cairn_restore *opened = NULL;
    CAIRN_TRY(cairn_open(&options, &session, NULL, err));
    enum cairn_code code = cairn_restore_open(session, &restore_options, &opened, NULL, err);
    if (!code) code = cairn_model_check(&model, opened, 0, 1, 1, err);
    cairn_restore_free(opened);
    (void)cairn_close(session, NULL);
    return code;
}

/* A world of its own for each damage, since an uploader remembers the manifests it has seen. */
static void refuses(const char *file, int64_t at, const char *name) {
    OPEN_WORLD(0);
    cairn_model_fill(&model, 5);
    REQUIRE_OK(save(&world, &err));
    REQUIRE(find(world.store, file));
    REQUIRE(damage(at));
    cairn_world_uploader_kill(&world, 0); /* whose memory is as it was saved */
    REQUIRE_OK(cairn_world_uploader_start(&world, 0, NULL, &err));
    EXPECT_CODE(restore(&world, &err), CAIRN_CORRUPT);
    printf("  %s\n", err.message);
    EXPECT(strstr(err.message, "llm/7b") != NULL);
    EXPECT(strstr(err.message, "step 5") != NULL);
    EXPECT(strstr(err.message, name) != NULL);
}

CASE(a_flipped_byte_of_a_tensor_is_refused_with_shard_and_range,
     refuses("data/rank-00000.safetensors", 5000, "shard rank-00000.safetensors"));
CASE(a_flipped_byte_of_a_raw_shard_is_refused_with_shard_and_range,
     refuses("data/rank-00000/rng.bin", 2, "shard rank-00000/rng.bin"));
CASE(a_cut_shard_is_refused_by_name,
     refuses("data/rank-00000.safetensors", -1, "shard rank-00000.safetensors"));
CASE(a_missing_shard_is_refused_by_name,
     refuses("data/rank-00000/rng.bin", MISSING, "shard rank-00000/rng.bin"));
CASE(changed_checksums_are_refused_by_name, refuses("checksums.bin", 1, "checksums.bin"));
CASE(cut_checksums_are_refused_by_name, refuses("checksums.bin", -4, "checksums.bin"));
CASE(a_changed_manifest_is_refused_by_name, refuses("manifest.json", 40, "manifest.json"));
CASE(a_missing_manifest_is_refused_by_name, refuses("manifest.json", MISSING, "manifest.json"));
CASE(a_changed_layout_is_refused_by_name, refuses(".layout", 200, "layout"));
CASE(a_cut_layout_is_refused_by_name, refuses(".layout", -1, "layout"));
CASE(a_missing_layout_is_refused_by_name, refuses(".layout", MISSING, "layout"));
