# SPDX-License-Identifier: Apache-2.0
# ctest: seconds=20
"""What the command of an import or export may reach on the server's machine: files below the allowed
folder alone, also when links and pipes are put there meanwhile; no more of the environment, of memory
and of time than it needs."""
import json
import os
import pathlib
import shutil
import signal
import unittest

from test_operations import KINDS, Case, model
from world import wait_until


class ImportFolders(Case):
    def test_o01_a_link_or_a_pipe_that_replaces_a_file_between_the_look_and_the_read_gives_nothing_away(self):
        word = "cairn_0123456789abcdef_TheOperatorsToken"
        secret = self.world.root / "secret"
        shutil.copytree(KINDS["deepspeed"], secret / "zero")
        shutil.copytree(KINDS["dcp"], secret / "dcp")
        (secret / "token").write_text(word + "\n")
        (secret / "index").write_text(json.dumps({"weight_map": {word: word}}))
        model(secret / "m.safetensors", 1, 10)
        swaps = []  # name, kind, what is swapped in it, for what

        def swap(name, kind, within, target):
            swaps.append((name, kind, self.inside / name / within, target))
        for name in ("latest", "tag", "rank", "fifo"):
            shutil.copytree(KINDS["deepspeed"], self.inside / name)
        tag = (KINDS["deepspeed"] / "latest").read_text().strip()
        rank = next(path.name for path in (KINDS["deepspeed"] / tag).iterdir() if path.name.endswith("states.pt"))
        swap("latest", "deepspeed", "latest", secret / "token")
        swap("tag", "deepspeed", tag, secret / "zero" / tag)
        swap("rank", "deepspeed", f"{tag}/{rank}", secret / "zero" / tag / rank)
        swap("fifo", "deepspeed", "latest", None)
        (self.inside / "latest_universal").mkdir()
        (self.inside / "latest_universal/latest_universal").write_text("tag")
        (self.inside / "latest_universal/tag").mkdir()
        swap("latest_universal", "deepspeed", "latest_universal", secret / "token")
        for name in ("metadata", "piece"):
            shutil.copytree(KINDS["dcp"], self.inside / name)
        piece = next(path.name for path in KINDS["dcp"].iterdir() if path.suffix == ".distcp")
        swap("metadata", "dcp", ".metadata", secret / "dcp/.metadata")
        swap("piece", "dcp", piece, secret / "dcp" / piece)
        for name in ("model", "index", "pipe", "file"):
            (self.inside / name).mkdir()
            model(self.inside / name / "m.safetensors", 1, 10)
        (self.inside / "index/model.safetensors.index.json").write_text("{}")
        (self.inside / "file/opaque.json").write_text("{}")
        swap("model", "hf", "m.safetensors", secret / "m.safetensors")
        swap("index", "hf", "model.safetensors.index.json", secret / "index")
        swap("pipe", "hf", "m.safetensors", None)
        swap("file", "hf", "opaque.json", secret / "token")
        self.keep_big()
        _, pid = self.stopped_export("held")  # the one that may run: what is asked for now waits
        names = {name: self.import_("llm/swapped", kind=kind, path=str(self.inside / name), step=step)
                 for step, (name, kind, _, _) in enumerate(swaps)}
        one = self.inside / "model/m.safetensors"  # named itself
        names["named"] = self.import_("llm/swapped", kind="safetensors", path=str(one), step=99)
        for _, _, path, target in swaps:
            path.rename(self.world.root / f"was-{path.name}")
            path.symlink_to(target) if target else os.mkfifo(path)
        os.kill(pid, signal.SIGCONT)
        for name, operation in names.items():
            with self.subTest(name):
                told = self.end(operation, "failed")
                self.assertNotIn(word, json.dumps(told))
                self.assertNotIn("signal", told["problem"]["detail"])
        self.assertNotIn(word, self.world.logs())
        self.assertEqual(self.call("GET", "/v1/runs/llm/swapped/checkpoints")[0], 404)  # not even begun

    def test_a_command_gets_no_variable_of_the_server_that_it_does_not_need_and_a_bound_of_memory(self):
        self.world.env = {"AWS_SECRET_ACCESS_KEY": "hushhush", "PGPASSWORD": "hushhush", "OTHER": "hushhush"}
        self.restart("--operation-memory", "1GiB", *self.world.server_arguments)
        self.keep_big()
        name, pid = self.stopped_export("bounded")
        given = pathlib.Path(f"/proc/{pid}/environ").read_text()
        self.assertNotIn("hushhush", given)
        self.assertIn("CAIRN_MEMORY=1073741824", given)
        os.kill(pid, signal.SIGCONT)
        self.end(name, "done")

    def test_one_that_runs_for_longer_than_operation_time_is_ended_and_fails(self):
        self.keep_big()  # without that bound, which a busy machine would reach
        self.restart("--operation-time", "1s", *self.world.server_arguments)
        name, pid = self.stopped_export("late")
        status = pathlib.Path(f"/proc/{pid}/status")
        wait_until(lambda: int(status.read_text().split("ShdPnd:")[1].split()[0], 16) & 1 << signal.SIGTERM - 1)
        os.kill(pid, signal.SIGCONT)
        told = self.end(name, "failed")
        self.assertEqual(told["problem"]["code"], "timeout")
        self.assertIn("operation-time", told["problem"]["detail"])

    def test_project_in_a_setting_of_folders_gives_each_project_its_own(self):
        for project in ("llm", "other"):
            (self.inside / project).mkdir()
            model(self.inside / project / "m.safetensors", 1, 10)
        (self.inside / "linked").symlink_to(self.inside / "other")
        self.restart("--import-folders", f"{self.inside}/{{project}}", "--export-folders", f"{self.out}/of-{{project}}")
        self.end(self.import_("llm/a", kind="safetensors", path=f"{self.inside}/llm/m.safetensors", step=1), "done")
        for run, folder, status in (("llm/a", "other", 403), ("linked/a", "linked", 400), ("linked/a", "other", 403),
                                    ("llm/a", "llm/../other", 400), ("llm/a", "{project}", 403)):
            self.assertEqual(self.call("POST", f"/v1/runs/{run}/imports", {
                "kind": "safetensors", "path": f"{self.inside}/{folder}/m.safetensors", "step": 2})[0], status, folder)
        self.end(self.export("llm/a", 1, path=f"{self.out}/of-llm/m"), "done")
        for folder in ("of-other", "of-{project}", ""):
            self.assertEqual(self.call("POST", "/v1/runs/llm/a/checkpoints/1/exports",
                                       {"path": f"{self.out}/{folder}/m"})[0], 403, folder)


if __name__ == "__main__":
    unittest.main()
