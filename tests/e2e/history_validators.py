# SPDX-License-Identifier: Apache-2.0
"""What each promise says of an answer, given all that history_model.py knows of what was asked before
and meanwhile. A validator yields a text for each thing that cannot be."""
import json

from history_model import FOUND, LEFT, NEVER, OVER, REFUSED


def atomic(history, entry):  # P1
    since, until = entry["at"]
    seen = set()
    for row in history.rows(entry):
        version = history.by_id.get(row["version"])
        seen.add(row["version"])
        if version is None:
            yield f"{row['version']} was begun by nobody"
        elif row["state"] == "committed" and version.commits_from() > until:
            yield f"{version} is committed before all its ranks sealed"
        elif row["state"] in ("open", "committed") and version.over_at < since:
            yield f"{version} is {row['state']} after it was given up"
    if entry["op"] == "list" and entry["status"] in FOUND:
        for version in history.of_run(entry["run"]):
            gone = version.over_from <= until or version.may_be_deleted(since, until, history.settings["grace_s"])
            if version.known_at < since and version.id not in seen and not gone:
                yield f"{version} is in no list any more"


def durable(history, entry):  # P2: what was acknowledged shows
    since, until = entry["at"]
    grace_s = history.settings["grace_s"]
    for row in history.rows(entry):
        version = history.by_id.get(row["version"])
        was_committed = version and (version.committed_at < since or row.get("trashed"))
        if not was_committed or row["state"] == "committed":
            continue
        if row["state"] not in LEFT or not version.may_be_deleted(since, until, grace_s):
            yield f"{version} was committed and is {row['state']}"
    name, wanted = {"delete": ("trashed", True), "undelete": ("trashed", False),
                    "pin": ("pinned", entry["args"].get("pinned"))}.get(entry["op"], ("", None))
    for row in history.rows(entry) if name else ():
        if row[name] != wanted:  # the row of its own transaction
            yield f"{row['version']} was to be {name}: {wanted}"
    if entry["op"] in ("get", "data", "lease") and entry["status"] in REFUSED:
        version = history.by_id.get(entry["args"].get("version"))
        if version is not None and version.committed_at < since and not version.may_be_deleted(since, until, grace_s):
            yield f"{version} was committed and is {entry['code']}"
    if entry["op"] == "quiet":
        for version in history.versions.values():
            whole = version.ranks and len(version.sealed) == version.ranks
            if whole and version.committed_at == NEVER and version.over_from == NEVER:
                yield f"{version} was sealed by all its ranks, and nobody was told its commit"


def exact(history, entry):  # P3: a committed version gives its own bytes, and nothing else any
    since, until = entry["at"]
    if entry["op"] != "data" or entry["status"] not in (*FOUND, 502):
        return
    version = history.of(entry)
    if entry["status"] == 502:
        if not version.may_be_deleted(since, until, history.settings["grace_s"]):
            yield f"bytes of {version} are lost or damaged"
    elif not entry["reply"]["exact"]:
        yield f"other bytes than those of {version}"
    elif version.commits_from() > until or version.over_at < since:
        yield f"bytes of {version}, which is not committed"


def idempotent(history, entry):  # P5
    since, until = entry["at"]
    status, code, args = entry["status"], entry["code"], entry["args"]
    if status in (0, *range(500, 600)):
        return
    if entry["op"] == "attempt":
        for other in history.jobs[entry["run"], args["job"]]:
            if other["at"][1] < until and other["status"] in FOUND:
                if status in FOUND and other["reply"] != entry["reply"]:
                    yield f"job {args['job']} was answered otherwise before: {json.dumps(other)}"
                if status == 201:
                    yield f"job {args['job']} opened two attempts"
                if status in REFUSED and code != "stale-attempt":
                    yield f"job {args['job']} had its attempt before"
    if entry["op"] == "begin":
        version = history.version(entry["run"], args)
        told = (entry["reply"] or {}).get("version")
        if told and (told != version.id or history.by_id[told] is not version):
            yield f"begun once more it is {told}, it was {version}"
        known = version.known_at < since
        if status == 201 and known:
            yield f"{version} was begun a second time"
        if code not in (None, "stale-attempt", "step-exists", "not-found") or \
                (code == "step-exists" and version.committed_at < since):
            yield f"a begin of {version} is {code}"
    if entry["op"] == "commit" and code == "checkpoint-incomplete":
        version = history.of(entry)
        if len(version.sealed) == version.ranks and max(version.sealed.values()) < since:
            yield f"{version} was sealed by all its ranks"
    if entry["op"] in ("commit", "seal") and code == "checkpoint-aborted":
        version = history.of(entry)
        if version.committed_at < since or version.over_from > until:
            yield f"{version} was given up by nobody"


def one_winner(history, entry):  # P6
    since, until = entry["at"]
    run, args, code = entry["run"], entry["args"], entry["code"]
    if entry["op"] == "attempt" and entry["status"] == 201:
        number = entry["reply"]["attempt"]
        if number != args["after"] + 1:
            yield f"attempt {number} follows {args['after']}"
        jobs = {job for (of, job), calls in history.jobs.items() for call in calls if of == run and
                call["status"] in FOUND and call["reply"]["attempt"] == number}
        if len(jobs) > 1:
            yield f"attempt {number} was opened by {sorted(jobs)}"
        if any(other > number and answered < since for other, (_, answered) in history.opened[run].items()):
            yield f"attempt {number} was opened behind a newer one"
    if code == "stale-attempt":
        of = args["attempt"] if "attempt" in args else (history.jobs[run, args["job"]] and attempt_of(history, entry))
        if of is not None and history.newer(run, of)[0] > until:
            yield f"attempt {of} is the newest"
    if entry["op"] == "begin" and entry["status"] in FOUND and history.newer(run, args["attempt"])[1] < since:
        yield f"attempt {args['attempt']} began a save although a newer one was open"
    for row in history.rows(entry):
        version = history.by_id.get(row["version"])
        if version is not None and row["state"] == "open" and history.newer(run, version.attempt)[1] < since:
            yield f"{version} is open although a newer attempt was open"


def attempt_of(history, entry):
    told = [call["reply"]["attempt"] for call in history.jobs[entry["run"], entry["args"]["job"]]
            if call["status"] in FOUND]
    return told[0] if told else None


def latest_is_derived(history, entry):  # P7
    since, until = entry["at"]
    named = None
    if entry["op"] == "get" and entry["args"]["ref"] == "latest" and \
            (entry["status"] in FOUND or entry["code"] == "not-found"):
        named = entry["reply"]["version"] if entry["status"] in FOUND else ""
    elif entry["op"] == "attempt" and entry["status"] == 201 and entry["args"]["resume"] == "latest":
        named = entry["reply"]["resume_version"] or ""
    if named is not None:
        yield from newest(history, entry, history.by_id.get(named))
    if entry["op"] == "list" and entry["status"] in FOUND:
        yield from newest_of_list(history.rows(entry))
    for row in history.rows(entry):
        version = history.by_id.get(row["version"])
        if version is None or row["state"] != "committed":
            continue
        for name in ("trashed", "superseded"):
            if name in row and row[name] not in getattr(version, name).may_be(since, until):
                yield f"{version} is {name}: {row[name]}, which nobody made it"


def newest(history, entry, found):
    since, until = entry["at"]
    if found is not None and not found.may_be_shown(since, until):
        yield f"latest is {found}, which is not shown"
    for version in history.of_run(entry["run"]):
        if (found is None or version.order > found.order) and version.is_shown(since, until):
            yield f"latest is {found}, although {version} is committed"


def newest_of_list(rows):
    """One list is one look, so nothing can have come in between."""
    shown = [row for row in rows if row["state"] == "committed" and not row["superseded"] and not row["trashed"]]
    shown.sort(key=lambda row: (row["line"], row["step"], row["attempt"], row["n"]))
    marked = [row["version"] for row in rows if row["latest"]]
    if marked != [row["version"] for row in shown[-1:]]:
        yield f"a list calls {marked} latest"


def safe_clean_up(history, entry):  # P8
    since, until = entry["at"]
    if entry["op"] == "delete" and entry["status"] in FOUND:
        version = history.of(entry)
        held = version.is_held(since, until) or is_needed(history, version, since, until)
        if held:
            yield f"{version} is deleted although it is {held}"
    if entry["op"] == "preview" and entry["status"] in FOUND:
        for told in entry["reply"]["remove"]:
            version = history.by_id[told]
            held = version.is_held(since, until) or is_needed(history, version, since, until)
            if held:
                yield f"a policy removes {version} although it is {held}"
            if not any(other.order > version.order and other.may_be_shown(since, until)
                       for other in history.of_run(entry["run"])):
                yield f"a policy removes {version}, the newest"
    if entry["op"] == "undelete" and entry["code"] == "checkpoint-deleted":
        version = history.of(entry)
        if not version.may_be_deleted(since, until, history.settings["grace_s"]):
            yield f"{version} is deleted before its time in the trash was over"
    if entry["op"] == "disk":
        yield from left_over(history, entry["reply"])


def is_needed(history, version, since, until):
    """The newest attempt resumed from it, and may not have committed anything yet."""
    for number, (_, answered) in history.opened[version.run].items():
        if history.choices[version.run, number] == version.id and answered < since and \
                history.newer(version.run, number)[0] > until and \
                not any(other.attempt == number and other.commits_from() <= until
                        for other in history.of_run(version.run)):
            return "resumed from"
    return None


def left_over(history, disk):
    """disk: by the last list of each version, its state, and whether its files are as they were."""
    for told, (state, exact_files, files) in disk.items():
        version = history.by_id[told]
        if state == "committed" and not exact_files:
            yield f"{version} is committed, and the store does not have its bytes"
        if state == "gone" and files:
            yield f"{version} is gone, and the store has {files} objects of it"


def harms_nothing_older(history, entry):  # P10
    since, until = entry["at"]
    for row in history.rows(entry):
        version = history.by_id.get(row["version"])
        if version is not None and row["state"] in OVER and version.committed_at == NEVER and \
                version.over_from > until and not row.get("trashed"):
            yield f"{version} was given up by nobody"
    if entry["code"] == "step-exists":
        version = history.version(entry["run"], entry["args"])
        others = [other for other in history.of_run(entry["run"])
                  if other is not version and other.step == version.step]
        # The verdict is that of the first begin, of which an answer may have been lost.
        if not any(stands_in_the_way(other, version, min(since, version.begun), until) for other in others):
            yield f"{version} is refused, and there is no other of its step"


def stands_in_the_way(other, version, since, until):
    is_open = other.attempt == version.attempt and other.n < version.n and \
        other.begun <= until and other.over_at >= since
    return is_open or other.may_be_shown(since, until)


VALIDATORS = (("P1", atomic), ("P2", durable), ("P3", exact), ("P5", idempotent), ("P6", one_winner),
              ("P7", latest_is_derived), ("P8", safe_clean_up), ("P10", harms_nothing_older))


def judge(history):
    """Every answer in the order in which they came; the faults, each with its promise."""
    faults = []
    for entry in sorted(history.entries, key=lambda entry: entry["at"][1]):
        for promise, validator in VALIDATORS:
            faults += [f"{promise}: {said}: {json.dumps(entry)}" for said in validator(history, entry)]
        history.learn(entry)
    return faults
