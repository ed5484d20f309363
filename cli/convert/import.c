/* SPDX-License-Identifier: Apache-2.0 */
/* cairn import: saves another program's checkpoint as a version. Its files are kept whole, so all
 * checksums in them are compared first; its tensors are described where they lie. */

#include <stdlib.h>

#include "api/table/dtype.h"
#include "cli/convert/inside.h"
#include "cli/shell/output.h"
#include "cli/tree/tree.h"
#include "common/text.h"
#include "formats/assembly/assembly.h"

#define READ_BYTES (512 * 1024)

struct seal_job {
    const struct cairn_assembly *assembly;
    struct cli_workers workers;
    size_t next; /* guarded by the workers' lock */
};

static const struct cairn_seal *next_seal(struct seal_job *job) {
    CAIRN_HOLD(&job->workers.lock);
    const struct cairn_seals *seals = &job->assembly->seals;
    if (job->workers.locked.code != CAIRN_OK || job->next == seals->count) return NULL;
    return &seals->seals[job->next++];
}

static void *check_seals_work(void *argument) {
    struct seal_job *job = argument;
    const struct cairn_assembly *assembly = job->assembly;
    const struct cairn_seal *seal;
    struct cairn_error err = {0};
    CAIRN_AUTO_HEAP char *scratch = malloc(READ_BYTES);
    enum cairn_code code =
        scratch ? CAIRN_OK : cairn_fail(&err, CAIRN_NO_MEMORY, "no memory for a part of a file");
    while (code == CAIRN_OK && (seal = next_seal(job))) {
        code = cairn_seal_check(seal, assembly->inputs[seal->input], scratch, READ_BYTES, &err);
        const char *tensor = NULL;
        if (code == CAIRN_CORRUPT) tensor = cairn_assembly_tensor_in(assembly, seal);
        if (tensor) code = cairn_within(&err, code, "tensor %s", cairn_short(tensor).text);
    }
    if (code != CAIRN_OK) cli_workers_failed(&job->workers, code, &err);
    return NULL;
}

static enum cairn_code check_seals(const struct cli *cli, const struct cairn_assembly *assembly,
                                   struct cairn_error *err) {
    struct seal_job job = {.assembly = assembly};
    if (!assembly->seals.count) return CAIRN_OK;
    return cli_workers_run(&job.workers, cli->workers, check_seals_work, &job, err);
}

static const struct cli_flag import_flags[] = {
    {"store", 0, CLI_TEXT, CLI_AT(store), 0, "URL",
     "Where no uploader listens: bring one that sends to this store (default $CAIRN_STORE)."},
    {"labels", 0, CLI_TEXT, CLI_AT(labels), 0, "JSON", "Labels, an object of texts."},
    {"new-version", 0, CLI_SWITCH, CLI_AT(force), 0, NULL,
     "If the step is there already, keep both versions instead of refusing."},
    {"latest", 0, CLI_SWITCH, CLI_AT(latest), 0, NULL,
     "It is latest from then on, also where its step is lower than that of latest."},
    CLI_FLAG_TP_RULE,
    CLI_FLAG_STRICT,
    {"follow", 0, CLI_SWITCH, CLI_AT(follow), 0, NULL,
     "Keep what links out of the folder point to; otherwise they are refused."},
    {"no-links", 0, CLI_SWITCH, CLI_AT(no_links), 0, NULL,
     "Read through no link at all, also where PATH is one or one is put there meanwhile."},
};

/* --kind and the formats it accepts. */
static const struct {
    const char *kind, *format;
} kinds[] = {
#define FOLDER_FORMAT(id, tag, kind) {#kind, tag},
#define FILE_FORMAT(id, tag, kind, name) {#kind, tag},
#include "formats/formats.def"
};

static enum cairn_code check_kind(const char *kind, const char *format, struct cairn_error *err) {
    for (size_t i = 0; i < CAIRN_COUNT(kinds); i++)
        if (strcmp(kind, kinds[i].kind) == 0 && (!format || strcmp(format, kinds[i].format) == 0))
            return CAIRN_OK;
    if (format)
        return cairn_fail(err, CAIRN_INVALID, "it is no checkpoint of %s: it is %s", kind, format);
    return cairn_fail(err, CAIRN_INVALID,
                      "\"%s\" is none of deepspeed, dcp, hf, torch and safetensors", kind);
}

struct import {
    struct cli_weights *weights;
    const bool *left; /* by tensor: left out */
    const struct cli_tree *tree;
    struct cairn_save *save;
};

/* Describes piece p, which lies done_bytes into the tensor if the tensor has no boxes. piece: what
 * is the same for all pieces. */
static enum cairn_code describe_piece(const struct import *import,
                                      const struct cairn_assembly_tensor *tensor, size_t p,
                                      uint64_t done_bytes, struct cairn_tensor_piece piece,
                                      struct cairn_error *err) {
    const struct cairn_assembly *assembly = &import->weights->assembly;
    CAIRN_AUTO(buf) file = {0};
    const struct cairn_assembly_piece *from = &assembly->pieces[tensor->piece_first + p];
    const struct cairn_box *box = tensor->boxed ? &assembly->boxes[tensor->box_first + p] : NULL;
    uint64_t bits = cairn_dtype_bits(tensor->dtype);
    uint64_t start = done_bytes * 8 / bits, count = from->size_bytes * 8 / bits;
    CAIRN_TRY(cli_tree_resolve(import->tree, cli_weights_file_of(import->weights, from->input),
                               &file, err));
    if (from->size_bytes != tensor->size_bytes) piece.form = box ? CAIRN_BOX : CAIRN_FLAT;
    piece.start = box ? box->start : &start;
    piece.count = box ? box->count : &count;
    piece.in_file = file.data;
    piece.file_offset = from->offset_bytes;
    piece.source_bytes = from->size_bytes;
    return cairn_save_tensor(import->save, &piece, err);
}

static enum cairn_code describe_tensor(const struct import *import,
                                       const struct cairn_assembly_tensor *tensor,
                                       struct cairn_error *err) {
    const struct cairn_assembly *assembly = &import->weights->assembly;
    struct cairn_tensor_piece piece = {.size = sizeof piece,
                                       .name = tensor->name,
                                       .dtype = cairn_dtype_text(tensor->dtype),
                                       .dimension_count = tensor->dimension_count,
                                       .shape = tensor->shape,
                                       .kind = CAIRN_SHARDED,
                                       .form = CAIRN_WHOLE};
    uint64_t done_bytes = 0;
    if (tensor->alias_of != CAIRN_ASSEMBLY_NO_ALIAS) {
        piece.kind = CAIRN_ALIAS;
        piece.alias_of = assembly->tensors[tensor->alias_of].name;
        return cairn_save_tensor(import->save, &piece, err);
    }
    if (!tensor->piece_count) {
        /* An empty tensor refers to any file: without one it would be staged. */
        piece.in_file = import->tree->files[0].name;
        return cairn_save_tensor(import->save, &piece, err);
    }
    for (size_t p = 0; p < tensor->piece_count; p++) {
        CAIRN_TRY(describe_piece(import, tensor, p, done_bytes, piece, err));
        done_bytes += assembly->pieces[tensor->piece_first + p].size_bytes;
    }
    return CAIRN_OK;
}

static int by_place(const void *a, const void *b) {
    const struct cairn_assembly_piece *x = a, *y = b;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return (x->offset_bytes > y->offset_bytes) - (x->offset_bytes < y->offset_bytes);
}

/* A view that repeats elements refers to bytes twice, but a rank table lists each place once. */
static enum cairn_code find_repeated(const struct cairn_assembly *assembly,
                                     const struct cairn_assembly_tensor *tensor, bool *ret,
                                     struct cairn_error *err) {
    *ret = false;
    if (tensor->piece_count < 2) return CAIRN_OK;
    CAIRN_AUTO_HEAP struct cairn_assembly_piece *sorted =
        calloc(tensor->piece_count, sizeof *sorted);
    if (!sorted) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the pieces of a tensor");
    memcpy(sorted, &assembly->pieces[tensor->piece_first], tensor->piece_count * sizeof *sorted);
    qsort(sorted, tensor->piece_count, sizeof *sorted, by_place);
    for (size_t p = 1; p < tensor->piece_count; p++)
        *ret |= sorted[p - 1].input == sorted[p].input &&
                sorted[p - 1].offset_bytes + sorted[p - 1].size_bytes > sorted[p].offset_bytes;
    return CAIRN_OK;
}

/* *ret: why the tensor is no list of ranges of the files; NULL: its pieces are such ranges. */
static enum cairn_code why_not(struct cli_weights *weights, size_t number, const char **ret,
                               struct cairn_error *why, struct cairn_error *err) {
    struct cairn_assembly *assembly = &weights->assembly;
    struct cairn_assembly_tensor *tensor = &assembly->tensors[number];
    bool repeated;
    *ret = NULL;
    enum cairn_code code = cairn_assembly_unroll(assembly, number, why);
    if (code == CAIRN_UNSUPPORTED) *ret = why->message;
    if (code != CAIRN_OK) {
        if (code != CAIRN_UNSUPPORTED && err) *err = *why;
        return code == CAIRN_UNSUPPORTED ? CAIRN_OK : code;
    }
    for (size_t p = 0; p < tensor->piece_count; p++) {
        const struct cairn_assembly_piece *piece = &assembly->pieces[tensor->piece_first + p];
        if (!cli_weights_file_of(weights, piece->input))
            *ret = "its bytes are compressed in the file; the file has it, and `cairn export` "
                   "unpacks it";
        if (piece->flip)
            *ret = "a view that is conjugated or negated when it is read; the file has it, and "
                   "`cairn export` resolves it";
    }
    CAIRN_TRY(find_repeated(assembly, tensor, &repeated, err));
    if (repeated) *ret = "a view that repeats its elements; the file has it";
    return CAIRN_OK;
}

static enum cairn_code describe_tensors(void *owner, struct cairn_save *save,
                                        const struct cli_tree *tree, struct cli_described *ret,
                                        struct cairn_error *err) {
    const struct import *owned = owner;
    const struct cli_weights *weights = owned->weights;
    const struct import import = {owned->weights, owned->left, tree, save};
    const struct cairn_assembly *assembly = &weights->assembly;
    CAIRN_AUTO_HEAP bool *known = calloc(assembly->input_count + 1, sizeof *known);
    CAIRN_AUTO_JSON json_t *plain = json_array();
    if (!known || !plain) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for files");
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        if (import.left[i]) continue;
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        CAIRN_TRY(describe_tensor(&import, tensor, err));
        for (size_t p = 0; p < tensor->piece_count; p++)
            known[assembly->pieces[tensor->piece_first + p].input] = true;
        ret->tensors++;
    }
    for (size_t i = 0; i < assembly->input_count; i++) ret->files += known[i];
    /* Files are kept whole, with everything besides tensors. */
    const struct cli_left_out left_out = {
        .assembly = assembly, .keeps_objects = true, .keeps_texts = true, .keeps_files = true};
    cli_left_out_note(&left_out);
    return cli_left_out_rows(&left_out, ret->left_out, plain, err);
}

static enum cairn_code run_import(struct cli *cli, struct cairn_error *err) {
    const char *kind = cli->arguments[0], *path = cli->arguments[1], *ref = cli->arguments[2];
    CAIRN_RELEASED(cli_weights_release) struct cli_weights weights = {0};
    CAIRN_TRY(check_kind(kind, NULL, err));
    if (cli_is_bucket(path)) /* an uploader reads local files */
        return cairn_fail(err, CAIRN_UNSUPPORTED,
                          "%s: import takes files of this machine. `cairn export %s FOLDER` writes "
                          "what is there into a folder",
                          path, path);
    CAIRN_TRY(cli_save_tree_check("import", path, ref, err));
    CAIRN_TRY(cli_save_tree_start(cli, "import", err));
    CAIRN_TRY(cli_weights_open_path(cli, path, true, &weights, err));
    CAIRN_AUTO_HEAP bool *left = calloc(weights.assembly.tensor_count + 1, sizeof *left);
    struct import import = {.weights = &weights, .left = left};
    const struct cli_save_tree job = {.cli = cli,
                                      .verb = "import",
                                      .path = path,
                                      .folder_fd = weights.has_folder ? weights.folder_fd : -1,
                                      .ref = ref,
                                      .format = cairn_format_tag(weights.format),
                                      .describe = describe_tensors,
                                      .owner = &import};
    if (!left) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the names of tensors");
    enum cairn_code code = check_kind(kind, cairn_format_tag(weights.format), err);
    if (code == CAIRN_OK) code = cli_weights_seal_all(&weights, err);
    if (code == CAIRN_OK) code = check_seals(cli, &weights.assembly, err);
    if (code != CAIRN_OK) return cairn_within(err, code, "%s", path);
    /* Before anything is sent: leaves out tensors that are no ranges, and their aliases. */
    struct cairn_assembly *assembly = &weights.assembly;
    for (size_t i = 0; i < assembly->tensor_count; i++) {
        const struct cairn_assembly_tensor *tensor = &assembly->tensors[i];
        struct cairn_error reason = {0};
        const char *why = NULL;
        if (tensor->alias_of == CAIRN_ASSEMBLY_NO_ALIAS)
            CAIRN_TRY(why_not(&weights, i, &why, &reason, err));
        else if (left[tensor->alias_of])
            why = "another name of a tensor that is left out; the file has it";
        left[i] = why != NULL;
        if (why) CAIRN_TRY(cairn_assembly_leave_out(assembly, assembly->tensors[i].name, why, err));
    }
    return cli_save_tree_run(&job, err);
}

const struct cli_verb cli_verb_import = {
    CLI_VERB(import),
    .chapter = "Other programs' files",
    .synopsis = "cairn import [flags] deepspeed|dcp|hf|torch|safetensors PATH project/run@step",
    .purpose = "Keep a checkpoint of another program, its tensors known by name.",
    .examples = "  cairn import deepspeed ./checkpoints llm/7b@1000\n"
                "  cairn import hf ./Llama-3 llm/base@0\n"
                "  cairn import torch model.pt llm/7b@0 --store /mnt/ckpt\n",
    CLI_TAKES(import_flags, 3, 3),
    .takes_paths = true,
};
