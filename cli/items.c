/* SPDX-License-Identifier: Apache-2.0 */
/* Each item is an object or left out. */
#include "cli/items.h"

#include "api/table/dtype.h"

#define NO_TENSOR                                                                                  \
    "an item: bytes by name, no tensor; cairn_restore_read and .../tensors/NAME/data give it"
#define NO_ARCHIVE "an item that is no file of torch.save"

/* torch.save writes a zip, and that is how torch tells one from what it wrote before. */
static enum cairn_code is_archive(const struct cairn_assembly *assembly,
                                  const struct cairn_assembly_tensor *item, bool *ret,
                                  struct cairn_error *err) {
    char first[4];
    *ret = false;
    if (item->piece_count != 1 || item->boxed || item->size_bytes < sizeof first) return CAIRN_OK;
    CAIRN_TRY(cairn_assembly_read(assembly, item, 0, first, sizeof first, err));
    *ret = memcmp(first, "PK\3\4", sizeof first) == 0;
    return CAIRN_OK;
}

enum cairn_code cairn_cli_items_take(struct cairn_assembly *assembly, bool keeps_objects,
                                     struct cairn_error *err) {
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *item = &assembly->tensors[i];
        bool archive = false;
        if (item->dtype != CAIRN_DTYPE_ITEM) continue;
        if (keeps_objects) CAIRN_TRY(is_archive(assembly, item, &archive, err));
        if (archive)
            CAIRN_TRY(cairn_assembly_add_object(assembly, item->name,
                                                &assembly->pieces[item->piece_first], false, err));
        else
            CAIRN_TRY(cairn_assembly_leave_out(assembly, item->name,
                                               keeps_objects ? NO_ARCHIVE : NO_TENSOR, err));
    }
    return CAIRN_OK;
}
