/* SPDX-License-Identifier: Apache-2.0 */
/* without_cairn: docs/format.md is enough: plain Python restores what was written by it. */
#include <spawn.h>

#include "api/documents/digest.h"
#include "api/documents/records.h"
#include "common/hash/hash.h"
#include "plan/cover.h"
#include "tests/harness.h"
#include "tests/plan/stored.h"

#define RANKS 2
#define NONCE "00112233445566778899aabbccddeeff"

extern char **environ;

static bool put_file(const char *key, struct cairn_view bytes) {
    struct cairn_error err = {0};
    const char *path = TEXT("%s/store/%s", cairn_test_folder(), key);
    const char *folder = TEXT("%.*s", (int)(strrchr(path, '/') - path), path);
    if (!EXPECT(cairn_dir_make(folder, 0700, &err) == CAIRN_OK)) return false;
    return EXPECT(cairn_file_replace(path, bytes, 0600, &err) == CAIRN_OK);
}

/* Sharded in boxes and flat ranges, replicated, local, an alias, a scalar, an empty tensor. */
static void describe(struct cairn_stored *stored) {
    struct cairn_error err = {0};
    const uint64_t shape[] = {6, 8}, cube[] = {3, 4, 5}, none[] = {0, 3};
    struct stored_tensor *weight = cairn_stored_tensor(stored, "model.w\xc3\xa4", CAIRN_DTYPE_BF16,
                                                       CAIRN_TENSOR_SHARDED, 2, shape);
    struct stored_tensor *norm =
        cairn_stored_tensor(stored, "norm", CAIRN_DTYPE_F32, CAIRN_TENSOR_REPLICATED, 3, cube);
    struct stored_tensor *step =
        cairn_stored_tensor(stored, "step", CAIRN_DTYPE_I64, CAIRN_TENSOR_LOCAL, 0, shape);
    struct stored_tensor *empty =
        cairn_stored_tensor(stored, "empty", CAIRN_DTYPE_U8, CAIRN_TENSOR_SHARDED, 2, none);
    struct cairn_fragment pieces[] = {
        {.form = CAIRN_FRAGMENT_BOX, .start = {0, 0}, .count = {4, 3}},
        {.form = CAIRN_FRAGMENT_BOX, .start = {0, 3}, .count = {4, 5}},
        {.form = CAIRN_FRAGMENT_FLAT, .start = {32}, .count = {5}},
        {.form = CAIRN_FRAGMENT_FLAT, .start = {37}, .count = {11}},
    };
    struct cairn_fragment whole = {.form = CAIRN_FRAGMENT_FLAT, .count = {60}};
    struct cairn_fragment one = {.form = CAIRN_FRAGMENT_FLAT, .count = {1}};
    for (uint32_t i = 0; i < 4; i++) cairn_stored_place(stored, weight, i % RANKS, &pieces[i]);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct cairn_fragment mine[] = {pieces[rank], pieces[rank + 2]};
        cairn_stored_list(stored, weight, rank, mine, 2);
        cairn_stored_place(stored, norm, rank, &whole);
        cairn_stored_list(stored, norm, rank, &whole, 1);
    }
    cairn_stored_place(stored, step, 1, &one);
    cairn_stored_list(stored, step, 1, &one, 1);
    cairn_stored_list(stored, empty, 0, NULL, 0);
    struct cairn_tensor alias = {
        .name = CAIRN_VIEW("tied"), .kind = CAIRN_TENSOR_ALIAS, .alias_of = weight->tensor.name};
    EXPECT_CODE(cairn_table_add_tensor(stored->builders[0], &alias, NULL, 0, &err), CAIRN_OK);
}

/* Objects at their full size, and the checksums of all their blocks. */
static void put_shards(struct cairn_stored *stored, const struct cairn_version_place *place) {
    CAIRN_AUTO(buf) sums = {0};
    struct cairn_error err = {0};
    struct cairn_key key;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct cairn_manifest_shard *shard = &stored->manifest.shards[rank];
        struct cairn_buf *object = &stored->objects[rank];
        uint32_t blocks[2];
        EXPECT_CODE(cairn_buf_reserve(object, STORED_OBJECT_BYTES - object->size, &err), CAIRN_OK);
        memset(object->data + object->size, (int)rank + 1, STORED_OBJECT_BYTES - object->size);
        object->size = STORED_OBJECT_BYTES;
        for (uint32_t i = 0; i < 2; i++) {
            size_t at = i * CAIRN_BLOCK_BYTES;
            blocks[i] = cairn_crc32c(0, object->data + at,
                                     cairn_min_u64(CAIRN_BLOCK_BYTES, object->size - at));
            EXPECT_CODE(cairn_buf_append_u32le(&sums, blocks[i], &err), CAIRN_OK);
        }
        shard->crc32c = cairn_blocks_combine(blocks, object->size);
        cairn_key_shard(place, cairn_view_of(shard->name), &key);
        put_file(key.text, cairn_buf_view(object));
    }
    cairn_sha256_of(cairn_buf_view(&sums), stored->manifest.checksums_sha256);
    cairn_key_checksums(place, &key);
    put_file(key.text, cairn_buf_view(&sums));
}

static void put_layout(struct cairn_stored *stored, const struct cairn_version_place *place) {
    uint32_t ranks[RANKS];
    uint8_t digests[RANKS][32];
    struct cairn_key key;
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = i;
        cairn_table_digest(cairn_buf_view(&stored->tables[i]), digests[i]);
    }
    cairn_layout_digest(ranks, (const uint8_t(*)[32])digests, RANKS,
                        stored->manifest.layout_digest);
    stored->manifest.has_layout = true;
    stored->manifest.layout_writer = place->id;
    cairn_key_layout(&place->name, stored->manifest.layout_digest, &place->id, &key);
    put_file(key.text, cairn_buf_view(&stored->layout_bytes));
}

static void put_documents(struct cairn_stored *stored, const struct cairn_version_place *place) {
    CAIRN_AUTO(buf) manifest = {0}, text = {0};
    struct cairn_error err = {0};
    struct cairn_key key;
    struct cairn_record record = {.id = place->id, .attempt = 1, .step = place->step, .n = 1};
    struct cairn_attempt_record attempt = {
        .name = place->name, .attempt = 1, .nonce = NONCE, .job = "j", .world_size = RANKS};
    struct cairn_store_record store = {"01234567-89ab-4def-8123-456789abcdef", "test", 1, 1, ""};
    EXPECT_CODE(cairn_manifest_encode(&stored->manifest, &manifest, &err), CAIRN_OK);
    cairn_key_manifest(place, &key);
    put_file(key.text, cairn_buf_view(&manifest));
    cairn_sha256_of(cairn_buf_view(&manifest), record.manifest_sha256);
    EXPECT_CODE(cairn_record_encode(&record, &text, &err), CAIRN_OK);
    cairn_key_committed(place, &key);
    put_file(key.text, cairn_buf_view(&text));
    cairn_buf_clear(&text);
    EXPECT_CODE(cairn_attempt_record_encode(&attempt, &text, &err), CAIRN_OK);
    cairn_key_attempt(&place->name, 1, &key);
    put_file(key.text, cairn_buf_view(&text));
    cairn_buf_clear(&text);
    EXPECT_CODE(cairn_store_record_encode(&store, &text, &err), CAIRN_OK);
    cairn_key_store_json(&key);
    put_file(key.text, cairn_buf_view(&text));
}

static bool put_version(struct cairn_stored *stored, struct cairn_version_place *place) {
    struct cairn_error err = {0};
    cairn_stored_init(stored, cairn_test_seed(), RANKS);
    describe(stored);
    if (!cairn_stored_finish(stored)) return false;
    EXPECT_CODE(cairn_plan_cover_prove(&stored->layout, NULL, &err), CAIRN_OK);
    stored->manifest.origin = (struct cairn_version_origin){{"llm", "7b"}, 1, NONCE, 1200, 1};
    cairn_version_id_make(&stored->manifest.origin, &stored->manifest.id);
    *place = (struct cairn_version_place){{"llm", "7b"}, 1200, stored->manifest.id};
    put_shards(stored, place);
    put_layout(stored, place);
    put_documents(stored, place);
    return true;
}

/* Exit status of the script; -1: there is no python3. */
static int run_script(void) {
    pid_t pid;
    int status = 0;
    char *store = TEXT("%s/store", cairn_test_folder());
    char *out = TEXT("%s/out", cairn_test_folder());
    char *const arguments[] = {(char[]){"python3"},
                               TEXT("%s/tests/python/read_without_cairn.py", cairn_test_tree()),
                               store,
                               (char[]){"llm/7b"},
                               out,
                               NULL};
    if (posix_spawnp(&pid, "python3", NULL, NULL, arguments, environ) != 0) return -1;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 255;
    return WEXITSTATUS(status);
}

/* The tensor that the script's index calls `name` has exactly these bytes. */
static void expect_tensor(const json_t *index, const char *name,
                          const struct stored_tensor *tensor) {
    CAIRN_AUTO(buf) bytes = {0};
    struct cairn_error err = {0};
    uint64_t elements = 0, size = 1;
    const json_t *entry = json_object_get(index, name);
    const char *file = json_string_value(json_object_get(entry, "file"));
    if (!EXPECT(file != NULL)) return;
    EXPECT_CODE(cairn_file_load(TEXT("%s/out/tensors/%s", cairn_test_folder(), file), &bytes, &err),
                CAIRN_OK);
    cairn_tensor_size(tensor->tensor.dtype, tensor->tensor.dimension_count, tensor->tensor.shape,
                      &elements, &size);
    EXPECT_EQ_U64(bytes.size, size);
    if (bytes.size == size && size) EXPECT(!memcmp(bytes.data, tensor->bytes, size));
    EXPECT_EQ_TEXT(json_string_value(json_object_get(entry, "dtype")),
                   cairn_dtype_text(tensor->tensor.dtype));
    EXPECT_EQ_U64(json_array_size(json_object_get(entry, "shape")), tensor->tensor.dimension_count);
}

TEST(plain_python_restores_shards_and_tensors_by_the_format_page_alone, err) {
    CAIRN_AUTO(stored) stored = {0};
    CAIRN_AUTO(buf) text = {0};
    CAIRN_AUTO_JSON json_t *index = NULL;
    struct cairn_version_place place;
    REQUIRE(put_version(&stored, &place));
    int status = run_script();
    if (status == -1) SKIP("there is no python3");
    REQUIRE(status == 0);
    REQUIRE_OK(cairn_file_load(TEXT("%s/out/tensors.json", cairn_test_folder()), &text, &err));
    REQUIRE_OK(
        cairn_json_parse(cairn_buf_view(&text), (struct cairn_json_limits){0}, &index, &err));
    EXPECT_EQ_U64(json_object_size(index), 5);
    expect_tensor(index, "model.w\xc3\xa4", &stored.tensors[0]);
    expect_tensor(index, "tied", &stored.tensors[0]);
    expect_tensor(index, "norm", &stored.tensors[1]);
    expect_tensor(index, "step@1", &stored.tensors[2]);
    expect_tensor(index, "empty", &stored.tensors[3]);
    cairn_buf_clear(&text);
    REQUIRE_OK(
        cairn_file_load(TEXT("%s/out/shards/rank-00001.bin", cairn_test_folder()), &text, &err));
    EXPECT(text.size == STORED_OBJECT_BYTES &&
           !memcmp(text.data, stored.objects[1].data, text.size));
}

TEST(plain_python_refuses_one_flipped_bit) {
    struct cairn_version_place place;
    struct cairn_key key;
    WITH(stored, stored, put_version(&stored, &place));
    stored.objects[1].data[STORED_OBJECT_BYTES - 1] ^= 4;
    cairn_key_shard(&place, CAIRN_VIEW("rank-00001.bin"), &key);
    REQUIRE(put_file(key.text, cairn_buf_view(&stored.objects[1])));
    int status = run_script();
    if (status == -1) SKIP("there is no python3");
    EXPECT(status != 0);
}
