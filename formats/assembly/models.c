/* SPDX-License-Identifier: Apache-2.0 */
/* Whole tensors of safetensors files, and tensors joined from several files by offsets. */
#include "formats/assembly/models.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/buf.h"
#include "common/text.h"

#define SHARDING CAIRN_SAFETENSORS_SHARDING
#define OFFSETS "saved_offsets"
#define PARTS_MAX 16777216

void cairn_safetensors_parts_release(struct cairn_safetensors_parts *parts) {
    for (size_t i = 0; i < parts->count; i++) free(parts->items[i].name);
    free(parts->items);
    *parts = (struct cairn_safetensors_parts){0};
}

enum cairn_code cairn_safetensors_sharding(const struct cairn_safetensors *file, json_t **ret,
                                           struct cairn_error *err) {
    const char *text = json_string_value(
        json_object_get(json_object_get(file->document, "__metadata__"), SHARDING));
    *ret = NULL;
    if (!text) return CAIRN_OK;
    *ret = json_loads(text, 0, NULL);
    if (json_is_object(*ret)) return CAIRN_OK;
    json_decref(*ret);
    *ret = NULL;
    return cairn_fail(err, CAIRN_CORRUPT, SHARDING " in its header is not a JSON object");
}

static enum cairn_code read_box(const json_t *sharding, const struct cairn_safetensors_entry *entry,
                                struct cairn_box *ret, struct cairn_error *err) {
    const json_t *offsets = json_object_get(sharding, OFFSETS);
    bool sound = json_array_size(offsets) == entry->dimension_count && json_is_array(offsets);
    for (unsigned d = 0; sound && d < entry->dimension_count; d++) {
        json_int_t offset = json_integer_value(json_array_get(offsets, d));
        sound = json_is_integer(json_array_get(offsets, d)) && offset >= 0 &&
                entry->shape[d] <= (uint64_t)INT64_MAX - (uint64_t)offset;
        ret->start[d] = (uint64_t)offset;
        ret->count[d] = entry->shape[d];
    }
    if (sound) return CAIRN_OK;
    return cairn_fail(err, CAIRN_CORRUPT, "tensor %.*s: " SHARDING " does not say where it lies",
                      (int)cairn_min_u64(entry->name.size, 200), (const char *)entry->name.data);
}

enum cairn_code cairn_safetensors_parts_add(struct cairn_safetensors_parts *parts,
                                            const json_t *sharding,
                                            const struct cairn_safetensors_entry *entry,
                                            size_t file, bool *ret, struct cairn_error *err) {
    struct cairn_safetensors_part part = {.dtype = entry->dtype,
                                          .dimension_count = entry->dimension_count,
                                          .file = file,
                                          .offset_bytes = entry->offset_bytes,
                                          .size_bytes = entry->size_bytes};
    const json_t *own = json_object_getn(sharding, entry->name.data, entry->name.size);
    *ret = own != NULL;
    if (!own) return CAIRN_OK;
    CAIRN_TRY(read_box(own, entry, &part.box, err));
    CAIRN_TRY(CAIRN_ARRAY_ROOM(parts->items, parts->count, parts->capacity, PARTS_MAX,
                               "pieces of tensors", err));
    part.name = strndup(entry->name.data, entry->name.size);
    if (!part.name) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a name");
    parts->items[parts->count++] = part;
    return CAIRN_OK;
}

static int by_name_and_file(const void *a, const void *b) {
    const struct cairn_safetensors_part *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->file > y->file) - (x->file < y->file);
}

void cairn_safetensors_parts_sort(struct cairn_safetensors_parts *parts) {
    if (parts->count) qsort(parts->items, parts->count, sizeof *parts->items, by_name_and_file);
}

/* Ignores empty parts, which ranks without elements write. */
static enum cairn_code prove_parts(const struct cairn_safetensors_part *parts, size_t count,
                                   const uint64_t *shape, struct cairn_error *err) {
    CAIRN_AUTO_HEAP struct cairn_box *boxes = calloc(count + 1, sizeof *boxes);
    size_t used = 0;
    if (!boxes) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for pieces of tensors");
    for (size_t i = 0; i < count; i++)
        if (parts[i].size_bytes) boxes[used++] = parts[i].box;
    if (!used) return CAIRN_OK;
    enum cairn_code code = cairn_boxes_prove(boxes, used, parts->dimension_count, shape, err);
    return code == CAIRN_INVALID ? cairn_within(err, CAIRN_CORRUPT, "%s of " SHARDING,
                                                cairn_counted(used, "piece").text)
                                 : code;
}

enum cairn_code cairn_safetensors_parts_group(const struct cairn_safetensors_parts *parts,
                                              size_t first, size_t *ret_count,
                                              uint64_t ret_shape[CAIRN_DIMENSIONS_MAX],
                                              struct cairn_error *err) {
    const struct cairn_safetensors_part *group = &parts->items[first];
    size_t count = 0;
    memset(ret_shape, 0, CAIRN_DIMENSIONS_MAX * sizeof *ret_shape);
    while (first + count < parts->count && strcmp(group[count].name, group->name) == 0) count++;
    *ret_count = count;
    enum cairn_code code = CAIRN_OK;
    for (size_t i = 0; code == CAIRN_OK && i < count; i++) {
        if (group[i].dtype != group->dtype || group[i].dimension_count != group->dimension_count)
            code = cairn_fail(err, CAIRN_CORRUPT, "its pieces differ in type or dimensions");
        for (unsigned d = 0; code == CAIRN_OK && d < group->dimension_count; d++)
            ret_shape[d] =
                cairn_max_u64(ret_shape[d], group[i].box.start[d] + group[i].box.count[d]);
    }
    if (code == CAIRN_OK) code = prove_parts(group, count, ret_shape, err);
    return cairn_within(err, code, "tensor %s", cairn_short(group->name).text);
}

static enum cairn_code add_texts(const struct cairn_safetensors *file, const char *name,
                                 struct cairn_assembly *assembly, struct cairn_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(file->document, "__metadata__"), key, value) {
        if (!cairn_safetensors_is_carried(key)) continue;
        CAIRN_TRY(cairn_assembly_add_text(assembly, key, json_string_value(value), name, err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_add_texts(const struct cairn_input *input, const char *name,
                                            struct cairn_assembly *assembly,
                                            struct cairn_error *err) {
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_TRY(cairn_safetensors_load(input, &head, &file, err));
    return add_texts(&file, name, assembly, err);
}

bool cairn_safetensors_begins(struct cairn_view first) {
    return first.size > 8 && ((const char *)first.data)[8] == '{';
}

enum cairn_code cairn_safetensors_read_file(const struct cairn_reading *reading,
                                            struct cairn_error *err) {
    struct cairn_assembly *assembly = reading->assembly;
    struct cairn_safetensors_parts *parts = reading->parts;
    CAIRN_AUTO(buf) head = {0};
    CAIRN_AUTO(safetensors) file = {0};
    CAIRN_AUTO_JSON json_t *sharding = NULL;
    CAIRN_TRY(cairn_safetensors_load(reading->input, &head, &file, err));
    CAIRN_TRY(cairn_safetensors_sharding(&file, &sharding, err));
    CAIRN_TRY(add_texts(&file, reading->name, assembly, err));
    uint32_t number;
    size_t before = parts->count;
    CAIRN_TRY(cairn_assembly_add_input(assembly, reading->input, &number, err));
    for (size_t i = 0; i < file.count; i++) {
        const struct cairn_safetensors_entry *entry = &file.entries[i];
        CAIRN_AUTO(buf) own = {0};
        bool part;
        CAIRN_TRY(cairn_safetensors_parts_add(parts, sharding, entry, before, &part, err));
        if (part) parts->items[parts->count - 1].input = reading->input;
        if (part) continue;
        CAIRN_TRY(cairn_buf_append(&own, entry->name.data, entry->name.size, err));
        CAIRN_TRY(cairn_assembly_add_tensor(assembly, own.data, entry->dtype,
                                            entry->dimension_count, entry->shape, err));
        CAIRN_TRY(cairn_assembly_add_piece(assembly, number, entry->offset_bytes, entry->size_bytes,
                                           err));
    }
    return CAIRN_OK;
}

enum cairn_code cairn_safetensors_join(struct cairn_safetensors_parts *parts,
                                       struct cairn_assembly *assembly, struct cairn_error *err) {
    size_t count;
    cairn_safetensors_parts_sort(parts);
    for (size_t first = 0; first < parts->count; first += count) {
        uint64_t shape[CAIRN_DIMENSIONS_MAX];
        CAIRN_TRY(cairn_safetensors_parts_group(parts, first, &count, shape, err));
        const struct cairn_safetensors_part *group = &parts->items[first];
        CAIRN_TRY(cairn_assembly_add_tensor(assembly, group->name, group->dtype,
                                            group->dimension_count, shape, err));
        for (size_t i = 0; i < count; i++) {
            struct cairn_assembly_piece piece = {.offset_bytes = group[i].offset_bytes,
                                                 .size_bytes = group[i].size_bytes};
            CAIRN_TRY(cairn_assembly_add_input(assembly, group[i].input, &piece.input, err));
            CAIRN_TRY(cairn_assembly_add_box(assembly, &piece, &group[i].box, 0, err));
        }
    }
    return CAIRN_OK;
}

/* ---- formats ---- */

static const struct {
    const char *tag;
    bool (*begins)(struct cairn_view first); /* NULL: not one file */
    enum cairn_code (*read_file)(const struct cairn_reading *reading, struct cairn_error *err);
} formats[] = {
    [CAIRN_FORMAT_NONE] = {"", NULL, NULL},
    [CAIRN_FORMAT_CAIRN] = {"cairn", NULL, NULL},
#define FOLDER_FORMAT(id, tag, kind) [CAIRN_FORMAT_##id] = {tag, NULL, NULL},
#define FILE_FORMAT(id, tag, kind, name)                                                           \
    [CAIRN_FORMAT_##id] = {tag, cairn_##name##_begins, cairn_##name##_read_file},
#include "formats/formats.def"
};

const char *cairn_format_tag(enum cairn_format format) {
    return formats[format].tag;
}

enum cairn_format cairn_format_of_tag(const char *tag) {
    enum cairn_format format = (enum cairn_format)(CAIRN_COUNT(formats) - 1);
    while (format && !(tag && strcmp(tag, formats[format].tag) == 0)) format--;
    return format;
}

enum cairn_code cairn_format_of_file(const struct cairn_input *input, const char *name,
                                     enum cairn_format *ret, struct cairn_error *err) {
    char first[16] = {0};
    size_t size = (size_t)cairn_min_u64(input->size_bytes, sizeof first);
    CAIRN_TRY(cairn_input_read(input, 0, first, size, err));
    for (size_t i = 0; i < CAIRN_COUNT(formats); i++) {
        if (!formats[i].begins || !formats[i].begins((struct cairn_view){first, size})) continue;
        *ret = (enum cairn_format)i;
        return CAIRN_OK;
    }
    return cairn_input_refuse(input, cairn_model_is_like(name), err);
}

enum cairn_code cairn_format_read_file(enum cairn_format format,
                                       const struct cairn_reading *reading,
                                       struct cairn_error *err) {
    return formats[format].read_file(reading, err);
}

/* ---- which files are the model: indexes first, then names ---- */

#define INCOMPLETE ".incomplete"
#define CHOOSE "two indexes; name the one that is meant instead of the folder"

/* The two kinds of files, in search order. */
static const struct kind {
    const char *end;
    enum cairn_format format;
    const char *stems[4]; /* tried by loaders, in this order */
    bool any;             /* any such name is a model's; else only by its stem */
} kinds[] = {
    {".safetensors",
     CAIRN_FORMAT_HF_SAFETENSORS,
     {"model", "diffusion_pytorch_model", "adapter_model", NULL},
     true},
    /* Trainers write other files (training_args.bin) with the same end. */
    {".bin",
     CAIRN_FORMAT_HF_TORCH,
     {"pytorch_model", "diffusion_pytorch_model", "adapter_model", NULL},
     false},
};

struct search {
    const struct cairn_zero_folder *folder;
    struct cairn_model_choice *choice;
};

void cairn_model_choice_release(struct cairn_model_choice *choice) {
    json_decref(choice->map);
    free(choice->taken);
    *choice = (struct cairn_model_choice){0};
}

/* Names are compared in whatever case, since disks and archives of other systems write capitals.
 * Of two that differ in case the later one, in lower case, is a loader's. */

static bool is_exactly(const char *name, const char *stem, const char *end) {
    size_t size = strlen(stem);
    return strncasecmp(name, stem, size) == 0 && strcasecmp(name + size, end) == 0;
}

static bool is_of(const struct kind *kind, const char *name) {
    if (!cairn_text_ends_uncased(name, kind->end) || cairn_model_is_index(name)) return false;
    for (size_t s = 0; !kind->any && kind->stems[s]; s++)
        if (strncasecmp(name, kind->stems[s], strlen(kind->stems[s])) == 0) return true;
    return kind->any;
}

/* model.safetensors.index.json; of a variant model.safetensors.index.fp16.json, or
 * model.safetensors.fp16.index.json. */
static bool is_index_of(const struct kind *kind, const char *name) {
    const char *at = name;
    if (!cairn_text_ends_uncased(name, ".json")) return false;
    for (; (at = strcasestr(at, kind->end)); at++) {
        const char *rest = at + strlen(kind->end), *index = strcasestr(rest, ".index.");
        if (at == name || !index) continue;
        bool variant =
            index > rest && *rest == '.' && !memchr(rest + 1, '.', (size_t)(index - rest - 1));
        const char *end = index + strlen(".index.");
        if (index != rest && !variant) continue;
        if (strcasecmp(end, "json") == 0) return true;
        const char *dot = strchr(end, '.');
        if (!variant && dot && strcasecmp(dot, ".json") == 0) return true;
    }
    return false;
}

bool cairn_model_is_index(const char *name) {
    for (size_t k = 0; k < CAIRN_COUNT(kinds); k++)
        if (is_index_of(&kinds[k], name)) return true;
    return false;
}

bool cairn_model_is_like(const char *name) {
    static const char *const ends[] = {".safetensors", ".bin", ".pt", ".pth", ".ckpt"};
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++)
        if (cairn_text_ends_uncased(name, ends[i])) return true;
    return cairn_model_is_index(name);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool find_name(const struct search *search, const char *name, size_t *ret) {
    const char *const *names = search->folder->names;
    const char *const *at =
        search->folder->count ? bsearch(&name, names, search->folder->count, sizeof *names, by_text)
                              : NULL;
    if (at) *ret = (size_t)(at - names);
    return at != NULL;
}

/* NAME-00002-of-00003 and the rest, or NAME_2_of_3 and its like; sizes of its two numbers. */
struct part_name {
    size_t stem;  /* before the separator, if there is one */
    size_t first; /* where the number begins */
    size_t digits, total_digits;
    uint64_t number, total;
    const char *tail;
};

static bool is_separator(char letter) {
    return letter == '-' || letter == '_' || letter == '.';
}

static bool read_part_name(const char *name, struct part_name *ret) {
    for (const char *of = name; (of = strpbrk(of, "-_")); of++) {
        if (strncasecmp(of + 1, "of", 2) != 0 || of[3] != *of) continue;
        const char *begin = of, *end = of + 4 + strspn(of + 4, "0123456789");
        while (begin > name && begin[-1] >= '0' && begin[-1] <= '9') begin--;
        *ret = (struct part_name){.first = (size_t)(begin - name),
                                  .digits = (size_t)(of - begin),
                                  .total_digits = (size_t)(end - of) - 4,
                                  .tail = end};
        if (!ret->digits || !ret->total_digits || *end != '.') continue;
        ret->stem = ret->first - (ret->first && is_separator(begin[-1]));
        if (!cairn_parse_u64((struct cairn_view){begin, ret->digits}, &ret->number, NULL) &&
            !cairn_parse_u64((struct cairn_view){of + 4, ret->total_digits}, &ret->total, NULL))
            return true;
    }
    return false;
}

/* Size of the end by which programs mark a download that has not ended; 0: no such end. */
static size_t half_bytes(const char *name) {
    static const char *const ends[] = {INCOMPLETE, CAIRN_MODEL_BEGUN, ".part",
                                       ".partial", ".crdownload",     ".download"};
    for (size_t i = 0; i < CAIRN_COUNT(ends); i++)
        if (cairn_text_ends(name, ends[i])) return strlen(ends[i]);
    return 0;
}

bool cairn_model_is_telling(const char *name) {
    struct part_name part;
    return cairn_model_is_index(name) || half_bytes(name) ||
           (cairn_model_is_like(name) && read_part_name(name, &part));
}

static bool is_half(const struct search *search, const char *file) {
    for (size_t i = 0; i < search->folder->count; i++) {
        const char *name = search->folder->names[i];
        if (cairn_text_starts(name, file) && half_bytes(name)) return true;
    }
    return false;
}

static enum cairn_code load_index(const struct search *search, const char *index,
                                  struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {0};
    const struct cairn_input *input;
    CAIRN_TRY(search->folder->open(search->folder->context, index, &input, err));
    if (input->size_bytes > CAIRN_SAFETENSORS_HEADER_BYTES_MAX)
        return cairn_fail(err, CAIRN_TOO_LARGE, "%s is larger than a header may be", index);
    CAIRN_TRY(cairn_buf_reserve(&text, (size_t)input->size_bytes + 1, err));
    CAIRN_TRY(cairn_input_read(input, 0, text.data, (size_t)input->size_bytes, err));
    json_error_t where;
    CAIRN_AUTO_JSON json_t *json = json_loadb(text.data, (size_t)input->size_bytes, 0, &where);
    json_t *map = json_object_get(json, "weight_map"), *file;
    const char *name;
    if (!json) CAIRN_TRY(cairn_within(err, cairn_input_lost(input, err), "%s", index));
    if (!json)
        return cairn_fail(err, CAIRN_CORRUPT, "%s is no JSON: line %d column %d: %s", index,
                          where.line, where.column, where.text);
    if (!json_is_object(map)) return cairn_fail(err, CAIRN_CORRUPT, "%s has no weight_map", index);
    json_object_foreach(map, name, file) {
        if (!json_is_string(file))
            return cairn_fail(err, CAIRN_CORRUPT, "%s: the file of tensor %s is no text", index,
                              cairn_short(name).text);
        const char *beside = json_string_value(file); /* "./FILE" is FILE */
        while (cairn_text_starts(beside, "./")) beside += 1 + strspn(beside + 1, "/");
        if (beside != json_string_value(file) && json_string_set_nocheck(file, beside))
            return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for %s", index);
    }
    search->choice->map = json_incref(map);
    return CAIRN_OK;
}

static enum cairn_code fail_missing(const struct search *search, const char *file,
                                    const char *tensor, struct cairn_error *err) {
    if (strchr(file, '/'))
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s, in which %s has tensor %s, is of another folder: the files of a "
                          "model are read beside their index",
                          cairn_short(file).text, search->choice->index, cairn_short(tensor).text);
    return cairn_fail(err, CAIRN_NOT_FOUND, "%s, in which %s has tensor %s, is not there%s",
                      cairn_short(file).text, search->choice->index, cairn_short(tensor).text,
                      is_half(search, file) ? ": its download has not ended" : "");
}

static enum cairn_code take_by_index(struct search *search, const struct kind *kind,
                                     const char *index, struct cairn_error *err) {
    struct cairn_model_choice *choice = search->choice;
    const char *tensor;
    json_t *file;
    choice->index = index;
    choice->format = kind->format;
    CAIRN_TRY(load_index(search, index, err));
    json_object_foreach(choice->map, tensor, file) {
        size_t at;
        if (!find_name(search, json_string_value(file), &at))
            return fail_missing(search, json_string_value(file), tensor, err);
        choice->taken[at] = true;
    }
    return CAIRN_OK;
}

/* *ret: NULL if the folder has none of this kind. */
static enum cairn_code find_index(const struct search *search, const struct kind *kind,
                                  const char **ret, struct cairn_error *err) {
    const char *first = NULL, *second = NULL;
    CAIRN_AUTO(buf) end = {0};
    CAIRN_TRY(cairn_buf_printf(&end, err, "%s.index.json", kind->end));
    for (size_t s = 0; kind->stems[s]; s++)
        for (size_t i = search->folder->count; i-- > 0;)
            if (is_exactly(search->folder->names[i], kind->stems[s], end.data)) {
                *ret = search->folder->names[i];
                return CAIRN_OK;
            }
    for (size_t i = 0; i < search->folder->count; i++) {
        if (!is_index_of(kind, search->folder->names[i])) continue;
        second = first;
        first = search->folder->names[i];
        if (second) return cairn_fail(err, CAIRN_INVALID, "%s and %s: " CHOOSE, second, first);
    }
    *ret = first;
    return CAIRN_OK;
}

/* torch's distributed checkpointing writes such a set per rank, shard-00003-model-..., without a
 * rank's empty files. Returns the size of the part before the set's own name. */
static size_t rank_bytes(const char *name) {
    if (!cairn_text_starts(name, "shard-")) return 0;
    size_t digits = strspn(name + 6, "0123456789");
    return digits && name[6 + digits] == '-' ? 6 + digits + 1 : 0;
}

bool cairn_model_is_same_rank(const char *name, const char *other) {
    size_t rank = rank_bytes(name);
    return rank && rank == rank_bytes(other) && strncmp(name, other, rank) == 0;
}

/* True if the file exists, or, for a name with a rank, any rank's. */
static bool is_there(const struct search *search, const char *name) {
    size_t rank = rank_bytes(name), at;
    if (!rank) return find_name(search, name, &at);
    for (size_t i = 0; i < search->folder->count; i++) {
        size_t own = rank_bytes(search->folder->names[i]);
        if (own && strcmp(search->folder->names[i] + own, name + rank) == 0) return true;
    }
    return false;
}

static bool is_set(const char *name, const struct part_name *part, const char *other,
                   const struct part_name *other_part) {
    return other_part->first == part->first && strncmp(name, other, part->first) == 0 &&
           strcmp(part->tail, other_part->tail) == 0;
}

/* What an earlier save of more or fewer files left beside a set is none of it. */
static enum cairn_code check_one_set(const char *name, const struct part_name *part,
                                     const char *other, struct cairn_error *err) {
    struct part_name other_part;
    if (!other || !read_part_name(other, &other_part) || !is_set(name, part, other, &other_part))
        return CAIRN_OK;
    bool unpadded = name[part->first] != '0' && other[part->first] != '0';
    bool same = other_part.total == part->total && other_part.total_digits == part->total_digits &&
                (other_part.digits == part->digits || unpadded);
    if (same) return CAIRN_OK;
    return cairn_fail(err, CAIRN_INVALID,
                      "%s and %s are of two sets, and no index says which is meant: remove the "
                      "one, or name one file instead of the folder",
                      cairn_short(other).text, cairn_short(name).text);
}

/* model.fp16-00001-of-00002 and model-00001-of-00002.fp16 are variants of model-00001-of-00002: the
 * same tensors once more, or others that loaders do not mix with them. */
static enum cairn_code check_variants(const struct search *search, const char *name,
                                      const struct part_name *part, struct cairn_error *err) {
    size_t base = cairn_min_u64(strcspn(name, "."), part->stem);
    const char *end = strrchr(part->tail, '.');
    for (size_t i = 0; i < search->folder->count; i++) {
        const char *other = search->folder->names[i];
        struct part_name other_part;
        if (strncmp(other, name, base) != 0 || !read_part_name(other, &other_part) ||
            cairn_min_u64(strcspn(other, "."), other_part.stem) != base ||
            is_set(name, part, other, &other_part) || !cairn_text_ends_uncased(other, end))
            continue;
        return cairn_fail(err, CAIRN_INVALID,
                          "%s and %s are of two variants, and no index says which is meant: move "
                          "the files of the one to a folder of their own",
                          cairn_short(name).text, cairn_short(other).text);
    }
    return CAIRN_OK;
}

/* The file `number` of the set of `name`: its number as wide as the name's, or without zeros before
 * it, if such a file exists. */
static enum cairn_code find_part(const struct search *search, const char *name,
                                 const struct part_name *part, uint64_t number,
                                 struct cairn_buf *ret, bool *ret_there, struct cairn_error *err) {
    const char *of = name + part->first + part->digits; /* "-of-", as it is written here */
    CAIRN_AUTO(buf) plain = {0};
    CAIRN_TRY(cairn_buf_printf(&plain, err, "%.*s%" PRIu64 "%.4s%0*" PRIu64 "%s", (int)part->first,
                               name, number, of, (int)part->total_digits, part->total, part->tail));
    CAIRN_TRY(cairn_buf_printf(ret, err, "%.*s%0*" PRIu64 "%.4s%0*" PRIu64 "%s", (int)part->first,
                               name, (int)part->digits, number, of, (int)part->total_digits,
                               part->total, part->tail));
    *ret_there = is_there(search, ret->data) || is_there(search, plain.data);
    return CAIRN_OK;
}

/* Checks that each file of a numbered set exists, and no further one. Numbers begin at 1, or at 0
 * if there is one. */
static enum cairn_code check_set(const struct search *search, const char *name, const char *before,
                                 struct cairn_error *err) {
    struct part_name part, other_part;
    if (!read_part_name(name, &part)) return CAIRN_OK;
    CAIRN_TRY(check_one_set(name, &part, before, err));
    if (part.number > part.total || !part.total)
        return cairn_fail(err, CAIRN_INVALID, "%s: there is no number %" PRIu64 " of %" PRIu64,
                          cairn_short(name).text, part.number, part.total);
    if (before && read_part_name(before, &other_part) && other_part.total == part.total &&
        is_set(name, &part, before, &other_part))
        return CAIRN_OK; /* its set was checked */
    CAIRN_TRY(check_variants(search, name, &part, err));
    for (unsigned first = 0; first < 2; first++) {
        uint64_t number = first;
        for (; number < first + part.total; number++) {
            CAIRN_AUTO(buf) other = {0};
            bool there;
            CAIRN_TRY(find_part(search, name, &part, number, &other, &there, err));
            if (there) continue;
            if (number == 0) break; /* counted from 1 */
            return cairn_fail(err, CAIRN_NOT_FOUND,
                              "%s is not there%s: there is %s, and no index says that it is all",
                              cairn_short(other.data).text,
                              is_half(search, other.data) ? ", its download has not ended" : "",
                              cairn_short(name).text);
        }
        if (number == first + part.total) break;
    }
    return CAIRN_OK;
}

static enum cairn_code check_downloads(const struct search *search, struct cairn_error *err) {
    for (size_t i = 0; i < search->folder->count; i++) {
        const char *name = search->folder->names[i];
        CAIRN_AUTO(buf) file = {0};
        size_t at, half = half_bytes(name);
        if (!half) continue;
        CAIRN_TRY(cairn_buf_append(&file, name, strlen(name) - half, err));
        char *dot = strrchr(file.data, '.'); /* an ETag may precede it */
        if (!cairn_model_is_like(file.data) && dot) *dot = '\0';
        if (cairn_model_is_like(file.data) && !find_name(search, file.data, &at))
            return cairn_fail(err, CAIRN_NOT_FOUND,
                              "%s is not there: its download has not ended (%s)",
                              cairn_short(file.data).text, cairn_short(name).text);
    }
    return CAIRN_OK;
}

/* aria2 gives a file its name and size first: until FILE.aria2 goes, parts of it are zeros. */
static enum cairn_code check_begun(const struct search *search, struct cairn_error *err) {
    for (size_t i = 0; i < search->folder->count; i++) {
        CAIRN_AUTO(buf) mark = {0};
        size_t at;
        if (!search->choice->taken[i]) continue;
        CAIRN_TRY(cairn_buf_printf(&mark, err, "%s" CAIRN_MODEL_BEGUN, search->folder->names[i]));
        if (find_name(search, mark.data, &at))
            return cairn_fail(
                err, CAIRN_NOT_FOUND, "%s is not whole: its download has not ended (%s)",
                cairn_short(search->folder->names[i]).text, cairn_short(mark.data).text);
    }
    return CAIRN_OK;
}

static bool take_single(struct search *search, const struct kind *kind) {
    size_t at;
    for (size_t s = 0; kind->stems[s]; s++) {
        for (at = search->folder->count; at-- > 0;) {
            if (!is_exactly(search->folder->names[at], kind->stems[s], kind->end)) continue;
            search->choice->taken[at] = true;
            search->choice->single = search->folder->names[at];
            search->choice->format = kind->format;
            return true;
        }
    }
    return false;
}

static enum cairn_code choose_files(struct search *search, const char *index,
                                    struct cairn_error *err) {
    for (size_t k = 0; index && k < CAIRN_COUNT(kinds); k++)
        if (is_index_of(&kinds[k], index)) return take_by_index(search, &kinds[k], index, err);
    for (size_t k = 0; k < CAIRN_COUNT(kinds); k++) {
        CAIRN_TRY(find_index(search, &kinds[k], &index, err));
        if (index) return take_by_index(search, &kinds[k], index, err);
        if (k == 0 && take_single(search, &kinds[k])) return CAIRN_OK;
    }
    for (size_t k = 0; k < CAIRN_COUNT(kinds) && !search->choice->format; k++) {
        if (k > 0 && take_single(search, &kinds[k])) return CAIRN_OK;
        const struct kind *kind = &kinds[k];
        const char *before = NULL;
        for (size_t i = 0; i < search->folder->count; i++) {
            const char *name = search->folder->names[i];
            if (!is_of(kind, name)) continue;
            CAIRN_TRY(check_set(search, name, before, err));
            before = name;
            search->choice->taken[i] = true;
            search->choice->format = kind->format;
        }
        if (search->choice->format) return check_downloads(search, err);
    }
    return search->choice->format ? CAIRN_OK : check_downloads(search, err);
}

enum cairn_code cairn_model_choose(const struct cairn_zero_folder *folder, const char *index,
                                   struct cairn_model_choice *ret, struct cairn_error *err) {
    struct search search = {folder, ret};
    *ret = (struct cairn_model_choice){.taken = calloc(folder->count + 1, sizeof *ret->taken)};
    enum cairn_code code = ret->taken
                               ? choose_files(&search, index, err)
                               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a folder's files");
    if (!code) code = check_begun(&search, err);
    if (code) cairn_model_choice_release(ret);
    return code;
}
