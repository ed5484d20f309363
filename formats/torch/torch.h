/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch: what torch.save wrote, without torch: its values, its tensors and where their bytes lie.
 *
 * Why:     model and optimizer states come as such files, and a reader should need neither Python
 *          nor the memory for the tensors.
 * Promise: 1   read are the directory, the pickles, and for each storage whose place is asked for
 *              its header; no byte of a tensor.
 *          2   both forms are taken: the zip, and what torch wrote before 1.6 and still writes when
 *              it is asked to (DeepSpeed with `checkpoint_serialization: false`): five pickles in a
 *              row, then each storage behind its length. That length and the number of elements in
 *              the pickle agree, or the file is refused with the storage's key.
 *          3   a tensor that is returned lies inside its storage with every element, whatever its
 *              strides and offset; its storage lies inside the file.
 *          4   a value of a class that torch_names.c does not list is opaque: nothing is made of it
 *              but a record of its name. Names that run code, and with `strict` all others, are
 *              refused.
 * Limits:  8 dimensions; pickles as formats/torch/pickle.h. Big-endian files, and the tar form of
 *            before torch 0.1.10, are CAIRN_UNSUPPORTED.
 * Threads: immutable after open, but for reads through the input.
 * Next:    formats/torch/torch_tree.h walks the values; formats/torch/torch_names.c.
 */
#pragma once

#include "api/table/table.h"
#include "formats/assembly/pieces.h"
#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

enum cairn_torch_meaning {
    CAIRN_TORCH_TENSOR_V2, /* makes a tensor: (storage, offset, size, stride, ...) */
    CAIRN_TORCH_TENSOR_V3, /* the same, with (..., requires_grad, hooks, dtype, ...) behind */
    CAIRN_TORCH_PARAMETER, /* (tensor, ...) */
    CAIRN_TORCH_FROM_TYPE, /* (function, class, its arguments, state): a subclass of tensor */
    CAIRN_TORCH_STORAGE,   /* class of a storage, by its dtype; NONE: bytes */
    CAIRN_TORCH_DTYPE,     /* an element type */
    CAIRN_TORCH_SEQUENCE,  /* (items): a list in disguise */
    CAIRN_TORCH_MAP,       /* a dict in disguise */
    CAIRN_TORCH_RECORD,    /* an instance whose state is a dict */
    CAIRN_TORCH_ENCODED,   /* (text, "latin1"): bytes, as Python 3 writes them for Python 2 */
    CAIRN_TORCH_MEMBER,    /* (class, name): a member of an enumeration; gone once it is read */
    CAIRN_TORCH_SHARDED,   /* class of a tensor of which a rank has pieces: torch_sharded.h */
    CAIRN_TORCH_OPAQUE,    /* known and harmless, shown by its name alone */
};
struct cairn_torch_name {
    const char *module, *name;
    enum cairn_torch_meaning meaning;
    unsigned dtype; /* enum cairn_table_dtype */
};
/* By the number that a value of kind CAIRN_PICKLE_GLOBAL has. */
const struct cairn_torch_name *cairn_torch_name_at(uint32_t global);
/* Of a value that is a name of the list; NULL: it is none. */
const struct cairn_torch_name *cairn_torch_name_of(const struct cairn_pickle *values,
                                                   cairn_pickle_ref ref);
/* The same of what makes an object. */
const struct cairn_torch_name *cairn_torch_maker(const struct cairn_pickle *values,
                                                 const struct cairn_pickle_value *object);
/* Module and name of the class of a value, shortened: "omegaconf.dictconfig.DictConfig". */
#define CAIRN_TORCH_CLASS_BYTES 256
void cairn_torch_class_text(const struct cairn_pickle *values, cairn_pickle_ref ref,
                            char ret[CAIRN_TORCH_CLASS_BYTES]);
void cairn_torch_unknown_text(const struct cairn_pickle_unknown *unknown,
                              char ret[CAIRN_TORCH_CLASS_BYTES]);
/* Of a package that who loads with torch need not have. */
bool cairn_torch_is_foreign(const struct cairn_torch_name *name);

struct cairn_torch {
    const struct cairn_input *input; /* borrowed */
    bool legacy, strict;
    struct cairn_zip zip;            /* zip form */
    struct cairn_unpacked *unpacked; /* of a zip with deflated storages; else NULL */
    char stem[1025];                 /* its folder: "archive" of archive/data.pkl */
    struct cairn_buf pickled;
    struct cairn_pickle values;
    struct cairn_torch_legacy_storage *storages; /* legacy form, by key */
    size_t storage_count;
};
/* Whether a file that begins with these 16 bytes may be one. */
bool cairn_torch_begins(struct cairn_view first);
/* input must outlive the struct. strict: classes that are not listed are CAIRN_UNSUPPORTED. */
enum cairn_code cairn_torch_open(const struct cairn_input *input, bool strict,
                                 struct cairn_torch *ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_torch_release(struct cairn_torch *file);

struct cairn_torch_tensor {
    struct cairn_view storage; /* its key; tensors of one key share memory */
    uint64_t storage_bytes;
    unsigned dtype; /* enum cairn_table_dtype */
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t stride[CAIRN_DIMENSIONS_MAX]; /* in elements */
    uint64_t offset_bytes;                 /* in the storage */
    uint64_t elements, size_bytes;         /* of the tensor, not of its storage */
    bool conjugated, negated;              /* it stands for the conjugate, the negative of these */
    bool contiguous;                       /* its bytes are one range, in row-major order */
};
/* How many tensors a value holds, at any depth. `seen` has a byte for each value of the file: what
 * is marked there is not counted again. */
enum cairn_code cairn_torch_count_tensors(const struct cairn_torch *file, cairn_pickle_ref ref,
                                          uint8_t *seen, uint64_t *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Is this value a tensor, or a parameter that holds one? */
bool cairn_torch_is_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
enum cairn_code cairn_torch_tensor(const struct cairn_torch *file, cairn_pickle_ref ref,
                                   struct cairn_torch_tensor *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The sizes in a torch.Size, a tuple or a list. */
enum cairn_code cairn_torch_sizes(const struct cairn_torch *file, cairn_pickle_ref ref,
                                  uint64_t ret[CAIRN_DIMENSIONS_MAX], unsigned *ret_count,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* What the places of storages are of: the file, or its unpacked bytes, which live as long as the
 * struct. */
const struct cairn_input *cairn_torch_data(const struct cairn_torch *file);
/* CAIRN_UNSUPPORTED: its storages are deflated, and no ranges of the file. */
enum cairn_code cairn_torch_need_ranges(const struct cairn_torch *file,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Where in it the storage of a tensor begins. */
enum cairn_code cairn_torch_storage_at(const struct cairn_torch *file,
                                       const struct cairn_torch_tensor *tensor,
                                       uint64_t *ret_offset,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* The checksum that the zip has of a tensor's storage, which begins at this byte of the file.
 * False: it has none. */
bool cairn_torch_seal(const struct cairn_torch *file, const struct cairn_torch_tensor *tensor,
                      uint64_t offset, struct cairn_seal *ret, struct cairn_view *ret_name);
/* Checksums of all entries of a zip, whether a tensor has them or not. input: the file's number. */
enum cairn_code cairn_torch_seal_all(const struct cairn_torch *file, uint32_t input,
                                     struct cairn_seals *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- what both forms of a torch file share; for formats/torch/ alone ---- */

/* cairn_torch_is_tensor without those of several ranks that are whole: they hold one. */
bool cairn_torch_is_plain_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
/* cairn_pickle_read with the closed list; strict: a name that it lacks is CAIRN_UNSUPPORTED. A
 * member that was taken from an enumeration of the list by name is that enumeration called with its
 * number, one of an unknown class is as unknown as that; whatever else is taken from an object by
 * name is CAIRN_UNSUPPORTED. */
enum cairn_code cairn_torch_read_pickle(struct cairn_view bytes, bool strict,
                                        struct cairn_pickle *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
