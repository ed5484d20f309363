/* SPDX-License-Identifier: Apache-2.0 */
/* POST {R}/imports and POST {C}/exports run `cairn import` and `cairn export` as operations on the
 * server's machine; checks of the paths there that a caller names.
 *  O01  A path is opened only within a folder of the settings; no link and no ".." below it is
 *     followed, also if a link is created meanwhile. Without such a setting nothing is opened, and
 *     the error names the setting.
 *  1  {project} in the setting stands for the caller's project: its data lies below that folder,
 *     and from that component on no link is followed either. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "common/log.h"
#include "server/ledger/versions.h"
#include "server/operations/operations.h"

/* ---- paths named by callers ---- */

#define DEPTH_MAX 64

struct folders {
    const char *setting, *folders; /* name and value, separated by commas */
    const char *project;
    bool make;
};

/* The rest of the path below the folder; NULL: not in it. */
static const char *behind(const char *path, const char *folder, size_t size) {
    while (size > 1 && folder[size - 1] == '/') size--;
    if (strncmp(path, folder, size) != 0) return NULL;
    if (size == 1) return path + 1;
    if (path[size] != '/' && path[size] != '\0') return NULL;
    return path + size + (path[size] == '/');
}

/* Expands a folder of the setting for this project. *ret_fixed: length of the prefix that the
 * operator named and where links are allowed; from {project} on, others may have created links. */
static bool expand_folder(const char *folder, size_t size, const char *project, char ret[PATH_MAX],
                          size_t *ret_fixed) {
    const size_t mark = sizeof(SRV_FOLDERS_PROJECT) - 1;
    size_t used = 0;
    bool fixed = true;
    for (size_t i = 0; i < size;) {
        bool here = size - i >= mark && !memcmp(folder + i, SRV_FOLDERS_PROJECT, mark);
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

/* Finds the first configured folder that contains the path. *ret_rest: the path below root. */
static enum cairn_code find_root(const struct folders *allowed, const char *path,
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
        bool fits = size && expand_folder(at, size, allowed->project, root, &fixed);
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

/* Missing and inaccessible files are the caller's mistakes. */
static enum cairn_code say_refused(const char *name, struct cairn_error *err) {
    if (errno == ENOENT || errno == ENOTDIR)
        return cairn_fail(err, CAIRN_NOT_FOUND, "/path: there is no %s", name);
    if (errno == EACCES || errno == EPERM)
        return cairn_fail(err, CAIRN_FORBIDDEN, "/path: the server may not open %s", name);
    return cairn_fail_errno(err, "/path: %s", name);
}

/* Opens a folder, or as last component a file; refuses a link. */
static enum cairn_code open_component(int at_fd, const char *name, bool last, bool make,
                                      struct srv_place *ret, struct cairn_error *err) {
    struct stat status;
    if (!strcmp(name, "..")) return cairn_fail(err, CAIRN_INVALID, "/path: \"..\" is not followed");
    if (make && mkdirat(at_fd, name, 0777) && errno != EEXIST) return say_refused(name, err);
    int fd = openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        ret->folder_fd = fd;
        return CAIRN_OK;
    }
    if (fstatat(at_fd, name, &status, AT_SYMLINK_NOFOLLOW)) return say_refused(name, err);
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

/* make: creates missing folders. CAIRN_FORBIDDEN: in none of the configured folders;
 * CAIRN_NOT_FOUND; CAIRN_INVALID: a link, or neither file nor folder. */
static enum cairn_code open_place(const struct folders *allowed, const char *path,
                                  struct srv_place *ret, struct cairn_error *err) {
    char root[PATH_MAX], rest[PATH_MAX];
    const char *from = NULL;
    *ret = (struct srv_place){.folder_fd = -1};
    CAIRN_TRY(find_root(allowed, path, root, &from, err));
    (void)cairn_text_copy(rest, sizeof(rest), from);
    struct srv_place at = {.folder_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (at.folder_fd < 0)
        return cairn_fail_errno(err, "%s, which the setting %s names", root, allowed->setting);
    char *left = rest;
    enum cairn_code code = CAIRN_OK;
    for (char *name; !code && (name = strsep(&left, "/"));) {
        if (!*name || !strcmp(name, ".")) continue;
        struct srv_place next = {.folder_fd = -1};
        code = open_component(at.folder_fd, name, !left || !left[strspn(left, "/")], allowed->make,
                              &next, err);
        srv_place_release(&at);
        at = next;
    }
    if (code)
        srv_place_release(&at);
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
            code = cairn_fail(err, CAIRN_INVALID, "/path: %s is a link in it, and none is followed",
                              name);
        } else if (S_ISDIR(status.st_mode)) {
            int fd = openat(dirfd(stream), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            code =
                fd < 0 ? cairn_fail_errno(err, "/path: %s", name) : look_below(fd, depth + 1, err);
        }
    }
    closedir(stream);
    return code;
}

/* Refuses a link anywhere below the folder. */
static enum cairn_code check_no_link(const struct srv_place *place, struct cairn_error *err) {
    if (place->name[0]) return CAIRN_OK;
    int fd = openat(place->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? cairn_fail_errno(err, "/path") : look_below(fd, 0, err);
}

/* One word for each argument, its value after '=': no value is taken for a flag. */
static void add_argument(json_t *arguments, const char *format, ...) CAIRN_PRINTF(2, 3);
static void add_argument(json_t *arguments, const char *format, ...) {
    va_list values;
    va_start(values, format);
    json_array_append_new(arguments, json_vsprintf(format, values));
    va_end(values);
}

static enum cairn_code check_word(const char *name, const char *given, const char *const *known,
                                  size_t count, struct cairn_error *err) {
    CAIRN_AUTO(buf) words = {0};
    for (size_t i = 0; i < count; i++) {
        if (!strcmp(given, known[i])) return CAIRN_OK;
        const char *between = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        CAIRN_TRY(cairn_buf_printf(&words, err, "%s%s", between, known[i]));
    }
    return cairn_fail(err, CAIRN_INVALID, "/%s: \"%s\" is not known: %s", name, given, words.data);
}

/* Begins the operation, or shows the running one with the same request. */
static enum cairn_code begin_operation(struct srv_request *request, struct srv_operation_wish *wish,
                                       struct srv_reply *reply, struct cairn_error *err) {
    char id[SRV_OPERATION_BYTES];
    bool made = false;
    wish->name = &request->params.run_name;
    wish->caller = &request->caller;
    enum cairn_code code = srv_operation_begin(request->server, wish, id, &made, err);
    srv_place_release(&wish->place);
    if (code) return code;
    if (made)
        cairn_log(INFO, "operation.begun", "operation=%s kind=%s run=%s/%s", id, wish->kind,
                  wish->name->project, wish->name->run);
    return srv_reply_begun(request, id, reply, err);
}

/* ---- POST {R}/imports ---- */

static json_t *import_arguments(const struct srv_request *request,
                                const struct cairn_msg_import_begin *said,
                                const struct srv_place *place) {
    json_t *arguments = json_array();
    const struct cairn_run_name *name = &request->params.run_name;
    add_argument(arguments, "import");
    add_argument(arguments, "--no-links");
    add_argument(arguments, "--store=%s", cairn_store_url(request->server->store));
    /* ignore an uploader of another server */
    add_argument(arguments, "--socket=/proc/self/no-uploader");
    if (said->new_version) add_argument(arguments, "--new-version");
    if (said->latest) add_argument(arguments, "--latest");
    if (said->labels) {
        CAIRN_AUTO(buf) labels = {0};
        if (!cairn_json_dump(said->labels, &labels, NULL))
            add_argument(arguments, "--labels=%s", labels.data);
    }
    add_argument(arguments, "--");
    add_argument(arguments, "%s", said->kind);
    add_argument(arguments, "./%s", place->name);
    add_argument(arguments, "%s/%s@%" PRIu64, name->project, name->run, said->step);
    return arguments;
}

SRV_HANDLER(import_begin) {
    static const char *const kinds[] = {
#define KIND(kind) #kind,
#include "formats/formats.def"
    };
    struct srv_operation_wish wish = {.kind = "import", .inside = true, .sends = true};
    const struct folders allowed = {"import-folders", request->server->settings->import_folders,
                                    request->params.run_name.project, false};
    CAIRN_TRY(srv_thawed(request->server, err));
    SRV_BODY(body, import_begin, said, 1000);
    CAIRN_TRY(check_word("kind", said.kind, kinds, CAIRN_COUNT(kinds), err));
    CAIRN_TRY(open_place(&allowed, said.path, &wish.place, err));
    enum cairn_code code = check_no_link(&wish.place, err);
    if (code) {
        srv_place_release(&wish.place);
        return code;
    }
    CAIRN_AUTO_JSON json_t *arguments = import_arguments(request, &said, &wish.place);
    wish.arguments = arguments;
    wish.request = body;
    wish.path = said.path;
    return begin_operation(request, &wish, reply, err);
}

/* ---- POST {C}/exports ---- */

static enum cairn_code find_version(const struct srv_request *request, struct cairn_version_id *ret,
                                    struct cairn_error *err) {
    const struct srv_ref ref = {&request->params.run_name, request->params.ref, false};
    SRV_LOOK(look, request->server->catalog, err);
    SRV_GET(version, version, srv_version_find(look.tx, &ref, &version, err));
    CAIRN_TRY(srv_version_there(&version, err));
    *ret = version.id;
    if (srv_version_shown(&version) == CAIRN_STATE_COMMITTED) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_COMMITTED, "%s is %s: what is committed can be exported",
                      version.id.text, cairn_state_text(srv_version_shown(&version)));
}

static json_t *export_arguments(const struct cairn_run_name *name,
                                const struct cairn_version_id *version,
                                const struct cairn_msg_export_begin *said) {
    json_t *arguments = json_array();
    add_argument(arguments, "export");
    /* a repeat after the server died may find the export complete */
    add_argument(arguments, "--same");
    if (said->to) add_argument(arguments, "--to=%s", said->to);
    if (said->dtype) add_argument(arguments, "--dtype=%s", said->dtype);
    if (said->max_shard_bytes)
        add_argument(arguments, "--max-shard-size=%" PRIu64, said->max_shard_bytes);
    if (said->only) add_argument(arguments, "--only=%s", said->only);
    if (said->strip_prefix) add_argument(arguments, "--strip-prefix=%s", said->strip_prefix);
    if (said->rename) add_argument(arguments, "--rename=%s", said->rename);
    if (said->exclude_frozen) add_argument(arguments, "--exclude-frozen");
    if (said->copy_tied) add_argument(arguments, "--copy-tied");
    if (said->optimizer) add_argument(arguments, "--optimizer");
    if (said->workers) add_argument(arguments, "--workers=%" PRIu64, said->workers);
    add_argument(arguments, "--");
    add_argument(arguments, "%s/%s@%s", name->project, name->run, version->text);
    add_argument(arguments, SRV_OPERATION_FOLDER);
    return arguments;
}

SRV_HANDLER(export_begin) {
    static const char *const forms[] = {
#define EXPORT_FORM(id, word, stem, end, index, always) word,
#include "formats/formats.def"
    };
    static const char *const dtypes[] = {"keep", "fp32", "bf16", "fp16"};
    struct cairn_version_id version = {""};
    struct srv_operation_wish wish = {.kind = "export"};
    const struct folders allowed = {"export-folders", request->server->settings->export_folders,
                                    request->params.run_name.project, true};
    CAIRN_TRY(srv_thawed(request->server, err));
    if (!srv_caller_may(&request->caller, CAIRN_SCOPE_READ, request->params.run_name.project))
        return cairn_fail(err, CAIRN_FORBIDDEN, "the token %s lacks the scope read",
                          request->caller.who);
    SRV_BODY(body, export_begin, said, 100);
    if (said.to) CAIRN_TRY(check_word("to", said.to, forms, CAIRN_COUNT(forms), err));
    if (said.dtype) CAIRN_TRY(check_word("dtype", said.dtype, dtypes, CAIRN_COUNT(dtypes), err));
    CAIRN_TRY(find_version(request, &version, err));
    CAIRN_TRY(open_place(&allowed, said.path, &wish.place, err));
    CAIRN_AUTO_JSON json_t *arguments =
        export_arguments(&request->params.run_name, &version, &said);
    json_object_set_new(body, "version", json_string(version.text));
    wish.arguments = arguments;
    wish.request = body;
    wish.path = said.path;
    return begin_operation(request, &wish, reply, err);
}
