/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: two pools whose tasks run a command or a work function; the routes /v1/operations and
 * the JSON of an operation. Promises in operations.h. */
#include "server/operations/operations.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/wait.h>

#include "api/wire/messages.h"
#include "common/hooks.h"
#include "common/lock.h"
#include "common/log.h"
#include "server/guard/jobs.h"
#include "server/http/waiters.h"
#include "server/operations/above.h"

#define LISTEN_MS 100
#define WRITE_EVERY_MS 500
#define KILL_MS 30000 /* an import needs up to 15 s to give its save up */
#define END_AGAIN_MS 500
#define END_TRIES 20

/* Reading operations have slots of their own, so that they delay no change. */
enum lane { LANE_CHANGES, LANE_READS, LANES };

/* Pushed to a pool per waiting task: the thread that pops it runs the lane's next task by then. */
struct turn {
    struct srv_task task; /* must be first */
    struct srv_operations *operations;
    enum lane lane;
};
struct task {
    struct turn *turn;
    enum lane lane;
    bool waits, runs;
    uint64_t number;
    uint64_t project_turn; /* when its project last got a slot; 0: not since it was last idle */
    struct srv *server;
    char id[SRV_OPERATION_BYTES];
    struct cairn_run_name name;
    struct srv_operation_command command;
    srv_operation_work *work;
    struct srv_caller caller;
    struct srv_lease lease;
    struct srv_operation_end end;
    uint64_t done, total;             /* as the command reports */
    bool told, started, cancel, late; /* late: exceeded operation-time */
    struct cairn_error failure;       /* as the command reports */
    LIST_ENTRY(task) link;
};
struct srv_operations {
    struct srv *server;
    struct srv_pool *pools[LANES];
    uint16_t port;
    _Atomic bool stopping;
    struct cairn_lock lock;
    struct {
        LIST_HEAD(, task) tasks;
        uint64_t number, turns;
    } locked;
};

/* ---- the list of this server's tasks ---- */

/* One token leaves room for others (without tokens only the lane counts). The lock must be held. */
static enum cairn_code check_room(const struct srv_operations *operations, const struct task *task,
                                  struct cairn_error *err) {
    size_t most = operations->server->settings->operations_at_once, listed = 0, of_token = 0;
    const struct task *one;
    LIST_FOREACH(one, &operations->locked.tasks, link) {
        listed += one->lane == task->lane;
        of_token += task->caller.id[0] && !strcmp(one->caller.id, task->caller.id);
    }
    if (of_token >= SRV_OPERATIONS_OF_TOKEN_MAX)
        return cairn_fail(err, CAIRN_BUSY,
                          "%zu operations of the token %s run or wait: try again when one is over",
                          of_token, task->caller.who);
    if (listed >= most + SRV_OPERATIONS_WAITING_MAX)
        return cairn_fail(err, CAIRN_BUSY, "%zu operations run or wait: try again later", listed);
    return CAIRN_OK;
}

static bool is_of_project(const struct task *one, const struct task *task) {
    return one->lane == task->lane && !strcmp(one->name.project, task->name.project);
}

static enum cairn_code list_task(struct srv_operations *operations, struct task *task,
                                 struct cairn_error *err) {
    CAIRN_HOLD(&operations->lock);
    CAIRN_TRY(check_room(operations, task, err));
    const struct task *one;
    LIST_FOREACH(one, &operations->locked.tasks, link)
        if (is_of_project(one, task)) task->project_turn = one->project_turn;
    task->number = ++operations->locked.number;
    LIST_INSERT_HEAD(&operations->locked.tasks, task, link);
    return CAIRN_OK;
}

/* ---- fair order ---- */

static size_t running_of(const struct srv_operations *operations, const struct task *task) {
    size_t count = 0;
    const struct task *one;
    LIST_FOREACH(one, &operations->locked.tasks, link)
        count += one->runs && is_of_project(one, task);
    return count;
}

/* Order: fewest slots of the project, its longest wait, oldest task. The lock must be held. */
static bool goes_before(const struct srv_operations *operations, const struct task *one,
                        const struct task *other) {
    size_t places = running_of(operations, one), others = running_of(operations, other);
    if (places != others) return places < others;
    if (one->project_turn != other->project_turn) return one->project_turn < other->project_turn;
    return one->number < other->number;
}

/* Takes the next waiting task of a lane; each turn finds one. */
static struct task *take_next(struct srv_operations *operations, enum lane lane) {
    CAIRN_HOLD(&operations->lock);
    struct task *next = NULL, *one;
    LIST_FOREACH(one, &operations->locked.tasks, link)
        if (one->waits && one->lane == lane && (!next || goes_before(operations, one, next)))
            next = one;
    CAIRN_ASSERT(next);
    next->waits = false;
    next->runs = true;
    next->project_turn = ++operations->locked.turns;
    LIST_FOREACH(one, &operations->locked.tasks, link)
        if (is_of_project(one, next)) one->project_turn = next->project_turn;
    return next;
}

static struct turn *wait_in_line(struct srv_operations *operations, struct task *task) {
    CAIRN_HOLD(&operations->lock);
    task->waits = true;
    return CAIRN_TAKE(task->turn); /* the task may end first */
}

static bool is_listed(struct srv_operations *operations, const char *id) {
    CAIRN_HOLD(&operations->lock);
    const struct task *task;
    LIST_FOREACH(task, &operations->locked.tasks, link)
        if (!strcmp(task->id, id)) break;
    return task;
}

static void free_task(struct task *task) {
    srv_operation_command_release(&task->command);
    free(task->turn);
    free(task);
}

static void forget_task(struct task *task) {
    {
        CAIRN_HOLD(&task->server->operations->lock);
        const struct task *one;
        LIST_FOREACH(one, &task->server->operations->locked.tasks, link)
            if (one == task) break;
        CAIRN_ASSERT(one); /* a task that was forgotten before is in no list */
        LIST_REMOVE(task, link);
    }
    free_task(task);
}

/* ---- the row ---- */

SRV_CHANGE(start_row, struct task *task) {
    CAIRN_TRY(srv_lease_check(tx, &task->lease, err));
    return srv_operation_start(tx, task->id, &task->started, err);
}

SRV_CHANGE(move_on, struct task *task) {
    CAIRN_TRY(srv_lease_check(tx, &task->lease, err)); /* O03 */
    return srv_operation_move_on(tx, task->id, task->done, task->total, err);
}

static enum cairn_code read_cancel(struct task *task, struct cairn_error *err) {
    SRV_LOOK(look, task->server->catalog, err);
    CAIRN_TRY(srv_lease_check(look.tx, &task->lease, err));
    SRV_GET(operation, operation, srv_operation_get(look.tx, task->id, &operation, err));
    task->cancel = operation.cancel;
    return CAIRN_OK;
}

SRV_CHANGE(end, struct task *task) {
    CAIRN_TRY(srv_lease_check(tx, &task->lease, err));
    CAIRN_TRY(srv_operation_end(tx, task->id, &task->end, err));
    return srv_lease_drop_in(tx, &task->lease, err);
}

static void end_row(struct task *task) {
    struct srv *server = task->server;
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    task->end.wall_ms = srv_wall_ms(server);
    for (int i = 0; i < END_TRIES; i++) {
        code = srv_catalog_write(server->catalog, end, task, &why);
        if (!code) task->lease.dropped = true;
        if (!code || !cairn_code_info(code)->retryable || server->operations->stopping) break;
        (void)poll(NULL, 0, END_AGAIN_MS);
    }
    srv_lease_end(&task->lease);
    if (code) /* the next look of any server ends the operation */
        cairn_log(WARN, "operation.end_not_written", "operation=%s cause=\"%s\"", task->id,
                  why.message);
    else
        cairn_log(INFO, "operation.ended", "operation=%s state=%s", task->id,
                  srv_operation_state_text(task->end.state));
    srv_waiters_wake(server->waiters, task->id);
}

/* ---- the command's output ---- */

/* Takes lines of --progress=json, the error of --json, and notes for the log. */
static void take_line(void *owner, struct cairn_view text) {
    struct task *task = owner;
    CAIRN_AUTO_JSON json_t *line = NULL;
    const struct cairn_json_limits limits = {0};
    if (!text.size || *(const char *)text.data != '{' ||
        cairn_json_parse(text, limits, &line, NULL)) {
        cairn_log(DEBUG, "operation.note", "operation=%s line=\"%.*s\"", task->id,
                  (int)cairn_min_u64(text.size, 1000), (const char *)text.data);
        return;
    }
    const json_t *done = json_object_get(line, "done_bytes");
    if (json_is_integer(done)) {
        task->done = (uint64_t)json_integer_value(done);
        task->total = (uint64_t)json_integer_value(json_object_get(line, "total_bytes"));
        task->told = true;
    } else if (json_is_integer(json_object_get(line, "exit"))) {
        cairn_failure_get(line, "message", &task->failure);
    }
}

/* Drops lists of the result, one by one, until it fits into a row. */
static enum cairn_code read_result(const struct task *task, const struct cairn_buf *output,
                                   struct cairn_buf *ret, struct cairn_error *err) {
    static const char *const lists[] = {"plain", "aliases", "left_out"};
    CAIRN_AUTO_JSON json_t *result = NULL;
    const struct cairn_json_limits limits = {0};
    CAIRN_TRY(cairn_json_parse(cairn_buf_view(output), limits, &result, err));
    if (json_object_get(result, "folder"))
        json_object_set_new(result, "folder", json_string(task->command.path));
    CAIRN_TRY(cairn_json_dump(result, ret, err));
    for (size_t i = 0; i < CAIRN_COUNT(lists) && ret->size > SRV_OPERATION_TEXT_MAX; i++) {
        json_object_del(result, lists[i]);
        cairn_buf_clear(ret);
        CAIRN_TRY(cairn_json_dump(result, ret, err));
    }
    return CAIRN_OK;
}

static void say_failure(const struct task *task, const struct cairn_error *why,
                        struct cairn_buf *ret) {
    CAIRN_AUTO(buf) said = {0};
    CAIRN_AUTO_JSON json_t *problem = json_object();
    struct cairn_error shown = *why;
    if (!srv_operation_command_say(&task->command, why->message, &said, NULL) && said.data)
        snprintf(shown.message, sizeof shown.message, "%s", said.data);
    if (!problem || !cairn_failure_put(problem, "message", &shown) ||
        cairn_json_dump(problem, ret, NULL))
        cairn_buf_clear(ret);
}

static void note_late(const struct task *task, const struct cairn_error *why) {
    cairn_log(DEBUG, "operation.late", "operation=%s cause=\"%s\"", task->id, why->message);
}

/* Writes the end of a task; why: the reason, unless its state is DONE. */
static void finish(struct task *task, const struct cairn_error *why) {
    CAIRN_AUTO(buf) problem = {0};
    struct cairn_error late = {0};
    if (task->end.state != SRV_OPERATION_DONE) say_failure(task, why, &problem);
    task->end.problem = problem.size ? problem.data : NULL;
    if (task->told && srv_catalog_write(task->server->catalog, move_on, task, &late))
        note_late(task, &late);
    end_row(task);
    task->end.result = task->end.problem = NULL;
}

/* ---- one command ---- */

/* Writes progress and reads the request to cancel; false: end the task. */
static bool write_row(struct task *task, uint64_t *written_done) {
    struct srv *server = task->server;
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    if (task->told && task->done + task->total != *written_done) {
        code = srv_catalog_write(server->catalog, move_on, task, &why);
        if (!code) *written_done = task->done + task->total;
    }
    if (!code) code = read_cancel(task, &why);
    if (code) note_late(task, &why);
    return !task->cancel;
}

/* Follows the command until it exits; SIGTERM first, SIGKILL KILL_MS later. */
static bool follow(struct task *task, struct srv_child *child) {
    struct srv_operations *operations = task->server->operations;
    uint64_t write_ms = 0, kill_ms = UINT64_MAX, written = 0;
    uint64_t late_ms = cairn_mono_ms() + task->server->settings->operation_time_ms;
    bool asked = false;
    while (srv_child_listen(child, LISTEN_MS, take_line, task)) {
        uint64_t now_ms = cairn_mono_ms();
        bool goes_on = !operations->stopping && !task->server->stopping;
        if (now_ms >= write_ms) {
            goes_on = write_row(task, &written) && goes_on;
            write_ms = now_ms + WRITE_EVERY_MS;
        }
        task->late = now_ms >= late_ms;
        if ((!goes_on || task->late) && !asked) {
            srv_child_signal(child, SIGTERM);
            kill_ms = now_ms + KILL_MS;
            asked = true;
        }
        if (now_ms < kill_ms) continue;
        srv_child_signal(child, SIGKILL);
        kill_ms = UINT64_MAX;
    }
    return asked;
}

/* Sets the task's final state from the exit status; *ret_why unless DONE. */
static void judge_command(struct task *task, const struct srv_child *child, bool asked,
                          struct cairn_buf *result, struct cairn_error *ret_why) {
    struct cairn_error why = task->failure;
    bool well = WIFEXITED(child->status) && !WEXITSTATUS(child->status);
    task->end.state = SRV_OPERATION_FAILED;
    if (well && !read_result(task, &child->output, result, &why)) {
        task->end.state = SRV_OPERATION_DONE;
        task->end.result = result->data;
        if (task->told) task->done = task->total;
        return;
    }
    if (asked && task->late && !task->cancel) {
        (void)cairn_fail(&why, CAIRN_TIMEOUT,
                         "it ran for longer than %llu s, which is the setting operation-time",
                         (unsigned long long)(task->server->settings->operation_time_ms / 1000));
    } else if (asked && task->cancel) {
        task->end.state = SRV_OPERATION_CANCELLED;
        (void)cairn_fail(&why, CAIRN_CANCELLED, "it was cancelled");
    } else if (asked) {
        task->end.state = SRV_OPERATION_INTERRUPTED;
        (void)cairn_fail(&why, CAIRN_INTERRUPTED, "the server was stopped; ask for it again");
    } else if (WIFSIGNALED(child->status)) {
        (void)cairn_fail(&why, CAIRN_INTERNAL, "the command was ended by signal %d",
                         WTERMSIG(child->status));
    } else if (!why.message[0]) {
        (void)cairn_fail(&why, CAIRN_INTERNAL, "the command ended with status %d and no reason",
                         WEXITSTATUS(child->status));
    }
    *ret_why = why;
}

static void run_command(struct task *task) {
    struct srv *server = task->server;
    CAIRN_AUTO(buf) result = {0};
    struct srv_child child = {.output_fd = -1, .error_fd = -1};
    struct cairn_error why = {0};
    char token[CAIRN_TOKEN_TEXT_BYTES] = "", id[CAIRN_TOKEN_ID_BYTES] = "";
    enum cairn_code code = CAIRN_OK;
    bool asked = false;
    if (task->caller.kind == SRV_TOKEN)
        code = srv_access_lend(server->access, &task->caller, token, id, &why);
    if (!code)
        code = srv_operation_command_start(server, server->operations->port, &task->command,
                                           token[0] ? token : NULL, &child, &why);
    cairn_wipe(token, sizeof token);
    if (!code) asked = follow(task, &child);
    if (id[0]) srv_access_return(server->access, id);
    task->end.state = SRV_OPERATION_FAILED;
    if (!code) judge_command(task, &child, asked, &result, &why);
    finish(task, &why);
    srv_child_release(&child);
}

/* ---- a work function ---- */

struct telling {
    struct task *task;
    uint64_t written;
};

bool srv_operation_tell(void *owner, uint64_t done, uint64_t total) {
    struct telling *telling = owner;
    struct task *task = telling->task;
    task->done = done;
    task->total = total;
    task->told = true;
    return write_row(task, &telling->written) && !task->server->operations->stopping &&
           !task->server->stopping;
}

enum cairn_code srv_operation_check(struct srv_tx *tx, void *owner, struct cairn_error *err) {
    const struct telling *telling = owner;
    return srv_lease_check(tx, &telling->task->lease, err);
}

bool srv_operation_cancelled(const void *owner) {
    return ((const struct telling *)owner)->task->cancel;
}

static void run_work(struct task *task, struct cairn_store_worker *worker) {
    CAIRN_AUTO(buf) result = {0};
    CAIRN_AUTO_JSON json_t *done = NULL;
    struct cairn_error why = {0};
    struct telling telling = {.task = task};
    enum cairn_code code =
        task->work(task->server, worker, task->command.arguments, &telling, &done, &why);
    enum cairn_code dumped = done ? cairn_json_dump(done, &result, code ? NULL : &why) : CAIRN_OK;
    if (!code) code = dumped;
    task->end.state = SRV_OPERATION_DONE;
    task->end.result = dumped ? NULL : result.data;
    if (!code) task->done = task->total; /* its reports lag, and omit what was there before */
    if (code) {
        bool stops = task->server->operations->stopping || task->server->stopping;
        bool cancelled = code == CAIRN_CANCELLED && task->cancel;
        bool ended = code == CAIRN_CANCELLED && !cancelled && stops;
        task->end.state = ended       ? SRV_OPERATION_INTERRUPTED
                          : cancelled ? SRV_OPERATION_CANCELLED
                                      : SRV_OPERATION_FAILED;
        if (ended)
            (void)cairn_fail(&why, CAIRN_INTERRUPTED,
                             "the server was stopped: the next one goes on with a copy that is "
                             "wanted; ask for anything else again");
    }
    finish(task, &why);
}

static void drop_task(struct task *task) {
    task->end = (struct srv_operation_end){
        .state = SRV_OPERATION_INTERRUPTED,
        .problem = "{\"code\":\"interrupted\",\"message\":\"the server was stopped before it "
                   "began; ask for it again\"}"};
    end_row(task);
    forget_task(task);
}

static void run_task(struct task *task, struct cairn_store_worker *worker) {
    struct srv *server = task->server;
    struct cairn_error why = {0};
    if (server->operations->stopping) {
        drop_task(task);
        return;
    }
    enum cairn_code code = srv_catalog_write(server->catalog, start_row, task, &why);
    if (code)
        cairn_log(WARN, "operation.not_started", "operation=%s cause=\"%s\"", task->id,
                  why.message);
    if (task->started && !code) {
        cairn_log(INFO, "operation.started", "operation=%s", task->id);
        if (task->work)
            run_work(task, worker);
        else
            run_command(task);
    } else {
        srv_lease_end(&task->lease);
    }
    forget_task(task);
}

static void run_turn(struct srv_task *base, struct cairn_store_worker *worker) {
    struct turn *turn = (struct turn *)base;
    struct srv_operations *operations = turn->operations;
    enum lane lane = turn->lane;
    free(turn);
    run_task(take_next(operations, lane), worker);
}

/* If the pool stops, drops the task, as it does with all others. */
static void push_turn(struct srv_operations *operations, struct task *task) {
    enum lane lane = task->lane;
    struct turn *turn = wait_in_line(operations, task);
    if (srv_pool_push(operations->pools[lane], &turn->task)) return;
    free(turn);
    drop_task(take_next(operations, lane));
}

/* ---- beginning an operation ---- */

struct beginning {
    const struct srv_operation_wish *wish;
    struct task *task;
    struct srv_operation row;
    bool made;
};

SRV_CHANGE(put_operation, struct beginning *beginning) {
    struct task *task = beginning->task;
    (void)cairn_text_copy(beginning->row.id, sizeof(beginning->row.id), task->id);
    if (beginning->wish->first)
        CAIRN_TRY(beginning->wish->first(tx, beginning->wish->argument, err));
    CAIRN_TRY(
        srv_operation_put(tx, &beginning->row, beginning->wish->alone, &beginning->made, err));
    return beginning->made ? srv_lease_take_in(tx, &task->lease, err) : CAIRN_OK;
}

static enum cairn_code fill_row(const struct task *task, const struct srv_operation_wish *wish,
                                struct srv_operation *ret, struct cairn_error *err) {
    *ret = (struct srv_operation){.name = *wish->name, .created_ms = srv_wall_ms(task->server)};
    (void)cairn_text_copy(ret->kind, sizeof(ret->kind), wish->kind);
    (void)cairn_text_copy(ret->who, sizeof(ret->who), wish->caller->who);
    CAIRN_TRY(cairn_json_dump(wish->request, &ret->request, err));
    if (ret->request.size <= SRV_OPERATION_TEXT_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "what is asked for is longer than %d bytes",
                      SRV_OPERATION_TEXT_MAX);
}

static struct task *new_task(struct srv *server, struct srv_operation_wish *wish) {
    struct task *task = calloc(1, sizeof(*task));
    if (!task) return NULL;
    task->command.path = strdup(wish->path);
    task->turn = calloc(1, sizeof(*task->turn));
    if (!task->command.path || !task->turn) {
        free(task->command.path);
        free(task->turn);
        free(task);
        return NULL;
    }
    task->lane = wish->reads ? LANE_READS : LANE_CHANGES;
    task->name = *wish->name;
    *task->turn = (struct turn){
        .task = {.run = run_turn}, .operations = server->operations, .lane = task->lane};
    task->server = server;
    task->work = wish->work;
    task->caller = *wish->caller;
    (void)cairn_text_copy(task->caller.projects, sizeof(task->caller.projects),
                          wish->name->project);
    task->command.arguments = json_incref(wish->arguments);
    task->command.place = wish->place;
    task->command.inside = wish->inside;
    task->command.sends = wish->sends;
    wish->place.folder_fd = -1;
    srv_operation_name(srv_wall_ms(server), server->random, task->id);
    srv_lease_init(&task->lease, server, "operation", task->id);
    return task;
}

enum cairn_code srv_operation_begin(struct srv *server, struct srv_operation_wish *wish,
                                    char ret_id[SRV_OPERATION_BYTES], bool *ret_made,
                                    struct cairn_error *err) {
    struct srv_operations *operations = server->operations;
    struct task *task = new_task(server, wish);
    if (!task) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for an operation");
    struct beginning beginning = {.wish = wish, .task = task};
    enum cairn_code code = list_task(operations, task, err); /* before its row: see look */
    if (code) {
        free_task(task);
        return code;
    }
    code = fill_row(task, wish, &beginning.row, err);
    CAIRN_CRASHPOINT("server.operation.before_begin");
    if (!code) code = srv_catalog_write(server->catalog, put_operation, &beginning, err);
    if (!code) (void)cairn_text_copy(ret_id, SRV_OPERATION_BYTES, beginning.row.id);
    *ret_made = beginning.made;
    srv_operation_release(&beginning.row);
    if (code || !beginning.made) {
        srv_lease_end(&task->lease);
        forget_task(task);
        return code;
    }
    push_turn(operations, task);
    return CAIRN_OK;
}

/* ---- operations of dead servers ---- */

struct left {
    struct srv *server;
    const char *id;
    bool ended;
    struct srv_lease lease;
};

/* O02: the server is gone, or was suspended beyond its lease. */
SRV_CHANGE(end_left, struct left *left) {
    const struct srv_operation_end end = {
        .state = SRV_OPERATION_INTERRUPTED,
        .problem = "{\"code\":\"interrupted\",\"message\":\"the server that did it has ended; ask "
                   "for it again\"}",
        .wall_ms = srv_wall_ms(left->server)};
    left->ended = false;
    CAIRN_TRY(srv_lease_take_in(tx, &left->lease, err));
    if (!left->lease.held && srv_catalog_is_shareable(left->server->catalog))
        return CAIRN_OK; /* another server ends it; CAIRN_OK keeps the raised tick */
    left->ended = true;
    CAIRN_TRY(srv_operation_end(tx, left->id, &end, err));
    return srv_lease_drop_in(tx, &left->lease, err);
}

SRV_CHANGE(trim_rows, const struct srv *server) {
    uint64_t tick = srv_tick(tx), age_ms = server->settings->operations_age_ms;
    return srv_operations_trim(tx, tick > age_ms ? tick - age_ms : 0,
                               server->settings->operations_max, err);
}

enum cairn_code srv_operations_look(struct srv *server, struct cairn_error *err) {
    struct left left = {.server = server};
    if (!server->operations) return CAIRN_OK;
    CAIRN_AUTO_HEAP char(*ids)[SRV_OPERATION_BYTES] = NULL;
    size_t count = 0;
    SRV_LOOK(look, server->catalog, err);
    CAIRN_TRY(srv_operations_unfinished(look.tx, &ids, &count, err));
    srv_look_release(&look);
    for (size_t i = 0; i < count; i++) {
        struct cairn_error why = {0};
        left.id = ids[i];
        if (is_listed(server->operations, left.id)) continue;
        srv_lease_init(&left.lease, server, "operation", left.id);
        enum cairn_code ended = srv_catalog_write(server->catalog, end_left, &left, &why);
        left.lease.dropped = !ended;
        srv_lease_end(&left.lease);
        if (ended || !left.ended) continue; /* another server has it, or retry at the next look */
        cairn_log(WARN, "operation.interrupted", "operation=%s", left.id);
        srv_waiters_wake(server->waiters, left.id);
    }
    return srv_catalog_write(server->catalog, trim_rows, server, err);
}

/* ---- start and stop ---- */

enum cairn_code srv_operations_new(struct srv *server, struct srv_operations **ret,
                                   struct cairn_error *err) {
    struct srv_operations *operations = calloc(1, sizeof(*operations));
    if (!operations) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for operations");
    operations->server = server;
    cairn_lock_init(&operations->lock, CAIRN_LOCK_server_operations);
    *ret = operations;
    struct srv_pool_options options = {
        server->store, (uint32_t)server->settings->operations_at_once, "operation", 0};
    enum cairn_code code = CAIRN_OK;
    for (enum lane lane = 0; lane < LANES && !code; lane++)
        code = srv_pool_new(&options, &operations->pools[lane], err);
    if (!code) return CAIRN_OK;
    *ret = NULL;
    srv_operations_free(operations);
    return code;
}

void srv_operations_listen(struct srv_operations *operations, uint16_t port) {
    operations->port = port;
}

void srv_operations_stop(struct srv_operations *operations) {
    operations->stopping = true;
    for (enum lane lane = 0; lane < LANES; lane++)
        if (operations->pools[lane]) srv_pool_stop(operations->pools[lane]);
}

void srv_operations_free(struct srv_operations *operations) {
    if (!operations) return;
    srv_operations_stop(operations);
    for (enum lane lane = 0; lane < LANES; lane++) srv_pool_free(operations->pools[lane]);
    CAIRN_ASSERT(LIST_EMPTY(&operations->locked.tasks));
    cairn_lock_release(&operations->lock);
    free(operations);
}

/* ---- JSON of an operation ---- */

static json_t *parse(const struct cairn_buf *text) {
    json_t *json = NULL;
    const struct cairn_json_limits limits = {0};
    if (!text->size || cairn_json_parse(cairn_buf_view(text), limits, &json, NULL)) return NULL;
    return json;
}

static json_t *operation_json(const struct srv_request *asked,
                              const struct srv_operation *operation) {
    bool removes = !strcmp(operation->kind, SRV_REMOVE);
    char created[32], ended[32], instance[600];
    CAIRN_AUTO_JSON json_t *request = parse(&operation->request);
    CAIRN_AUTO_JSON json_t *result = parse(&operation->result);
    CAIRN_AUTO_JSON json_t *failure = parse(&operation->problem);
    CAIRN_AUTO_JSON json_t *problem = NULL;
    if (failure) {
        struct cairn_error why = {0};
        cairn_failure_get(failure, "message", &why);
        snprintf(instance, sizeof(instance), "%s/v1/operations/%s",
                 srv_public_path(asked->server->settings), operation->id);
        problem = srv_problem(why.code, &why, instance, 0);
    }
    CAIRN_AUTO_JSON json_t *progress =
        CAIRN_PACK(operation_progress, .done = operation->done, .total = operation->total,
                   .unit = removes ? "versions" : "bytes");
    cairn_time_text(operation->created_ms, true, created);
    cairn_time_text(operation->ended_ms, true, ended);
    return CAIRN_PACK(operation_row, .id = operation->id, .kind = operation->kind,
                      .project = operation->name.project, .run = operation->name.run,
                      .state = srv_operation_state_text(operation->state), .progress = progress,
                      .request = request, .cancel_requested = operation->cancel, .result = result,
                      .problem = problem, .actor = operation->who, .created_at = created,
                      .ended_at = operation->ended_ms ? ended : NULL);
}

static enum cairn_code reply_operation(const struct srv_request *request,
                                       const struct srv_operation *operation,
                                       struct srv_reply *reply, struct cairn_error *err) {
    srv_reply_header(reply, "Cache-Control", "private, no-cache");
    return srv_reply_json(reply, srv_operation_is_over(operation) ? 200 : 202,
                          operation_json(request, operation), err);
}

enum cairn_code srv_reply_begun(struct srv_request *request, const char *id,
                                struct srv_reply *reply, struct cairn_error *err) {
    SRV_AUTO(operation) operation = {0};
    SRV_AUTO(look) look = {0};
    enum cairn_code code = srv_look_begin(request->server->catalog, &look, err);
    if (!code) code = srv_operation_get(look.tx, id, &operation, err);
    if (!code) code = reply_operation(request, &operation, reply, err);
    srv_reply_header(reply, "Location", "%s/v1/operations/%s",
                     srv_public_path(request->server->settings), id);
    return code;
}

/* An operation outside of the caller's projects is not found (P16). */
static enum cairn_code get_operation(struct srv_tx *tx, const struct srv_request *request,
                                     enum cairn_scope scope, struct srv_operation *ret,
                                     struct cairn_error *err) {
    const char *id = request->params.node;
    CAIRN_TRY(srv_operation_get(tx, id, ret, err));
    if (srv_caller_may(&request->caller, scope, ret->name.project)) return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no operation %s", id);
}

/* ---- GET /v1/operations/{operation} ---- */

SRV_HANDLER(operation_get) {
    uint64_t until_ms = 0;
    SRV_AUTO(operation) operation = {0};
    CAIRN_TRY(srv_query_wait(request, &until_ms, err));
    SRV_LOOK(look, request->server->catalog, err);
    CAIRN_TRY(get_operation(look.tx, request, CAIRN_SCOPE_READ, &operation, err));
    bool over = srv_operation_is_over(&operation);
    if (until_ms && !over) {
        reply->park = reply->rung = true;
        reply->park_key = srv_key_of(operation.id);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    reply->in_vain = !over;
    return reply_operation(request, &operation, reply, err);
}

/* ---- DELETE /v1/operations/{operation} ---- */

struct cancelling {
    struct srv_request *request;
    struct srv_operation *operation;
};

/* Ends a queued operation; cancels a running one by its row. */
SRV_CHANGE(cancel_operation, struct cancelling *call) {
    struct srv_operation *operation = call->operation;
    const char *id = call->request->params.node;
    const struct srv_operation_end end = {
        .state = SRV_OPERATION_CANCELLED,
        .problem = "{\"code\":\"cancelled\",\"message\":\"it was cancelled before it began\"}",
        .wall_ms = srv_wall_ms(call->request->server)};
    CAIRN_TRY(get_operation(tx, call->request, CAIRN_SCOPE_WRITE, operation, err));
    if (operation->state == SRV_OPERATION_QUEUED) {
        CAIRN_TRY(srv_ticks_advance(tx, call->request->server, err));
        CAIRN_TRY(srv_operation_end(tx, id, &end, err));
        CAIRN_TRY(srv_copies_unwish(tx, call->request->server, operation, err));
    }
    if (operation->state == SRV_OPERATION_RUNNING) CAIRN_TRY(srv_operation_cancel(tx, id, err));
    return get_operation(tx, call->request, CAIRN_SCOPE_WRITE, operation, err);
}

SRV_HANDLER(operation_cancel) {
    SRV_AUTO(operation) operation = {0};
    struct cancelling call = {request, &operation};
    CAIRN_TRY(srv_catalog_write(request->server->catalog, cancel_operation, &call, err));
    cairn_log(INFO, "operation.cancel", "operation=%s", operation.id);
    srv_waiters_wake(request->server->waiters, operation.id);
    srv_jobs_sweep(request->server); /* removes a copy that is no longer wanted */
    return reply_operation(request, &operation, reply, err);
}

/* ---- GET /v1/operations ---- */

/* Skips rows that the caller may not read, so a page may be short and yet have a next one. */
SRV_HANDLER(operation_list) {
    SRV_AUTO(operation) operation = {0};
    SRV_GET(list, list, srv_list_open(request, &list, err));
    SRV_LOOK(look, request->server->catalog, err);
    SRV_AUTO(rows) rows = {0};
    CAIRN_TRY(
        srv_operations_open(look.tx, list.after[0] ? list.after : "op_~", list.limit, &rows, err));
    SQL_EACH(&rows, err) {
        CAIRN_TRY(srv_operation_row(&rows, &operation, err));
        if (srv_list_takes(&list, operation.id) &&
            srv_caller_may(&request->caller, CAIRN_SCOPE_READ, operation.name.project))
            CAIRN_TRY(srv_list_add(&list, operation_json(request, &operation), err));
    }
    list.more = list.count == list.limit;
    return srv_list_reply(&list, reply, err);
}
