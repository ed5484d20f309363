/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assembly: tensors as ranges of the files that hold them.
 *
 * Why:     a tensor of a sharded checkpoint lies in pieces in several ranks' files; a writer needs
 *          its ranges in order, and no copy in memory.
 * Promise: 1   the pieces of a tensor in sequence are its elements in row-major order; or each
 *              piece is a box (formats/assembly/pieces.h), and each element is in exactly one box.
 *          2   every piece lies inside its file.
 *          3   an alias has no pieces, and follows its tensor.
 *          4   contents of the files that the assembly lacks are in left_out, by name, with the
 *              reason; values other than tensors are in objects. A tensor of such a value may be
 *              there by its own name, too; it is marked in_object.
 *          5   names are unique; adding a second tensor of one name is CAIRN_INVALID. A look-up
 *              compares only names of equal hash.
 *          6   a read of boxes takes one range of each box's file as long as the result; it needs
 *              128 KiB beside the caller's memory, 2 MiB for strided elements.
 *          7   texts has the safetensors headers' texts, each key once.
 *          8   strided and flipped elements are read as their actual values.
 *          9   a read that completes a range with a checksum (formats/assembly/pieces.h) compares
 *              it; a mismatch is CAIRN_CORRUPT with the file and the zip entry.
 * Limits:  16,777,216 pieces; 1,048,576 tensors; 65,536 boxes a tensor, of whole-byte elements.
 * Threads: one owner while it is built; immutable after that.
 * Next:    formats/zero/zero.h, formats/torch/torch.h; cli/convert/inside.h.
 */
#pragma once

#include "api/documents/names.h"
#include "common/buf.h"
#include "common/json.h"
#include "formats/assembly/pieces.h"

struct cairn_assembly_piece {
    uint32_t input; /* index in inputs */
    uint32_t flip : 2;
    uint32_t layout : 30; /* index in layouts; 0: contiguous */
    uint64_t offset_bytes, size_bytes;
};
/* Distance in the file between neighbouring elements of a box, by dimension. */
struct cairn_assembly_layout {
    uint64_t stride[CAIRN_DIMENSIONS_MAX]; /* in elements */
};
#define CAIRN_ASSEMBLY_NO_ALIAS SIZE_MAX
struct cairn_assembly_tensor {
    char *name;
    unsigned dtype; /* enum cairn_table_dtype, as stored */
    unsigned dimension_count;
    uint64_t shape[CAIRN_DIMENSIONS_MAX];
    uint64_t size_bytes;
    size_t alias_of; /* index of a tensor; CAIRN_ASSEMBLY_NO_ALIAS: none */
    size_t piece_first, piece_count;
    size_t box_first; /* its pieces' first box, if boxed; one per piece */
    bool boxed;
    bool frozen;    /* not trained; valid with knows_frozen */
    bool in_object; /* an object has its bytes: where objects are kept, it is no tensor */
};
/* Optimizer state of a parameter is named optimizer.state.<parameter>.<what>. */
#define CAIRN_ASSEMBLY_OPTIMIZER "optimizer.state."
#define CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER "the optimizer's state, which --optimizer takes, too"
/* Prefix of the key of a header text in left_out. */
#define CAIRN_ASSEMBLY_TEXT "__metadata__."
struct cairn_assembly_left_out {
    char *name, *why;
    bool file;   /* a whole file of the folder, entirely unused */
    char *class; /* unknown class of a value; else NULL */
};
/* A value other than a tensor: a torch.save archive of its own, as pieces in sequence. */
struct cairn_assembly_object {
    char *name;
    uint64_t size_bytes;             /* 0: known by name only */
    size_t piece_first, piece_count; /* in object_pieces */
    bool holds_tensors;              /* contains tensors */
};
struct cairn_assembly_memory; /* an input owned by the assembly */
struct cairn_assembly {
    const struct cairn_input **inputs; /* borrowed; the array is owned */
    size_t input_count, input_capacity;
    struct cairn_assembly_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    struct cairn_names names; /* by tensor index */
    struct cairn_assembly_piece *pieces;
    size_t piece_count, piece_capacity;
    struct cairn_box *boxes;
    size_t box_count, box_capacity;
    struct cairn_assembly_layout *layouts;
    size_t layout_count, layout_capacity;
    struct cairn_seals seals;
    struct cairn_assembly_left_out *left_out;
    size_t left_out_count, left_out_capacity;
    struct cairn_assembly_object *objects; /* of DCP (all values) and of torch files */
    size_t object_count, object_capacity;
    struct cairn_assembly_piece *object_pieces;
    size_t object_piece_count, object_piece_capacity;
    struct cairn_assembly_memory *memory;
    json_t *texts;     /* of __metadata__, in file order; NULL: none */
    bool knows_frozen; /* the files tell which parameters are trained */
};
void cairn_assembly_release(struct cairn_assembly *assembly);

enum cairn_code cairn_assembly_add_input(struct cairn_assembly *assembly,
                                         const struct cairn_input *input, uint32_t *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Adds an input that takes over `bytes`, which is empty afterwards. */
enum cairn_code cairn_assembly_add_memory(struct cairn_assembly *assembly, struct cairn_buf *bytes,
                                          uint32_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* Adds a tensor; its pieces are added next. CAIRN_INVALID: size overflow, or duplicate name. */
enum cairn_code cairn_assembly_add_tensor(struct cairn_assembly *assembly, const char *name,
                                          unsigned dtype, unsigned dimension_count,
                                          const uint64_t *shape,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Adds the last tensor's next piece; a contiguous one is joined to its predecessor. */
enum cairn_code cairn_assembly_add_piece(struct cairn_assembly *assembly, uint32_t input,
                                         uint64_t offset_bytes, uint64_t size_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Adds a strided or flipped part of the last tensor, with its first element at the offset. */
enum cairn_code cairn_assembly_add_view(struct cairn_assembly *assembly,
                                        const struct cairn_assembly_piece *piece,
                                        const uint64_t *stride, const struct cairn_box *box,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Adds elements of the last tensor that are contiguous in an input: those of `box` from its element
 * `first` on. Parts come in any order; all parts of such a tensor are boxes. */
enum cairn_code cairn_assembly_add_box(struct cairn_assembly *assembly,
                                       const struct cairn_assembly_piece *piece,
                                       const struct cairn_box *box, uint64_t first,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Adds another name of an existing tensor. */
enum cairn_code cairn_assembly_add_alias(struct cairn_assembly *assembly, const char *name,
                                         size_t of, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_add_object(struct cairn_assembly *assembly, const char *name,
                                          bool holds_tensors,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* Adds an object's next piece; no later object has one yet. */
enum cairn_code cairn_assembly_add_object_piece(struct cairn_assembly *assembly, size_t object,
                                                const struct cairn_assembly_piece *piece,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Adds an object of another assembly, whose inputs must outlive this one. */
enum cairn_code cairn_assembly_copy_object(const struct cairn_assembly *from, size_t object,
                                           struct cairn_assembly *into,
                                           struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_leave_out(struct cairn_assembly *assembly, const char *name,
                                         const char *why, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_leave_out_file(struct cairn_assembly *assembly, const char *name,
                                              const char *why,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* Adds a safetensors header text. A key's first text stays; others are left out. */
enum cairn_code cairn_assembly_add_text(struct cairn_assembly *assembly, const char *key,
                                        const char *text, const char *file,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* Copies the pieces of another assembly's tensor to the last tensor, of the same shape. */
enum cairn_code cairn_assembly_copy_pieces(const struct cairn_assembly *from,
                                           const struct cairn_assembly_tensor *tensor,
                                           struct cairn_assembly *into,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Gives an alias its tensor's pieces, as a tensor with the same bytes. */
void cairn_assembly_untie(struct cairn_assembly *assembly, size_t number);
/* Other names of tensors in objects: the first becomes the tensor, the others its aliases. */
enum cairn_code cairn_assembly_retie(struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Copies tensor `number` of another assembly, whose inputs must outlive this one. An alias without
 * its tensor becomes a tensor. */
enum cairn_code cairn_assembly_take(const struct cairn_assembly *from, size_t number,
                                    struct cairn_assembly *into,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Moves the rest of another assembly: its own inputs, left_out and objects. */
enum cairn_code cairn_assembly_take_rest(struct cairn_assembly *from, struct cairn_assembly *into,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Leaves out a value of a class known by its name only. */
enum cairn_code cairn_assembly_leave_out_opaque(struct cairn_assembly *assembly, const char *name,
                                                const char *class, const char *why,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* Call after the check: names of the same range of a file become aliases of the first. */
enum cairn_code cairn_assembly_join_same(struct cairn_assembly *assembly,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* Splits a strided tensor's pieces into runs, in order. CAIRN_UNSUPPORTED: more than a million. */
enum cairn_code cairn_assembly_unroll(struct cairn_assembly *assembly, size_t tensor,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Copies another assembly's checksums and adds their inputs. */
enum cairn_code cairn_assembly_copy_seals(struct cairn_assembly *assembly,
                                          const struct cairn_assembly *from,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The name of a tensor with bytes in that range; NULL: none. */
const char *cairn_assembly_tensor_in(const struct cairn_assembly *assembly,
                                     const struct cairn_seal *seal);
/* Call after all reads: checks open ranges, and reads up to 1 MiB missing of mostly read ones. */
enum cairn_code cairn_assembly_settle(const struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_assembly_find(const struct cairn_assembly *assembly, const char *name, size_t *ret);
/* Call after the last tensor: checks promises 1 and 2. Boxes that are runs of the tensor become
 * ordered pieces. */
enum cairn_code cairn_assembly_check(struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* Reads `size` bytes from byte `from` on of a tensor that is no alias, in whole elements. */
enum cairn_code cairn_assembly_read(const struct cairn_assembly *assembly,
                                    const struct cairn_assembly_tensor *tensor, uint64_t from,
                                    char *into, uint64_t size,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* Reads `size` bytes from byte `from` on of an object. */
enum cairn_code cairn_assembly_read_object(const struct cairn_assembly *assembly,
                                           const struct cairn_assembly_object *object,
                                           uint64_t from, char *into, uint64_t size,
                                           struct cairn_error *err) CAIRN_MUST_USE;
