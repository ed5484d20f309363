/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: write the header of a tensors shard, read headers of any such file, and name the
 * files of a model's folder.
 *
 * Why:     a rank's tensors shard is a file that every tool opens without Cairn, and its header
 *          must be known before the first byte is staged. `cairn export` writes folders of such
 *          files as Hugging Face's libraries read them and the server shows one; a reader of either
 *          must find the same tensor in the same file of the same name.
 * Promise: 1   what write makes is a valid safetensors file once the data follows: 8 + header is a
 *              multiple of 4096, entries are ordered by element width descending, then by name,
 *              each begins where the one before ends, the last one ends the file.
 *          2   the same entries give the same bytes, whatever order they came in.
 *          3   what safetensors has no name for is shown as api/table/dtype.h says, and a tag in
 *              the header's metadata says what it is; open goes by a tag that fits its tensor, and
 *              passes over any other.
 *          4   open takes exactly the headers that are sound: every entry inside the file, no hole,
 *              no overlap, no name twice, sizes that follow from dtype and shape, text metadata.
 *          5   a tensor begins a file of the folder when the one before would grow beyond its
 *              bound; so one that is larger than the bound has a file of its own.
 *          6   of one file the name is "STEM.END", of more "STEM-00001-of-00002.END".
 *          7   floats become the dtype that is wanted, where they can; all else stays as it is, and
 *              so do the scales and maps of quantised weights, which are known by their names.
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
/* The tag of tensor w is the metadata's text under this and w: "C128 [2,3]". */
#define CAIRN_SAFETENSORS_TAG "cairn.logical:"
#define CAIRN_SAFETENSORS_OWN "cairn" /* the key by which a header says that write made it */

struct cairn_safetensors_entry {
    struct cairn_view name;
    unsigned dtype; /* enum cairn_table_dtype */
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t offset_bytes; /* from the first byte of the file, header included */
    uint64_t size_bytes;
    size_t tag; /* the caller's own; write moves it along with the entry */
};

/* Sort the entries, fill offset_bytes and size_bytes, and append the 8 + N bytes that begin the
 * file. *ret_file_bytes is header and data together. Names must be unique UTF-8. */
enum cairn_code cairn_safetensors_write(struct cairn_safetensors_entry *entries, size_t count,
                                        struct cairn_buf *ret, uint64_t *ret_file_bytes,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The same with further texts of __metadata__, an object of them or NULL; "format" replaces the
 * "pt" that is there without. */
enum cairn_code cairn_safetensors_write_texts(struct cairn_safetensors_entry *entries, size_t count,
                                              const json_t *texts, struct cairn_buf *ret,
                                              uint64_t *ret_file_bytes,
                                              struct cairn_error *err) CAIRN_MUST_USE;

struct cairn_safetensors {
    json_t *document; /* owned; an object of __metadata__ alone, where that is there */
    struct cairn_safetensors_entry *entries; /* owned; in the order of their offsets */
    char *names;                             /* owned; of the entries, each with a zero behind it */
    size_t count;
    uint64_t header_bytes; /* 8 + N: where the data begins */
};
/* torch's distributed checkpointing says under this key which part of a tensor an entry is. */
#define CAIRN_SAFETENSORS_SHARDING "DCP_SHARDING_INFO"
/* Is a text of __metadata__ carried on into files that are made of its tensors? Not Cairn's own
 * texts, nor those that describe pieces. */
bool cairn_safetensors_is_carried(const char *key);
void cairn_safetensors_release(struct cairn_safetensors *file);
/* How many bytes of the file open needs, from its first 8. CAIRN_INVALID: not such a file. */
enum cairn_code cairn_safetensors_head_bytes(struct cairn_view first, uint64_t file_bytes,
                                             uint64_t *ret_bytes,
                                             struct cairn_error *err) CAIRN_MUST_USE;
struct cairn_input;
/* Both over a file that is read by ranges: head gets its first bytes, ret points into its own. */
enum cairn_code cairn_safetensors_load(const struct cairn_input *input, struct cairn_buf *head,
                                       struct cairn_safetensors *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* head: at least the bytes that head_bytes named. CAIRN_INVALID says which entry is wrong. */
enum cairn_code cairn_safetensors_open(struct cairn_view head, uint64_t file_bytes,
                                       struct cairn_safetensors *ret,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- a model's folder ---- */

#define CAIRN_MODEL_FILES_MAX 100000
#define CAIRN_MODEL_FILE_NAME_BYTES 64

struct cairn_model_split {
    uint64_t file_bytes_max; /* of its tensors; 0: none */
    uint64_t used_bytes;     /* of the file that is being filled */
    size_t file_count;
};
/* The next tensor is of so many bytes: does it begin a file? */
bool cairn_model_split_begins(struct cairn_model_split *split, uint64_t bytes);

/* index from 0. */
void cairn_model_file_name(const char *stem, const char *end, size_t index, size_t count,
                           char ret[CAIRN_MODEL_FILE_NAME_BYTES]);

/* wanted CAIRN_DTYPE_NONE: as stored. */
unsigned cairn_model_dtype(struct cairn_view name, unsigned stored, unsigned wanted);

/* The index says which tensor is in which file: each is told to a map, of which it is made last.
 * False, NULL: no memory. */
bool cairn_model_index_add(json_t *map, struct cairn_view tensor, const char *file);
json_t *cairn_model_index(json_t *map, uint64_t total_bytes);
