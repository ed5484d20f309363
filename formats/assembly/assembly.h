/* SPDX-License-Identifier: Apache-2.0 */
/*
 * assembly: tensors as ranges of the files that hold them.
 *
 * Why:     a tensor of a sharded checkpoint lies in pieces in the files of several ranks; whoever
 *          writes it elsewhere needs the ranges in order, and no copy of it in memory.
 * Promise: 1   the pieces of a tensor, one behind the other, are its elements in row-major order;
 *              or each is a box of it (formats/assembly/pieces.h), and each element is in exactly
 *              one box.
 *          2   every piece lies inside of its file.
 *          3   an alias has no pieces; what it stands for comes before it.
 *          4   what the files hold and the assembly does not is in left_out, by name, with why;
 *              what is no tensor is in objects.
 *          5   a name is there once; a second tensor of it is CAIRN_INVALID when it is added. A
 *              look-up compares the names that have one hash, however many others there are.
 *          6   a read of boxes takes one range of each box's file that is as long as what is read;
 *              it needs 128 KiB beside the caller's memory, 2 MiB where elements lie apart.
 *          7   texts has what the headers of safetensors files say beside tensors, each key once.
 *          8   elements that lie apart (strides) or whose sign is to be changed are read as what
 *              they stand for.
 *          9   a read that completes a range with a checksum (formats/assembly/pieces.h) compares
 *              it; one that does not match is CAIRN_CORRUPT with the file and the zip entry.
 * Limits:  16,777,216 pieces; 1,048,576 tensors; 65,536 boxes of one, of whole bytes an element.
 * Threads: one owner while it is built; immutable after that.
 * Next:    formats/zero/zero.h and formats/torch/torch_assembly.h build one; cli/convert/inside.h
 *          writes it.
 */
#pragma once

#include "api/documents/names.h"
#include "common/buf.h"
#include "common/json.h"
#include "formats/assembly/pieces.h"

struct cairn_assembly_piece {
    uint32_t input; /* number in inputs */
    uint32_t flip : 2;
    uint32_t layout : 30; /* number in layouts; 0: its elements follow each other */
    uint64_t offset_bytes, size_bytes;
};
/* How far apart in the file elements of a box are that follow each other in a dimension. */
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
    size_t alias_of; /* number of a tensor; CAIRN_ASSEMBLY_NO_ALIAS: it has bytes of its own */
    size_t piece_first, piece_count;
    size_t box_first; /* of its pieces' boxes, of which there are as many; where it is cut so */
    bool boxed;
    bool frozen; /* the training leaves it as it is; where knows_frozen */
};
/* What an optimizer keeps of a parameter is named optimizer.state.<parameter>.<what>. */
#define CAIRN_ASSEMBLY_OPTIMIZER "optimizer.state."
#define CAIRN_ASSEMBLY_WITHOUT_OPTIMIZER "the optimizer's state, which --optimizer takes, too"
/* A text of a header is left out under this and its key. */
#define CAIRN_ASSEMBLY_TEXT "__metadata__."
struct cairn_assembly_left_out {
    char *name, *why;
    bool file;   /* a whole file of the folder, of which nothing was taken */
    char *class; /* of a value whose class is not known; else NULL */
};
/* What is no tensor: a file of torch.save of its own, which is a range of an input. */
struct cairn_assembly_object {
    char *name;
    struct cairn_assembly_piece piece; /* of no bytes: it is known by its name alone */
    bool holds_tensors;                /* of its own, which are none of the assembly's */
};
struct cairn_assembly_memory; /* an input that the assembly owns */
struct cairn_assembly {
    const struct cairn_input **inputs; /* borrowed, the array is owned */
    size_t input_count, input_capacity;
    struct cairn_assembly_tensor *tensors;
    size_t tensor_count, tensor_capacity;
    struct cairn_names names; /* each the tensor's of its number */
    struct cairn_assembly_piece *pieces;
    size_t piece_count, piece_capacity;
    struct cairn_box *boxes;
    size_t box_count, box_capacity;
    struct cairn_assembly_layout *layouts;
    size_t layout_count, layout_capacity;
    struct cairn_seals seals;
    struct cairn_assembly_left_out *left_out;
    size_t left_out_count, left_out_capacity;
    struct cairn_assembly_object *objects; /* of DCP, where each is one, and of torch files */
    size_t object_count, object_capacity;
    struct cairn_assembly_memory *memory;
    json_t *texts;     /* of __metadata__, in the files' order; NULL: none */
    bool knows_frozen; /* the files tell which parameters are trained */
};
void cairn_assembly_release(struct cairn_assembly *assembly);

enum cairn_code cairn_assembly_add_input(struct cairn_assembly *assembly,
                                         const struct cairn_input *input, uint32_t *ret,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* An input of its own: its bytes are taken over, and bytes is empty after that. */
enum cairn_code cairn_assembly_add_memory(struct cairn_assembly *assembly, struct cairn_buf *bytes,
                                          uint32_t *ret, struct cairn_error *err) CAIRN_MUST_USE;
/* A tensor without pieces yet; they are added next. CAIRN_INVALID: its size cannot be said, or the
 * name was added before. */
enum cairn_code cairn_assembly_add_tensor(struct cairn_assembly *assembly, const char *name,
                                          unsigned dtype, unsigned dimension_count,
                                          const uint64_t *shape,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* The next piece of the last tensor; one that goes on where the last one ended is joined to it. */
enum cairn_code cairn_assembly_add_piece(struct cairn_assembly *assembly, uint32_t input,
                                         uint64_t offset_bytes, uint64_t size_bytes,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A part of the last tensor whose elements lie apart or are flipped: the first is at the offset.
 * Contiguous strides are no layout. */
enum cairn_code cairn_assembly_add_view(struct cairn_assembly *assembly,
                                        const struct cairn_assembly_piece *piece,
                                        const uint64_t *stride, const struct cairn_box *box,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* The next elements of a part of the last tensor, which lie one behind the other in an input: those
 * of `box` from its element `first` on. Parts come in any order; of one tensor all are such. */
enum cairn_code cairn_assembly_add_box(struct cairn_assembly *assembly,
                                       const struct cairn_assembly_piece *piece,
                                       const struct cairn_box *box, uint64_t first,
                                       struct cairn_error *err) CAIRN_MUST_USE;
/* Another name of a tensor that was added. */
enum cairn_code cairn_assembly_add_alias(struct cairn_assembly *assembly, const char *name,
                                         size_t of, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_add_object(struct cairn_assembly *assembly, const char *name,
                                          const struct cairn_assembly_piece *piece,
                                          bool holds_tensors,
                                          struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_leave_out(struct cairn_assembly *assembly, const char *name,
                                         const char *why, struct cairn_error *err) CAIRN_MUST_USE;
enum cairn_code cairn_assembly_leave_out_file(struct cairn_assembly *assembly, const char *name,
                                              const char *why,
                                              struct cairn_error *err) CAIRN_MUST_USE;
/* A text of a header of safetensors. A key that has another text already keeps that, and the text
 * of this file is left out by key and file. */
enum cairn_code cairn_assembly_add_text(struct cairn_assembly *assembly, const char *key,
                                        const char *text, const char *file,
                                        struct cairn_error *err) CAIRN_MUST_USE;
/* All pieces of a tensor of another assembly become those of the last tensor, of the same shape. */
enum cairn_code cairn_assembly_copy_pieces(const struct cairn_assembly *from,
                                           const struct cairn_assembly_tensor *tensor,
                                           struct cairn_assembly *into,
                                           struct cairn_error *err) CAIRN_MUST_USE;
/* Tensor `number` of another assembly, whose inputs outlive this one. An alias of a tensor that was
 * not taken before becomes a tensor of its own. */
enum cairn_code cairn_assembly_take(const struct cairn_assembly *from, size_t number,
                                    struct cairn_assembly *into,
                                    struct cairn_error *err) CAIRN_MUST_USE;
/* What else another assembly has: inputs of its own, what it left out, its objects. */
enum cairn_code cairn_assembly_take_rest(struct cairn_assembly *from, struct cairn_assembly *into,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* A value of a class that is known by its name alone. */
enum cairn_code cairn_assembly_leave_out_opaque(struct cairn_assembly *assembly, const char *name,
                                                const char *class, const char *why,
                                                struct cairn_error *err) CAIRN_MUST_USE;
/* After the check: names of one and the same range of a file become aliases of the first. */
enum cairn_code cairn_assembly_join_same(struct cairn_assembly *assembly,
                                         struct cairn_error *err) CAIRN_MUST_USE;
/* The pieces of a tensor whose elements lie apart become its runs, in order. CAIRN_UNSUPPORTED:
 * there are more than a million. */
enum cairn_code cairn_assembly_unroll(struct cairn_assembly *assembly, size_t tensor,
                                      struct cairn_error *err) CAIRN_MUST_USE;
/* Checksums of another assembly, whose inputs become this one's. */
enum cairn_code cairn_assembly_copy_seals(struct cairn_assembly *assembly,
                                          const struct cairn_assembly *from,
                                          struct cairn_error *err) CAIRN_MUST_USE;
/* A tensor with bytes in that range; NULL: there is none. */
const char *cairn_assembly_tensor_in(const struct cairn_assembly *assembly,
                                     const struct cairn_seal *seal);
/* After all reads: ranges whose checksum could not be compared meanwhile are read for it, and of
 * those of which the greater part was read what is left, up to 1 MiB. */
enum cairn_code cairn_assembly_settle(const struct cairn_assembly *assembly,
                                      struct cairn_error *err) CAIRN_MUST_USE;
bool cairn_assembly_find(const struct cairn_assembly *assembly, const char *name, size_t *ret);
/* After the last: are promises 1 and 2 kept? Boxes that are runs of the tensor become pieces in its
 * order. */
enum cairn_code cairn_assembly_check(struct cairn_assembly *assembly,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* `size` bytes of a tensor that is no alias, from byte `from` on; they lie in it, and begin and end
 * with an element. */
enum cairn_code cairn_assembly_read(const struct cairn_assembly *assembly,
                                    const struct cairn_assembly_tensor *tensor, uint64_t from,
                                    char *into, uint64_t size,
                                    struct cairn_error *err) CAIRN_MUST_USE;
