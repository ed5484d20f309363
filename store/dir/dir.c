/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a folder as a store and runs its requests in turns. */
#include "store/dir/dir.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/hooks.h"
#include "common/memory.h"
#include "common/text.h"
#include "store/dir/inside.h"
#include "store/range.h"

#define PART_COUNT_MAX 10000
#define PART_BYTES_MAX (64 * CAIRN_GIB)
/* Two requests a worker: the processor sums one while the other's bytes are written. */
#define APPETITE 2
/* Turns run this long between checks of the queue: small requests are not worth one each. */
#define TURNS_MS 5
#define FAILING_MS 5000         /* a store that fails for this long is reported ... */
#define FAILING_STALE_MS 120000 /* ... unless nothing has been written for this long */

static const struct cairn_store_vtable vtable;

static bool has_openat2(int root_fd) {
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, root_fd, ".", &how, sizeof how);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Appends a sentence about a shortcoming of this file system. */
static void add_note(struct cairn_store_dir *dir, const char *text) {
    char *at = dir->base.profile.note;
    size_t used = strlen(at), room = sizeof dir->base.profile.note;
    snprintf(at + used, room - used, "%s%s", used ? "; " : "", text);
}

/* Tests with a file: extended attributes, O_DIRECT, links. */
static enum cairn_code profile_from_file(struct cairn_store_dir *dir, struct cairn_error *err) {
    char uuid[CAIRN_UUID_TEXT_BYTES];
    char name[CAIRN_STORE_DIR_TEMPORARY_BYTES], other[CAIRN_STORE_DIR_TEMPORARY_BYTES];
    cairn_uuid_random(uuid);
    cairn_store_dir_temporary(uuid, name);
    cairn_uuid_random(uuid);
    cairn_store_dir_temporary(uuid, other);
    struct cairn_file file = {0};
    CAIRN_TRY(cairn_file_create(dir->root_fd, name, 0, &file, err));
    dir->base.profile.head_has_token =
        fsetxattr(file.fd, CAIRN_STORE_DIR_XATTR_UPLOAD, uuid, strlen(uuid), 0) == 0;
    if (file.direct_fd < 0) add_note(dir, "no O_DIRECT, so bytes go through the page cache");
    bool links = linkat(dir->root_fd, name, dir->root_fd, other, 0) == 0;
    int os_errno = errno;
    cairn_file_release(&file);
    unlinkat(dir->root_fd, name, 0);
    unlinkat(dir->root_fd, other, 0);
    if (links) return CAIRN_OK;
    return cairn_fail_at(err, CAIRN_UNSUPPORTED, os_errno, CAIRN_ORIGIN,
                         "this file system has no hard links, which publishing needs");
}

static enum cairn_code find_profile(struct cairn_store_dir *dir, struct cairn_error *err) {
    dir->base.profile = (struct cairn_store_profile){.leaves_temporaries = true,
                                                     .create_only_put = true,
                                                     .create_only_complete = true,
                                                     .part_checksum = true,
                                                     .lists_uploads = true,
                                                     .lists_part_checksums = true,
                                                     .part_bytes_min = CAIRN_MIB,
                                                     .part_bytes_max = PART_BYTES_MAX,
                                                     .part_count_max = PART_COUNT_MAX,
                                                     .object_bytes_max = INT64_MAX};
    if (dir->read_only) {
        char value[64];
        ssize_t size = fgetxattr(dir->root_fd, CAIRN_STORE_DIR_XATTR_UPLOAD, value, sizeof value);
        dir->base.profile.head_has_token = size >= 0 || errno == ENODATA;
    } else {
        CAIRN_TRY(profile_from_file(dir, err));
    }
    if (!dir->base.profile.head_has_token)
        add_note(dir,
                 "no extended attributes, so after a restart objects are read back to be proven");
    dir->beneath = has_openat2(dir->root_fd);
    dir->together = !dir->read_only && cairn_file_syncs_all(dir->root_fd);
    if (dir->together) dir->base.profile.together_max = CAIRN_STORE_DIR_TOGETHER_MAX;
    if (!dir->beneath) add_note(dir, "no openat2, so paths are opened component by component");
    const char *network = cairn_file_network_fs(dir->root_fd);
    char text[64];
    if (network && snprintf(text, sizeof text, "network file system %s", network) > 0)
        add_note(dir, text);
    return CAIRN_OK;
}

/* Makes only the last folder: a missing parent is more likely a missing mount. */
static enum cairn_code open_root(struct cairn_store_dir *dir, const char *path,
                                 struct cairn_error *err) {
    bool made = !dir->read_only && mkdir(path, dir->folder_mode) == 0;
    if (!dir->read_only && !made && errno != EEXIST)
        return cairn_fail_errno(err, "make the folder %s", path);
    dir->root_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->root_fd < 0) return cairn_fail_errno(err, "open the folder %s", path);
    if (made) (void)!fchmod(dir->root_fd, dir->folder_mode);
    CAIRN_TRY(cairn_dir_sync(dir->root_fd, err));
    return find_profile(dir, err);
}

enum cairn_code cairn_store_dir_open(const struct cairn_store_options *options, const char *path,
                                     struct cairn_store **ret, struct cairn_error *err) {
    struct cairn_store_dir *dir = calloc(1, sizeof *dir);
    if (!dir) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory to open %s", path);
    dir->base.vtable = &vtable;
    dir->clock = options->clock ? options->clock : &cairn_clock_real;
    dir->read_only = options->read_only;
    dir->file_mode = options->file_mode ? options->file_mode : CAIRN_STORE_FILE_MODE;
    dir->folder_mode = cairn_file_mode_folder(dir->file_mode);
    dir->root_fd = -1;
    cairn_lock_init(&dir->lock, CAIRN_LOCK_store_dir);
    enum cairn_code code = CAIRN_OK;
    if (!cairn_text_copy(dir->base.url, sizeof dir->base.url, path))
        code = cairn_fail(err, CAIRN_INVALID, "the path is too long");
    if (code == CAIRN_OK) code = open_root(dir, path, err);
    if (code != CAIRN_OK) {
        cairn_store_free(&dir->base);
        return cairn_within(err, code, "store %s", path);
    }
    *ret = &dir->base;
    return CAIRN_OK;
}

static void dir_free(struct cairn_store *store) {
    struct cairn_store_dir *dir = (struct cairn_store_dir *)store;
    if (dir->root_fd >= 0) close(dir->root_fd);
    free(dir->locked.published);
    cairn_lock_release(&dir->lock);
    free(dir);
}

/* Records whether writes of bytes reach the disk or fail (full, read-only, broken). */
static void note_health(struct cairn_store_dir_worker *worker,
                        const struct cairn_store_request *request, enum cairn_code code,
                        const struct cairn_error *why) {
    struct cairn_store_dir *dir = (struct cairn_store_dir *)worker->base.store;
    bool failed = code == CAIRN_NO_SPACE || code == CAIRN_IO || code == CAIRN_UNAVAILABLE;
    if (request->op != CAIRN_STORE_PUT && request->op != CAIRN_STORE_UPLOAD_PART) return;
    if (code != CAIRN_OK && !failed) return;
    uint64_t now_ms = dir->clock->mono_ms(dir->clock);
    CAIRN_HOLD(&dir->lock);
    if (failed && !dir->locked.failing) dir->locked.failing_since_ms = now_ms;
    dir->locked.failing = failed;
    if (!failed) return;
    dir->locked.failed_ms = now_ms;
    (void)cairn_text_copy(dir->locked.failed, sizeof dir->locked.failed, why->message);
}

static void health(struct cairn_store *base, struct cairn_store_health *ret) {
    struct cairn_store_dir *dir = (struct cairn_store_dir *)base;
    uint64_t now_ms = dir->clock->mono_ms(dir->clock);
    CAIRN_HOLD(&dir->lock);
    uint64_t failing_ms =
        dir->locked.failing ? cairn_passed_ms(now_ms, dir->locked.failing_since_ms) : 0;
    if (failing_ms < FAILING_MS ||
        cairn_passed_ms(now_ms, dir->locked.failed_ms) >= FAILING_STALE_MS)
        return;
    ret->failing_ms = failing_ms;
    (void)cairn_text_copy(ret->failing, sizeof ret->failing, dir->locked.failed);
}

/* ---- a folder that moves: a mount came, or went and left the folder that it had covered ---- */

static bool moved(const struct cairn_store *store) {
    const struct cairn_store_dir *dir = (const struct cairn_store_dir *)store;
    struct stat there, opened;
    if (stat(store->url, &there) != 0 || fstat(dir->root_fd, &opened) != 0) return true;
    return there.st_dev != opened.st_dev || there.st_ino != opened.st_ino;
}

static enum cairn_code follow(struct cairn_store *store, struct cairn_error *err) {
    struct cairn_store_dir *dir = (struct cairn_store_dir *)store;
    CAIRN_AUTO_FD fd = open(store->url, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return cairn_fail_errno(err, "open the folder %s", store->url);
    CAIRN_TRY(cairn_dir_sync(fd, err));
    if (dup3(fd, dir->root_fd, O_CLOEXEC) < 0)
        return cairn_fail_errno(err, "open the folder %s", store->url);
    atomic_fetch_add(&dir->roots, 1);
    return CAIRN_OK;
}

bool cairn_store_dir_can_wait(struct cairn_store_dir_worker *worker) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    if (!dir->together) return false;
    if (worker->sync_fd < 0) {
        CAIRN_AUTO_FD fd = openat(dir->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct stat root;
        if (fd < 0 || fstat(fd, &root) != 0) return false;
        worker->sync_device = root.st_dev;
        worker->sync_fd = fd;
        fd = -1;
    }
    return true;
}

bool cairn_store_dir_covers(const struct cairn_store_dir_worker *worker, int folder_fd) {
    struct stat folder;
    return fstat(folder_fd, &folder) == 0 && folder.st_dev == worker->sync_device;
}

static enum cairn_code worker_new(struct cairn_store *store, struct cairn_store_worker **ret,
                                  struct cairn_error *err) {
    struct cairn_store_dir_worker *worker = calloc(1, sizeof *worker);
    if (!worker) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for a store worker");
    worker->base.store = store;
    TAILQ_INIT(&worker->jobs);
    TAILQ_INIT(&worker->written);
    worker->sync_fd = -1;
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0) {
        enum cairn_code code = cairn_fail_errno(err, "make an event for a store worker");
        free(worker);
        return code;
    }
    *ret = &worker->base;
    return CAIRN_OK;
}

static struct cairn_store_dir_worker *worker_of(struct cairn_store_worker *worker) {
    return (struct cairn_store_dir_worker *)worker;
}

static void submit(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct cairn_store_dir_worker *worker = worker_of(base);
    request->worker_private = NULL;
    if (worker->incoming)
        worker->incoming_last->worker_private = request;
    else
        worker->incoming = request;
    worker->incoming_last = request;
}

static struct cairn_store_request *take_incoming(struct cairn_store_dir_worker *worker) {
    struct cairn_store_request *request = worker->incoming;
    if (request) worker->incoming = request->worker_private;
    return request;
}

/* Removes a request from the incoming list; false: it is not there. */
static bool drop_incoming(struct cairn_store_dir_worker *worker,
                          const struct cairn_store_request *request) {
    struct cairn_store_request *before = NULL;
    for (struct cairn_store_request *at = worker->incoming; at; at = at->worker_private) {
        if (at == request) {
            if (before)
                before->worker_private = at->worker_private;
            else
                worker->incoming = at->worker_private;
            if (worker->incoming_last == at) worker->incoming_last = before;
            return true;
        }
        before = at;
    }
    return false;
}

static struct cairn_store_dir_job *take_job(struct cairn_store_dir_worker *worker) {
    struct cairn_store_dir_job *job = TAILQ_FIRST(&worker->jobs);
    if (job) TAILQ_REMOVE(&worker->jobs, job, place);
    return job;
}

/* The last access to job and request (O4, O5). */
static void finish(struct cairn_store_request *request, struct cairn_store_dir_job *job,
                   enum cairn_code code, const struct cairn_error *why) {
    if (job) {
        if (job->temporary[0]) unlinkat(job->folder_fd, job->temporary, 0);
        cairn_file_release(&job->file);
        if (job->folder_fd >= 0) close(job->folder_fd);
        cairn_pages_unmap(job->scratch, CAIRN_STORE_DIR_STEP_BYTES);
        free(job);
    }
    request->worker_private = NULL;
    request->tries = 1;
    if (code != CAIRN_OK) {
        request->error = *why;
        if (code == CAIRN_IO && cairn_store_is_away(why->os_errno))
            request->error.code = code = CAIRN_UNAVAILABLE; /* inside.h#6 */
        cairn_within(&request->error, code, "object %s", request->key);
    }
    request->code = code;
    request->done(request);
}

/* Small puts together: a file system syncs its journal as a whole, so 512 files of 4 KiB cost one
 * wait for the disk instead of a thousand. Files and folders are closed meanwhile: the sync itself
 * reports failed writes (Linux 5.8 and later), once to each open file of the file system, so each
 * worker opens one. */

/* A folder kept open for consecutive jobs. */
struct open_folder {
    char path[CAIRN_KEY_BYTES_MAX + 1];
    int fd;
};

static enum cairn_code enter_folder(const struct cairn_store_dir *dir, const char *path,
                                    struct open_folder *folder, struct cairn_error *err) {
    if (folder->fd >= 0 && strcmp(folder->path, path) == 0) return CAIRN_OK;
    if (folder->fd >= 0) close(folder->fd);
    folder->fd = -1;
    CAIRN_TRY(cairn_store_dir_folder(dir, path, &folder->fd, err));
    memcpy(folder->path, path, strlen(path) + 1);
    return CAIRN_OK;
}

/* Links the final name, which is durable once the folder is. */
static enum cairn_code name_it(struct cairn_store_dir_worker *worker,
                               struct cairn_store_dir_job *job, struct open_folder *folder,
                               struct cairn_error *err) {
    struct cairn_store_dir_place place;
    CAIRN_TRY(cairn_store_dir_place_of(job->request->key, &place, err));
    CAIRN_TRY(enter_folder(cairn_store_dir_of(worker), place.folder, folder, err));
    enum cairn_code code = cairn_file_link(folder->fd, job->temporary, place.name, err);
    /* The root has moved since the file was written into the old one. */
    if (code == CAIRN_NOT_FOUND)
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store was mounted anew meanwhile");
    if (code == CAIRN_OK) job->temporary[0] = '\0';
    return code;
}

static enum cairn_code sync_all(struct cairn_store_dir_worker *worker, struct cairn_error *err) {
    if (worker->sync_fd < 0) /* the root has moved since they were written */
        return cairn_fail(err, CAIRN_UNAVAILABLE, "the store was mounted anew meanwhile");
    return cairn_file_sync_all(worker->sync_fd, err);
}

/* Removes a put from `written`; a remaining temporary file goes with the job. */
static void take_up(struct cairn_store_dir_worker *worker, struct cairn_store_dir_job *job) {
    struct cairn_store_dir_place place;
    TAILQ_REMOVE(&worker->written, job, place);
    worker->small_puts -= job->counted;
    if (!job->temporary[0] || job->folder_fd >= 0) return;
    if (cairn_store_dir_place_of(job->request->key, &place, NULL) ||
        cairn_store_dir_folder(cairn_store_dir_of(worker), place.folder, &job->folder_fd, NULL))
        job->temporary[0] = '\0';
}

/* Names all written files; a job whose name is refused ends alone, the others continue. */
static void name_all(struct cairn_store_dir_worker *worker, struct open_folder *folder) {
    for (struct cairn_store_dir_job *job = TAILQ_FIRST(&worker->written), *next; job; job = next) {
        struct cairn_error why = {0};
        next = TAILQ_NEXT(job, place);
        enum cairn_code code = name_it(worker, job, folder, &why);
        if (code == CAIRN_OK) continue;
        take_up(worker, job);
        note_health(worker, job->request, code, &why);
        finish(job->request, job, code, &why);
    }
}

/* Ends all puts in `written`; true: there were some. */
static bool end_together(struct cairn_store_dir_worker *worker) {
    struct open_folder folder = {.fd = -1};
    struct cairn_error why = {0};
    struct cairn_store_dir_job *job;
    if (TAILQ_EMPTY(&worker->written)) return false;
    enum cairn_code code = sync_all(worker, &why);
    cairn_store_dir_folders_synced(worker, code == CAIRN_OK);
    if (code == CAIRN_OK) {
        CAIRN_CRASHPOINT("store.dir.synced");
        name_all(worker, &folder);
        code = sync_all(worker, &why);
        CAIRN_CRASHPOINT("store.dir.published");
    }
    while ((job = TAILQ_FIRST(&worker->written))) {
        if (code == CAIRN_OK) {
            struct cairn_store_dir_place place;
            struct stat st;
            if (cairn_store_dir_place_of(job->request->key, &place, NULL) == CAIRN_OK &&
                enter_folder(cairn_store_dir_of(worker), place.folder, &folder, NULL) == CAIRN_OK &&
                fstatat(folder.fd, place.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                cairn_store_dir_remember(worker, &st);
        }
        take_up(worker, job);
        note_health(worker, job->request, code, &why);
        finish(job->request, job, code, &why);
    }
    if (folder.fd >= 0) close(folder.fd);
    return true;
}

static void finish_cancelled(struct cairn_store_request *request, struct cairn_store_dir_job *job) {
    struct cairn_error why = {0};
    enum cairn_code code = cairn_fail(&why, CAIRN_CANCELLED, "cancelled");
    finish(request, job, code, &why);
}

static void cancel(struct cairn_store_worker *base, struct cairn_store_request *request) {
    struct cairn_store_dir_worker *worker = worker_of(base);
    if (drop_incoming(worker, request)) {
        finish_cancelled(request, NULL);
        return;
    }
    struct cairn_store_dir_job *job;
    TAILQ_FOREACH(job, &worker->jobs, place)
        if (job->request == request) break;
    if (job) {
        TAILQ_REMOVE(&worker->jobs, job, place);
        worker->small_puts -= job->counted;
        finish_cancelled(request, job);
        return;
    }
    TAILQ_FOREACH(job, &worker->written, place)
        if (job->request == request) break;
    if (!job) return;
    take_up(worker, job);
    finish_cancelled(request, job);
}

static void worker_free(struct cairn_store_worker *base) {
    struct cairn_store_dir_worker *worker = worker_of(base);
    struct cairn_store_request *request;
    struct cairn_store_dir_job *job;
    while ((request = take_incoming(worker))) finish_cancelled(request, NULL);
    while ((job = take_job(worker))) finish_cancelled(job->request, job);
    while ((job = TAILQ_FIRST(&worker->written))) {
        take_up(worker, job);
        finish_cancelled(job->request, job);
    }
    if (worker->sync_fd >= 0) close(worker->sync_fd);
    close(worker->wake_fd);
    free(worker);
}

static void wake(struct cairn_store_worker *base) {
    struct cairn_store_dir_worker *worker = worker_of(base);
    atomic_store(&worker->woken, true);
    uint64_t one = 1;
    ssize_t size = write(worker->wake_fd, &one, sizeof one);
    (void)size; /* EAGAIN: already awake */
}

static uint32_t appetite(const struct cairn_store_worker *base) {
    (void)base;
    return APPETITE;
}

static enum cairn_code keeps_none(struct cairn_store_dir_worker *worker,
                                  struct cairn_store_dir_job *job, bool *ret_more,
                                  struct cairn_error *err) {
    (void)worker, (void)job, (void)ret_more;
    return cairn_fail(err, CAIRN_UNSUPPORTED, "a folder keeps no versions of what is deleted");
}

static cairn_store_dir_step *const operations[] = {
    [CAIRN_STORE_PUT] = cairn_store_dir_put,
    [CAIRN_STORE_GET] = cairn_store_dir_get,
    [CAIRN_STORE_HEAD] = cairn_store_dir_head,
    [CAIRN_STORE_DELETE] = cairn_store_dir_delete,
    [CAIRN_STORE_DELETE_MANY] = cairn_store_dir_delete_many,
    [CAIRN_STORE_LIST] = cairn_store_dir_list,
    [CAIRN_STORE_UPLOAD_CREATE] = cairn_store_dir_upload_create,
    [CAIRN_STORE_UPLOAD_PART] = cairn_store_dir_upload_part,
    [CAIRN_STORE_UPLOAD_COMPLETE] = cairn_store_dir_upload_complete,
    [CAIRN_STORE_UPLOAD_ABORT] = cairn_store_dir_upload_abort,
    [CAIRN_STORE_UPLOAD_PARTS] = cairn_store_dir_upload_parts,
    [CAIRN_STORE_UPLOADS] = cairn_store_dir_uploads,
    [CAIRN_STORE_VERSIONS] = keeps_none,
};

static enum cairn_code job_step(struct cairn_store_dir_worker *worker,
                                struct cairn_store_dir_job *job, bool *ret_more,
                                struct cairn_error *err) {
    const struct cairn_store_dir *dir = cairn_store_dir_of(worker);
    const struct cairn_store_request *request = job->request;
    CAIRN_ASSERT((size_t)request->op < CAIRN_COUNT(operations));
    if (cairn_store_op_writes(request->op) && dir->read_only)
        return cairn_fail(err, CAIRN_FORBIDDEN, "the store was opened for reading only");
    if (request->deadline_ms && dir->clock->mono_ms(dir->clock) >= request->deadline_ms)
        return cairn_fail(err, CAIRN_TIMEOUT, "the deadline passed after %llu bytes",
                          (unsigned long long)job->moved_bytes);
    enum cairn_code code = operations[request->op](worker, job, ret_more, err);
    job->begun = true;
    return code;
}

/* Queues a job for every new request; true: one ended for lack of memory. */
static bool admit_incoming(struct cairn_store_dir_worker *worker) {
    bool ended = false;
    struct cairn_store_request *request;
    while ((request = take_incoming(worker))) {
        struct cairn_store_dir_job *job = calloc(1, sizeof *job);
        if (!job) {
            struct cairn_error why = {0};
            enum cairn_code code = cairn_fail(&why, CAIRN_NO_MEMORY, "no memory for a request");
            finish(request, NULL, code, &why);
            ended = true;
            continue;
        }
        job->request = request;
        job->folder_fd = -1;
        job->counted =
            request->op == CAIRN_STORE_PUT && request->body.size <= CAIRN_STORE_SMALL_BYTES;
        worker->small_puts += job->counted;
        TAILQ_INSERT_TAIL(&worker->jobs, job, place);
    }
    return ended;
}

/* Runs one step of the first request; true: it needs another. */
static bool take_turn(struct cairn_store_dir_worker *worker, bool *ret_ended) {
    struct cairn_store_dir_job *job = take_job(worker);
    if (!job) return false;
    struct cairn_error why = {0};
    bool more = false;
    enum cairn_code code = job_step(worker, job, &more, &why);
    if (code == CAIRN_OK && more) {
        TAILQ_INSERT_TAIL(&worker->jobs, job, place);
        return true;
    }
    if (code == CAIRN_OK && job->together) {
        cairn_file_release(&job->file);
        close(job->folder_fd);
        job->folder_fd = -1;
        TAILQ_INSERT_TAIL(&worker->written, job, place);
        return false;
    }
    worker->small_puts -= job->counted;
    note_health(worker, job->request, code, &why);
    finish(job->request, job, code, &why);
    *ret_ended = true;
    return false;
}

static bool take_wake(struct cairn_store_dir_worker *worker) {
    if (!atomic_exchange(&worker->woken, false)) return false;
    uint64_t count;
    ssize_t size = read(worker->wake_fd, &count, sizeof count);
    (void)size; /* EAGAIN: the waker has not written yet, which costs one empty round */
    return true;
}

static enum cairn_code poll_worker(struct cairn_store_worker *base, uint32_t timeout_ms,
                                   struct cairn_error *err) {
    struct cairn_store_dir_worker *worker = worker_of(base);
    uint64_t start = cairn_mono_ms();
    bool ended = false, woken = false;
    for (;;) {
        /* Forgets the synced folders of another root. */
        unsigned roots = atomic_load(&cairn_store_dir_of(worker)->roots);
        if (worker->roots != roots) {
            memset(worker->synced, 0, sizeof worker->synced);
            memset(worker->made, 0, sizeof worker->made);
            if (worker->sync_fd >= 0) close(worker->sync_fd);
            worker->sync_fd = -1;
            worker->roots = roots;
        }
        ended |= admit_incoming(worker);
        if (TAILQ_EMPTY(&worker->jobs)) ended |= end_together(worker);
        if (TAILQ_EMPTY(&worker->jobs) && (ended || woken)) return CAIRN_OK;
        if (TAILQ_EMPTY(&worker->jobs)) {
            if (take_wake(worker)) return CAIRN_OK;
            struct pollfd fd = {.fd = worker->wake_fd, .events = POLLIN};
            int timeout = timeout_ms > INT32_MAX ? INT32_MAX : (int)timeout_ms;
            if (poll(&fd, 1, timeout) < 0 && errno != EINTR)
                return cairn_fail_errno(err, "wait for work");
            if (fd.revents) {
                atomic_store(&worker->woken, true);
                take_wake(worker);
            }
            return CAIRN_OK;
        }
        bool more = take_turn(worker, &ended);
        woken |= take_wake(worker);
        uint64_t passed_ms = cairn_mono_ms() - start;
        if (!more && (TAILQ_EMPTY(&worker->jobs) || passed_ms < TURNS_MS)) continue;
        if (ended || woken || passed_ms >= timeout_ms) return CAIRN_OK;
    }
}

/* ---- ready reads ---- */

#ifndef RWF_NOWAIT /* older C library: the kernel's number */
#define RWF_NOWAIT 8
#endif

/* tmpfs is memory and lacks RWF_NOWAIT. Other file systems without it refuse the first read. */
static bool flags_of(int fd, int *ret) {
    struct statfs system;
    if (fstatfs(fd, &system) != 0) return false;
    *ret = system.f_type == TMPFS_MAGIC ? 0 : RWF_NOWAIT;
    return true;
}

/* Opens no O_DIRECT descriptor: only the page cache is read. */
static bool ready_open(struct cairn_store *store, const char *key, struct cairn_store_ready *ret) {
    const struct cairn_store_dir *dir = (const struct cairn_store_dir *)store;
    struct cairn_store_dir_place place;
    struct stat status;
    CAIRN_AUTO_FD folder_fd = -1;
    if (cairn_store_dir_place_of(key, &place, NULL) || cairn_store_dir_is_temporary(place.name))
        return false;
    if (cairn_store_dir_folder(dir, place.folder, &folder_fd, NULL)) return false;
    CAIRN_AUTO_FD fd =
        openat(folder_fd, place.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
    struct cairn_store_ready ready = {.fd = fd, .open = true};
    if (!flags_of(fd, &ready.flags)) return false;
    *ret = ready;
    fd = -1;
    return true;
}

static const struct cairn_store_vtable vtable = {.free = dir_free,
                                                 .worker_new = worker_new,
                                                 .worker_free = worker_free,
                                                 .submit = submit,
                                                 .cancel = cancel,
                                                 .poll = poll_worker,
                                                 .wake = wake,
                                                 .appetite = appetite,
                                                 .health = health,
                                                 .moved = moved,
                                                 .follow = follow,
                                                 .ready_open = ready_open};
