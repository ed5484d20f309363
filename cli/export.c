/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors into files: which goes where, then windows by several threads, then the names. */
#include "cli/export.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/dtype.h"
#include "cli/output.h"
#include "cli/workers.h"
#include "common/array.h"
#include "common/file.h"
#include "common/pages.h"
#include "common/utf8.h"
#include "formats/convert.h"
#include "formats/dcp.h"
#include "formats/dcp_write.h"
#include "formats/torch_write.h"

#define WINDOW_BYTES (8 * CAIRN_MIB) /* of an output file, filled and written by one worker */
#define FILES_MAX 100000
#define PART "%s.part"

/* One file that is written. */
struct shard {
    /* By place. tag: number in the assembly; of an object behind those of the tensors. */
    struct cairn_safetensors_entry *entries;
    struct {
        uint64_t offset_bytes, size_bytes;
    } * archives; /* of DCP: of each entry */
    size_t count;
    struct cairn_torch_alias *aliases;
    size_t alias_count, alias_capacity;
    struct cairn_torch_plan text; /* all but the tensors; of safetensors its head alone */
    uint64_t bytes;               /* of the file */
    struct cairn_file file;
    bool published;
    char name[64];
};
/* How files are called: "model.safetensors", "model-00001-of-00002.safetensors"; those of DCP as if
 * rank 0 had written them, "__0_1.distcp". */
struct naming {
    const char *stem, *end, *index;
    bool always; /* the index is written for one file, too */
};
static const struct naming *naming_of(const struct cairn_cli_export *export) {
    static const struct naming namings[] = {
        [CAIRN_CLI_EXPORT_SAFETENSORS] = {"model", "safetensors", "model.safetensors.index.json",
                                          false},
        [CAIRN_CLI_EXPORT_TORCH] = {"pytorch_model", "bin", "pytorch_model.bin.index.json", false},
        [CAIRN_CLI_EXPORT_DCP] = {"__0_", "distcp", CAIRN_DCP_METADATA, true},
    };
    return &namings[export->form];
}
struct job {
    struct cairn_cli_export *export;
    struct {
        size_t shard, entry; /* + 1: 0 is nowhere */
    } * places;              /* by number in the assembly */
    struct shard *shards;
    size_t count, capacity;
    int folder_fd;
    struct cairn_cli_meter meter;
    struct cairn_cli_workers workers;
    struct { /* by the lock of the workers */
        size_t shard;
        uint64_t offset; /* the next window */
    } locked;
};

static unsigned dtype_of(const struct cairn_cli_export *job, unsigned dtype) {
    bool changed = job->dtype != CAIRN_DTYPE_NONE && cairn_convertible(dtype, job->dtype);
    return changed ? job->dtype : dtype;
}

/* ---- which tensor goes into which file ---- */

static enum cairn_code begin_shard(struct job *job, struct cairn_error *err) {
    CAIRN_TRY(CAIRN_ARRAY_ROOM(job->shards, job->count, job->capacity, FILES_MAX, "files", err));
    struct shard *shard = &job->shards[job->count++];
    *shard = (struct shard){.file = {.fd = -1, .direct_fd = -1}};
    const struct cairn_assembly *assembly = job->export->assembly;
    size_t most = assembly->tensor_count + assembly->object_count;
    shard->entries = calloc(most, sizeof *shard->entries);
    shard->archives = calloc(most, sizeof *shard->archives);
    return shard->entries && shard->archives
               ? CAIRN_OK
               : cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a file");
}

static bool is_named(const struct cairn_cli_export *export, const char *name) {
    return !export->only || fnmatch(export->only, name, 0) == 0;
}
static bool is_wanted(const struct cairn_cli_export *export,
                      const struct cairn_assembly_tensor *tensor) {
    return is_named(export, tensor->name) && !(export->exclude_frozen && tensor->frozen);
}

static uint64_t bytes_as(const struct cairn_assembly_tensor *tensor, unsigned dtype) {
    if (dtype == tensor->dtype) return tensor->size_bytes;
    return tensor->size_bytes / (cairn_dtype_bits(tensor->dtype) / 8) *
           (cairn_dtype_bits(dtype) / 8);
}

/* The bytes of tensor `index`, under this name. */
static enum cairn_code place(struct job *job, const char *name, size_t index, uint64_t *used_bytes,
                             struct cairn_error *err) {
    struct cairn_cli_export *export = job->export;
    const struct cairn_assembly_tensor *tensor = &export->assembly->tensors[index];
    unsigned dtype = dtype_of(export, tensor->dtype);
    uint64_t bytes = bytes_as(tensor, dtype), most = export->shard_bytes_max;
    if (job->count == 0 || (most && *used_bytes && *used_bytes + bytes > most)) {
        CAIRN_TRY(begin_shard(job, err));
        *used_bytes = 0;
    }
    struct shard *shard = &job->shards[job->count - 1];
    struct cairn_safetensors_entry *entry = &shard->entries[shard->count++];
    job->places[index].shard = job->count;
    job->places[index].entry = shard->count;
    *entry = (struct cairn_safetensors_entry){.name = cairn_view_of(name),
                                              .dtype = dtype,
                                              .dimension_count = tensor->dimension_count,
                                              .tag = index};
    memcpy(entry->shape, tensor->shape, sizeof entry->shape);
    *used_bytes += bytes;
    export->bytes += bytes;
    export->tensor_count++;
    return CAIRN_OK;
}

/* An alias is written where what it stands for is not wanted. */
static enum cairn_code place_all(struct job *job, struct cairn_error *err) {
    struct cairn_cli_export *export = job->export;
    uint64_t used_bytes = 0;
    for (size_t i = 0; i < export->assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &export->assembly->tensors[i];
        bool alias = tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS;
        size_t source = alias ? tensor->alias_of : i;
        export->filtered += !is_named(export, tensor->name);
        if (!is_wanted(export, tensor)) continue;
        if (!alias || !is_wanted(export, &export->assembly->tensors[source]))
            CAIRN_TRY(place(job, tensor->name, source, &used_bytes, err));
    }
    return CAIRN_OK;
}

/* They are copied as they are, into the last file. */
static enum cairn_code place_objects(struct job *job, struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->export->assembly;
    for (size_t i = 0; i < assembly->object_count; i++) {
        const struct cairn_assembly_object *object = &assembly->objects[i];
        if (!is_named(job->export, object->name)) continue;
        if (job->count == 0) CAIRN_TRY(begin_shard(job, err));
        struct shard *shard = &job->shards[job->count - 1];
        shard->entries[shard->count++] =
            (struct cairn_safetensors_entry){.name = cairn_view_of(object->name),
                                             .size_bytes = object->piece.size_bytes,
                                             .tag = assembly->tensor_count + i};
    }
    return CAIRN_OK;
}

/* Further names stand in the file of what they stand for. */
static enum cairn_code place_aliases(struct job *job, struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->export->assembly;
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        if (tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS || !is_wanted(job->export, tensor) ||
            !is_wanted(job->export, &assembly->tensors[tensor->alias_of]))
            continue;
        struct shard *shard = &job->shards[job->places[tensor->alias_of].shard - 1];
        CAIRN_TRY(CAIRN_ARRAY_ROOM(shard->aliases, shard->alias_count, shard->alias_capacity,
                                   UINT32_MAX, "further names", err));
        shard->aliases[shard->alias_count++] = (struct cairn_torch_alias){
            cairn_view_of(tensor->name), job->places[tensor->alias_of].entry - 1};
    }
    return CAIRN_OK;
}

static bool is_object(const struct job *job, const struct cairn_safetensors_entry *entry) {
    return entry->tag >= job->export->assembly->tensor_count;
}

/* Archives one behind the other. */
static enum cairn_code plan_archives(const struct job *job, struct shard *shard,
                                     struct cairn_error *err) {
    struct cairn_torch_plan *text = &shard->text;
    for (size_t i = 0; i < shard->count; i++) {
        struct cairn_safetensors_entry *entry = &shard->entries[i];
        enum cairn_code code =
            is_object(job, entry)
                ? cairn_torch_write_room(entry->size_bytes, text, &entry->offset_bytes, err)
                : cairn_torch_write_tensor(entry, text, &shard->archives[i].offset_bytes, err);
        if (is_object(job, entry)) shard->archives[i].offset_bytes = entry->offset_bytes;
        shard->archives[i].size_bytes = text->file_bytes - shard->archives[i].offset_bytes;
        if (code != CAIRN_OK)
            return cairn_within(err, code, "tensor %s", cairn_short(entry->name.data).text);
    }
    shard->bytes = text->file_bytes;
    return CAIRN_OK;
}

static enum cairn_code plan_torch(struct shard *shard, struct cairn_error *err) {
    char stem[64];
    snprintf(stem, sizeof stem, "%.*s", (int)(strrchr(shard->name, '.') - shard->name),
             shard->name);
    CAIRN_TRY(cairn_torch_write(shard->entries, shard->count, shard->aliases, shard->alias_count,
                                stem, &shard->text, err));
    shard->bytes = shard->text.file_bytes;
    return CAIRN_OK;
}

static enum cairn_code plan_shard(struct job *job, struct shard *shard, struct cairn_error *err) {
    struct cairn_torch_plan *text = &shard->text;
    if (job->export->form == CAIRN_CLI_EXPORT_DCP) return plan_archives(job, shard, err);
    if (job->export->form == CAIRN_CLI_EXPORT_TORCH) return plan_torch(shard, err);
    CAIRN_TRY(
        cairn_safetensors_write(shard->entries, shard->count, &text->head, &shard->bytes, err));
    text->texts = calloc(1, sizeof *text->texts);
    if (!text->texts) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a header");
    text->texts[0].size = text->head.size;
    text->text_count = 1;
    return CAIRN_OK;
}

static void name_shard(const struct job *job, size_t number, struct shard *shard) {
    const struct naming *naming = naming_of(job->export);
    if (job->export->form == CAIRN_CLI_EXPORT_DCP)
        snprintf(shard->name, sizeof shard->name, "%s%zu.%s", naming->stem, number, naming->end);
    else if (job->count == 1)
        snprintf(shard->name, sizeof shard->name, "%s.%s", naming->stem, naming->end);
    else
        snprintf(shard->name, sizeof shard->name, "%s-%05zu-of-%05zu.%s", naming->stem, number + 1,
                 job->count, naming->end);
}

static enum cairn_code plan(struct job *job, struct cairn_error *err) {
    struct cairn_cli_export *export = job->export;
    job->places = calloc(export->assembly->tensor_count + 1, sizeof *job->places);
    if (!job->places) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the tensors' places");
    CAIRN_TRY(place_all(job, err));
    if (export->form != CAIRN_CLI_EXPORT_SAFETENSORS) CAIRN_TRY(place_aliases(job, err));
    if (export->form == CAIRN_CLI_EXPORT_DCP) CAIRN_TRY(place_objects(job, err));
    if (job->count == 0)
        return cairn_fail(err, CAIRN_NOT_FOUND,
                          export->only ? "no tensor has a name like %s" : "there is no tensor%s",
                          export->only ? export->only : "");
    for (size_t i = 0; i < job->count; i++) {
        name_shard(job, i, &job->shards[i]);
        CAIRN_TRY(plan_shard(job, &job->shards[i], err));
    }
    export->file_count = job->count;
    return CAIRN_OK;
}

/* ---- the bytes of one window ---- */

/* What of an entry lies in [begin, end) of its file; a border never cuts an element: entries are
 * ordered by width, or begin at multiples of 64. */
static enum cairn_code fill_entry(const struct job *job,
                                  const struct cairn_safetensors_entry *entry, uint64_t begin,
                                  uint64_t end, char *window, char *scratch,
                                  struct cairn_error *err) {
    const struct cairn_assembly *assembly = job->export->assembly;
    uint64_t entry_end = entry->offset_bytes + entry->size_bytes;
    uint64_t from = entry->offset_bytes > begin ? entry->offset_bytes : begin;
    uint64_t to = cairn_min_u64(entry_end, end);
    if (from >= to) return CAIRN_OK;
    uint64_t offset = from - entry->offset_bytes, size = to - from;
    if (is_object(job, entry)) {
        const struct cairn_assembly_piece *piece =
            &assembly->objects[entry->tag - assembly->tensor_count].piece;
        return cairn_input_read(assembly->inputs[piece->input], piece->offset_bytes + offset,
                                window + (from - begin), (size_t)size, err);
    }
    const struct cairn_assembly_tensor *tensor = &assembly->tensors[entry->tag];
    if (entry->dtype == tensor->dtype)
        return cairn_assembly_read(assembly, tensor, offset, window + (from - begin), size, err);
    uint64_t out = cairn_dtype_bits(entry->dtype) / 8, in = cairn_dtype_bits(tensor->dtype) / 8;
    uint64_t room = WINDOW_BYTES / in;
    for (uint64_t done = 0; done < size / out; done += room) {
        uint64_t some = cairn_min_u64(room, size / out - done);
        CAIRN_TRY(cairn_assembly_read(assembly, tensor, (offset / out + done) * in, scratch,
                                      some * in, err));
        cairn_convert(tensor->dtype, scratch, entry->dtype, window + (from - begin) + done * out,
                      (size_t)some);
    }
    return CAIRN_OK;
}

/* The first entry that reaches beyond this byte. */
static size_t first_entry(const struct shard *shard, uint64_t offset) {
    size_t low = 0, high = shard->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct cairn_safetensors_entry *entry = &shard->entries[middle];
        if (entry->offset_bytes + entry->size_bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first text that reaches beyond this byte. */
static size_t first_text(const struct cairn_torch_plan *text, uint64_t offset) {
    size_t low = 0, high = text->text_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (text->texts[middle].offset_bytes + text->texts[middle].size <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Headers and what else is no tensor; between its parts lie tensors. */
static void fill_text(const struct cairn_torch_plan *text, uint64_t begin, uint64_t end,
                      char *window) {
    for (size_t i = first_text(text, begin);
         i < text->text_count && text->texts[i].offset_bytes < end; i++) {
        const struct cairn_torch_text *part = &text->texts[i];
        uint64_t from = part->offset_bytes > begin ? part->offset_bytes : begin;
        uint64_t to = cairn_min_u64(part->offset_bytes + part->size, end);
        memcpy(window + (from - begin), text->head.data + part->begin + (from - part->offset_bytes),
               (size_t)(to - from));
    }
}

static enum cairn_code fill(const struct job *job, const struct shard *shard, uint64_t begin,
                            uint64_t end, char *window, char *scratch, struct cairn_error *err) {
    fill_text(&shard->text, begin, end, window);
    for (size_t i = first_entry(shard, begin);
         i < shard->count && shard->entries[i].offset_bytes < end; i++) {
        enum cairn_code code =
            fill_entry(job, &shard->entries[i], begin, end, window, scratch, err);
        if (code != CAIRN_OK)
            return cairn_within(err, code,
                                is_object(job, &shard->entries[i]) ? "object %s" : "tensor %s",
                                cairn_short(shard->entries[i].name.data).text);
    }
    return CAIRN_OK;
}

/* ---- workers ---- */

static bool next_window(struct job *job, struct shard **ret, uint64_t *ret_begin) {
    CAIRN_HOLD(&job->workers.lock);
    while (job->workers.locked.code == CAIRN_OK && job->locked.shard < job->count) {
        *ret = &job->shards[job->locked.shard];
        *ret_begin = job->locked.offset;
        job->locked.offset += WINDOW_BYTES;
        if (*ret_begin < (*ret)->bytes) return true;
        job->locked.shard++;
        job->locked.offset = 0;
    }
    return false;
}

static void *work(void *argument) {
    struct job *job = argument;
    struct cairn_error err = {0};
    struct shard *shard;
    uint64_t begin;
    char *window = cairn_pages_map(WINDOW_BYTES), *scratch = cairn_pages_map(WINDOW_BYTES);
    enum cairn_code code =
        window && scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a window");
    while (code == CAIRN_OK && next_window(job, &shard, &begin)) {
        uint64_t end = cairn_min_u64(begin + WINDOW_BYTES, shard->bytes);
        code = fill(job, shard, begin, end, window, scratch, &err);
        if (code == CAIRN_OK)
            code = cairn_file_write_at(&shard->file, window, (size_t)(end - begin), begin, &err);
        if (code == CAIRN_OK) cairn_cli_meter_add(&job->meter, end - begin, end == shard->bytes);
    }
    if (code != CAIRN_OK) cairn_cli_workers_failed(&job->workers, code, &err);
    cairn_pages_unmap(window, WINDOW_BYTES);
    cairn_pages_unmap(scratch, WINDOW_BYTES);
    return NULL;
}

static enum cairn_code write_windows(struct job *job, struct cairn_error *err) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < job->count; i++) bytes += job->shards[i].bytes;
    cairn_cli_meter_init(&job->meter, job->export->cli, "export", bytes, job->count);
    enum cairn_code code =
        cairn_cli_workers_run(&job->workers, job->export->cli->workers, work, job, err);
    cairn_cli_meter_end(&job->meter, code == CAIRN_OK);
    return code;
}

/* ---- names ---- */

static enum cairn_code open_files(struct job *job, struct cairn_error *err) {
    const char *folder = job->export->folder;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return cairn_fail_errno(err, "%s", folder);
    job->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (job->folder_fd < 0) return cairn_fail_errno(err, "%s", folder);
    for (size_t i = 0; i <= job->count; i++) {
        const char *name = i < job->count ? job->shards[i].name : naming_of(job->export)->index;
        if (faccessat(job->folder_fd, name, F_OK, 0) == 0)
            return cairn_fail(err, CAIRN_CONFLICT,
                              "%s has a file %s already: name another folder, or remove it", folder,
                              name);
    }
    for (size_t i = 0; i < job->count; i++) {
        struct shard *shard = &job->shards[i];
        char part[96];
        snprintf(part, sizeof part, PART, shard->name);
        unlinkat(job->folder_fd, part, 0); /* of an export that was ended */
        CAIRN_TRY(cairn_file_create(job->folder_fd, part, shard->bytes, &shard->file, err));
    }
    return CAIRN_OK;
}

/* An entry's archive, by the entry's name or a further one. */
static struct cairn_dcp_item item_of(const struct job *job, const struct shard *shard, size_t e,
                                     struct cairn_view name) {
    const struct cairn_safetensors_entry *entry = &shard->entries[e];
    return (struct cairn_dcp_item){.name = name,
                                   .object = is_object(job, entry),
                                   .dtype = entry->dtype,
                                   .dimension_count = entry->dimension_count,
                                   .shape = entry->shape,
                                   .file = shard->name,
                                   .offset_bytes = shard->archives[e].offset_bytes,
                                   .size_bytes = shard->archives[e].size_bytes};
}

static enum cairn_code make_metadata(const struct job *job, struct cairn_buf *ret,
                                     struct cairn_error *err) {
    size_t count = 0;
    for (size_t i = 0; i < job->count; i++)
        count += job->shards[i].count + job->shards[i].alias_count;
    CAIRN_AUTO_HEAP struct cairn_dcp_item *items = calloc(count, sizeof *items);
    if (!items) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the index");
    count = 0;
    for (size_t i = 0; i < job->count; i++) {
        const struct shard *shard = &job->shards[i];
        for (size_t e = 0; e < shard->count; e++)
            items[count++] = item_of(job, shard, e, shard->entries[e].name);
        for (size_t a = 0; a < shard->alias_count; a++)
            items[count++] = item_of(job, shard, shard->aliases[a].of, shard->aliases[a].name);
    }
    return cairn_dcp_write(items, count, ret, err);
}

static enum cairn_code make_index(const struct job *job, struct cairn_buf *ret,
                                  struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *map = json_object();
    for (size_t i = 0; i < job->count; i++) {
        const struct shard *shard = &job->shards[i];
        for (size_t e = 0; e < shard->count + shard->alias_count; e++) {
            struct cairn_view name =
                e < shard->count ? shard->entries[e].name : shard->aliases[e - shard->count].name;
            json_object_setn_new(map, name.data, name.size, json_string(shard->name));
        }
    }
    CAIRN_AUTO_JSON json_t *index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                                              (json_int_t)job->export->bytes, "weight_map", map);
    if (!index) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the index");
    CAIRN_TRY(cairn_json_dump_pretty(index, ret, err));
    return cairn_buf_append_text(ret, "\n", err);
}

static enum cairn_code write_index(const struct job *job, struct cairn_error *err) {
    CAIRN_AUTO(buf) text = {.limit = CAIRN_GIB}, path = {0};
    CAIRN_TRY(job->export->form == CAIRN_CLI_EXPORT_DCP ? make_metadata(job, &text, err)
                                                        : make_index(job, &text, err));
    CAIRN_TRY(
        cairn_buf_printf(&path, err, "%s/%s", job->export->folder, naming_of(job->export)->index));
    return cairn_file_replace(path.data, cairn_buf_view(&text), 0644, err);
}

static enum cairn_code publish(struct job *job, struct cairn_error *err) {
    for (size_t i = 0; i < job->count; i++) CAIRN_TRY(cairn_file_sync(&job->shards[i].file, err));
    for (size_t i = 0; i < job->count; i++) {
        char part[96];
        snprintf(part, sizeof part, PART, job->shards[i].name);
        CAIRN_TRY(cairn_file_publish(job->folder_fd, part, job->shards[i].name, err));
        job->shards[i].published = true;
    }
    return job->count > 1 || naming_of(job->export)->always ? write_index(job, err) : CAIRN_OK;
}

static void close_all(struct job *job, bool failed) {
    for (size_t i = 0; i < job->count; i++) {
        struct shard *shard = &job->shards[i];
        char part[96];
        snprintf(part, sizeof part, PART, shard->name);
        if (failed && shard->file.open) unlinkat(job->folder_fd, part, 0);
        if (failed && shard->published) unlinkat(job->folder_fd, shard->name, 0);
        cairn_file_release(&shard->file);
        cairn_torch_plan_release(&shard->text);
        free(shard->aliases);
        free(shard->archives);
        free(shard->entries);
    }
    free(job->shards);
    free(job->places);
    if (job->folder_fd >= 0) close(job->folder_fd);
}

enum cairn_code cairn_cli_export_run(struct cairn_cli_export *export, struct cairn_error *err) {
    struct job job = {.export = export, .folder_fd = -1};
    uint64_t needed_bytes = 0;
    enum cairn_code code = plan(&job, err);
    for (size_t i = 0; i < job.count; i++) needed_bytes += job.shards[i].bytes;
    if (code == CAIRN_OK) code = open_files(&job, err);
    if (code == CAIRN_OK) code = write_windows(&job, err);
    if (code == CAIRN_OK) code = publish(&job, err);
    close_all(&job, code != CAIRN_OK);
    if (code != CAIRN_NO_SPACE) return code;
    return cairn_cli_no_space(export->folder, needed_bytes, "nothing was left there", err);
}
