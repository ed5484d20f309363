/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: writes tensors shards' headers, reads any safetensors header, names a model's files.
 *
 * Why:     every tool opens a rank's tensors shard without Cairn, and its header must be known
 *          before the first byte is staged. `cairn export` writes, and the server shows, folders of
 *          such files for Hugging Face's libraries; both must name and split files alike.
 * Promise: 1   written headers make a valid safetensors file once the data follows: 8 + header is a
 *              multiple of 4096, entries are ordered by element width descending, then by name,
 *              they are contiguous, the last one ends the file.
 *          2   the same entries give the same bytes, in whatever order they came.
 *          3   types that safetensors lacks are written as api/table/dtype.h says, with a tag in
 *              the header's metadata; open ignores a tag that does not fit its tensor.
 *          4   open accepts exactly the sound headers: every entry inside the file, no hole, no
 *              overlap, no name twice, sizes that follow from dtype and shape, text metadata.
 *          5   a tensor begins a new file when the present one would exceed its bound; a tensor
 *              larger than the bound has a file of its own.
 *          6   a single file is "STEM.END", several are "STEM-00001-of-00002.END".
 *          7   floats are converted to the wanted dtype if possible; all else is unchanged,
 *              including the scales and maps of quantised weights, recognised by name.
 * Limits:  a header of 100,000,000 bytes; 8 dimensions (more is CAIRN_UNSUPPORTED);
 *          CAIRN_MODEL_FILES_MAX files.
 * Threads: stateless; an opened header is immutable; a split and an index have one owner.
 * Next:    client/save/arrange.h, which lays a rank's save out; cli/convert/inside.h,
 *          server/reads/hf.c; docs/format.md, "Tensors shard".
 */
#pragma once

#include "api/table/table.h"
#include "common/json.h"

#define CAIRN_SAFETENSORS_ALIGN 4096
#define CAIRN_SAFETENSORS_HEADER_BYTES_MAX 100000000
/* The metadata key of tensor w's tag is this and w; its text is "C128 [2,3]". */
#define CAIRN_SAFETENSORS_TAG "cairn.logical:"
#define CAIRN_SAFETENSORS_OWN "cairn" /* metadata key of headers written by Cairn */

struct cairn_safetensors_entry {
    struct cairn_view name;
    unsigned dtype; /* enum cairn_table_dtype */
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t offset_bytes; /* from the begin of the file */
    uint64_t size_bytes;
    size_t tag; /* the caller's; write keeps it with the entry */
};

/* Sorts the entries, fills offset_bytes and size_bytes, and appends the file's first 8 + N bytes.
 * *ret_file_bytes includes the data. Names must be unique UTF-8. texts: further __metadata__, an
 * object or NULL; its "format" replaces the default "pt". */
enum cairn_code cairn_safetensors_write(struct cairn_safetensors_entry *entries, size_t count,
                                        const json_t *texts, struct cairn_buf *ret,
                                        uint64_t *ret_file_bytes,
                                        struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_safetensors {
    json_t *document;                        /* owned; has only __metadata__, if present */
    struct cairn_safetensors_entry *entries; /* owned; by offset */
    char *names;                             /* owned; the entries' names, each NUL-terminated */
    size_t count;
    uint64_t header_bytes; /* 8 + N: begin of the data */
};
/* Key of torch's distributed checkpointing: which part of a tensor an entry is. */
#define CAIRN_SAFETENSORS_SHARDING "DCP_SHARDING_INFO"
/* True for a __metadata__ text to copy into derived files: not Cairn's own or a piece's. */
bool cairn_safetensors_is_carried(const char *key);
void cairn_safetensors_release(struct cairn_safetensors *file);
/* From the file's first 8 bytes: how many open needs. CAIRN_INVALID: no safetensors file. */
enum cairn_code cairn_safetensors_head_bytes(struct cairn_view first, uint64_t file_bytes,
                                             uint64_t *ret_bytes,
                                             struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_input;
/* head_bytes and open over an input: head receives its first bytes, ret points into it. */
enum cairn_code cairn_safetensors_load(const struct cairn_input *input, struct cairn_buf *head,
                                       struct cairn_safetensors *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* head: at least head_bytes bytes. CAIRN_INVALID names the wrong entry. */
enum cairn_code cairn_safetensors_open(struct cairn_view head, uint64_t file_bytes,
                                       struct cairn_safetensors *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

#define CAIRN_MODEL_FILES_MAX 100000
#define CAIRN_MODEL_FILE_NAME_BYTES 64

struct cairn_model_split {
    uint64_t file_bytes_max; /* bound of a file's tensors; 0: none */
    uint64_t used_bytes;     /* of the present file */
    size_t file_count;
};
/* True if the next tensor, of `bytes` bytes, begins a new file. */
bool cairn_model_split_begins(struct cairn_model_split *split, uint64_t bytes);

/* index from 0. */
void cairn_model_file_name(const char *stem, const char *end, size_t index, size_t count,
                           char ret[CAIRN_MODEL_FILE_NAME_BYTES]);

/* wanted CAIRN_DTYPE_NONE: as stored. */
unsigned cairn_model_dtype(struct cairn_view name, unsigned stored, unsigned wanted);

/* Adds each tensor to the map from which the index is made. False, NULL: no memory. */
bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file);
json_t *cairn_model_index(json_t *map, uint64_t total_bytes);
