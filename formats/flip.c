/* SPDX-License-Identifier: Apache-2.0 */
/* Signs of elements, by what a type's parts are. */
#include "formats/flip.h"

#include "api/table/table.h"
#include "formats/assembly.h"

/* The width of a sign-and-magnitude number, or of one part of a complex one; 0: it is none. */
static unsigned float_bytes(unsigned dtype) {
    switch (dtype) {
    case CAIRN_DTYPE_F8_E5M2:
    case CAIRN_DTYPE_F8_E4M3:
        return 1;
    case CAIRN_DTYPE_F16:
    case CAIRN_DTYPE_BF16:
    case CAIRN_DTYPE_C32:
        return 2;
    case CAIRN_DTYPE_F32:
    case CAIRN_DTYPE_C64:
        return 4;
    case CAIRN_DTYPE_F64:
    case CAIRN_DTYPE_C128:
        return 8;
    default:
        return 0;
    }
}

static unsigned integer_bytes(unsigned dtype) {
    switch (dtype) {
    case CAIRN_DTYPE_I8:
    case CAIRN_DTYPE_U8:
        return 1;
    case CAIRN_DTYPE_I16:
    case CAIRN_DTYPE_U16:
        return 2;
    case CAIRN_DTYPE_I32:
    case CAIRN_DTYPE_U32:
        return 4;
    case CAIRN_DTYPE_I64:
    case CAIRN_DTYPE_U64:
        return 8;
    default:
        return 0;
    }
}

static bool is_complex(unsigned dtype) {
    return dtype == CAIRN_DTYPE_C32 || dtype == CAIRN_DTYPE_C64 || dtype == CAIRN_DTYPE_C128;
}

/* Little-endian: the sign is in the last byte. */
static void flip_signs(uint8_t *bytes, size_t size, unsigned width, unsigned first, unsigned step) {
    for (size_t i = (size_t)first * width; i + width <= size; i += (size_t)step * width)
        bytes[i + width - 1] ^= 0x80;
}

static void negate(uint8_t *bytes, size_t size, unsigned width) {
    for (size_t i = 0; i + width <= size; i += width) {
        uint64_t number = 0;
        memcpy(&number, bytes + i, width);
        number = 0 - number;
        memcpy(bytes + i, &number, width);
    }
}

/* 0x80 is the only one that is not a number, and there is no zero with a sign. */
static void flip_fnuz(uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i] & 0x7f) bytes[i] ^= 0x80;
}

bool cairn_flip(unsigned dtype, void *bytes, size_t size, unsigned parts) {
    unsigned floats = float_bytes(dtype), integers = integer_bytes(dtype);
    bool fnuz = dtype == CAIRN_DTYPE_F8_E4M3FNUZ || dtype == CAIRN_DTYPE_F8_E5M2FNUZ;
    bool two = is_complex(dtype);
    if (!parts) return true;
    if (floats && parts & CAIRN_ASSEMBLY_FLIP_REAL) flip_signs(bytes, size, floats, 0, two ? 2 : 1);
    if (two && parts & CAIRN_ASSEMBLY_FLIP_IMAGINARY) flip_signs(bytes, size, floats, 1, 2);
    if (integers) negate(bytes, size, integers);
    if (fnuz) flip_fnuz(bytes, size);
    return floats || integers || fnuz;
}
