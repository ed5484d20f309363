/* SPDX-License-Identifier: Apache-2.0 */
/* JSON and what is stored as JSON, grants, safetensors heads. */
#include "api/documents/manifest.h"
#include "api/documents/records.h"
#include "api/wire/messages.h"
#include "api/wire/policy.h"
#include "common/json.h"
#include "formats/assembly/assembly.h"
#include "formats/safetensors.h"
#include "formats/torch/torch.h"
#include "tests/fuzz/fuzz.h"

static bool same(const struct cairn_buf *a, const struct cairn_buf *b) {
    return a->size == b->size && (!a->size || !memcmp(a->data, b->data, a->size));
}

/* Every form takes it, or says why not. */
static void read_messages(const json_t *value) {
    for (int i = CAIRN_MESSAGE_none + 1; i < CAIRN_MESSAGE_COUNT; i++) {
        uint64_t message[64] = {0}; /* room for each form's struct */
        struct cairn_error err = {0};
        enum cairn_code code = cairn_message_read((enum cairn_message)i, value, "", message, &err);
        FUZZ_SAYS_WHY(code, err);
    }
}

void cairn_fuzz_json(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO_JSON json_t *value = NULL, *again = NULL;
    CAIRN_AUTO(buf) text = {0}, twice = {0};
    const struct cairn_json_limits limits = {64 * CAIRN_KIB, 4096};
    enum cairn_code code = cairn_json_parse(input, limits, &value, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    read_messages(value);
    if (cairn_json_dump(value, &text, &err)) return;
    const struct cairn_json_limits own = {4 * CAIRN_MIB, 4096};
    FUZZ_HOLDS(cairn_json_parse(cairn_buf_view(&text), own, &again, &err) == CAIRN_OK);
    FUZZ_HOLDS(json_equal(value, again));
    FUZZ_HOLDS(cairn_json_dump(again, &twice, &err) == CAIRN_OK && same(&text, &twice));
}

static void selector(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_selector first = {0}, again = {0};
    enum cairn_code code = cairn_selector_parse(input, &first, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    (void)cairn_selector_matches(&first, NULL);
    FUZZ_HOLDS(!cairn_selector_parse(cairn_view_of(first.text), &again, &err));
    FUZZ_HOLDS(!memcmp(&first, &again, sizeof(first)));
}

void cairn_fuzz_policy(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_policy first = {0}, again = {0};
    struct cairn_policy_best best;
    CAIRN_AUTO_JSON json_t *value = NULL, *printed = NULL, *twice = NULL;
    CAIRN_AUTO(buf) text = {0};
    selector(input);
    enum cairn_code code = cairn_policy_best_parse(input, &best, &err);
    FUZZ_SAYS_WHY(code, err);
    if (cairn_json_parse(input, (struct cairn_json_limits){64 * CAIRN_KIB, 4096}, &value, &err))
        return;
    code = cairn_policy_read(value, "", &first, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    /* policy.h#1 */
    FUZZ_HOLDS(!cairn_policy_json(&first, &printed, &err));
    FUZZ_HOLDS(!cairn_policy_read(printed, "", &again, &err));
    FUZZ_HOLDS(!memcmp(&first, &again, sizeof(first)));
    FUZZ_HOLDS(!cairn_policy_json(&again, &twice, &err) && json_equal(printed, twice));
    FUZZ_HOLDS(!cairn_policy_text(&first, &text, &err) && text.size);
}

static void manifest(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(manifest) first = {0}, again = {0};
    CAIRN_AUTO(buf) text = {0}, twice = {0};
    enum cairn_code code = cairn_manifest_decode(input, &first, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    /* Q22: the bytes are a pure function of the content. */
    FUZZ_HOLDS(cairn_manifest_encode(&first, &text, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_manifest_decode(cairn_buf_view(&text), &again, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_manifest_encode(&again, &twice, &err) == CAIRN_OK && same(&text, &twice));
    for (size_t i = 0; i < first.shard_count; i++)
        FUZZ_HOLDS(cairn_manifest_find(&first, cairn_view_of(first.shards[i].name)) ==
                   &first.shards[i]);
}

static void attempt_record(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(attempt_record) first = {0}, again = {0};
    CAIRN_AUTO(buf) text = {0}, twice = {0};
    enum cairn_code code = cairn_attempt_record_decode(input, &first, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    FUZZ_HOLDS(cairn_attempt_record_encode(&first, &text, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_attempt_record_decode(cairn_buf_view(&text), &again, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_attempt_record_encode(&again, &twice, &err) == CAIRN_OK &&
               same(&text, &twice));
}

void cairn_fuzz_manifest(struct cairn_view input) {
    struct cairn_error err = {0};
    struct cairn_record record;
    struct cairn_store_record store;
    CAIRN_AUTO(buf) text = {0};
    manifest(input);
    attempt_record(input);
    enum cairn_code code = cairn_record_decode(input, &record, &err);
    FUZZ_SAYS_WHY(code, err);
    if (!code) {
        FUZZ_HOLDS(cairn_record_encode(&record, &text, &err) == CAIRN_OK);
        FUZZ_HOLDS(cairn_record_decode(cairn_buf_view(&text), &record, &err) == CAIRN_OK);
    }
    text.size = 0;
    code = cairn_store_record_decode(input, &store, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code) return;
    FUZZ_HOLDS(cairn_store_record_encode(&store, &text, &err) == CAIRN_OK);
    FUZZ_HOLDS(cairn_store_record_decode(cairn_buf_view(&text), &store, &err) == CAIRN_OK);
}

void cairn_fuzz_grant(struct cairn_view input) {
    static const uint8_t key[CAIRN_GRANT_KEY_BYTES] = {7};
    struct cairn_error err = {0};
    struct cairn_grant grant, again;
    char *text = cairn_fuzz_text(input), signed_text[CAIRN_GRANT_BYTES_MAX];
    enum cairn_code code = cairn_grant_parse(text, &grant, &err);
    FUZZ_SAYS_WHY(code, err);
    if (!code) {
        cairn_grant_sign(&grant, key, signed_text);
        FUZZ_HOLDS(cairn_grant_check(signed_text, key, &again, &err) == CAIRN_OK);
        FUZZ_HOLDS(grant.attempt == again.attempt && !strcmp(grant.nonce, again.nonce) &&
                   !strcmp(grant.name.run, again.name.run) &&
                   !strcmp(grant.store_uuid, again.store_uuid));
        /* Only the one text that the key signs is taken. */
        FUZZ_HOLDS(cairn_grant_check(text, key, &again, &err) != CAIRN_OK ||
                   !strcmp(text, signed_text));
    }
    free(text);
}

static enum cairn_code look_at_leaf(void *context, const char *path, enum cairn_torch_kind kind,
                                    cairn_pickle_ref ref, struct cairn_error *err) {
    const struct cairn_torch *file = context;
    struct cairn_torch_tensor tensor;
    uint64_t offset = 0;
    FUZZ_HOLDS(cairn_utf8_valid(cairn_view_of(path)) && ref < file->values.count);
    if (kind != CAIRN_TORCH_LEAF_TENSOR) return CAIRN_OK;
    CAIRN_TRY(cairn_torch_tensor(file, ref, &tensor, err));
    CAIRN_TRY(cairn_torch_storage_at(file, &tensor, &offset, err));
    FUZZ_HOLDS(offset <= file->input->size_bytes &&
               tensor.storage_bytes <= file->input->size_bytes - offset);
    FUZZ_HOLDS(tensor.offset_bytes <= tensor.storage_bytes);
    FUZZ_HOLDS(!tensor.contiguous ||
               tensor.size_bytes <= tensor.storage_bytes - tensor.offset_bytes);
    return CAIRN_OK;
}

/* What is written of a plain value is a file that can be opened again. */
static enum cairn_code write_plain(const struct cairn_torch *file, struct cairn_error *err) {
    struct cairn_assembly assembly = {0};
    uint32_t number;
    const struct cairn_torch_plain plain = {.file = file, .archives = true};
    enum cairn_code code = cairn_assembly_add_input(&assembly, file->input, &number, err);
    if (!code) code = cairn_torch_plain_add(&plain, &assembly, err);
    for (size_t i = 0; !code && i < assembly.object_count; i++) {
        const struct cairn_assembly_object *object = &assembly.objects[i];
        CAIRN_AUTO(buf) bytes = {.limit = CAIRN_GIB};
        CAIRN_AUTO(torch) again = {0};
        code = cairn_buf_reserve(&bytes, (size_t)object->size_bytes, err);
        if (code) break;
        code =
            cairn_assembly_read_object(&assembly, object, 0, bytes.data, object->size_bytes, err);
        if (code) break; /* a storage that does not match its checksum */
        struct cairn_view view = {bytes.data, (size_t)object->size_bytes};
        struct cairn_input input = cairn_input_of_view(&view);
        FUZZ_HOLDS(cairn_torch_open(&input, false, &again, err) == CAIRN_OK);
    }
    cairn_assembly_release(&assembly);
    return code;
}

void cairn_fuzz_torch(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(torch) file = {0};
    struct cairn_input bytes = cairn_input_of_view(&input);
    enum cairn_code code = cairn_torch_open(&bytes, false, &file, &err);
    if (!code) code = cairn_torch_walk(&file, look_at_leaf, &file, &err);
    if (!code) code = write_plain(&file, &err);
    FUZZ_SAYS_WHY(code, err);
}

void cairn_fuzz_safetensors(struct cairn_view input) {
    struct cairn_error err = {0};
    CAIRN_AUTO(safetensors) file = {0};
    uint64_t file_bytes = input.size + 4096, head_bytes = 0;
    if (input.size < 8) return;
    enum cairn_code code = cairn_safetensors_head_bytes((struct cairn_view){input.data, 8},
                                                        file_bytes, &head_bytes, &err);
    FUZZ_SAYS_WHY(code, err);
    if (code || head_bytes > input.size) return;
    code = cairn_safetensors_open(input, file_bytes, &file, &err);
    FUZZ_SAYS_WHY(code, err);
    for (size_t i = 0; !code && i < file.count; i++) {
        const struct cairn_safetensors_entry *entry = &file.entries[i];
        FUZZ_HOLDS(entry->offset_bytes >= file.header_bytes && entry->offset_bytes <= file_bytes &&
                   entry->size_bytes <= file_bytes - entry->offset_bytes);
    }
}
