/* SPDX-License-Identifier: Apache-2.0 */
/* profile: what is known of the makes of store, one row each. */
#include "tests/support/s3fault/server.h"

#define PART_MIN (5 * CAIRN_MIB)
#define GONE "NoSuchUpload"

/* clang-format off */
/* sums: checks, keeps and tells CRC32C; full: of whole objects made of parts, too; put, cmpl: honours
 * If-None-Match on Put, on Complete; again: a second Complete is answered as the first was; some:
 * parts may be left out; pre: lists uploads by prefix; reg: checks the region; equal: parts of one
 * size; no sum, no if: the status that refuses any header of checksums (x-amz-checksum-mode of a HEAD,
 * too), any If-None-Match on a write; gone: the
 * code of ListParts after an abort. Broken, of kinds that were met: objs, upls: objects, uploads are
 * listed whatever was asked for; rep: a listing begins anew for ever; crc32: of an object made of
 * parts the CRC32 is told as its CRC32C; root: the wrong name around a list of parts. */
#define ROW(name, parts, sums, full, put, cmpl, again, some, pre, reg, equal, no_sum, no_if, gone,  \
            objs, upls, rep, crc32, root)                                                          \
    {name, PART_MIN, parts, sums, no_sum, full, put, cmpl, no_if, again, some, pre, objs, upls,    \
     rep, equal, reg, crc32, root, gone}
static const struct s3f_profile profiles[] = {
    /*   name           parts  sums full put cmpl again some pre reg equal no sum no if  gone        objs upls rep crc32 root */
    ROW("aws",          10000, 1,   1,   1,  1,   1,    1,   1,  1,  0,    0,     0,   GONE,         0,   0,   0,  0,    ""),
    ROW("minio",        10000, 1,   1,   1,  1,   0,    1,   0,  0,  0,    0,     0,   GONE,         0,   0,   0,  0,    ""),
    ROW("r2",           10000, 1,   0,   1,  0,   0,    1,   1,  0,  1,    0,     0,   GONE,         0,   0,   0,  0,    ""),
    ROW("b2",           10000, 0,   0,   0,  0,   0,    1,   1,  1,  0,    400,   501, GONE,         0,   0,   0,  0,    ""),
    ROW("parts1000",     1000, 1,   1,   1,  1,   0,    1,   1,  0,  0,    0,     0,   GONE,         0,   0,   0,  0,    ""),
    ROW("radosgw",      10000, 0,   0,   1,  0,   1,    0,   1,  0,  0,    0,     0,   "NoSuchKey",  0,   0,   0,  0,    ""),
    ROW("moto",         10000, 0,   0,   1,  1,   0,    1,   1,  0,  0,    0,     0,   GONE,         0,   0,   0,  1,    "ListPartsResponse"),
    ROW("noprefix",     10000, 1,   1,   1,  1,   0,    1,   1,  0,  0,    0,     0,   GONE,         1,   0,   0,  0,    ""),
    ROW("alluploads",   10000, 1,   1,   1,  1,   0,    1,   1,  0,  0,    0,     0,   GONE,         0,   1,   0,  0,    ""),
    ROW("repeatpages",  10000, 1,   1,   1,  1,   0,    1,   1,  0,  0,    0,     0,   GONE,         0,   0,   1,  0,    ""),
};
/* clang-format on */

const struct s3f_profile *s3f_profile_find(const char *name) {
    for (size_t i = 0; i < CAIRN_COUNT(profiles); i++)
        if (!strcmp(profiles[i].name, name)) return &profiles[i];
    return NULL;
}
