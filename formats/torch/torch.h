/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch: reads torch.save files without torch: values, tensors and where their bytes lie.
 *
 * Why:     model and optimizer states are such files; reading needs no Python, little memory. A
 *          state dict consists of dict-like objects (OrderedDict, Namespace, torch.Size); listing,
 *          import and printing need one kind of each. Export and import need tensors by name, with
 *          their ranges; DCP stores step, learning rate and random state, too, and other formats
 *          must name them.
 * Promise: 1   reads directory, pickles, headers of requested storages; no byte of a tensor.
 *          2   both forms are accepted: the zip, and the form before torch 1.6, still written on
 *              request (DeepSpeed with `checkpoint_serialization: false`): five pickles, then each
 *              storage after its length. That length must match the pickle's number of elements, or
 *              the file is refused with the storage's key.
 *          3   a returned tensor lies inside its storage with every element, whatever its strides
 *              and offset; its storage lies inside the file.
 *          4   a value of a class that torch_names.c lacks is opaque: only its name is kept. Names
 *              that run code, and with `strict` all others, are refused.
 *          5   a walk visits every leaf once for each path to it, in the file's order.
 *          6   it ends: depth and steps are bounded, whatever the values hold (pickle.h#4).
 *          7   a walk over items follows torch.distributed.checkpoint's flattening of a state dict:
 *              into each map, and into a list that holds a tensor, a map or such a list; all else
 *              is one item, be it a tuple of tensors. Without `take`, for forms that have tensors
 *              alone, it goes into any value with a tensor. A foreign class's instance is split
 *              like a map: readers may lack the class.
 *          8   a key in a path is Python's str() of it, since jobs find items by these names: None,
 *              booleans, numbers of any size and NumPy's, texts, bytes, element types, classes,
 *              ranges, devices, dates, paths, decimals, and tuples, lists and sets of the first
 *              six; a text by itself is unquoted. Other keys are named by their position.
 *          9   tensors with the same elements of the same storage are one tensor and its aliases.
 *          10  strided, conjugated and negated tensors are read as their actual values
 *              (assembly.h#8); any other metadata of a tensor is CAIRN_UNSUPPORTED.
 *          11  each item of a walk over items (promise 7) is one object, by its path, or left out
 *              by its path with the reason.
 *          12  an object's archive is what torch.save writes of the value: torch.load returns an
 *              equal value; shared parts are duplicated, but a storage is there once. Texts are in
 *              memory, storages are read from the file with their checksums. Tensors in such an
 *              object are marked in the assembly. A value with tensors that is no object after all
 *              (a class that is not known, the limits below, a rank's piece) is left out by its
 *              path with the reason, and its tensors keep their names. Unwanted archives take no
 *              memory.
 *          13  a rank's piece of a tensor (formats/torch/torch_ranks.h) is left out with advice,
 *              unless `ranks` says that the assembly has handled each.
 * Limits:  8 dimensions; pickles as formats/torch/pickle.h. Big-endian files, and the tar form of
 *          before torch 0.1.10, are CAIRN_UNSUPPORTED. A walk: 64 levels; paths of 1 MiB, together
 *          8 MiB and 64 bytes for each byte of the pickle; 4,000,000 leaves, and 65,536 and 4 for
 *          each value of the pickle. Keys of 16 levels; sets keep the file's order, since Python's
 *          follows its hashes. Unassigned code points of a text in a tuple are kept, where Python's
 *          version decides. An assembly: pickles of 128 MiB and archives of 256 MiB a file, all
 *          values together, not counting storages: 262,144 of them, and of 256 MiB and 4 bytes for
 *          each byte of the file. The first object of a name counts, further ones are left out.
 * Threads: an open file is immutable, except reads through the input; an assembly has one owner.
 * Next:    formats/torch/torch_names.c; formats/assembly/assembly.h, formats/torch/torch_write.h;
 *          cli/convert/inspect.c; formats/torch/torch_ranks.h.
 */
#pragma once

#include "api/table/table.h"
#include "formats/assembly/pieces.h"
#include "formats/torch/pickle.h"
#include "formats/torch/zip.h"

struct cairn_assembly;

enum cairn_torch_meaning {
    CAIRN_TORCH_TENSOR_V2, /* makes a tensor: (storage, offset, size, stride, ...) */
    CAIRN_TORCH_TENSOR_V3, /* as V2, then (..., requires_grad, hooks, dtype, ...) */
    CAIRN_TORCH_PARAMETER, /* (tensor, ...) */
    CAIRN_TORCH_FROM_TYPE, /* (function, class, its arguments, state): a tensor subclass */
    CAIRN_TORCH_STORAGE,   /* class of a storage, by its dtype; NONE: bytes */
    CAIRN_TORCH_DTYPE,
    CAIRN_TORCH_SEQUENCE, /* (items): behaves as a list */
    CAIRN_TORCH_MAP,      /* behaves as a dict */
    CAIRN_TORCH_RECORD,   /* an instance whose state is a dict */
    CAIRN_TORCH_ENCODED,  /* (text, "latin1"): bytes, as Python 3 writes them for Python 2 */
    CAIRN_TORCH_MEMBER,   /* (object, name): members of enumerations are resolved on reading */
    CAIRN_TORCH_SHARDED,  /* class of a tensor in pieces over ranks: torch_ranks.h */
    CAIRN_TORCH_OPAQUE,   /* known and harmless; only its name is kept */
};
struct cairn_torch_name {
    const char *module, *name;
    enum cairn_torch_meaning meaning;
    unsigned dtype; /* enum cairn_table_dtype */
};
/* By the number in a value of kind CAIRN_PICKLE_GLOBAL. */
const struct cairn_torch_name *cairn_torch_name_at(uint32_t global);
/* The listed name of a value; NULL: none. */
const struct cairn_torch_name *cairn_torch_name_of(const struct cairn_pickle *values,
                                                   cairn_pickle_ref ref);
/* The listed name of an object's callable. */
const struct cairn_torch_name *cairn_torch_maker(const struct cairn_pickle *values,
                                                 const struct cairn_pickle_value *object);
/* True for getattr(object, name) of another object than a listed enumeration. */
bool cairn_torch_is_member(const struct cairn_pickle *values,
                           const struct cairn_pickle_value *value);
/* A value's class as module and name, shortened: "omegaconf.dictconfig.DictConfig". */
#define CAIRN_TORCH_CLASS_BYTES 256
void cairn_torch_class_text(const struct cairn_pickle *values, cairn_pickle_ref ref,
                            char ret[CAIRN_TORCH_CLASS_BYTES]);
void cairn_torch_unknown_text(const struct cairn_pickle_unknown *unknown,
                              char ret[CAIRN_TORCH_CLASS_BYTES]);
/* True if the name's package may be absent where torch is present. */
bool cairn_torch_is_foreign(const struct cairn_torch_name *name);

struct cairn_torch {
    const struct cairn_input *input; /* borrowed */
    bool legacy, strict;
    struct cairn_zip zip;            /* zip form */
    struct cairn_unpacked *unpacked; /* of a zip with deflated storages; else NULL */
    char stem[1025];                 /* folder in the zip: "archive" of archive/data.pkl */
    struct cairn_buf pickled;
    struct cairn_pickle values;
    struct cairn_torch_legacy_storage *storages; /* legacy form, by key */
    size_t storage_count;
};
/* True if a file with these first 16 bytes may be a torch file. */
bool cairn_torch_begins(struct cairn_view first);
/* input must outlive the struct. strict: unlisted classes are CAIRN_UNSUPPORTED. */
enum cairn_code cairn_torch_open(const struct cairn_input *input, bool strict,
                                 struct cairn_torch *ret, struct cairn_error *err) CAIRN_MUST_USE;
void cairn_torch_release(struct cairn_torch *file);

struct cairn_torch_tensor {
    struct cairn_view storage; /* its key; tensors with equal keys share memory */
    uint64_t storage_bytes;
    unsigned dtype; /* enum cairn_table_dtype */
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t stride[CAIRN_DIMENSIONS_MAX]; /* in elements */
    uint64_t offset_bytes;                 /* in the storage */
    uint64_t elements, size_bytes;         /* of the tensor, not its storage */
    bool conjugated, negated;              /* relative to the bytes */
    bool contiguous;                       /* one range of bytes, in row-major order */
};
/* Counts the tensors in a value, at any depth. `seen`: a byte per value, set once counted. */
enum cairn_code cairn_torch_count_tensors(const struct cairn_torch *file, cairn_pickle_ref ref,
                                          uint8_t *seen, uint64_t *ret,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* True for a tensor, or a parameter that holds one. */
bool cairn_torch_is_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
/* Likewise for tensors without elements that could be read: sparse, quantised, meta ones. */
bool cairn_torch_is_any_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
enum cairn_code cairn_torch_tensor(const struct cairn_torch *file, cairn_pickle_ref ref,
                                   struct cairn_torch_tensor *ret,
                                   struct cairn_error *err) CAIRN_MUST_USE;
/* The sizes in a torch.Size, a tuple or a list. */
enum cairn_code cairn_torch_sizes(const struct cairn_torch *file, cairn_pickle_ref ref,
                                  uint64_t ret[CAIRN_DIMENSIONS_MAX], unsigned *ret_count,
                                  struct cairn_error *err) CAIRN_MUST_USE;
/* The input of storage offsets: the file, or its unpacked bytes, owned by the struct. */
const struct cairn_input *cairn_torch_data(const struct cairn_torch *file);
/* CAIRN_UNSUPPORTED: the storages are deflated, so they are no ranges of the file. */
enum cairn_code cairn_torch_need_ranges(const struct cairn_torch *file,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Offset of a tensor's storage in cairn_torch_data. */
enum cairn_code cairn_torch_storage_at(const struct cairn_torch *file,
                                       const struct cairn_torch_tensor *tensor,
                                       uint64_t *ret_offset,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* A storage by its reference outside of the pickle. */
struct cairn_torch_storage {
    struct cairn_view key;
    const struct cairn_torch_name *type;
    uint64_t elements, size_bytes, offset_bytes; /* in cairn_torch_data */
};
enum cairn_code cairn_torch_storage(const struct cairn_torch *file, cairn_pickle_ref ref,
                                    struct cairn_torch_storage *ret,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* The zip's checksum of a tensor's storage, which begins at this byte of the file. False: none. */
bool cairn_torch_seal(const struct cairn_torch *file, const struct cairn_torch_tensor *tensor,
                      uint64_t offset, struct cairn_seal *ret, struct cairn_view *ret_name);
/* Adds the checksums of all entries of a zip, with or without tensors. input: the file's number. */
enum cairn_code cairn_torch_seal_all(const struct cairn_torch *file, uint32_t input,
                                     struct cairn_seals *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- the values as a tree of maps, lists, tensors and plain values ---- */

enum cairn_torch_kind {
    CAIRN_TORCH_LEAF_TENSOR,
    CAIRN_TORCH_LEAF_PLAIN,  /* none, bool, number, text, bytes, dtype: see the value */
    CAIRN_TORCH_LEAF_EMPTY,  /* a map or a list without items */
    CAIRN_TORCH_LEAF_OPAQUE, /* only its name is known */
    CAIRN_TORCH_LEAF_AGAIN,  /* a container that holds itself, where it comes again */
    CAIRN_TORCH_LEAF_DEEP,   /* a container whose items lie deeper than is walked */
    CAIRN_TORCH_LEAF_NUL,    /* no tensor; each NUL byte of its path is a question mark */
    CAIRN_TORCH_ITEM,        /* in a walk over items: anything but a tensor or a map */
    CAIRN_TORCH_INSIDE,      /* there: a tensor of a value that was taken whole */
};
/* path: keys and positions from the root, joined by dots; "" is the root. */
typedef enum cairn_code cairn_torch_visit(void *context, const char *path,
                                          enum cairn_torch_kind kind, cairn_pickle_ref ref,
                                          struct cairn_error *err);
enum cairn_code cairn_torch_walk(const struct cairn_torch *file, cairn_torch_visit *visit,
                                 void *context, struct cairn_error *err) CAIRN_MUST_USE;
/* Takes a value that is one object in DCP, though it holds tensors, or leaves it to be walked. */
typedef enum cairn_code cairn_torch_take(void *context, const char *path, cairn_pickle_ref ref,
                                         bool *ret_taken, struct cairn_error *err);
/* take: NULL to walk into each value that holds a tensor. */
enum cairn_code cairn_torch_walk_items(const struct cairn_torch *file, cairn_torch_visit *visit,
                                       cairn_torch_take *take, void *context,
                                       struct cairn_error *err) CAIRN_MUST_USE;

/* ---- its tensors by name ---- */

struct cairn_torch_listed {
    struct cairn_torch_tensor tensor;
    char *name;   /* owned */
    size_t first; /* index of the first with the same elements; mostly its own */
};
struct cairn_torch_list {
    struct cairn_torch_listed *items; /* owned, in the file's order */
    size_t count, capacity;
};
enum cairn_code cairn_torch_list_add(struct cairn_torch_list *list, const struct cairn_torch *file,
                                     const char *name, cairn_pickle_ref ref,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Call after the last: sets `first`. */
enum cairn_code cairn_torch_list_join(struct cairn_torch_list *list,
                                      struct cairn_error *err) CAIRN_MUST_USE;
void cairn_torch_list_release(struct cairn_torch_list *list);

/* ---- a file as an assembly of its tensors ---- */

/* Adds the file's tensors whose names begin with prefix, without it; _check comes last. */
enum cairn_code cairn_torch_assemble(const struct cairn_torch *file, const char *prefix,
                                     struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* ---- values other than tensors, as objects of an assembly ---- */

struct cairn_torch_plain {
    const struct cairn_torch *file; /* borrowed for the call */
    bool archives;
    const char *const *taken; /* paths already taken, NULL-terminated */
    bool tensors_too;         /* only `taken` tensors are in the assembly; others are left out */
    const char *prefix;       /* of all names; NULL: none */
    bool ranks;               /* the assembly has handled the file's pieces of tensors */
    bool own_tensors;         /* the assembly's tensors have the file's names of them */
};
/* Call after cairn_assembly_check: leaves out names of tensors. */
enum cairn_code cairn_torch_plain_add(const struct cairn_torch_plain *plain,
                                      struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;

/* ---- shared by both forms of a torch file; for formats/torch/ alone ---- */

/* Appends a key's str(); *ret false: it has none, and the appended bytes are meaningless. */
enum cairn_code cairn_torch_key_text(const struct cairn_pickle *values, cairn_pickle_ref key,
                                     struct cairn_buf *into, bool *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;

/* cairn_torch_is_tensor except whole tensors of sharded classes, which contain one. */
bool cairn_torch_is_plain_tensor(const struct cairn_torch *file, cairn_pickle_ref ref);
/* cairn_pickle_read with the closed list; strict: an unlisted name is CAIRN_UNSUPPORTED. An
 * enumeration's member taken by name becomes the enumeration called with its number, or unknown if
 * its class is; any other attribute access is CAIRN_UNSUPPORTED. */
enum cairn_code cairn_torch_read_pickle(struct cairn_view bytes, bool strict,
                                        struct cairn_pickle *ret,
                                        struct cairn_error *err) CAIRN_MUST_USE;
