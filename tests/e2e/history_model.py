# SPDX-License-Identifier: Apache-2.0
"""A reference model of runs, versions and what holds them, in plain Python, and one validator for each
promise. It judges a recorded history: lines of JSON, each one call with when it was sent and when
its answer came (`at`), what was asked (`op`, `run`, `args`) and what was told (`status`, `code`,
`reply`). A call that was cut by the death of its server has the status 0: it has happened, or it has
not, and later answers decide. What was acknowledged must show.

The model keeps no state of a server, but for each fact the interval in which it came about. A
validator complains only where no order of all that overlapped explains an answer.
"""
import collections
import json

NEVER = float("inf")
OVER = ("aborting", "gone")
LEFT = ("deleting", "gone")
FOUND, REFUSED = range(200, 300), range(400, 500)


class Changes:
    """A value that is written, and read, at times of which only the ends are known."""

    def __init__(self, first):
        self.all = [(-NEVER, -NEVER, first, True)]

    def write(self, value, since, until, sure=True):
        """sure: it did happen, between the two. Else it may have."""
        self.all.append((since, until, value, sure))

    def may_be(self, since, until):
        """Every value that somebody may have seen who looked once between the two."""
        behind = max(begin for begin, end, _, sure in self.all if sure and end < since)
        return {value for begin, end, value, _ in self.all if begin <= until and end >= behind}


class Version:
    def __init__(self, run, attempt, step, n):
        self.run, self.attempt, self.step, self.n = run, attempt, step, n
        self.line = attempt  # as answers show it
        self.id, self.known_at, self.begun, self.ranks = None, NEVER, NEVER, 0
        self.sealing, self.sealed = {}, {}  # by rank: when the first was sent; when one was answered
        self.over_from, self.over_at, self.committed_at = NEVER, NEVER, NEVER
        self.told_at = NEVER  # the first answer of all that calls it committed
        self.on_exists = "error"
        self.trashed, self.superseded, self.pinned = Changes(False), Changes(False), Changes(False)
        self.leases = {}  # by job: [from, until], in which it surely holds

    def __str__(self):
        return f"{self.run} step {self.step} ({self.id}, attempt {self.attempt}, n {self.n})"

    @property
    def order(self):
        """Of Q25."""
        return self.line, self.step, self.attempt, self.n

    def commits_from(self):
        """Before all ranks have sealed nothing can be committed."""
        whole = self.ranks and len(self.sealing) == self.ranks
        return max(self.sealing.values()) if whole else NEVER

    def is_leased(self, since, until):
        return any(begin <= since and end >= until for begin, end in self.leases.values())

    def is_held(self, since, until):
        """By what, if it surely was for the whole time."""
        if self.is_leased(since, until):
            return "leased"
        return "pinned" if self.pinned.may_be(since, until) == {True} else None

    def is_shown(self, since, until):
        """To everybody who asked in that time, for certain."""
        return self.committed_at < since and self.trashed.may_be(since, until) == {False} and \
            self.superseded.may_be(since, until) == {False}

    def may_be_shown(self, since, until):
        return self.commits_from() <= until and self.over_at >= since and False in self.trashed.may_be(since, until) and \
            False in self.superseded.may_be(since, until)

    def may_be_deleted(self, since, until, grace_s):
        """It has been in the trash for as long as the grace, and nobody reads it."""
        early = any(value and begin + grace_s <= until for begin, _, value, _ in self.trashed.all)
        return early and not self.is_leased(since, until)


class History:
    def __init__(self, entries):
        self.settings, *self.entries = entries
        self.entries.sort(key=lambda entry: entry["at"][0])
        self.versions, self.by_id = {}, {}
        self.jobs = collections.defaultdict(list)  # (run, job) -> its calls
        self.opened = collections.defaultdict(dict)  # run -> attempt -> (sent, answered)
        self.choices = {}  # (run, attempt) -> the id that it resumed from
        self.unclear = collections.defaultdict(list)  # run -> calls that may have opened an attempt
        for entry in self.entries:
            if entry["op"] == "begin":
                self.note_begin(entry)
        for entry in self.entries:
            self.note_rows(entry)
        for entry in self.entries:
            getattr(self, f"note_{entry['op']}", lambda _: None)(entry)
        for run in {version.run for version in self.versions.values()}:
            self.note_attempts(run)
        self.note_consequences()

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as lines:
            return cls([json.loads(line) for line in lines])

    # ---- facts, whatever they are good for ----

    def version(self, run, args):
        key = (run, args["attempt"], args["step"], args["n"])
        return self.versions.setdefault(key, Version(*key))

    def span(self, entry):
        """When it took effect, if it did: a killed server's call is over with its server; where the
        catalog outlives the server nobody knows when."""
        since, until = entry["at"]
        return since, (NEVER if self.settings["servers"] > 1 or until - since > 30 else
                       until + 0.5) if entry["status"] in (0, *range(500, 600)) else until

    def write(self, changes, value, entry):
        if entry["status"] not in REFUSED:
            changes.write(value, *self.span(entry), sure=entry["status"] in FOUND)

    def note_begin(self, entry):
        version, args = self.version(entry["run"], entry["args"]), entry["args"]
        version.begun = min(version.begun, entry["at"][0])
        version.ranks, version.on_exists = args["ranks"], args["on_exists"]
        told = (entry["reply"] or {}).get("version")
        if told:
            self.by_id.setdefault(told, version)
            version.id = version.id or told
            version.known_at = min(version.known_at, entry["at"][1])
        if args["on_exists"] == "error":
            version.over_from = min(version.over_from, entry["at"][0])

    def note_rows(self, entry):
        """Names of what was begun by a call that was cut; and when it was told to be committed."""
        for row in self.rows(entry):
            version = self.by_id.get(row["version"])
            if version is None and "attempt" in row:
                version = self.versions.get((entry["run"], row["attempt"], row["step"], row["n"]))
                if version is not None and version.id is None:
                    self.by_id[row["version"]], version.id = version, row["version"]
            if version is not None:
                version.line = row.get("line", version.line)
            if version is not None and row["state"] == "committed":
                version.told_at = min(version.told_at, entry["at"][1])

    @staticmethod
    def rows(entry):
        """Versions as an answer shows them."""
        reply = entry["reply"] if entry["status"] in FOUND and entry["reply"] else {}
        return [row for row in reply.get("items", [reply]) if "state" in row]

    def of(self, entry):
        return self.by_id[entry["args"]["version"]]

    def note_seal(self, entry):
        version, rank = self.of(entry), entry["args"]["rank"]
        version.sealing[rank] = min(version.sealing.get(rank, NEVER), entry["at"][0])
        if entry["status"] in FOUND and entry["reply"]["state"] not in OVER:
            version.sealed[rank] = min(version.sealed.get(rank, NEVER), entry["at"][1])

    def note_give_up(self, entry):
        if entry["status"] not in REFUSED:
            self.of(entry).over_from = min(self.of(entry).over_from, entry["at"][0])

    def note_delete(self, entry):
        self.write(self.of(entry).trashed, True, entry)

    def note_undelete(self, entry):
        self.write(self.of(entry).trashed, False, entry)

    def note_pin(self, entry):
        self.write(self.of(entry).pinned, entry["args"]["pinned"], entry)

    def note_forget(self, entry):
        for told in entry["args"]["plan"] if entry["status"] not in REFUSED else ():
            self.by_id[told].trashed.write(True, *self.span(entry), sure=False)

    def note_lease(self, entry):
        """Taken, or renewed."""
        args, lease = entry["args"], self.of(entry).leases
        if entry["status"] in FOUND:
            begin = lease.setdefault(args["job"], [entry["at"][1], 0.0])
            begin[1] = max(begin[1], entry["at"][0] + args["ttl_s"])

    def note_drop(self, entry):
        lease = self.of(entry).leases.get(entry["args"]["job"])
        if lease:
            lease[1] = min(lease[1], entry["at"][0])

    def note_attempt(self, entry):
        self.jobs[entry["run"], entry["args"]["job"]].append(entry)

    def note_attempts(self, run):
        for (of, _), calls in sorted(self.jobs.items()):
            told = [call for call in calls if call["status"] in FOUND]
            tried = [call for call in calls if call["status"] not in REFUSED]
            if of == run and told:
                number = told[0]["reply"]["attempt"]
                self.opened[run][number] = (min(call["at"][0] for call in tried), min(call["at"][1] for call in told))
                self.choices[run, number] = told[0]["reply"]["resume_version"]
                self.note_opened(run, number, told[0])
            elif of == run and tried:
                self.unclear[run] += tried
                for call in tried:
                    self.note_unclear(run, call)

    def note_opened(self, run, number, call):
        choice = self.by_id.get(call["reply"]["resume_version"])
        since, until = self.opened[run][number]
        if choice:
            choice.superseded.write(False, since, until)
        for version in self.of_run(run):
            if version.attempt >= number:
                continue
            version.over_from = min(version.over_from, since)
            beyond = choice and version is not choice and (version.step > choice.step or version.order > choice.order)
            if beyond or call["args"]["resume"] == "none":
                version.superseded.write(True, since, until)

    def note_unclear(self, run, call):
        since, until = self.span(call)
        for version in self.of_run(run):
            version.over_from = min(version.over_from, since)
            for value in (True, False):
                version.superseded.write(value, since, until, sure=False)

    def note_consequences(self):
        """What nobody asked for by name: saves that supersede, policies that remove."""
        for version in self.versions.values():
            since = version.commits_from()
            others = [other for other in self.of_run(version.run) if other is not version]
            for other in others if version.on_exists == "supersede" and since < NEVER else ():
                if other.step == version.step and (other.attempt, other.n) < (version.attempt, version.n):
                    other.superseded.write(True, since, version.told_at,
                                           sure=other.told_at < since and version.told_at < NEVER)
        for version in self.versions.values():
            keep = self.settings["keep"].get(version.run)
            newer = sorted(other.commits_from() for other in self.of_run(version.run) if other.order > version.order)
            # What is superseded is not among the newest N: one that replaces it is enough.
            most = 1 if any(value for _, _, value, _ in version.superseded.all) else keep
            if keep and len(newer) >= most and newer[most - 1] < NEVER:
                version.trashed.write(True, newer[most - 1], NEVER, sure=False)

    def of_run(self, run):
        return [version for version in self.versions.values() if version.run == run]

    # ---- what was learned so far, in the order of the answers ----

    def learn(self, entry):
        """What somebody was shown is so for all who ask later."""
        since, until = entry["at"]
        if entry["op"] == "list" and entry["status"] in FOUND:
            self.learn_gone(entry)
        if entry["code"] == "step-exists":
            refused = self.version(entry["run"], entry["args"])
            refused.over_at = min(refused.over_at, until)
        for row in self.rows(entry):
            version = self.by_id.get(row["version"])
            if version is None:
                continue
            version.known_at = min(version.known_at, until)
            if row["state"] == "committed" or row.get("trashed"):  # only what was committed is
                version.committed_at = min(version.committed_at, until)
            elif row["state"] in OVER and version.committed_at == NEVER:
                version.over_at = min(version.over_at, until)
            for name in ("trashed", "superseded", "pinned"):
                if name in row and row["state"] == "committed":
                    getattr(version, name).write(row[name], since, until)

    def learn_gone(self, entry):
        """What a list does not show any more: it shows all but what is gone."""
        shown = {row["version"] for row in self.rows(entry)}
        for version in self.of_run(entry["run"]):
            if version.known_at < entry["at"][0] and version.id not in shown and \
                    version.committed_at == NEVER and version.told_at == NEVER:
                version.over_at = min(version.over_at, entry["at"][1])

    def newer(self, run, attempt):
        """When an attempt newer than this one may have been opened, and when one surely was."""
        newer = [times for number, times in self.opened[run].items() if number > attempt]
        since = [begin for begin, _ in newer] + [call["at"][0] for call in self.unclear[run]]
        return min(since, default=NEVER), min((end for _, end in newer), default=NEVER)
