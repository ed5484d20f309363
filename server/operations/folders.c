/* SPDX-License-Identifier: Apache-2.0 */
/* One component after the other, from the folder that the operator named; see folders.h. */
#include "server/operations/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file.h"
#include "common/text.h"
#include "server/settings.h"

#define DEPTH_MAX 64

void cairn_srv_place_release(struct cairn_srv_place *place) {
    if (place->folder_fd >= 0) close(place->folder_fd);
    place->folder_fd = -1;
}

/* What of the path lies behind this folder; NULL: it is not in it. */
static const char *behind(const char *path, const char *folder, size_t size) {
    while (size > 1 && folder[size - 1] == '/') size--;
    if (strncmp(path, folder, size) != 0) return NULL;
    if (size == 1) return path + 1; /* the root */
    if (path[size] != '/' && path[size] != '\0') return NULL;
    return path + size + (path[size] == '/');
}

/* One folder of the setting for this project. *ret_fixed: of so many bytes the operator has given
 * the names himself, and may have given links; where {project} begins, anybody may have. */
static bool expand(const char *folder, size_t size, const char *project, char ret[PATH_MAX],
                   size_t *ret_fixed) {
    const size_t mark = sizeof(CAIRN_SRV_FOLDERS_PROJECT) - 1;
    size_t used = 0;
    bool fixed = true;
    for (size_t i = 0; i < size;) {
        bool here = size - i >= mark && !memcmp(folder + i, CAIRN_SRV_FOLDERS_PROJECT, mark);
        const char *from = here ? project : folder + i;
        size_t some = here ? strlen(project) : 1;
        if (used + some >= PATH_MAX) return false;
        memcpy(ret + used, from, some);
        used += some;
        i += here ? mark : 1;
        if (here && fixed) {
            fixed = false;
            for (*ret_fixed = used; ret[*ret_fixed - 1] != '/';) (*ret_fixed)--;
        }
    }
    ret[used] = '\0';
    if (fixed) *ret_fixed = used;
    return true;
}

/* The first folder of the setting that the path lies in. *ret_rest: of the path, behind root. */
static enum cairn_code find_root(const struct cairn_srv_folders *allowed, const char *path,
                                 char root[PATH_MAX], const char **ret_rest,
                                 struct cairn_error *err) {
    if (!allowed->folders[0])
        return cairn_fail(err, CAIRN_FORBIDDEN,
                          "this server opens no path of its machine for that: the operator names "
                          "the folders with its setting %s",
                          allowed->setting);
    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return cairn_fail(err, CAIRN_INVALID,
                          "/path: want the whole path on the server's machine, from / on");
    for (const char *at = allowed->folders; *at;) {
        size_t size = strcspn(at, ","), fixed = 0;
        bool fits = size && expand(at, size, allowed->project, root, &fixed);
        if (fits && behind(path, root, strlen(root))) {
            *ret_rest = behind(path, root, fixed);
            root[fixed] = '\0';
            return CAIRN_OK;
        }
        at += size + (at[size] == ',');
    }
    return cairn_fail(err, CAIRN_FORBIDDEN, "/path: it is in no folder of the setting %s",
                      allowed->setting);
}

/* What is not there, and what the server may not see, are the caller's mistakes. */
static enum cairn_code refuse(const char *name, struct cairn_error *err) {
    if (errno == ENOENT || errno == ENOTDIR)
        return cairn_fail(err, CAIRN_NOT_FOUND, "/path: there is no %s", name);
    if (errno == EACCES || errno == EPERM)
        return cairn_fail(err, CAIRN_FORBIDDEN, "/path: the server may not open %s", name);
    return cairn_fail_errno(err, "/path: %s", name);
}

/* A component is a folder, or the last one a file; a link is neither. */
static enum cairn_code step(int at_fd, const char *name, bool last, bool make,
                            struct cairn_srv_place *ret, struct cairn_error *err) {
    struct stat status;
    if (!strcmp(name, ".."))
        return cairn_fail(err, CAIRN_INVALID, "/path: \"..\" is not followed");
    if (make && mkdirat(at_fd, name, 0777) && errno != EEXIST) return refuse(name, err);
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        ret->folder_fd = fd;
        return CAIRN_OK;
    }
    if (fstatat(at_fd, name, &status, AT_SYMLINK_NOFOLLOW))
        return refuse(name, err);
    if (S_ISLNK(status.st_mode))
        return cairn_fail(err, CAIRN_INVALID, "/path: %s is a link, and none is followed", name);
    if (S_ISDIR(status.st_mode))
        return cairn_fail(err, CAIRN_FORBIDDEN, "/path: the server may not open %s", name);
    if (!last || !S_ISREG(status.st_mode) || make)
        return cairn_fail(err, CAIRN_INVALID, "/path: %s is no folder%s", name,
                          last && !make ? " and no file" : "");
    if (!cairn_text_copy(ret->name, sizeof(ret->name), name))
        return cairn_fail(err, CAIRN_INVALID, "/path: a name is longer than 255 bytes");
    ret->folder_fd = fcntl(at_fd, F_DUPFD_CLOEXEC, 0);
    return ret->folder_fd < 0 ? cairn_fail_errno(err, "/path: %s", name) : CAIRN_OK;
}

enum cairn_code cairn_srv_place_open(const struct cairn_srv_folders *allowed, const char *path,
                                     struct cairn_srv_place *ret, struct cairn_error *err) {
    char root[PATH_MAX], rest[PATH_MAX];
    const char *from = NULL;
    *ret = (struct cairn_srv_place){.folder_fd = -1};
    CAIRN_TRY(find_root(allowed, path, root, &from, err));
    (void)cairn_text_copy(rest, sizeof(rest), from);
    struct cairn_srv_place at = {.folder_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (at.folder_fd < 0)
        return cairn_fail_errno(err, "%s, which the setting %s names", root, allowed->setting);
    char *left = rest;
    enum cairn_code code = CAIRN_OK;
    for (char *name; !code && (name = strsep(&left, "/"));) {
        if (!*name || !strcmp(name, ".")) continue;
        struct cairn_srv_place next = {.folder_fd = -1};
        code = step(at.folder_fd, name, !left || !left[strspn(left, "/")], allowed->make, &next,
                    err);
        cairn_srv_place_release(&at);
        at = next;
    }
    if (code)
        cairn_srv_place_release(&at);
    else
        *ret = at;
    return code;
}

static enum cairn_code look_below(int folder_fd, unsigned depth, struct cairn_error *err) {
    DIR *stream = fdopendir(folder_fd);
    if (!stream) {
        enum cairn_code code = cairn_fail_errno(err, "/path");
        close(folder_fd);
        return code;
    }
    enum cairn_code code = depth < DEPTH_MAX
                               ? CAIRN_OK
                               : cairn_fail(err, CAIRN_INVALID, "/path: folders are too deep");
    for (struct dirent *entry; !code && (entry = readdir(stream));) {
        struct stat status;
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        if (fstatat(dirfd(stream), name, &status, AT_SYMLINK_NOFOLLOW)) {
            code = cairn_fail_errno(err, "/path: %s", name);
        } else if (S_ISLNK(status.st_mode)) {
            code = cairn_fail(err, CAIRN_INVALID,
                              "/path: %s is a link in it, and none is followed", name);
        } else if (S_ISDIR(status.st_mode)) {
            int fd = openat(dirfd(stream), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            code = fd < 0 ? cairn_fail_errno(err, "/path: %s", name)
                          : look_below(fd, depth + 1, err);
        }
    }
    closedir(stream);
    return code;
}

enum cairn_code cairn_srv_place_has_no_link(const struct cairn_srv_place *place,
                                            struct cairn_error *err) {
    if (place->name[0]) return CAIRN_OK;
    int fd = openat(place->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? cairn_fail_errno(err, "/path") : look_below(fd, 0, err);
}
