/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk: runs over a document and reports each element by its path; for xml.c and s3/bucket.c.
 *
 * Why:     every reader of an S3 answer needs the same bounds and the same few events.
 * Promise: 1   xml.h#1 and xml.h#3; `started` and `ended` are called only for documents with the
 *              wanted root, in document order.
 * Limits:  as in store/xml/xml.h; paths of 255 bytes.
 * Threads: stateless.
 * Next:    store/xml/xml.c.
 */
#pragma once

#include "common/buf.h"

#define CAIRN_XML_ELEMENTS_MAX 200000 /* of one document */

struct cairn_xml_walk {
    const char *root; /* wanted name of the outermost element */
    /* path: "Root/Child/Leaf". A code other than CAIRN_OK ends the walk. Either may be NULL. */
    enum cairn_code (*started)(void *owner, const char *path, struct cairn_error *err);
    enum cairn_code (*ended)(void *owner, const char *path, const char *text,
                             struct cairn_error *err);
    void *owner;
};
enum cairn_code cairn_xml_walk_run(const struct cairn_xml_walk *walk, struct cairn_view text,
                                   struct cairn_error *err) CAIRN_MUST_USE;
