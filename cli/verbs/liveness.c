/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences from facts; see liveness.h. */
#include "cli/verbs/liveness.h"

#include <math.h>
#include <stdio.h>

#include "cli/shell/output.h"
#include "cli/shell/sizes.h"
#include "common/text.h"

#define NAMED_MAX 4

static void print_missing(const json_t *items, uint64_t count, const char *what, const char *key) {
    size_t index = 0;
    json_t *item = NULL;
    if (!count) return;
    printf("  %s:", what);
    json_array_foreach(items, index, item) {
        const char *node = json_string_value(json_object_get(item, "node"));
        const json_t *name = json_object_get(item, key);
        if (index == NAMED_MAX) break;
        if (json_is_string(name))
            printf("%s %s", index ? "," : "", json_string_value(name));
        else
            printf("%s %lld", index ? "," : "", (long long)json_integer_value(name));
        if (node && *node) printf(" (%s)", node);
    }
    if (count > NAMED_MAX) printf(" and %llu more", (unsigned long long)(count - NAMED_MAX));
    printf("\n");
}

static enum cairn_code print_open(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, item, &save, err));
    printf("step %llu is being saved since %s: %llu of %llu ranks sealed, %llu of %llu shards "
           "there\n",
           (unsigned long long)save.step, save.begun_at, (unsigned long long)save.ranks_sealed,
           (unsigned long long)save.world_size, (unsigned long long)save.shards_registered,
           (unsigned long long)save.shards);
    print_missing(save.missing_ranks, save.missing_rank_count, "not sealed, ranks", "rank");
    print_missing(save.missing_shards, save.missing_shard_count, "not there, shards", "shard");
    return CAIRN_OK;
}

enum cairn_code cairn_cli_print_liveness(const struct cairn_cli *cli,
                                         const struct cairn_cli_ref *run,
                                         struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {.interval_s = NAN};
    char age[24], interval[24];
    size_t index = 0;
    json_t *item = NULL;
    CAIRN_TRY(cairn_cli_call(cli, run, (struct cairn_cli_call){.tail = "/liveness"}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness, reply, &facts, err));
    cairn_duration_text((uint64_t)(facts.last_commit_age_s * 1000), age);
    if (facts.last_commit_at)
        printf("\nrun %s/%s: last commit %s ago", run->name.project, run->name.run, age);
    else
        printf("\nrun %s/%s: nothing is committed yet", run->name.project, run->name.run);
    if (!isnan(facts.interval_s)) {
        cairn_duration_text((uint64_t)(facts.interval_s * 1000), interval);
        printf(", one every %s", interval);
    }
    printf("\n");
    json_array_foreach(facts.open, index, item) CAIRN_TRY(print_open(item, err));
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}

/* ---- cairn show --why ---- */

/* The version of the newest open save; `latest` where nothing is being saved. */
static enum cairn_code newest_of(const struct cairn_cli *cli, struct cairn_cli_ref *ref,
                                 struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_msg_liveness facts = {0};
    struct cairn_msg_liveness_open save = {.begun_at = ""};
    const char *version = "latest";
    CAIRN_TRY(cairn_cli_call(cli, ref, (struct cairn_cli_call){.tail = "/liveness"}, &reply, err));
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness, reply, &facts, err));
    if (json_array_size(facts.open)) {
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_liveness_open, json_array_get(facts.open, 0),
                                       &save, err));
        version = save.version;
    }
    cairn_text_copy(ref->version, sizeof ref->version, version);
    return CAIRN_OK;
}

static enum cairn_code print_errors(const json_t *errors, struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach((json_t *)(uintptr_t)errors, index, item) {
        struct cairn_msg_why_error one = {.part = CAIRN_MESSAGE_NONE};
        char age[24], part[40] = "";
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_error, item, &one, err));
        cairn_duration_text(one.age_ms / 1000 * 1000, age);
        if (one.part != CAIRN_MESSAGE_NONE)
            snprintf(part, sizeof part, " part %llu", (unsigned long long)one.part);
        printf("    shard %s%s of rank %u, %s ago, %s: %s\n", one.shard, part, one.rank, age,
               cairn_cli_counted(one.tries, "error", "errors").text, one.error);
    }
    return CAIRN_OK;
}

static enum cairn_code print_keeps(const struct cairn_msg_why_node *node, struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    json_array_foreach((json_t *)(uintptr_t)node->keeps, index, item) {
        struct cairn_msg_why_kept kept = {0};
        CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_kept, item, &kept, err));
        printf("  rank %u of node %s outlives it: node %s has a copy\n", kept.rank, kept.node,
               node->node);
    }
    return CAIRN_OK;
}

static enum cairn_code print_node(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_why_node node = {0};
    char done[24], total[24], silent[24];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_node, item, &node, err));
    if (!node.waited_for) return print_keeps(&node, err);
    printf("  node %s:", node.node);
    if (node.total_bytes != CAIRN_MESSAGE_NONE) {
        cairn_cli_size(node.done_bytes, done);
        cairn_cli_size(node.total_bytes, total);
        printf(" %s of %s sent,", done, total);
    }
    if (node.parts_total != CAIRN_MESSAGE_NONE)
        printf(" %llu of %llu shards, %llu of %llu parts,", (unsigned long long)node.shards_done,
               (unsigned long long)node.shards_total, (unsigned long long)node.parts_done,
               (unsigned long long)node.parts_total);
    cairn_duration_text(node.silent_ms == CAIRN_MESSAGE_NONE ? 0 : node.silent_ms, silent);
    printf(" %s %s ago\n", node.left ? "it left; heard" : "heard", silent);
    if (node.error) printf("    last error: %s\n", node.error);
    CAIRN_TRY(print_errors(node.errors, err));
    if (node.trouble) printf("    its uploader: %s\n", node.trouble);
    return print_keeps(&node, err);
}

static enum cairn_code print_restore(const json_t *item, struct cairn_error *err) {
    struct cairn_msg_why_restore told = {0};
    char store[24], shared[24], peer[24], memory[24];
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why_restore, item, &told, err));
    cairn_cli_size(told.store_bytes, store);
    cairn_cli_size(told.shared_bytes, shared);
    cairn_cli_size(told.peer_bytes, peer);
    cairn_cli_size(told.memory_bytes, memory);
    printf("  restored on node %s: %s from the store; not read from it: %s shared by its ranks, %s "
           "from other nodes, %s from its own memory\n    %s\n",
           told.node, store, shared, peer, memory, told.choice);
    return CAIRN_OK;
}

static enum cairn_code print_facts(const struct cairn_msg_why *why, struct cairn_error *err) {
    size_t index = 0;
    json_t *item = NULL;
    if (!why->open) {
        printf("step %llu (%s) is %s and waits for nothing\n", (unsigned long long)why->step,
               why->version, why->state);
        if (why->reason) printf("  %s\n", why->reason);
        json_array_foreach(why->restores, index, item) CAIRN_TRY(print_restore(item, err));
        return CAIRN_OK;
    }
    CAIRN_TRY(print_open(why->open, err));
    json_array_foreach(why->nodes, index, item) CAIRN_TRY(print_node(item, err));
    if (why->commit) printf("  all is there, and the commit waits: %s\n", why->commit);
    return CAIRN_OK;
}

enum cairn_code cairn_cli_print_why(const struct cairn_cli *cli, const struct cairn_cli_ref *run,
                                    struct cairn_error *err) {
    CAIRN_AUTO_JSON json_t *reply = NULL;
    struct cairn_cli_ref ref = *run;
    struct cairn_msg_why why = {0};
    if (!ref.version[0]) CAIRN_TRY(newest_of(cli, &ref, err));
    CAIRN_TRY(cairn_cli_call(cli, &ref, (struct cairn_cli_call){.tail = "/why"}, &reply, err));
    if (cli->output != CAIRN_CLI_TABLE)
        return cairn_cli_print_json(reply, cli->output == CAIRN_CLI_JSON, err);
    CAIRN_TRY(cairn_cli_reply_read(CAIRN_MESSAGE_why, reply, &why, err));
    CAIRN_TRY(print_facts(&why, err));
    return fflush(stdout) ? cairn_fail_errno(err, "standard output") : CAIRN_OK;
}
