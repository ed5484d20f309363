/* SPDX-License-Identifier: Apache-2.0 */
/* Good inputs of binary formats and messages, made by the product itself, so they follow it. */

#include "api/documents/digest.h"
#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "api/table/dtype.h"
#include "api/table/layout.h"
#include "api/table/table.h"
#include "api/wire/messages.h"
#include "tests/fuzz/fuzz.h"

typedef void each_seed(struct cairn_view seed, void *owner);

/* One tensors shard and one raw shard; a box, a flat piece, an alias. */
static void make_table(uint32_t rank, struct cairn_buf *ret) {
    struct cairn_error err;
    CAIRN_AUTO_PTR(table_builder) builder = NULL;
    FUZZ_HOLDS(cairn_table_builder_new(rank, &builder, &err) == CAIRN_OK);
    uint32_t file = 0, raw = 0;
    const struct cairn_table_shard shards[] = {{CAIRN_VIEW("rank.safetensors"), 8192, true},
                                               {CAIRN_VIEW("rank/opt.pt"), 4096, false}};
    FUZZ_HOLDS(cairn_table_add_shard(builder, &shards[0], &file, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_table_add_shard(builder, &shards[1], &raw, &err) == CAIRN_OK);
    const struct cairn_tensor weight = {.name = CAIRN_VIEW("layers.0.weight"),
                                        .dtype = CAIRN_DTYPE_BF16,
                                        .dimension_count = 2,
                                        .shape = {64, 32},
                                        .kind = CAIRN_TENSOR_SHARDED};
    const struct cairn_fragment box = {.form = CAIRN_FRAGMENT_BOX,
                                       .start = {0, 16},
                                       .count = {64, 16},
                                       .shard = file,
                                       .offset_bytes = 4096,
                                       .size_bytes = 2048};
    const struct cairn_tensor state = {.name = CAIRN_VIEW("state"),
                                       .dtype = CAIRN_DTYPE_F32,
                                       .dimension_count = 1,
                                       .shape = {4096},
                                       .kind = CAIRN_TENSOR_SHARDED};
    const struct cairn_fragment flat = {.form = CAIRN_FRAGMENT_FLAT,
                                        .start = {rank * 512},
                                        .count = {512},
                                        .shard = raw,
                                        .size_bytes = 2048};
    const struct cairn_tensor tied = {.name = CAIRN_VIEW("head"),
                                      .dtype = CAIRN_DTYPE_BF16,
                                      .dimension_count = 2,
                                      .shape = {64, 32},
                                      .kind = CAIRN_TENSOR_ALIAS,
                                      .alias_of = CAIRN_VIEW("layers.0.weight")};
    FUZZ_HOLDS(cairn_table_add_tensor(builder, &weight, &box, 1, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_table_add_tensor(builder, &state, &flat, 1, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_table_add_tensor(builder, &tied, NULL, 0, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_table_finish(builder, ret, &err) == CAIRN_OK);
}

static void table_seeds(each_seed *each, void *owner) {
    struct cairn_error err;
    CAIRN_AUTO(buf) first = {0}, second = {0}, layout = {0};
    make_table(0, &first);
    make_table(1, &second);
    each(cairn_buf_view(&first), owner);
    struct cairn_table tables[2];
    FUZZ_HOLDS(cairn_table_open(cairn_buf_view(&first), &tables[0], &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_table_open(cairn_buf_view(&second), &tables[1], &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_layout_build(tables, 2, &layout, &err) == CAIRN_OK);
    each(cairn_buf_view(&layout), owner);
}

static void frame_seeds(each_seed *each, void *owner) {
    struct cairn_error err;
    CAIRN_AUTO(buf) bytes = {0};
    CAIRN_AUTO_JSON json_t *hello = json_pack("{s:s, s:i, s:i, s:i, s:s}", "t", "hello", "id", 1,
                                              "min", 1, "max", 1, "run", "llm/7b");
    CAIRN_AUTO_JSON json_t *staged =
        json_pack("{s:s, s:i, s:i, s:i}", "t", "staged", "save", 1, "shard", 0, "bytes", 4096);
    FUZZ_HOLDS(cairn_frame_encode(hello, CAIRN_VIEW(""), &bytes, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_frame_encode(staged, CAIRN_VIEW("\1\2\3\4"), &bytes, &err) == CAIRN_OK);
    each(cairn_buf_view(&bytes), owner);
}

/* One of each message, with all of its fields. */
static void message_seeds(each_seed *each, void *owner) {
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        const struct cairn_message_form *form = cairn_message_form((enum cairn_message)i);
        CAIRN_AUTO_JSON json_t *message = json_object();
        CAIRN_AUTO(buf) text = {0};
        for (const struct cairn_message_field *at = form->fields(); at->name; at++)
            json_object_set_new(message, at->name,
                                at->kind == CAIRN_JSON_TEXT     ? json_string(at->name)
                                : at->kind == CAIRN_JSON_BOOL   ? json_true()
                                : at->kind == CAIRN_JSON_OBJECT ? json_object()
                                : at->kind == CAIRN_JSON_ARRAY  ? json_array()
                                                                : json_integer(1));
        FUZZ_HOLDS(cairn_json_dump(message, &text, NULL) == CAIRN_OK);
        each(cairn_buf_view(&text), owner);
    }
}

#define NONCE "00112233445566778899aabbccddeeff"
#define UUID "5b2164b1-0bac-45fc-a51d-c51bbc8797d9"

static void manifest_seeds(each_seed *each, void *owner) {
    struct cairn_error err;
    CAIRN_AUTO(buf) text = {0};
    struct cairn_manifest_shard shards[] = {
        {.name = (char[]){"rank-00000.safetensors"}, .size_bytes = 3 * CAIRN_MIB + 5, .crc32c = 7},
        {.name = (char[]){"rank-00001/opt.pt"}, .rank = 1, .size_bytes = 0}};
    struct cairn_manifest manifest = {
        .origin = {.name = {"llm", "7b"}, .attempt = 3, .nonce = NONCE, .step = 1000, .n = 1},
        .world_size = 2,
        .format_tag = (char[]){"fast-llm-2"},
        .meta_json = (char[]){"{\"lr\":0.5}"},
        .labels_json = (char[]){"{\"team\":\"nlp\"}"},
        .shards = shards,
        .shard_count = 2};
    cairn_version_id_make(&manifest.origin, &manifest.id);
    FUZZ_HOLDS(cairn_manifest_encode(&manifest, &text, &err) == CAIRN_OK);
    each(cairn_buf_view(&text), owner);
    text.size = 0;
    const struct cairn_record record = {.id = manifest.id,
                                        .attempt = 3,
                                        .step = 1000,
                                        .n = 1,
                                        .committed_at = "2026-03-02T10:14:07Z"};
    FUZZ_HOLDS(cairn_record_encode(&record, &text, &err) == CAIRN_OK);
    each(cairn_buf_view(&text), owner);
    text.size = 0;
    const struct cairn_attempt_record attempt = {.name = {"llm", "7b"},
                                                 .attempt = 3,
                                                 .nonce = NONCE,
                                                 .job = "slurm-17",
                                                 .world_size = 2,
                                                 .has_resume = true,
                                                 .resume_version = manifest.id,
                                                 .superseded = &manifest.id,
                                                 .superseded_count = 1};
    FUZZ_HOLDS(cairn_attempt_record_encode(&attempt, &text, &err) == CAIRN_OK);
    each(cairn_buf_view(&text), owner);
    text.size = 0;
    const struct cairn_store_record store = {
        .uuid = UUID, .owner = "site", .format = 1, .generation = 4};
    FUZZ_HOLDS(cairn_store_record_encode(&store, &text, &err) == CAIRN_OK);
    each(cairn_buf_view(&text), owner);
}

static void grant_seeds(each_seed *each, void *owner) {
    static const uint8_t key[CAIRN_GRANT_KEY_BYTES] = {7};
    char text[CAIRN_GRANT_BYTES_MAX];
    const struct cairn_grant grant = {
        .store_uuid = UUID, .name = {"llm", "7b"}, .attempt = 3, .nonce = NONCE};
    cairn_grant_sign(&grant, key, text);
    each(cairn_view_of(text), owner);
}

static enum cairn_code replay_nothing(void *owner, const struct cairn_up_replayed *record,
                                      struct cairn_error *err) {
    (void)owner;
    (void)record;
    (void)err;
    return CAIRN_OK;
}

static void journal_seeds(each_seed *each, void *owner) {
    struct cairn_error err;
    char folder[] = "/tmp/cairn-fuzz-XXXXXX", path[64];
    FUZZ_HOLDS(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/j", folder);
    struct cairn_up_journal *journal = NULL;
    const struct cairn_up_journal_options options = {
        .path = path, .node = "n1", .replay = replay_nothing, .rewrite_bytes = CAIRN_MIB};
    FUZZ_HOLDS(cairn_up_journal_open(&options, &journal, &err) == CAIRN_OK);
    for (uint64_t entry = 1; entry < 4; entry++) {
        CAIRN_AUTO_JSON json_t *begin = json_pack("{s:s, s:s}", "t", "begin", "grant", "g");
        CAIRN_AUTO_JSON json_t *over = json_pack("{s:s}", "t", "over");
        const struct cairn_up_record records[] = {
            {.entry = entry, .message = begin, .blob = CAIRN_VIEW("checksums")},
            {.entry = entry, .message = over, .closes = true}};
        FUZZ_HOLDS(cairn_up_journal_append(journal, records, entry == 2 ? 2 : 1, &err) == CAIRN_OK);
    }
    cairn_up_journal_free(journal);
    static char bytes[64 * CAIRN_KIB];
    FILE *file = fopen(path, "rb");
    FUZZ_HOLDS(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    unlink(path);
    rmdir(folder);
    each((struct cairn_view){bytes, size}, owner);
}

/* ---- sessions: as fuzz_session.c reads them ---- */

#define PROC "0b9f6a52-3c1d-8e4f-a5b6-c7d8e9f00112"
#define HELLO                                                                                      \
    {                                                                                              \
        0, "{\"t\":\"hello\",\"id\":1,\"min\":2,\"max\":3,\"client\":\"c\",\"pid\":1,\"run\":"     \
           "\"llm/7b\","                                                                           \
           "\"rank\":0,\"world_size\":1,\"local_rank\":0,\"local_world_size\":1,\"bytes\":"        \
           "1000000,"                                                                              \
           "\"node_bytes\":0,\"read_only\":false,\"proc\":\"" PROC "\"}"                           \
    }
#define ATTEMPT                                                                                    \
    { 0, "{\"t\":\"attempt\",\"id\":2,\"job\":\"j\"}" }
#define SLABS                                                                                      \
    { 0, "{\"t\":\"slabs\",\"id\":3,\"wait_staged_ms\":0}" }
#define MAPPED                                                                                     \
    { 0, "{\"t\":\"mapped\",\"id\":4}" }
#define BEGIN                                                                                      \
    {                                                                                              \
        0, "{\"t\":\"begin\",\"id\":5,\"step\":7,\"n\":1,\"on_exists\":\"error\",\"skip\":false,"  \
           "\"format\":null,\"labels\":null,\"meta\":null}"                                        \
    }

struct said { /* one frame */
    uint8_t with;
    const char *message;
};

static void session_seed(const struct said *said, size_t count, each_seed *each, void *owner) {
    CAIRN_AUTO(buf) bytes = {0};
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(said[i].message);
        const uint8_t head[3] = {said[i].with, (uint8_t)size, (uint8_t)(size >> 8)};
        FUZZ_HOLDS(cairn_buf_append(&bytes, head, sizeof head, NULL) == CAIRN_OK);
        FUZZ_HOLDS(cairn_buf_append(&bytes, said[i].message, size, NULL) == CAIRN_OK);
    }
    each(cairn_buf_view(&bytes), owner);
}

static void session_seeds(each_seed *each, void *owner) {
    static const struct said saves[] = {
        HELLO,
        ATTEMPT,
        SLABS,
        MAPPED,
        BEGIN,
        {0,
         "{\"t\":\"stage\",\"id\":6,\"save\":1,\"slab\":0,\"owner\":1,\"shards\":[{\"name\":\"a\","
         "\"kind\":\"raw\",\"offset\":0,\"bytes\":5000}]}"},
        {0x10, "{\"t\":\"staged\",\"save\":1,\"shard\":0,\"bytes\":5000}"},
        {0, "{\"t\":\"seal\",\"id\":7,\"save\":1,\"replicated\":[]}"},
        {0, "{\"t\":\"bye\",\"id\":8}"}};
    static const struct said files[] = {
        HELLO,
        ATTEMPT,
        BEGIN,
        {1, "{\"t\":\"file\",\"id\":6,\"save\":1,\"name\":\"f\",\"bytes\":5}"},
        {4, "{\"t\":\"file\",\"id\":7,\"save\":1,\"name\":\"g\",\"bytes\":0}"},
        {0, "{\"t\":\"fail\",\"id\":8,\"save\":1,\"reason\":\"enough\"}"},
        {0, "{\"t\":\"count\",\"id\":9,\"step\":8,\"n\":1,\"on_exists\":\"error\",\"skip\":false,"
            "\"code\":\"cancelled\",\"reason\":\"no\"}"}};
    static const struct said offers[] = {
        HELLO,
        {0, "{\"t\":\"offer\",\"id\":2,\"session\":\"" PROC "\",\"run\":\"llm/7b\",\"attempt\":3,"
            "\"nonce\":\"" NONCE "\",\"rank\":0,\"job\":\"j\",\"proc\":\"" PROC "\",\"slabs\":[],"
            "\"saves\":[],\"bytes\":1000000}"},
        BEGIN};
    static const struct said memory[] = {
        HELLO,
        {2, "{\"t\":\"offer\",\"id\":2,\"session\":\"" PROC "\",\"run\":\"llm/7b\",\"attempt\":3,"
            "\"nonce\":\"" NONCE "\",\"rank\":0,\"job\":\"j\",\"proc\":\"" PROC "\",\"slabs\":[{"
            "\"bytes\":2097152,\"device\":1,\"inode\":1,\"owner\":2}],\"saves\":[{\"save\":1,"
            "\"slab\":0,"
            "\"version\":\"ckpt_23f42bfa-98cc-8fe0-9def-c024a72b13d7\",\"step\":7,\"n\":1,"
            "\"sealed\":true}],\"bytes\":1000000}"}};
    session_seed(saves, CAIRN_COUNT(saves), each, owner);
    session_seed(files, CAIRN_COUNT(files), each, owner);
    session_seed(offers, CAIRN_COUNT(offers), each, owner);
    session_seed(memory, CAIRN_COUNT(memory), each, owner);
}

void cairn_fuzz_seeds(const char *target, each_seed *each, void *owner) {
    if (strcmp(target, "session") == 0) session_seeds(each, owner);
    if (strcmp(target, "table") == 0) table_seeds(each, owner);
    if (strcmp(target, "manifest") == 0) manifest_seeds(each, owner);
    if (strcmp(target, "grant") == 0) grant_seeds(each, owner);
    if (strcmp(target, "json") == 0) message_seeds(each, owner);
    if (strcmp(target, "frame") == 0) frame_seeds(each, owner);
    if (strcmp(target, "journal") == 0) journal_seeds(each, owner);
}
