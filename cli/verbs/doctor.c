/* SPDX-License-Identifier: Apache-2.0 */
/* cairn doctor: what works, what works with less, and what to do about the rest. */
#include "cli/verbs/doctor.h"

#include <stdlib.h>

#include "common/clock.h"

static const struct cairn_cli_flag doctor_flags[] = {
    {"store", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(store), 0, "URL",
     "The store to test: a folder or s3://bucket/prefix; default $CAIRN_STORE."},
    {"for", 0, CAIRN_CLI_TEXT, CAIRN_CLI_AT(wait_for), 0, "ROLE",
     "Whose keys these are: server (the default), which needs all rights, or uploader."},
};

uint64_t cairn_cli_doctor_deadline(const struct cairn_cli_doctor *doctor, uint64_t ms) {
    uint64_t deadline_ms = cairn_deadline_in(&cairn_clock_real, ms);
    return doctor->until_ms ? cairn_min_u64(doctor->until_ms, deadline_ms) : deadline_ms;
}

static enum cairn_code run_doctor(struct cairn_cli *cli, struct cairn_error *err) {
    struct cairn_cli_doctor *doctor = calloc(1, sizeof *doctor);
    if (!doctor) return cairn_fail(err, CAIRN_NO_MEMORY, "no memory for findings");
    const char *url = cli->argument_count ? cli->arguments[0] : cli->store;
    doctor->cli = cli;
    doctor->url = url ? url : getenv("CAIRN_STORE");
    if (cli->timeout_ms && cli->timeout_ms < UINT32_MAX)
        doctor->until_ms = cairn_mono_ms() + cli->timeout_ms;
    const char *role = cli->wait_for ? cli->wait_for : "server";
    doctor->for_uploader = !strcmp(role, "uploader");
    enum cairn_code code = CAIRN_OK;
    if (!doctor->for_uploader && strcmp(role, "server") != 0)
        code = cairn_fail(err, CAIRN_INVALID, "--for is server or uploader, not %s", role);
    else if (!doctor->url || !*doctor->url)
        code = cairn_fail(err, CAIRN_INVALID,
                          "name the store to test, or set CAIRN_STORE: cairn doctor STORE");
    if (code == CAIRN_OK) {
        cairn_cli_doctor_store(doctor);
        cairn_cli_doctor_machine(doctor);
        code = cairn_cli_doctor_print(doctor, err);
    }
    size_t failed = cairn_cli_doctor_count(doctor, CAIRN_CLI_FAIL);
    size_t warned = cairn_cli_doctor_count(doctor, CAIRN_CLI_WARN);
    free(doctor);
    if (code != CAIRN_OK || !failed) return code;
    return cairn_fail(err, CAIRN_STORE, "%zu failed, %zu with a warning", failed, warned);
}

const struct cairn_cli_verb cairn_cli_verb_doctor = {
    .name = "doctor",
    .synopsis = "cairn doctor [flags] [STORE]",
    .purpose = "Test a store with real requests, and this machine; say what to do.",
    .examples = "  cairn doctor s3://bucket/prefix\n"
                "  cairn doctor /mnt/checkpoints --json\n"
                "  cairn doctor s3://bucket/prefix --for uploader\n",
    .flags = doctor_flags,
    .flag_count = CAIRN_COUNT(doctor_flags),
    .arguments_min = 0,
    .arguments_max = 1,
    .run = run_doctor,
};
