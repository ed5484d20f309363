/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: two pools whose tasks run a command or a work function; the routes /v1/operations and
 * the JSON of an operation. Promises in operations.h. */
#include "server/operations/operations.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "api/wire/messages.h"
#include "common/clock.h"
#include "common/hooks.h"
#include "common/lock.h"
#include "common/log.h"
#include "common/text.h"
#include "server/db/catalog.h"
#include "server/db/sql.h"
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
    struct cairn_srv_task task; /* must be first */
    struct cairn_srv_operations *operations;
    enum lane lane;
};
struct task {
    struct turn *turn;
    enum lane lane;
    bool waits, runs;
    uint64_t number;
    uint64_t project_turn; /* when its project last got a slot; 0: not since it was last idle */
    struct cairn_srv *server;
    char id[CAIRN_SRV_OPERATION_BYTES];
    struct cairn_run_name name;
    struct cairn_srv_operation_command command;
    cairn_srv_operation_work *work;
    struct cairn_srv_caller caller;
    struct cairn_srv_lease lease;
    struct cairn_srv_operation_end end;
    uint64_t done, total;             /* as the command reports */
    bool told, started, cancel, late; /* late: exceeded operation-time */
    struct cairn_error failure;       /* as the command reports */
    struct task *next;
};
struct cairn_srv_operations {
    struct cairn_srv *server;
    struct cairn_srv_pool *pools[LANES];
    uint16_t port;
    _Atomic bool stopping;
    struct cairn_lock lock;
    struct {
        struct task *tasks;
        uint64_t number, turns;
    } locked;
};

/* ---- the list of this server's tasks ---- */

/* One token leaves room for others (without tokens only the lane counts). The lock must be held. */
static enum cairn_code check_room(const struct cairn_srv_operations *operations,
                                  const struct task *task, struct cairn_error *err) {
    size_t most = operations->server->settings->operations_at_once, listed = 0, of_token = 0;
    for (const struct task *one = operations->locked.tasks; one; one = one->next) {
        listed += one->lane == task->lane;
        of_token += task->caller.id[0] && !strcmp(one->caller.id, task->caller.id);
    }
    if (of_token >= CAIRN_SRV_OPERATIONS_OF_TOKEN_MAX)
        return cairn_fail(err, CAIRN_BUSY,
                          "%zu operations of the token %s run or wait: try again when one is over",
                          of_token, task->caller.who);
    if (listed >= most + CAIRN_SRV_OPERATIONS_WAITING_MAX)
        return cairn_fail(err, CAIRN_BUSY, "%zu operations run or wait: try again later", listed);
    return CAIRN_OK;
}

static bool is_of_project(const struct task *one, const struct task *task) {
    return one->lane == task->lane && !strcmp(one->name.project, task->name.project);
}

static enum cairn_code list_task(struct cairn_srv_operations *operations, struct task *task,
                                 struct cairn_error *err) {
    CAIRN_HOLD(&operations->lock);
    CAIRN_TRY(check_room(operations, task, err));
    for (const struct task *one = operations->locked.tasks; one; one = one->next)
        if (is_of_project(one, task)) task->project_turn = one->project_turn;
    task->number = ++operations->locked.number;
    task->next = operations->locked.tasks;
    operations->locked.tasks = task;
    return CAIRN_OK;
}

/* ---- fair order ---- */

static size_t running_of(const struct cairn_srv_operations *operations, const struct task *task) {
    size_t count = 0;
    for (const struct task *one = operations->locked.tasks; one; one = one->next)
        count += one->runs && is_of_project(one, task);
    return count;
}

/* Order: fewest slots of the project, its longest wait, oldest task. The lock must be held. */
static bool goes_before(const struct cairn_srv_operations *operations, const struct task *one,
                        const struct task *other) {
    size_t places = running_of(operations, one), others = running_of(operations, other);
    if (places != others) return places < others;
    if (one->project_turn != other->project_turn) return one->project_turn < other->project_turn;
    return one->number < other->number;
}

/* Takes the next waiting task of a lane; each turn finds one. */
static struct task *take_next(struct cairn_srv_operations *operations, enum lane lane) {
    CAIRN_HOLD(&operations->lock);
    struct task *next = NULL;
    for (struct task *one = operations->locked.tasks; one; one = one->next)
        if (one->waits && one->lane == lane && (!next || goes_before(operations, one, next)))
            next = one;
    CAIRN_ASSERT(next);
    next->waits = false;
    next->runs = true;
    next->project_turn = ++operations->locked.turns;
    for (struct task *one = operations->locked.tasks; one; one = one->next)
        if (is_of_project(one, next)) one->project_turn = next->project_turn;
    return next;
}

static struct turn *wait_in_line(struct cairn_srv_operations *operations, struct task *task) {
    CAIRN_HOLD(&operations->lock);
    task->waits = true;
    return CAIRN_TAKE(task->turn); /* the task may end first */
}

static bool is_listed(struct cairn_srv_operations *operations, const char *id) {
    CAIRN_HOLD(&operations->lock);
    const struct task *task = operations->locked.tasks;
    while (task && strcmp(task->id, id)) task = task->next;
    return task;
}

static void free_task(struct task *task) {
    cairn_srv_operation_command_release(&task->command);
    free(task->turn);
    free(task);
}

static void forget_task(struct task *task) {
    struct cairn_srv_operations *operations = task->server->operations;
    {
        CAIRN_HOLD(&operations->lock);
        struct task **at = &operations->locked.tasks;
        while (*at && *at != task) at = &(*at)->next;
        CAIRN_ASSERT(*at);
        *at = task->next;
    }
    free_task(task);
}

/* ---- the row ---- */

static enum cairn_code start_row(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct task *task = argument;
    CAIRN_TRY(cairn_srv_lease_check(tx, &task->lease, err));
    return cairn_srv_operation_start(tx, task->id, &task->started, err);
}

static enum cairn_code move_on(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct task *task = argument;
    CAIRN_TRY(cairn_srv_lease_check(tx, &task->lease, err)); /* O03 */
    return cairn_srv_operation_move_on(tx, task->id, task->done, task->total, err);
}

static enum cairn_code read_cancel(struct cairn_srv_tx *tx, void *argument,
                                   struct cairn_error *err) {
    struct task *task = argument;
    CAIRN_AUTO(srv_operation) operation = {0};
    CAIRN_TRY(cairn_srv_lease_check(tx, &task->lease, err));
    CAIRN_TRY(cairn_srv_operation_get(tx, task->id, &operation, err));
    task->cancel = operation.cancel;
    return CAIRN_OK;
}

static enum cairn_code end(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct task *task = argument;
    CAIRN_TRY(cairn_srv_lease_check(tx, &task->lease, err));
    CAIRN_TRY(cairn_srv_operation_end(tx, task->id, &task->end, err));
    return cairn_srv_lease_drop_in(tx, &task->lease, err);
}

static void end_row(struct task *task) {
    struct cairn_srv *server = task->server;
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    task->end.wall_ms = cairn_srv_wall_ms(server);
    for (int i = 0; i < END_TRIES; i++) {
        code = cairn_srv_catalog_write(server->catalog, end, task, &why);
        if (!code) task->lease.dropped = true;
        if (!code || !cairn_code_info(code)->retryable || server->operations->stopping) break;
        (void)poll(NULL, 0, END_AGAIN_MS);
    }
    cairn_srv_lease_end(&task->lease);
    if (code) /* the next look of any server ends the operation */
        cairn_log(WARN, "operation.end_not_written", "operation=%s cause=\"%s\"", task->id,
                  why.message);
    else
        cairn_log(INFO, "operation.ended", "operation=%s state=%s", task->id,
                  cairn_srv_operation_state_text(task->end.state));
    cairn_srv_waiters_wake(server->waiters, task->id);
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
    for (size_t i = 0; i < CAIRN_COUNT(lists) && ret->size > CAIRN_SRV_OPERATION_TEXT_MAX; i++) {
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
    if (!cairn_srv_operation_command_say(&task->command, why->message, &said, NULL) && said.data)
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
    if (task->end.state != CAIRN_SRV_OPERATION_DONE) say_failure(task, why, &problem);
    task->end.problem = problem.size ? problem.data : NULL;
    if (task->told && cairn_srv_catalog_write(task->server->catalog, move_on, task, &late))
        note_late(task, &late);
    end_row(task);
    task->end.result = task->end.problem = NULL;
}

/* ---- one command ---- */

/* Writes progress and reads the request to cancel; false: end the task. */
static bool write_row(struct task *task, uint64_t *written_done) {
    struct cairn_srv *server = task->server;
    struct cairn_error why = {0};
    enum cairn_code code = CAIRN_OK;
    if (task->told && task->done + task->total != *written_done) {
        code = cairn_srv_catalog_write(server->catalog, move_on, task, &why);
        if (!code) *written_done = task->done + task->total;
    }
    if (!code) code = cairn_srv_catalog_read(server->catalog, read_cancel, task, &why);
    if (code) note_late(task, &why);
    return !task->cancel;
}

/* Follows the command until it exits; SIGTERM first, SIGKILL KILL_MS later. */
static bool follow(struct task *task, struct cairn_srv_child *child) {
    struct cairn_srv_operations *operations = task->server->operations;
    uint64_t write_ms = 0, kill_ms = UINT64_MAX, written = 0;
    uint64_t late_ms = cairn_mono_ms() + task->server->settings->operation_time_ms;
    bool asked = false;
    while (cairn_srv_child_listen(child, LISTEN_MS, take_line, task)) {
        uint64_t now_ms = cairn_mono_ms();
        bool goes_on = !operations->stopping && !task->server->stopping;
        if (now_ms >= write_ms) {
            goes_on = write_row(task, &written) && goes_on;
            write_ms = now_ms + WRITE_EVERY_MS;
        }
        task->late = now_ms >= late_ms;
        if ((!goes_on || task->late) && !asked) {
            cairn_srv_child_signal(child, SIGTERM);
            kill_ms = now_ms + KILL_MS;
            asked = true;
        }
        if (now_ms < kill_ms) continue;
        cairn_srv_child_signal(child, SIGKILL);
        kill_ms = UINT64_MAX;
    }
    return asked;
}

/* Sets the task's final state from the exit status; *ret_why unless DONE. */
static void judge_command(struct task *task, const struct cairn_srv_child *child, bool asked,
                          struct cairn_buf *result, struct cairn_error *ret_why) {
    struct cairn_error why = task->failure;
    bool well = WIFEXITED(child->status) && !WEXITSTATUS(child->status);
    task->end.state = CAIRN_SRV_OPERATION_FAILED;
    if (well && !read_result(task, &child->output, result, &why)) {
        task->end.state = CAIRN_SRV_OPERATION_DONE;
        task->end.result = result->data;
        if (task->told) task->done = task->total;
        return;
    }
    if (asked && task->late && !task->cancel) {
        (void)cairn_fail(&why, CAIRN_TIMEOUT,
                         "it ran for longer than %llu s, which is the setting operation-time",
                         (unsigned long long)(task->server->settings->operation_time_ms / 1000));
    } else if (asked && task->cancel) {
        task->end.state = CAIRN_SRV_OPERATION_CANCELLED;
        (void)cairn_fail(&why, CAIRN_CANCELLED, "it was cancelled");
    } else if (asked) {
        task->end.state = CAIRN_SRV_OPERATION_INTERRUPTED;
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
    struct cairn_srv *server = task->server;
    CAIRN_AUTO(buf) result = {0};
    struct cairn_srv_child child = {.output_fd = -1, .error_fd = -1};
    struct cairn_error why = {0};
    char token[CAIRN_TOKEN_TEXT_BYTES] = "", id[CAIRN_TOKEN_ID_BYTES] = "";
    enum cairn_code code = CAIRN_OK;
    bool asked = false;
    if (task->caller.kind == CAIRN_SRV_TOKEN)
        code = cairn_srv_access_lend(server->access, &task->caller, token, id, &why);
    if (!code)
        code = cairn_srv_operation_command_start(server, server->operations->port, &task->command,
                                                 token[0] ? token : NULL, &child, &why);
    cairn_wipe(token, sizeof token);
    if (!code) asked = follow(task, &child);
    if (id[0]) cairn_srv_access_return(server->access, id);
    task->end.state = CAIRN_SRV_OPERATION_FAILED;
    if (!code) judge_command(task, &child, asked, &result, &why);
    finish(task, &why);
    cairn_srv_child_release(&child);
}

/* ---- a work function ---- */

struct telling {
    struct task *task;
    uint64_t written;
};

bool cairn_srv_operation_tell(void *owner, uint64_t done, uint64_t total) {
    struct telling *telling = owner;
    struct task *task = telling->task;
    task->done = done;
    task->total = total;
    task->told = true;
    return write_row(task, &telling->written) && !task->server->operations->stopping &&
           !task->server->stopping;
}

enum cairn_code cairn_srv_operation_check(struct cairn_srv_tx *tx, void *owner,
                                          struct cairn_error *err) {
    const struct telling *telling = owner;
    return cairn_srv_lease_check(tx, &telling->task->lease, err);
}

bool cairn_srv_operation_cancelled(const void *owner) {
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
    task->end.state = CAIRN_SRV_OPERATION_DONE;
    task->end.result = dumped ? NULL : result.data;
    if (!code) task->done = task->total; /* its reports lag, and omit what was there before */
    if (code) {
        bool stops = task->server->operations->stopping || task->server->stopping;
        bool cancelled = code == CAIRN_CANCELLED && task->cancel;
        bool ended = code == CAIRN_CANCELLED && !cancelled && stops;
        task->end.state = ended       ? CAIRN_SRV_OPERATION_INTERRUPTED
                          : cancelled ? CAIRN_SRV_OPERATION_CANCELLED
                                      : CAIRN_SRV_OPERATION_FAILED;
        if (ended)
            (void)cairn_fail(&why, CAIRN_INTERRUPTED,
                             "the server was stopped: the next one goes on with a copy that is "
                             "wanted; ask for anything else again");
    }
    finish(task, &why);
}

static void drop_task(struct task *task) {
    task->end = (struct cairn_srv_operation_end){
        .state = CAIRN_SRV_OPERATION_INTERRUPTED,
        .problem = "{\"code\":\"interrupted\",\"message\":\"the server was stopped before it "
                   "began; ask for it again\"}"};
    end_row(task);
    forget_task(task);
}

static void run_task(struct task *task, struct cairn_store_worker *worker) {
    struct cairn_srv *server = task->server;
    struct cairn_error why = {0};
    if (server->operations->stopping) {
        drop_task(task);
        return;
    }
    enum cairn_code code = cairn_srv_catalog_write(server->catalog, start_row, task, &why);
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
        cairn_srv_lease_end(&task->lease);
    }
    forget_task(task);
}

static void run_turn(struct cairn_srv_task *base, struct cairn_store_worker *worker) {
    struct turn *turn = (struct turn *)base;
    struct cairn_srv_operations *operations = turn->operations;
    enum lane lane = turn->lane;
    free(turn);
    run_task(take_next(operations, lane), worker);
}

/* If the pool stops, drops the task, as it does with all others. */
static void push_turn(struct cairn_srv_operations *operations, struct task *task) {
    enum lane lane = task->lane;
    struct turn *turn = wait_in_line(operations, task);
    if (cairn_srv_pool_push(operations->pools[lane], &turn->task)) return;
    free(turn);
    drop_task(take_next(operations, lane));
}

/* ---- beginning an operation ---- */

struct beginning {
    const struct cairn_srv_operation_wish *wish;
    struct task *task;
    struct cairn_srv_operation row;
    bool made;
};

static enum cairn_code put_operation(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct beginning *beginning = argument;
    struct task *task = beginning->task;
    (void)cairn_text_copy(beginning->row.id, sizeof(beginning->row.id), task->id);
    if (beginning->wish->first)
        CAIRN_TRY(beginning->wish->first(tx, beginning->wish->argument, err));
    CAIRN_TRY(cairn_srv_operation_put(tx, &beginning->row, beginning->wish->alone, &beginning->made,
                                      err));
    if (!beginning->made) return CAIRN_OK;
    CAIRN_TRY(cairn_srv_lease_take_in(tx, &task->lease, err));
    return CAIRN_OK;
}

static enum cairn_code fill_row(const struct task *task,
                                const struct cairn_srv_operation_wish *wish,
                                struct cairn_srv_operation *ret, struct cairn_error *err) {
    *ret = (struct cairn_srv_operation){.name = *wish->name,
                                        .created_ms = cairn_srv_wall_ms(task->server)};
    (void)cairn_text_copy(ret->kind, sizeof(ret->kind), wish->kind);
    (void)cairn_text_copy(ret->who, sizeof(ret->who), wish->caller->who);
    CAIRN_TRY(cairn_json_dump(wish->request, &ret->request, err));
    if (ret->request.size <= CAIRN_SRV_OPERATION_TEXT_MAX) return CAIRN_OK;
    return cairn_fail(err, CAIRN_TOO_LARGE, "what is asked for is longer than %d bytes",
                      CAIRN_SRV_OPERATION_TEXT_MAX);
}

static struct task *new_task(struct cairn_srv *server, struct cairn_srv_operation_wish *wish) {
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
    cairn_srv_operation_name(cairn_srv_wall_ms(server), server->random, task->id);
    cairn_srv_lease_init(&task->lease, server, "operation", task->id);
    return task;
}

enum cairn_code cairn_srv_operation_begin(struct cairn_srv *server,
                                          struct cairn_srv_operation_wish *wish,
                                          char ret_id[CAIRN_SRV_OPERATION_BYTES], bool *ret_made,
                                          struct cairn_error *err) {
    struct cairn_srv_operations *operations = server->operations;
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
    if (!code) code = cairn_srv_catalog_write(server->catalog, put_operation, &beginning, err);
    if (!code) (void)cairn_text_copy(ret_id, CAIRN_SRV_OPERATION_BYTES, beginning.row.id);
    *ret_made = beginning.made;
    cairn_srv_operation_release(&beginning.row);
    if (code || !beginning.made) {
        cairn_srv_lease_end(&task->lease);
        forget_task(task);
        return code;
    }
    push_turn(operations, task);
    return CAIRN_OK;
}

/* ---- operations of dead servers ---- */

struct left {
    struct cairn_srv *server;
    char (*ids)[CAIRN_SRV_OPERATION_BYTES];
    size_t count;
    const char *id;
    bool ended;
    struct cairn_srv_lease lease;
};

static enum cairn_code find_left(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct left *left = argument;
    return cairn_srv_operations_unfinished(tx, &left->ids, &left->count, err);
}

/* O02: the server is gone, or was suspended beyond its lease. */
static enum cairn_code end_left(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct left *left = argument;
    const struct cairn_srv_operation_end end = {
        .state = CAIRN_SRV_OPERATION_INTERRUPTED,
        .problem = "{\"code\":\"interrupted\",\"message\":\"the server that did it has ended; ask "
                   "for it again\"}",
        .wall_ms = cairn_srv_wall_ms(left->server)};
    left->ended = false;
    CAIRN_TRY(cairn_srv_lease_take_in(tx, &left->lease, err));
    if (!left->lease.held && cairn_srv_catalog_is_shareable(left->server->catalog))
        return CAIRN_OK; /* another server ends it; CAIRN_OK keeps the raised tick */
    left->ended = true;
    CAIRN_TRY(cairn_srv_operation_end(tx, left->id, &end, err));
    return cairn_srv_lease_drop_in(tx, &left->lease, err);
}

static enum cairn_code trim_rows(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    const struct cairn_srv *server = argument;
    uint64_t tick = cairn_srv_tick(tx), age_ms = server->settings->operations_age_ms;
    return cairn_srv_operations_trim(tx, tick > age_ms ? tick - age_ms : 0,
                                     server->settings->operations_max, err);
}

enum cairn_code cairn_srv_operations_look(struct cairn_srv *server, struct cairn_error *err) {
    struct left left = {.server = server};
    if (!server->operations) return CAIRN_OK;
    enum cairn_code code = cairn_srv_catalog_read(server->catalog, find_left, &left, err);
    for (size_t i = 0; !code && i < left.count; i++) {
        struct cairn_error why = {0};
        left.id = left.ids[i];
        if (is_listed(server->operations, left.id)) continue;
        cairn_srv_lease_init(&left.lease, server, "operation", left.id);
        enum cairn_code ended = cairn_srv_catalog_write(server->catalog, end_left, &left, &why);
        left.lease.dropped = !ended;
        cairn_srv_lease_end(&left.lease);
        if (ended || !left.ended) continue; /* another server has it, or retry at the next look */
        cairn_log(WARN, "operation.interrupted", "operation=%s", left.id);
        cairn_srv_waiters_wake(server->waiters, left.id);
    }
    free(left.ids);
    if (code) return code;
    return cairn_srv_catalog_write(server->catalog, trim_rows, server, err);
}

/* ---- start and stop ---- */

enum cairn_code cairn_srv_operations_new(struct cairn_srv *server,
                                         struct cairn_srv_operations **ret,
                                         struct cairn_error *err) {
    struct cairn_srv_operations *operations = calloc(1, sizeof(*operations));
    if (!operations) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for operations");
    operations->server = server;
    cairn_lock_init(&operations->lock, CAIRN_LOCK_server_operations);
    *ret = operations;
    struct cairn_srv_pool_options options = {
        server->store, (uint32_t)server->settings->operations_at_once, "operation", 0};
    enum cairn_code code = CAIRN_OK;
    for (enum lane lane = 0; lane < LANES && !code; lane++)
        code = cairn_srv_pool_new(&options, &operations->pools[lane], err);
    if (!code) return CAIRN_OK;
    *ret = NULL;
    cairn_srv_operations_free(operations);
    return code;
}

void cairn_srv_operations_listen(struct cairn_srv_operations *operations, uint16_t port) {
    operations->port = port;
}

void cairn_srv_operations_stop(struct cairn_srv_operations *operations) {
    operations->stopping = true;
    for (enum lane lane = 0; lane < LANES; lane++)
        if (operations->pools[lane]) cairn_srv_pool_stop(operations->pools[lane]);
}

void cairn_srv_operations_free(struct cairn_srv_operations *operations) {
    if (!operations) return;
    cairn_srv_operations_stop(operations);
    for (enum lane lane = 0; lane < LANES; lane++) cairn_srv_pool_free(operations->pools[lane]);
    CAIRN_ASSERT(!operations->locked.tasks);
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

static json_t *operation_json(const struct cairn_srv_request *asked,
                              const struct cairn_srv_operation *operation) {
    bool removes = !strcmp(operation->kind, CAIRN_SRV_REMOVE);
    char created[32], ended[32], instance[600];
    CAIRN_AUTO_JSON json_t *request = parse(&operation->request);
    CAIRN_AUTO_JSON json_t *result = parse(&operation->result);
    CAIRN_AUTO_JSON json_t *failure = parse(&operation->problem);
    CAIRN_AUTO_JSON json_t *problem = NULL;
    if (failure) {
        struct cairn_error why = {0};
        cairn_failure_get(failure, "message", &why);
        snprintf(instance, sizeof(instance), "%s/v1/operations/%s",
                 cairn_srv_public_path(asked->server->settings), operation->id);
        problem = cairn_srv_problem(why.code, &why, instance);
    }
    CAIRN_AUTO_JSON json_t *progress =
        CAIRN_PACK(operation_progress, .done = operation->done, .total = operation->total,
                   .unit = removes ? "versions" : "bytes");
    cairn_time_text(operation->created_ms, true, created);
    cairn_time_text(operation->ended_ms, true, ended);
    return CAIRN_PACK(operation_row, .id = operation->id, .kind = operation->kind,
                      .project = operation->name.project, .run = operation->name.run,
                      .state = cairn_srv_operation_state_text(operation->state),
                      .progress = progress, .request = request,
                      .cancel_requested = operation->cancel, .result = result, .problem = problem,
                      .actor = operation->who, .created_at = created,
                      .ended_at = operation->ended_ms ? ended : NULL);
}

static enum cairn_code reply_operation(const struct cairn_srv_request *request,
                                       const struct cairn_srv_operation *operation,
                                       struct cairn_srv_reply *reply, struct cairn_error *err) {
    cairn_srv_reply_header(reply, "Cache-Control", "private, no-cache");
    return cairn_srv_reply_json(reply, cairn_srv_operation_is_over(operation) ? 200 : 202,
                                operation_json(request, operation), err);
}

struct begun {
    const char *id;
    struct cairn_srv_operation operation;
};

static enum cairn_code look_at_begun(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct begun *begun = argument;
    return cairn_srv_operation_get(tx, begun->id, &begun->operation, err);
}

enum cairn_code cairn_srv_reply_begun(struct cairn_srv_request *request, const char *id,
                                      struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct begun begun = {.id = id};
    enum cairn_code code =
        cairn_srv_catalog_read(request->server->catalog, look_at_begun, &begun, err);
    if (!code) code = reply_operation(request, &begun.operation, reply, err);
    cairn_srv_reply_header(reply, "Location", "%s/v1/operations/%s",
                           cairn_srv_public_path(request->server->settings), id);
    cairn_srv_operation_release(&begun.operation);
    return code;
}

struct call {
    struct cairn_srv_request *request;
    struct cairn_srv_operation operation;
    uint64_t limit;
    char before[CAIRN_NAME_BYTES_MAX + 1], last[CAIRN_SRV_OPERATION_BYTES];
    size_t looked;
    json_t *items, *next;
};

/* An operation outside of the caller's projects is not found (P16). */
static enum cairn_code get_operation(struct cairn_srv_tx *tx, struct call *call,
                                     enum cairn_scope scope, struct cairn_error *err) {
    const char *id = call->request->params.node;
    CAIRN_TRY(cairn_srv_operation_get(tx, id, &call->operation, err));
    if (cairn_srv_caller_may(&call->request->caller, scope, call->operation.name.project))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NOT_FOUND, "there is no operation %s", id);
}

/* ---- GET /v1/operations/{operation} ---- */

static enum cairn_code look_readable(struct cairn_srv_tx *tx, void *argument,
                                     struct cairn_error *err) {
    struct call *call = argument;
    return get_operation(tx, call, CAIRN_SCOPE_READ, err);
}

static enum cairn_code serve_get(struct call *call, struct cairn_srv_reply *reply,
                                 struct cairn_error *err) {
    struct cairn_srv_request *request = call->request;
    uint64_t until_ms = 0;
    CAIRN_TRY(cairn_srv_query_wait(request, &until_ms, err));
    CAIRN_TRY(cairn_srv_catalog_read(request->server->catalog, look_readable, call, err));
    if (until_ms && !cairn_srv_operation_is_over(&call->operation)) {
        reply->park = reply->rung = true;
        reply->park_key = cairn_srv_key_of(call->operation.id);
        reply->park_until_ms = until_ms;
        return CAIRN_OK;
    }
    reply->in_vain = !cairn_srv_operation_is_over(&call->operation);
    return reply_operation(request, &call->operation, reply, err);
}

enum cairn_code cairn_srv_on_operation_get(struct cairn_srv_request *request,
                                           struct cairn_srv_reply *reply, struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code = serve_get(&call, reply, err);
    cairn_srv_operation_release(&call.operation);
    return code;
}

/* ---- DELETE /v1/operations/{operation} ---- */

/* Ends a queued operation; cancels a running one by its row. */
static enum cairn_code cancel_operation(struct cairn_srv_tx *tx, void *argument,
                                        struct cairn_error *err) {
    struct call *call = argument;
    const char *id = call->request->params.node;
    const struct cairn_srv_operation_end end = {
        .state = CAIRN_SRV_OPERATION_CANCELLED,
        .problem = "{\"code\":\"cancelled\",\"message\":\"it was cancelled before it began\"}",
        .wall_ms = cairn_srv_wall_ms(call->request->server)};
    CAIRN_TRY(get_operation(tx, call, CAIRN_SCOPE_WRITE, err));
    if (call->operation.state == CAIRN_SRV_OPERATION_QUEUED) {
        CAIRN_TRY(cairn_srv_ticks_advance(tx, call->request->server, err));
        CAIRN_TRY(cairn_srv_operation_end(tx, id, &end, err));
        CAIRN_TRY(cairn_srv_copies_unwish(tx, call->request->server, &call->operation, err));
    }
    if (call->operation.state == CAIRN_SRV_OPERATION_RUNNING)
        CAIRN_TRY(cairn_srv_operation_cancel(tx, id, err));
    return get_operation(tx, call, CAIRN_SCOPE_WRITE, err);
}

enum cairn_code cairn_srv_on_operation_cancel(struct cairn_srv_request *request,
                                              struct cairn_srv_reply *reply,
                                              struct cairn_error *err) {
    struct call call = {.request = request};
    enum cairn_code code =
        cairn_srv_catalog_write(request->server->catalog, cancel_operation, &call, err);
    if (!code) {
        cairn_log(INFO, "operation.cancel", "operation=%s", call.operation.id);
        cairn_srv_waiters_wake(request->server->waiters, call.operation.id);
        cairn_srv_jobs_sweep(request->server); /* removes a copy that is no longer wanted */
        code = reply_operation(request, &call.operation, reply, err);
    }
    cairn_srv_operation_release(&call.operation);
    return code;
}

/* ---- GET /v1/operations ---- */

/* Skips rows that the caller may not read, so a page may be short and yet have a next one. */
static enum cairn_code add_row(const struct cairn_srv_operation *operation, void *owner,
                               struct cairn_error *err) {
    struct call *call = owner;
    call->looked++;
    (void)cairn_text_copy(call->last, sizeof(call->last), operation->id);
    if (!cairn_srv_caller_may(&call->request->caller, CAIRN_SCOPE_READ, operation->name.project) ||
        !json_array_append_new(call->items, operation_json(call->request, operation)))
        return CAIRN_OK;
    return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for the list");
}

static enum cairn_code list_page(struct cairn_srv_tx *tx, void *argument, struct cairn_error *err) {
    struct call *call = argument;
    json_array_clear(call->items);
    call->looked = 0;
    return cairn_srv_operations_each(tx, call->before[0] ? call->before : "op_~", call->limit,
                                     add_row, call, err);
}

enum cairn_code cairn_srv_on_operation_list(struct cairn_srv_request *request,
                                            struct cairn_srv_reply *reply,
                                            struct cairn_error *err) {
    struct call call = {.request = request};
    CAIRN_TRY(cairn_srv_query_limit(request, &call.limit, err));
    CAIRN_TRY(cairn_srv_cursor_read(request, call.before, sizeof(call.before), err));
    call.items = json_array();
    enum cairn_code code = cairn_srv_catalog_read(request->server->catalog, list_page, &call, err);
    if (code) json_decref(call.items);
    if (code) return code;
    if (call.looked == call.limit) call.next = cairn_srv_cursor_write(request->server, call.last);
    return cairn_srv_reply_page(reply, call.items, call.next, err);
}
