/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the headers of safetensors files in a tree. */
#include "cli/tensors.h"

#include <stdlib.h>
#include <unistd.h>

#include "api/dtype.h"
#include "cli/output.h"
#include "common/file.h"
#include "formats/input.h"
#include "formats/safetensors.h"

#define SUFFIX ".safetensors"

struct header {
    size_t file; /* index in the tree */
    struct cairn_safetensors content;
};
struct headers {
    struct header *items;
    size_t count;
};
struct name {
    struct cairn_view text;
    size_t header;
    bool twice;
};

static bool is_candidate(const struct cairn_cli_file *file) {
    size_t bytes = strlen(file->name), end = strlen(SUFFIX);
    return bytes > end && !strcmp(file->name + bytes - end, SUFFIX) && file->bytes >= 8;
}

static enum cairn_code read_header(const struct cairn_cli_tree *tree, size_t index,
                                   struct cairn_safetensors *ret, struct cairn_error *err) {
    CAIRN_AUTO_FD fd = -1;
    CAIRN_AUTO(buf) head = {0};
    struct cairn_input input;
    CAIRN_TRY(cairn_cli_tree_file(tree, index, &fd, err));
    struct cairn_file file = {.fd = fd, .direct_fd = -1, .open = true};
    CAIRN_TRY(cairn_input_of_file(&file, &input, err));
    return cairn_safetensors_load(&input, &head, ret, err);
}

static enum cairn_code read_headers(const struct cairn_cli_tree *tree, struct headers *headers,
                                    struct cairn_error *err) {
    headers->items = calloc(tree->count + 1, sizeof *headers->items);
    if (!headers->items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for headers");
    for (size_t i = 0; i < tree->count; i++) {
        struct cairn_error why = {0};
        struct header *header = &headers->items[headers->count];
        if (!is_candidate(&tree->files[i])) continue;
        enum cairn_code code = read_header(tree, i, &header->content, &why);
        if (code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED || code == CAIRN_TOO_LARGE) {
            cairn_cli_note("note: %s is kept as plain bytes: %s", tree->files[i].name, why.message);
            continue;
        }
        if (code != CAIRN_OK) {
            if (err) *err = why;
            return code;
        }
        header->file = i;
        headers->count++;
    }
    return CAIRN_OK;
}

static int by_text(const void *a, const void *b) {
    const struct cairn_view x = (*(const struct name *const *)a)->text,
                            y = (*(const struct name *const *)b)->text;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

/* Which names stand in more than one file. names is in the order of headers and their entries. */
static enum cairn_code mark_twice(struct name *names, size_t count, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct name **sorted = calloc(count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < count; i++) sorted[i] = &names[i];
    qsort(sorted, count, sizeof *sorted, by_text);
    for (size_t i = 1; i < count; i++)
        if (!by_text(&sorted[i - 1], &sorted[i])) sorted[i - 1]->twice = sorted[i]->twice = true;
    return CAIRN_OK;
}

static enum cairn_code describe(struct cairn_save *save, const char *file, const struct name *name,
                                const struct cairn_safetensors_entry *entry,
                                struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    if (name->twice) CAIRN_TRY(cairn_buf_printf(&text, err, "%s:", file));
    CAIRN_TRY(cairn_buf_append(&text, name->text.data, name->text.size, err));
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = text.data,
                                       .dtype = cairn_dtype_text(entry->dtype),
                                       .dimension_count = entry->dimension_count,
                                       .shape = entry->shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_WHOLE,
                                       .in_file = file,
                                       .file_offset = entry->offset_bytes,
                                       .source_bytes = entry->size_bytes};
    return cairn_save_tensor(save, &piece, err);
}

static enum cairn_code describe_all(struct cairn_save *save, const struct cairn_cli_tree *tree,
                                    const struct headers *headers,
                                    struct cairn_cli_described *ret,
                                    struct cairn_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < headers->count; i++) count += headers->items[i].content.count;
    CAIRN_AUTO_HEAP struct name *names = calloc(count + 1, sizeof *names);
    if (!names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    struct name *name = names;
    for (size_t i = 0; i < headers->count; i++)
        for (size_t e = 0; e < headers->items[i].content.count; e++)
            *name++ = (struct name){.text = headers->items[i].content.entries[e].name, .header = i};
    CAIRN_TRY(mark_twice(names, count, err));
    name = names;
    for (size_t i = 0; i < headers->count; i++) {
        const struct header *header = &headers->items[i];
        for (size_t e = 0; e < header->content.count; e++)
            CAIRN_TRY(describe(save, tree->files[header->file].name, name++,
                               &header->content.entries[e], err));
    }
    *ret = (struct cairn_cli_described){.tensors = count};
    for (size_t i = 0; i < headers->count; i++) ret->files += headers->items[i].content.count > 0;
    return CAIRN_OK;
}

enum cairn_code cairn_cli_describe_tensors(struct cairn_save *save,
                                           const struct cairn_cli_tree *tree,
                                           struct cairn_cli_described *ret,
                                           struct cairn_error *err) {
    struct headers headers = {0};
    enum cairn_code code = read_headers(tree, &headers, err);
    if (code == CAIRN_OK) code = describe_all(save, tree, &headers, ret, err);
    for (size_t i = 0; i < headers.count; i++) cairn_safetensors_release(&headers.items[i].content);
    free(headers.items);
    return code;
}
