/* SPDX-License-Identifier: Apache-2.0 */
/* Each file of a parameter's folder: one tensor, alone or beside what says how it was cut. */
#include "formats/zero_universal.h"

#include <stdlib.h>

#include "common/utf8.h"
#include "formats/torch_assembly.h"
#include "formats/zero_parallel.h"

#define VALUES "fp32"

struct universal {
    const struct cairn_zero_folder *folder;
    bool optimizer;
    struct cairn_assembly *assembly;
};
/* zero/<parameter>/<what>.pt */
struct parsed {
    char parameter[CAIRN_TENSOR_NAME_BYTES_MAX + 1], what[64];
};

static bool parse(const char *name, struct parsed *ret) {
    size_t head = strlen(CAIRN_ZERO_UNIVERSAL), size = strlen(name);
    const char *slash = strrchr(name, '/');
    if (strncmp(name, CAIRN_ZERO_UNIVERSAL, head) != 0 || slash <= name + head || size < 4 ||
        strcmp(name + size - 3, ".pt") != 0)
        return false;
    size_t parameter = (size_t)(slash - name) - head, what = size - 3 - (size_t)(slash + 1 - name);
    if (parameter >= sizeof ret->parameter || what >= sizeof ret->what) return false;
    memcpy(ret->parameter, name + head, parameter);
    memcpy(ret->what, slash + 1, what);
    ret->parameter[parameter] = ret->what[what] = '\0';
    return true;
}

/* zero/<parameter>, where folders are listed, too. */
static bool is_folder_of_one(const char *name) {
    size_t size = strlen(name);
    return !strchr(name + strlen(CAIRN_ZERO_UNIVERSAL), '/') &&
           strcmp(name + size - 3, ".pt") != 0;
}

bool cairn_zero_universal_is(const struct cairn_zero_folder *folder) {
    struct parsed parsed;
    for (size_t i = 0; i < folder->count; i++)
        if (parse(folder->names[i], &parsed) && strcmp(parsed.what, VALUES) == 0) return true;
    return false;
}

/* The file's only tensor, or the one that it calls `param`; NULL: there is none. */
static const struct cairn_assembly_tensor *choose(const struct cairn_assembly *own) {
    size_t at;
    if (cairn_assembly_find(own, "param", &at)) return &own->tensors[at];
    return own->tensor_count == 1 ? &own->tensors[0] : NULL;
}

static enum cairn_code add_tensor(const struct universal *universal, const char *name,
                                  const struct cairn_torch *file, bool values,
                                  struct cairn_assembly *own, struct cairn_error *err) {
    CAIRN_TRY(cairn_torch_assemble(file, "", own, err));
    CAIRN_TRY(cairn_assembly_check(own, err));
    const struct cairn_assembly_tensor *tensor = choose(own);
    if (!tensor && !values)
        return cairn_assembly_leave_out(universal->assembly, name, "it is no tensor", err);
    if (!tensor) return cairn_fail(err, CAIRN_INVALID, "it holds no tensor `param`");
    CAIRN_TRY(cairn_assembly_add_tensor(universal->assembly, name, tensor->dtype,
                                        tensor->dimension_count, tensor->shape, err));
    return cairn_assembly_copy_pieces(own, tensor, universal->assembly, err);
}

static enum cairn_code add_file(const struct universal *universal, const char *path,
                                const struct parsed *parsed, struct cairn_error *err) {
    bool values = strcmp(parsed->what, VALUES) == 0;
    const struct cairn_input *input;
    CAIRN_AUTO(buf) name = {0};
    struct cairn_assembly own = {0};
    struct cairn_torch file;
    if (!values && !universal->optimizer) return CAIRN_OK;
    CAIRN_TRY(cairn_buf_printf(&name, err, "%s%s%s%s", values ? "" : CAIRN_ASSEMBLY_OPTIMIZER,
                               parsed->parameter, values ? "" : ".", values ? "" : parsed->what));
    CAIRN_TRY(universal->folder->open(universal->folder->context, path, &input, err));
    CAIRN_TRY(cairn_torch_open(input, &file, err));
    enum cairn_code code = add_tensor(universal, name.data, &file, values, &own, err);
    cairn_assembly_release(&own);
    cairn_torch_release(&file);
    return code;
}

/* The parameter whose files were the last ones, since names are sorted. */
static enum cairn_code check_values(const struct parsed *last, bool has_values,
                                    struct cairn_error *err) {
    if (has_values || !last->parameter[0]) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID, CAIRN_ZERO_UNIVERSAL "%s has no " VALUES ".pt",
                      cairn_short(last->parameter).text);
}

static enum cairn_code add_all(const struct universal *universal, struct cairn_error *err) {
    const struct cairn_zero_folder *folder = universal->folder;
    struct parsed last = {0}, parsed;
    bool has_values = false;
    for (size_t i = 0; i < folder->count; i++) {
        const char *path = folder->names[i];
        if (strncmp(path, CAIRN_ZERO_UNIVERSAL, strlen(CAIRN_ZERO_UNIVERSAL)) != 0) continue;
        if (is_folder_of_one(path)) continue;
        if (!parse(path, &parsed)) {
            CAIRN_TRY(cairn_assembly_leave_out(universal->assembly, path,
                                               "a file that belongs to no parameter", err));
            continue;
        }
        if (strcmp(last.parameter, parsed.parameter) != 0) {
            CAIRN_TRY(check_values(&last, has_values, err));
            has_values = false;
        }
        last = parsed;
        has_values |= strcmp(parsed.what, VALUES) == 0;
        enum cairn_code code = add_file(universal, path, &parsed, err);
        if (code) return cairn_within(err, code, "%s", path);
    }
    CAIRN_TRY(check_values(&last, has_values, err));
    if (universal->optimizer) return CAIRN_OK;
    return cairn_assembly_leave_out(universal->assembly, CAIRN_ASSEMBLY_OPTIMIZER,
                                    CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER, err);
}

enum cairn_code cairn_zero_universal_open(const struct cairn_zero_folder *folder, bool optimizer,
                                          struct cairn_assembly *assembly,
                                          struct cairn_error *err) {
    const struct universal universal = {folder, optimizer, assembly};
    CAIRN_TRY(add_all(&universal, err));
    return cairn_assembly_check(assembly, err);
}
