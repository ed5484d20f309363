/* SPDX-License-Identifier: Apache-2.0 */
/* slabs: memory for a trainer, decided in order (uploader/saves/slabs.h) and made by a helper. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/wire/messages.h"
#include "uploader/saves/slabs.h"
#include "uploader/tasks.h"
#include "uploader/trainers/inside.h"
#include "uploader/trainers/session.h"

struct reserving {
    struct cairn_up_slab_request memory; /* first: what is decided is found by it */
    struct cairn_up_mail_item item;
    struct cairn_up *up;
    int64_t request;
    struct cairn_up_slab *slabs[CAIRN_UP_GENERATIONS_MAX];
    bool made;
};

static void slabs_done(void *owner, struct cairn_up_session *session) {
    struct reserving *reserving = owner;
    struct cairn_up *up = reserving->up;
    uint64_t conn = reserving->memory.conn;
    cairn_lock_take(&up->lock);
    int fds[CAIRN_UP_GENERATIONS_MAX];
    size_t fd_count = 0;
    uint64_t bytes = 0;
    if (!session) cairn_up_slabs_orphan_locked(up, conn);
    enum cairn_code *code = &reserving->memory.code;
    uint32_t count = reserving->made ? reserving->memory.count : 0;
    for (uint32_t i = 0; session && i < count; i++) {
        bytes = reserving->slabs[i]->memory.size_bytes;
        int fd = fcntl(reserving->slabs[i]->memory.fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0) fds[fd_count++] = fd;
    }
    if (*code == CAIRN_OK && session && fd_count < count) {
        *code = cairn_fail(&reserving->memory.error, CAIRN_IO, "no descriptor for a slab");
        for (size_t i = 0; i < fd_count; i++) close(fds[i]);
        cairn_up_slabs_orphan_locked(up, conn);
    }
    cairn_up_attempt_leave(up, reserving->memory.attempt);
    cairn_lock_give(&up->lock);
    if (session) {
        session->reserving = false;
        session->reserved = *code == CAIRN_OK;
    }
    if (*code != CAIRN_OK)
        cairn_up_mail_refuse(up->mail, conn, reserving->request, &reserving->memory.error);
    else if (session)
        cairn_up_mail_answer_fds(up->mail, conn, reserving->request,
                                 CAIRN_PACK(slabs_given, .count = count, .bytes = bytes), fds,
                                 fd_count);
    free(reserving);
}

static void slabs_task(struct cairn_up_helper *helper, void *owner) {
    struct reserving *reserving = owner;
    reserving->memory.code = cairn_up_slabs_make(helper->up, &reserving->memory, reserving->slabs,
                                                 &reserving->memory.error);
    reserving->made = reserving->memory.code == CAIRN_OK;
    cairn_up_mail_call(helper->up->mail, reserving->memory.conn, slabs_done, reserving,
                       &reserving->item);
}

static void slabs_drop(void *owner) { /* the process ends */
    struct reserving *reserving = owner;
    cairn_lock_take(&reserving->up->lock);
    cairn_up_attempt_leave(reserving->up, reserving->memory.attempt);
    cairn_lock_give(&reserving->up->lock);
    free(reserving);
}

/* Page work is a helper's; a refusal is told at once. */
static void slabs_decided(struct cairn_up_slab_request *memory) {
    struct reserving *reserving = (struct reserving *)memory;
    struct cairn_up *up = reserving->up;
    if (memory->code == CAIRN_OK) {
        /* Once it is added the request is the helper's, which may have freed it already. */
        enum cairn_code code =
            cairn_up_tasks_add(up->tasks, slabs_task, slabs_drop, reserving, &memory->error);
        if (code == CAIRN_OK) return;
        memory->code = code;
        cairn_up_slabs_unmake(up, memory);
    }
    cairn_up_mail_call(up->mail, memory->conn, slabs_done, reserving, &reserving->item);
}

/* Memory of another size than hello said: what the session has goes back before it waits for more,
 * so that nobody holds memory while it waits for memory (Q13). */
static enum cairn_code resize(struct cairn_up_session *session, const struct cairn_msg_slabs *told,
                              struct cairn_error *err) {
    struct cairn_up *up = session->up;
    if (session->reserving) return cairn_fail(err, CAIRN_BUSY, "slabs are being made");
    CAIRN_HOLD(&up->lock);
    for (uint32_t i = 0; i < CAIRN_UP_GENERATIONS_MAX; i++) {
        const struct cairn_up_slab *slab = cairn_up_slab_of_locked(up, session->conn, i);
        if (slab && slab->state.owner)
            return cairn_fail(err, CAIRN_BUSY, "a save still needs slab %u", i);
    }
    cairn_up_slabs_orphan_locked(up, session->conn);
    session->reserved = false;
    session->bytes = told->bytes;
    session->node_bytes = told->node_bytes;
    return CAIRN_OK;
}

enum cairn_code cairn_up_on_slabs(struct cairn_up_session *session,
                                  const struct cairn_up_request *request, struct cairn_error *err) {
    struct cairn_msg_slabs told = {.wait_staged_ms = CAIRN_UP_WAIT_STAGED_MS};
    CAIRN_TRY(cairn_msg_slabs_read(request->frame->message, "", &told, err));
    if (!session->attempt)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs before the attempt was opened");
    if (told.bytes) CAIRN_TRY(resize(session, &told, err));
    if (!session->bytes)
        return cairn_fail(err, CAIRN_INVALID, "hello said bytes 0: this session cannot save");
    if (session->reserving || session->reserved)
        return cairn_fail(err, CAIRN_PROTOCOL, "slabs were asked for twice");
    struct reserving *reserving = calloc(1, sizeof(*reserving));
    if (!reserving) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for slabs");
    reserving->up = session->up;
    reserving->request = request->id;
    reserving->memory = (struct cairn_up_slab_request){
        .conn = session->conn,
        .attempt = session->attempt,
        .rank = session->rank,
        .local_world_size = session->local_world_size,
        .bytes = session->bytes,
        .node_bytes = session->node_bytes,
        .deadline_ms = cairn_mono_ms() + told.wait_staged_ms,
        .decided = slabs_decided,
    };
    cairn_lock_take(&session->up->lock);
    session->attempt->users++;
    cairn_lock_give(&session->up->lock);
    session->reserving = true;
    cairn_up_slabs_request(session->up, &reserving->memory);
    return CAIRN_OK;
}
