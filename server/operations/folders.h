/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folders: paths on the server's machine that a caller may name.
 *
 * Why:     whoever may import or export names a path, and the server may read and write more than
 *          he may.
 * Promise: O01  a path is opened only where it lies in a folder that the settings name, and no link
 *               and no ".." on the way from there is followed, nor one that is put there meanwhile.
 *          1    without such a setting nothing is opened, and the answer names the setting.
 *          2    {project} in the setting stands for the caller's project: below that folder lies
 *               what belongs to it, and from that component on no link is followed either.
 * Limits:  paths of 4,095 bytes.
 * Threads: stateless.
 * Next:    server/operations/operations_job.h.
 */
#pragma once

#include "common/error.h"

struct cairn_srv_place {
    int folder_fd;   /* of the folder, or of the folder of the file */
    char name[256];  /* of the file in it; "": it is a folder */
};
void cairn_srv_place_release(struct cairn_srv_place *place);
/* setting: its name, folders: its value, with commas between; project: of the run that is read or
 * written. make: folders that are missing are made. CAIRN_FORBIDDEN: it lies in none of them;
 * CAIRN_NOT_FOUND; CAIRN_INVALID: a link, or something else than a file or a folder. */
struct cairn_srv_folders {
    const char *setting, *folders, *project;
    bool make;
};
enum cairn_code cairn_srv_place_open(const struct cairn_srv_folders *allowed, const char *path,
                                     struct cairn_srv_place *ret,
                                     struct cairn_error *err) CAIRN_MUST_USE;
/* No link stands anywhere below it: none of them could be followed by who reads it. */
enum cairn_code cairn_srv_place_has_no_link(const struct cairn_srv_place *place,
                                            struct cairn_error *err) CAIRN_MUST_USE;
