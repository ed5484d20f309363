/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of other programs' checkpoints, packed into one input: each file as the size of its name
 * (1 byte), its name, its size (4 bytes, lowest first) and its bytes; the last one is cut where the
 * input ends. corpus/folder is made by pack_folders.py. */
#include "formats/torch/dcp.h"
#include "formats/torch/torch_ranks.h"
#include "formats/zero/zero.h"
#include "tests/fuzz/fuzz.h"

#define FILES_MAX 64
#define READ_BYTES_MAX (64 * CAIRN_KIB) /* of one tensor */

struct unpacked {
    char names[FILES_MAX][256];
    const char *list[FILES_MAX];
    struct cairn_view bytes[FILES_MAX];
    struct cairn_input inputs[FILES_MAX];
    size_t count;
};

static void unpack(struct cairn_view input, struct unpacked *ret) {
    const unsigned char *at = input.data;
    size_t left = input.size;
    while (left > 5 && ret->count < FILES_MAX && left > at[0] + 5u) {
        size_t name = at[0], i = ret->count++;
        memcpy(ret->names[i], at + 1, name);
        at += 1 + name;
        left -= 1 + name;
        size_t size = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        at += 4;
        left -= 4;
        if (size > left) size = left;
        ret->bytes[i] = (struct cairn_view){at, size};
        at += size;
        left -= size;
        ret->list[i] = ret->names[i];
        ret->inputs[i] = cairn_input_of_view(&ret->bytes[i]);
    }
}

static enum cairn_code open_file(void *context, const char *name, const struct cairn_input **ret,
                                 struct cairn_error *err) {
    struct unpacked *folder = context;
    for (size_t i = 0; i < folder->count; i++) {
        if (folder->list[i] != name) continue;
        *ret = &folder->inputs[i];
        return CAIRN_OK;
    }
    return cairn_fail(err, CAIRN_NOT_FOUND, "not there");
}

/* What was assembled can be read to its last byte, or its file has a checksum that says why not. */
static void read_all(const struct cairn_assembly *assembly) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        struct cairn_error err = {0};
        FUZZ_HOLDS(tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS || tensor->alias_of < i);
        if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS || tensor->size_bytes > READ_BYTES_MAX)
            continue;
        CAIRN_AUTO_HEAP char *bytes = malloc((size_t)tensor->size_bytes + 1);
        FUZZ_HOLDS(bytes);
        enum cairn_code code =
            cairn_assembly_read(assembly, tensor, 0, bytes, tensor->size_bytes, &err);
        FUZZ_HOLDS(code == CAIRN_OK ||
                   (code == CAIRN_CORRUPT && strstr(err.message, "CRC-32") != NULL));
    }
}

void cairn_fuzz_folder(struct cairn_view input) {
    struct unpacked *folder = calloc(1, sizeof *folder);
    FUZZ_HOLDS(folder);
    unpack(input, folder);
    const struct cairn_zero_folder opened = {
        .context = folder, .names = folder->list, .count = folder->count, .open = open_file};
    for (int optimizer = 0; optimizer < 2; optimizer++) {
        struct cairn_assembly assembly = {0};
        struct cairn_error err = {0};
        const struct cairn_zero_options options = {.optimizer = optimizer};
        enum cairn_code code = cairn_dcp_is(&opened) ? cairn_dcp_assemble(&opened, &assembly, &err)
                               : cairn_zero_universal_is(&opened)
                                   ? cairn_zero_universal_open(&opened, optimizer, &assembly, &err)
                               : cairn_zero_is(&opened)
                                   ? cairn_zero_open(&opened, &options, &assembly, &err)
                               : cairn_torch_ranks_is(&opened)
                                   ? cairn_torch_ranks_assemble(&opened, optimizer, &assembly, &err)
                                   : CAIRN_OK;
        FUZZ_SAYS_WHY(code, err);
        if (!code) read_all(&assembly);
        cairn_assembly_release(&assembly);
    }
    free(folder);
}
