/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as rows of a table, for every verb that lists them. */
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

static void cell_tensor(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->tensor.name);
}
static void cell_dtype(const union cairn_cli_row *row, char *ret, size_t capacity) {
    snprintf(ret, capacity, "%s", row->tensor.dtype ? row->tensor.dtype : "");
}
static void cell_shape(const union cairn_cli_row *row, char *ret, size_t capacity) {
    size_t used = 0, index;
    json_t *dimension;
    ret[0] = '\0';
    json_array_foreach(row->tensor.shape, index, dimension) {
        if (used < capacity)
            used += (size_t)snprintf(ret + used, capacity - used, "%s%lld", index ? "x" : "",
                                     (long long)json_integer_value(dimension));
    }
    /* An alias may name no element type; then its shape is that of what it stands for. */
    if (!used && row->tensor.dtype) snprintf(ret, capacity, "scalar");
}
static void cell_tensor_size(const union cairn_cli_row *row, char *ret, size_t capacity) {
    char text[24];
    cairn_cli_size(row->tensor.bytes, text);
    snprintf(ret, capacity, "%s", text);
}
static void cell_kind(const union cairn_cli_row *row, char *ret, size_t capacity) {
    const char *kind = row->tensor.kind ? row->tensor.kind : "", *alias = row->tensor.alias_of;
    snprintf(ret, capacity, "%s%s%s", kind, alias ? " of " : "", alias ? alias : "");
}
static const struct cairn_cli_column tensor_columns[] = {
    {"TENSOR", false, cell_tensor},   {"DTYPE", false, cell_dtype}, {"SHAPE", false, cell_shape},
    {"SIZE", true, cell_tensor_size}, {"KIND", false, cell_kind},
};
const struct cairn_cli_table cairn_cli_tensor_table = {CAIRN_MESSAGE_tensor_row, tensor_columns,
                                                       CAIRN_COUNT(tensor_columns), cell_tensor,
                                                       NULL};
