/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cairn put: saves a directory as a checkpoint, each file unchanged; tensors of its safetensors
 * files are described, so that they can be read by name.
 *
 * Promise: 1   an invalid .safetensors file is kept as raw bytes, with a note.
 *          2   a tensor name in two files is listed as "file:name" for each.
 *          3   in a folder with an index (formats/assembly/models.h) the index gives the tensors
 *              and their files; other files there are kept as raw bytes.
 *          4   pieces of torch's distributed checkpoints become one tensor if the folder's files
 *              hold all of it, else raw bytes, with a note.
 *          5   a folder that holds half a model (a file or a tensor that its index or its numbered
 *              names tell of is not there) is kept as raw bytes, with a note: its other tensors by
 *              name would be taken for the whole.
 *          6   left_out names everything not described.
 */

#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/shell/output.h"
#include "cli/tree/tree.h"
#include "common/buf.h"
#include "common/file.h"
#include "common/text.h"
#include "formats/assembly/models.h"
#include "formats/input.h"

#define SUFFIX ".safetensors"

struct header {
    size_t file; /* index in the tree */
    struct cairn_safetensors content;
    json_t *sharding; /* its description of pieces; NULL: none */
    size_t index;     /* its folder's index + 1; 0: none */
};
/* What a folder's index, or the names of its files, say of its model. */
struct index {
    size_t folder_bytes, file; /* a file of the folder, and its path's length */
    struct cairn_model_choice choice;
    const char **names; /* the folder's files; the choice counts in them */
    size_t count, first;
    size_t found; /* tensors of the index that its files have */
    char *half;   /* owned: what is missing; NULL: nothing known */
};
/* Of one folder; a part's file is its tree index. */
struct pieces {
    size_t folder_bytes, file;
    struct cairn_safetensors_parts parts;
};
struct name {
    struct cairn_view text;
    size_t header, entry;
    bool twice;
};
struct work {
    struct cairn_save *save;
    const struct cli_tree *tree;
    struct cli_described *described;
    struct header *headers;
    size_t header_count;
    struct index *indexes;
    size_t index_count, index_capacity;
    struct pieces *pieces;
    size_t piece_count, piece_capacity;
    struct name *names; /* of whole tensors */
    size_t name_count;
    bool *known; /* by tree index: the file holds a tensor */
};

static void release(struct work *work) {
    for (size_t i = 0; i < work->header_count; i++) {
        cairn_safetensors_release(&work->headers[i].content);
        json_decref(work->headers[i].sharding);
    }
    for (size_t i = 0; i < work->index_count; i++) {
        cairn_model_choice_release(&work->indexes[i].choice);
        free(work->indexes[i].names);
        free(work->indexes[i].half);
    }
    for (size_t i = 0; i < work->piece_count; i++)
        cairn_safetensors_parts_release(&work->pieces[i].parts);
    free(work->headers);
    free(work->indexes);
    free(work->pieces);
    free(work->names);
    free(work->known);
}

static const char *name_of(const struct work *work, size_t file) {
    return work->tree->files[file].name;
}
static size_t folder_bytes(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) + 1 : 0;
}
static bool in_folder(const struct work *work, size_t file, size_t other, size_t bytes) {
    const char *name = name_of(work, file);
    return folder_bytes(name) == bytes && strncmp(name, name_of(work, other), bytes) == 0;
}

/* Records a tensor whose bytes are kept without a name in the version. */
static enum cairn_code leave_out(const struct work *work, const char *name, const char *why,
                                 struct cairn_error *err) {
    json_t *row = json_pack("{s:s, s:s}", "name", name, "why", why);
    return json_array_append_new(work->described->left_out, row) == 0
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list of what is left out");
}

/* ---- model indexes ---- */

/* For cairn_model_choose: opens files of one folder of the tree. */
struct opened {
    const struct work *work;
    const struct index *index;
    struct cairn_file file;
    struct cairn_input input;
};
static enum cairn_code open_index(void *context, const char *name, const struct cairn_input **ret,
                                  struct cairn_error *err) {
    struct opened *opened = context;
    size_t at = opened->index->first;
    int fd;
    while (name_of(opened->work, at) + opened->index->folder_bytes != name) at++;
    CAIRN_TRY(cli_tree_file(opened->work->tree, at, &fd, err));
    cairn_file_release(&opened->file);
    opened->file = (struct cairn_file){.fd = fd, .direct_fd = -1, .open = true};
    *ret = &opened->input;
    return cairn_input_of_file(&opened->file, &opened->input, err);
}

static enum cairn_code add_index(struct work *work, size_t file, struct cairn_error *err) {
    size_t bytes = folder_bytes(name_of(work, file));
    for (size_t i = 0; i < work->index_count; i++)
        if (in_folder(work, file, work->indexes[i].file, work->indexes[i].folder_bytes))
            return CAIRN_OK;
    CAIRN_TRY(CAIRN_ARRAY_ROOM(work->indexes, work->index_count, work->index_capacity,
                               work->tree->count, "indexes of a tree", err));
    struct index *index = &work->indexes[work->index_count++];
    *index = (struct index){.folder_bytes = bytes, .file = file, .first = SIZE_MAX};
    index->names = calloc(work->tree->count + 1, sizeof *index->names);
    if (!index->names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < work->tree->count; i++) {
        if (!in_folder(work, i, file, bytes)) continue;
        if (!index->count) index->first = i;
        index->names[index->count++] = name_of(work, i) + bytes;
    }
    /* Files that contradict the index are kept, with a note, and not described by it. */
    struct opened opened = {.work = work, .index = index};
    const struct cairn_zero_folder folder = {
        .context = &opened, .names = index->names, .count = index->count, .open = open_index};
    struct cairn_error why = {0};
    enum cairn_code code = cairn_model_choose(&folder, NULL, &index->choice, &why);
    cairn_file_release(&opened.file);
    if (code == CAIRN_NO_MEMORY || code == CAIRN_IO) return cairn_pass(err, code, &why);
    if (code == CAIRN_NOT_FOUND && !(index->half = strdup(why.message)))
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a message");
    if (code)
        cli_note("note: %s: %s; %s", name_of(work, file), why.message,
                 index->half ? "its folder is kept as plain bytes" : "it counts for nothing");
    return CAIRN_OK;
}

/* What is known of the file's folder: that its model is not whole, or its safetensors index; NULL:
 * neither. */
static struct index *index_of(const struct work *work, size_t file) {
    for (size_t i = 0; i < work->index_count; i++) {
        struct index *index = &work->indexes[i];
        bool counts = index->half ||
                      (index->choice.map && index->choice.format == CAIRN_FORMAT_HF_SAFETENSORS);
        if (counts && in_folder(work, file, index->file, index->folder_bytes)) return index;
    }
    return NULL;
}

static bool is_taken(const struct index *index, const char *name) {
    size_t i = 0;
    while (i < index->count && strcmp(index->names[i], name + index->folder_bytes) != 0) i++;
    return i < index->count && index->choice.taken[i];
}

static enum cairn_code read_header(const struct work *work, struct header *header,
                                   struct cairn_error *err) {
    CAIRN_AUTO_FD fd = -1;
    CAIRN_AUTO(buf) head = {0};
    struct cairn_input input;
    CAIRN_TRY(cli_tree_file(work->tree, header->file, &fd, err));
    struct cairn_file file = {.fd = fd, .direct_fd = -1, .open = true};
    CAIRN_TRY(cairn_input_of_file(&file, &input, err));
    CAIRN_TRY(cairn_input_packed(&input, err));
    CAIRN_TRY(cairn_safetensors_load(&input, &head, &header->content, err));
    enum cairn_code code = cairn_safetensors_sharding(&header->content, &header->sharding, err);
    if (code) cairn_safetensors_release(&header->content);
    return code;
}

static enum cairn_code read_file(struct work *work, size_t file, struct cairn_error *err) {
    struct header *header = &work->headers[work->header_count];
    const struct index *index = index_of(work, file);
    const char *name = name_of(work, file);
    struct cairn_error why = {0};
    *header = (struct header){.file = file};
    if (index && index->half) return leave_out(work, name, index->half, err);
    if (index && !is_taken(index, name)) {
        CAIRN_AUTO(buf) text = {0};
        CAIRN_TRY(cairn_buf_printf(&text, err, "a file beside the model: %s does not name it",
                                   index->choice.index));
        cli_note("note: %s is kept as plain bytes: %s", name, text.data);
        return leave_out(work, name, text.data, err);
    }
    header->index = index ? (size_t)(index - work->indexes) + 1 : 0;
    enum cairn_code code = read_header(work, header, &why);
    if (code == CAIRN_OK) {
        work->header_count++;
        return CAIRN_OK;
    }
    if (code == CAIRN_INVALID || code == CAIRN_UNSUPPORTED || code == CAIRN_TOO_LARGE ||
        code == CAIRN_CORRUPT) {
        cli_note("note: %s is kept as plain bytes: %s", name, why.message);
        return leave_out(work, name, why.message, err);
    }
    return cairn_pass(err, code, &why);
}

static enum cairn_code read_headers(struct work *work, struct cairn_error *err) {
    const struct cli_tree *tree = work->tree;
    work->headers = calloc(tree->count + 1, sizeof *work->headers);
    work->known = calloc(tree->count + 1, sizeof *work->known);
    if (!work->headers || !work->known)
        return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for headers");
    for (size_t i = 0; i < tree->count; i++) {
        const char *name = tree->files[i].name;
        bool telling = !tree->one_file && cairn_model_is_telling(name + folder_bytes(name));
        if (telling) CAIRN_TRY(add_index(work, i, err));
    }
    for (size_t i = 0; i < tree->count; i++)
        if (cairn_text_ends_uncased(tree->files[i].name, SUFFIX) && tree->files[i].bytes >= 8)
            CAIRN_TRY(read_file(work, i, err));
    return CAIRN_OK;
}

/* ---- choosing and describing tensors ---- */

static enum cairn_code pieces_of(struct work *work, size_t file,
                                 struct cairn_safetensors_parts **ret, struct cairn_error *err) {
    for (size_t i = 0; i < work->piece_count; i++) {
        *ret = &work->pieces[i].parts;
        if (in_folder(work, file, work->pieces[i].file, work->pieces[i].folder_bytes))
            return CAIRN_OK;
    }
    CAIRN_TRY(CAIRN_ARRAY_ROOM(work->pieces, work->piece_count, work->piece_capacity,
                               work->tree->count, "folders", err));
    work->pieces[work->piece_count++] =
        (struct pieces){.folder_bytes = folder_bytes(name_of(work, file)), .file = file};
    *ret = &work->pieces[work->piece_count - 1].parts;
    return CAIRN_OK;
}

/* With an index, a tensor counts only in the file that the index gives. */
static const char *indexed_file(const struct work *work, const struct header *header,
                                struct cairn_view tensor) {
    const json_t *map = work->indexes[header->index - 1].choice.map;
    return json_string_value(json_object_getn(map, tensor.data, tensor.size));
}

static bool is_indexed(const struct work *work, const struct header *header,
                       struct cairn_view tensor) {
    const char *own = indexed_file(work, header, tensor), *file = name_of(work, header->file);
    return own && strcmp(own, file + work->indexes[header->index - 1].folder_bytes) == 0;
}

static enum cairn_code leave_out_unindexed(const struct work *work, const struct header *header,
                                           struct cairn_view tensor, struct cairn_error *err) {
    const char *own = indexed_file(work, header, tensor);
    CAIRN_AUTO(buf) name = {0};
    CAIRN_AUTO(buf) why = {0};
    CAIRN_TRY(cairn_buf_append(&name, tensor.data, tensor.size, err));
    CAIRN_TRY(cairn_buf_printf(&name, err, " of %s", name_of(work, header->file)));
    CAIRN_TRY(cairn_buf_printf(&why, err, own ? "%s takes it from %s" : "%s does not name it",
                               work->indexes[header->index - 1].choice.index, own));
    cli_note("note: %s is kept as plain bytes: %s", name.data, why.data);
    return leave_out(work, name.data, why.data, err);
}

static enum cairn_code sort_out(struct work *work, size_t number, struct cairn_error *err) {
    const struct header *header = &work->headers[number];
    struct cairn_safetensors_parts *parts = NULL;
    if (header->sharding) CAIRN_TRY(pieces_of(work, header->file, &parts, err));
    for (size_t e = 0; e < header->content.count; e++) {
        const struct cairn_safetensors_entry *entry = &header->content.entries[e];
        bool part = false, named = !header->index || is_indexed(work, header, entry->name);
        if (header->index) work->indexes[header->index - 1].found += named;
        if (parts)
            CAIRN_TRY(cairn_safetensors_parts_add(parts, header->sharding, entry, header->file,
                                                  &part, err));
        if (part) continue;
        if (!named) CAIRN_TRY(leave_out_unindexed(work, header, entry->name, err));
        if (named)
            work->names[work->name_count++] =
                (struct name){.text = entry->name, .header = number, .entry = e};
    }
    return CAIRN_OK;
}

/* ---- indexes that name a tensor which its file lacks ---- */

static enum cairn_code name_missing(const struct work *work, struct index *index,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *there = json_object();
    CAIRN_AUTO(buf) why = {0};
    const char *tensor;
    json_t *file;
    for (size_t i = 0; i < work->header_count; i++) {
        const struct header *header = &work->headers[i];
        if (header->index != (size_t)(index - work->indexes) + 1) continue;
        for (size_t e = 0; e < header->content.count; e++) {
            struct cairn_view name = header->content.entries[e].name;
            if (is_indexed(work, header, name) &&
                json_object_setn_new(there, name.data, name.size, json_true()))
                return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
        }
    }
    json_object_foreach(index->choice.map, tensor, file) {
        if (json_object_get(there, tensor)) continue;
        CAIRN_TRY(cairn_buf_printf(&why, err, "tensor %s is not in %s, where %s has it",
                                   cairn_short(tensor).text, json_string_value(file),
                                   index->choice.index));
        break;
    }
    index->half = why.data ? strdup(why.data) : NULL;
    if (!index->half) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a message");
    cli_note("note: %s; its folder is kept as plain bytes", index->half);
    return CAIRN_OK;
}

static enum cairn_code leave_out_halves(struct work *work, struct cairn_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < work->index_count; i++) {
        struct index *index = &work->indexes[i];
        if (index->choice.map && index->choice.format == CAIRN_FORMAT_HF_SAFETENSORS &&
            index->found < json_object_size(index->choice.map))
            CAIRN_TRY(name_missing(work, index, err));
    }
    for (size_t i = 0; i < work->header_count; i++) {
        const struct header *header = &work->headers[i];
        const char *half = header->index ? work->indexes[header->index - 1].half : NULL;
        if (half) CAIRN_TRY(leave_out(work, name_of(work, header->file), half, err));
    }
    for (size_t i = 0; i < work->name_count; i++) {
        const struct header *header = &work->headers[work->names[i].header];
        if (!header->index || !work->indexes[header->index - 1].half)
            work->names[kept++] = work->names[i];
    }
    work->name_count = kept;
    for (size_t i = 0; i < work->piece_count; i++) {
        const struct index *index = index_of(work, work->pieces[i].file);
        if (index && index->half) cairn_safetensors_parts_release(&work->pieces[i].parts);
    }
    return CAIRN_OK;
}

static int by_name_text(const void *a, const void *b) {
    const struct cairn_view x = (*(const struct name *const *)a)->text,
                            y = (*(const struct name *const *)b)->text;
    int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

static enum cairn_code describe_whole(struct work *work, const struct name *name,
                                      struct cairn_error *err) {
    const struct header *header = &work->headers[name->header];
    const struct cairn_safetensors_entry *entry = &header->content.entries[name->entry];
    const char *file = name_of(work, header->file);
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
    work->known[header->file] = true;
    work->described->tensors++;
    return cairn_save_tensor(work->save, &piece, err);
}

/* Whether another tensor, whole or of another folder, has that name. */
static bool is_taken_name(const struct work *work, const struct pieces *own, const char *name) {
    for (size_t i = 0; i < work->name_count; i++)
        if (work->names[i].text.size == strlen(name) &&
            memcmp(work->names[i].text.data, name, strlen(name)) == 0)
            return true;
    for (size_t i = 0; i < work->piece_count; i++)
        for (size_t p = 0; &work->pieces[i] != own && p < work->pieces[i].parts.count; p++)
            if (strcmp(work->pieces[i].parts.items[p].name, name) == 0) return true;
    return false;
}

static enum cairn_code describe_group(struct work *work, const struct pieces *pieces, size_t first,
                                      size_t count, const uint64_t *shape,
                                      struct cairn_error *err) {
    const struct cairn_safetensors_part *parts = &pieces->parts.items[first];
    CAIRN_AUTO(buf) text = {0};
    if (is_taken_name(work, pieces, parts->name))
        CAIRN_TRY(cairn_buf_printf(&text, err, "%s:", name_of(work, parts->file)));
    CAIRN_TRY(cairn_buf_append_text(&text, parts->name, err));
    size_t filled = 0;
    for (size_t i = 0; i < count; i++) filled += parts[i].size_bytes != 0;
    for (size_t i = 0; i < count; i++) {
        const struct cairn_safetensors_part *part = &parts[i];
        if (!part->size_bytes && (filled || i)) continue;
        const struct cairn_tensor_piece piece = {.size = sizeof piece,
                                                 .name = text.data,
                                                 .dtype = cairn_dtype_text(part->dtype),
                                                 .dimension_count = part->dimension_count,
                                                 .shape = shape,
                                                 .kind = CAIRN_SHARDED,
                                                 .form = filled < 2 ? CAIRN_WHOLE : CAIRN_BOX,
                                                 .start = part->box.start,
                                                 .count = part->box.count,
                                                 .in_file = name_of(work, part->file),
                                                 .file_offset = part->offset_bytes,
                                                 .source_bytes = part->size_bytes};
        work->known[part->file] = true;
        CAIRN_TRY(cairn_save_tensor(work->save, &piece, err));
    }
    work->described->tensors++;
    return CAIRN_OK;
}

static bool is_one_rank(const struct work *work, const struct pieces *pieces) {
    size_t bytes = pieces->folder_bytes;
    const char *first = name_of(work, pieces->parts.items[0].file) + bytes;
    for (size_t i = 0; i < pieces->parts.count; i++) {
        const char *name = name_of(work, pieces->parts.items[i].file) + bytes;
        if (!cairn_model_is_same_rank(first, name)) return false;
    }
    return true;
}

/* Incomplete sets of pieces stay raw bytes. */
static enum cairn_code describe_pieces(struct work *work, struct pieces *pieces,
                                       struct cairn_error *err) {
    size_t count;
    cairn_safetensors_parts_sort(&pieces->parts);
    bool one_rank = pieces->parts.count && is_one_rank(work, pieces);
    for (size_t first = 0; first < pieces->parts.count; first += count) {
        uint64_t shape[CAIRN_DIMENSIONS_MAX];
        struct cairn_error why = {0};
        enum cairn_code code =
            cairn_safetensors_parts_group(&pieces->parts, first, &count, shape, &why);
        if (code == CAIRN_OK && one_rank)
            code = cairn_fail(&why, CAIRN_CORRUPT, "%s: " CAIRN_MODEL_ONE_RANK,
                              name_of(work, pieces->parts.items[first].file));
        if (code == CAIRN_OK) {
            CAIRN_TRY(describe_group(work, pieces, first, count, shape, err));
        } else if (code == CAIRN_CORRUPT || code == CAIRN_TOO_LARGE) {
            cli_note("note: kept as plain bytes: %s", why.message);
            CAIRN_TRY(leave_out(work, pieces->parts.items[first].name, why.message, err));
        } else
            return cairn_pass(err, code, &why);
    }
    return CAIRN_OK;
}

static const struct cli_flag put_flags[] = {
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Where no uploader listens: bring one that sends to this store (default $CAIRN_STORE)."},
    {"format", 0, CLI_TEXT, CLI_AT(format), 0, "TAG", "Format tag that readers can insist on."},
    {"labels", 0, CLI_TEXT, CLI_AT(labels), 0, "JSON", "Labels, an object of texts."},
    {"new-version", 0, CLI_SWITCH, CLI_AT(force), 0, NULL,
     "If the step is there already, keep both versions instead of refusing."},
    {"latest", 0, CLI_SWITCH, CLI_AT(latest), 0, NULL,
     "It is latest from then on, also where its step is lower than that of latest."},
    {"follow", 0, CLI_SWITCH, CLI_AT(follow), 0, NULL,
     "Keep what links out of the tree point to; otherwise they are refused."},
    {"files-only", 0, CLI_SWITCH, CLI_AT(files_only), 0, NULL,
     "Leave out modes, links and empty folders."},
    {"exclude", 0, CLI_TEXTS, CLI_AT(exclude), 0, "PATTERN",
     "Leave out what matches, as a line of .gitignore does; again for others. A file .cairnignore "
     "at the root of PATH has such lines, too."},
    {"detach", 0, CLI_SWITCH, CLI_AT(detach), 0, NULL,
     "Return when the node's uploader has the files open; it sends them as long as it runs. See "
     "cairn wait."},
};

static enum cairn_code describe_put(void *owner, struct cairn_save *save,
                                    const struct cli_tree *tree, struct cli_described *ret,
                                    struct cairn_error *err) {
    CAIRN_RELEASED(release) struct work work = {.save = save, .tree = tree, .described = ret};
    (void)owner;
    size_t count = 0;
    CAIRN_TRY(read_headers(&work, err));
    for (size_t i = 0; i < work.header_count; i++) count += work.headers[i].content.count;
    work.names = calloc(count + 1, sizeof *work.names);
    if (!work.names) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < work.header_count; i++) CAIRN_TRY(sort_out(&work, i, err));
    CAIRN_TRY(leave_out_halves(&work, err));
    CAIRN_AUTO_HEAP struct name **sorted = calloc(work.name_count + 1, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for names");
    for (size_t i = 0; i < work.name_count; i++) sorted[i] = &work.names[i];
    qsort(sorted, work.name_count, sizeof *sorted, by_name_text);
    for (size_t i = 1; i < work.name_count; i++)
        if (!by_name_text(&sorted[i - 1], &sorted[i]))
            sorted[i - 1]->twice = sorted[i]->twice = true;
    for (size_t i = 0; i < work.name_count; i++)
        CAIRN_TRY(describe_whole(&work, &work.names[i], err));
    for (size_t i = 0; i < work.piece_count; i++)
        CAIRN_TRY(describe_pieces(&work, &work.pieces[i], err));
    for (size_t i = 0; i < work.tree->count; i++) work.described->files += work.known[i];
    return CAIRN_OK;
}

static enum cairn_code run_put(struct cli *cli, struct cairn_error *err) {
    const char *path = cli->arguments[0], *ref = cli->arguments[1];
    const struct cli_save_tree job = {.cli = cli,
                                      .verb = "put",
                                      .path = path,
                                      .folder_fd = -1,
                                      .ref = ref,
                                      .format = cli->format,
                                      .describe = describe_put};
    CAIRN_TRY(cli_save_tree_check("put", path, ref, err));
    CAIRN_TRY(cli_save_tree_start(cli, "put", err));
    return cli_save_tree_run(&job, err);
}

const struct cli_verb cli_verb_put = {
    CLI_VERB(put),
    .synopsis = "cairn put [flags] PATH project/run@step",
    .purpose = "Keep a directory or a file as a checkpoint.",
    .examples =
        "  cairn put ./model llm/7b@1000\n"
        "  cairn put ./model llm/7b@1000 --format hf-safetensors --labels '{\"team\":\"nlp\"}'\n"
        "  cairn put ./model llm/7b@1000 --store /mnt/ckpt      (brings its own uploader)\n",
    CLI_TAKES(put_flags, 2, 2),
    .takes_paths = true,
};
