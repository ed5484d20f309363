# SPDX-License-Identifier: Apache-2.0
"""A client generated from api/openapi.yaml calls every operation of a real server.

  generated_client.py CAIRN_SERVER OPENAPI_YAML      exits with 77 when a generator is missing

openapi-python-client makes the client; datamodel-code-generator makes models that what the server
sent must fit as well.
"""
import base64
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import uuid
import warnings

try:
    import datamodel_code_generator
    import httpx
    import openapi_python_client
    import pydantic
    import yaml
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed")
    sys.exit(77)

from read_without_cairn import crc32c

BYTES = b"some bytes of a shard"
METHODS = {"get", "put", "post", "delete", "head", "patch"}


def generate(document, folder):
    """Both generators take the page as it is: no warning, no operation and no response left out."""
    config = folder / "config.yml"
    config.write_text("content_type_overrides: {application/yaml: text/plain}\npost_hooks: []\n")
    said = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", "generate", "--path", document, "--meta", "none",
         "--output-path", folder / "generated", "--config", config], capture_output=True, text=True, check=True)
    said = said.stdout + said.stderr
    assert "WARNING" not in said and "Unable to" not in said, said
    subprocess.run(
        [sys.executable, "-m", "datamodel_code_generator", "--input", document, "--input-file-type", "openapi",
         "--output", folder / "models.py", "--output-model-type", "pydantic_v2.BaseModel"],
        capture_output=True, check=True)
    sys.path.insert(0, str(folder))
    return importlib.import_module("models")


class Caller:
    """Calls by operationId; what came must have been parsed by the generated code."""

    def __init__(self, document, port):
        self.operations = {}
        for path, item in document["paths"].items():
            for method in METHODS & item.keys():
                tag, name = item[method]["tags"][0], item[method]["operationId"]
                self.operations[name] = importlib.import_module(f"generated.api.{tag}.{name}")
        self.types = importlib.import_module("generated.types")
        self.models = importlib.import_module("generated.models")
        client = importlib.import_module("generated.client").Client
        self.client = client(base_url=f"http://127.0.0.1:{port}", raise_on_unexpected_status=True,
                             timeout=httpx.Timeout(300))
        self.called = set()

    def __call__(self, name, wanted, /, *path, body=None, of=None, **more):
        self.called.add(name)
        if body is not None:
            more["body"] = body if isinstance(body, self.types.File) else self.model(of).from_dict(body)
        reply = self.operations[name].sync_detailed(*path, client=self.client, **more)
        assert reply.status_code == wanted, (name, reply.status_code, reply.content)
        empty = name.endswith("_head") or wanted in (204, 304, 308)
        assert empty or reply.parsed is not None, f"{name}: nothing was parsed of its {wanted}"
        if wanted >= 400 and not empty:
            assert type(reply.parsed).__name__ == "Problem" and reply.parsed.status == wanted, reply.parsed
        return types.SimpleNamespace(parsed=reply.parsed, content=reply.content, headers=reply.headers)

    def model(self, name):
        return getattr(self.models, name)


def save(call, store, grant, step, name="x"):
    begin = {"grant": grant, "node": "n1", "step": step, "n": 1, "rank": 0, "world_size": 1, "on_exists": "error",
             "skip": False, "format": "", "labels": {}, "meta": {"a": 1}}
    begun = call("checkpoint_begin", 201, "demo", "tour", body=begin, of="BeginOne").parsed
    data = store / "demo" / "tour" / f"{step:012}" / begun.version / "data"
    data.mkdir(parents=True)
    (data / name).write_bytes(BYTES)
    crc = crc32c(BYTES)
    shard = {"name": name, "rank": 0, "bytes": len(BYTES), "crc32c": f"{crc:08x}", "token": str(uuid.uuid4()),
             "blocks": base64.b64encode(crc.to_bytes(4, "little")).decode()}
    seal = {"rank": 0, "shards": [{"name": name, "bytes": len(BYTES)}], "bytes": len(BYTES)}
    call("shard_register", 200, "demo", "tour", begun.version,
         body={"grant": grant, "node": "n1", "shards": [shard], "seals": [seal]}, of="ShardRegisterBody")
    return begun.version


def wait(call, version):
    for _ in range(100):
        shown = call("checkpoint_get", 200, "demo", "tour", version, wait="10s", for_="committed")
        if shown.parsed.recorded:
            return shown
        time.sleep(0.1)  # step of a poll
    raise AssertionError("it was not committed")


def saves(call, store):
    ranks = [{"rank": 0, "proc": str(uuid.uuid4())}]
    attempt = {"job": "j1", "world_size": 1, "resume": "latest", "after": 0, "node": "n1", "ranks": ranks}
    call("run_put", 201, "demo", "tour", body={"labels": {"team": "nlp"}}, of="RunPutBody")
    grant = call("attempt_open", 201, "demo", "tour", body=attempt, of="AttemptOpenBody").parsed.grant
    moved = call("attempt_open", 409, "demo", "tour", body=attempt | {"job": "j2"}, of="AttemptOpenBody").parsed
    assert moved.code == "attempt-moved" and moved.newest == 1
    garbage = call.types.File(payload=b"no table")
    call("table_put", 422, "demo", "tour", "ab" * 32, body=garbage, x_cairn_grant=grant)
    call("table_head", 404, "demo", "tour", "ab" * 32)
    first = save(call, store, grant, 1)
    wait(call, first)
    second = save(call, store, grant, 2)
    wait(call, second)
    call("commit", 200, "demo", "tour", second, body={"grant": grant}, of="CommitBody")
    begin = {"step": 3, "n": 1, "rank": 0, "world_size": 2}
    batch = call("checkpoint_begin", 200, "demo", "tour", of="BeginBatch",
                 body={"grant": grant, "node": "n1", "begins": [begin, begin | {"step": 4}]}).parsed
    third, fourth = (result.version for result in batch.results)
    incomplete = call("commit", 409, "demo", "tour", third, body={"grant": grant}, of="CommitBody").parsed
    assert incomplete.code == "checkpoint-incomplete"
    call("fail", 200, "demo", "tour", third, of="FailBody",
         body={"grant": grant, "node": "n1", "rank": 0, "reason": "only a test", "code": "io-error"})
    seen = call("lists_look", 200, "demo", "tour", third, body={"grant": grant, "node": "n1", "rank": 0},
                of="ListsLookBody").parsed
    assert seen.settled and seen.group is None
    call("abort", 202, "demo", "tour", fourth, body={"reason": "only a test"}, of="AbortBody")
    return grant, first, second


def reads(call, version):
    run = ("demo", "tour")
    assert call("run_get", 200, *run).parsed.latest.step == 2
    assert call("run_list", 200, limit=10).parsed.items[0].run == "tour"
    listed = call("checkpoint_list", 200, *run, limit=1).parsed
    assert len(listed.items) == 1 and listed.next_cursor
    call("checkpoint_get", 404, *run, "999")
    tag = call("checkpoint_get", 200, *run, version).headers["ETag"]
    call("checkpoint_get", 304, *run, version, if_none_match=tag)
    call("manifest_get", 200, *run, version)
    assert len(call("checksums_get", 200, *run, version).content) == 4
    call("layout_get", 404, *run, version)
    assert call("tensor_list", 200, *run, version).parsed.items == []
    call("tensor_named", 404, *run, version, "layers/0/w?#")
    call("tensor_named_data", 404, *run, version, "layers/0/w/data", slice_="0:1")
    call("tensor_named_data_head", 404, *run, version, "data")
    call("tensor_get", 404, *run, version, name="w")
    call("tensor_data", 404, *run, version, name="w", slice_="0:1")
    call("tensor_data_head", 404, *run, version, name="w")
    assert [row.name for row in call("hf_list", 200, *run, version).parsed.files] == ["x"]
    assert call("hf_file", 200, *run, version, "x").parsed.payload.read() == BYTES
    call("hf_file", 404, *run, version, "model.safetensors", dtype="bf16")
    assert int(call("hf_file_head", 200, *run, version, "x").headers["Content-Length"]) == len(BYTES)
    plan = call("restore_plan", 201, *run, version, body={"shards": ["x"]}, of="RestorePlanBody").parsed
    assert plan.objects[0].ranges == [[0, len(BYTES)]]
    assert call("shard_list", 200, *run, version).parsed.items[0].bytes_ == len(BYTES)
    assert call("shard_get", 200, *run, version, "x").parsed.state == "committed"
    call("shard_get", 404, *run, version, "a/b")
    assert call("shard_data", 200, *run, version, "x").parsed.payload.read() == BYTES
    assert call("shard_data", 206, *run, version, "x", range_="bytes=5-9").parsed.payload.read() == BYTES[5:10]
    call("shard_data", 416, *run, version, "x", range_="bytes=99-")
    assert int(call("shard_data_head", 200, *run, version, "x").headers["Content-Length"]) == len(BYTES)
    assert call("verify", 200, *run, version).parsed.ok


def annotates(call, version):
    run = ("demo", "tour")
    said = {"metrics": {"eval/loss": 1.5}, "labels": {"tier": "keep"}, "note": "the good one", "pinned": True}
    assert call("checkpoint_patch", 428, *run, version, body=said, of="CheckpointPatchBody").parsed.status == 428
    tag = call("checkpoint_get", 200, *run, version).headers["ETag"]
    shown = call("checkpoint_patch", 200, *run, version, body=said, of="CheckpointPatchBody", if_match=tag).parsed
    assert shown.pinned and shown.metrics["eval/loss"] == 1.5 and shown.labels["tier"] == "keep"
    call("checkpoint_patch", 412, *run, version, body=said, of="CheckpointPatchBody", if_match=tag)
    call("checkpoint_delete", 409, *run, version)
    assert len(call("checkpoint_list", 200, *run, l="tier=keep", step_ge=1, trashed=False).parsed.items) == 1
    assert not call("checkpoint_list", 200, *run, l="tier=keep,!tier").parsed.items
    call("checkpoint_patch", 200, *run, version, body={"pinned": False}, of="CheckpointPatchBody", if_match="*")
    said = {"labels": {"tier": "prod"}, "note": "nlp's"}
    tag = call("run_get", 200, *run).headers["ETag"]
    assert call("run_patch", 200, *run, body=said, of="RunPatchBody", if_match=tag).parsed.labels["tier"] == "prod"
    call("run_patch", 412, *run, body=said, of="RunPatchBody", if_match=tag)
    assert call("run_list", 200, l="team=nlp,tier=prod").parsed.items[0].note == "nlp's"


def aliases(call, version):
    run = ("demo", "tour")
    assert call("alias_put", 201, *run, "prod", body={"ref": version}, of="AliasPutBody").parsed.version == version
    call("alias_put", 200, *run, "prod", body={"ref": "latest"}, of="AliasPutBody")  # it points there already
    assert call("alias_get", 200, *run, "prod").headers["ETag"] == f'"{version}"'
    assert call("alias_list", 200, *run).parsed.items[0].alias == "prod"
    assert call("checkpoint_get", 200, *run, "prod").parsed.aliases == ["prod"]
    call("alias_delete", 200, *run, "prod", if_match="*")
    call("alias_delete", 204, *run, "prod")


def lineage(call, version):
    assert call("run_liveness", 200, "demo", "tour").parsed.last_commit_at
    assert call("lineage", 200, "demo", "tour", version).parsed.items[0].version == version
    assert call("checkpoint_why", 200, "demo", "tour", version).parsed.nodes == []
    call("run_patch", 200, "demo", "tour", body={"from": f"demo/tour@{version}"}, of="RunPatchBody", if_match="*")
    assert call("run_get", 200, "demo", "tour").parsed.from_.version == version
    call("run_patch", 200, "demo", "tour", body={"from": None}, of="RunPatchBody", if_match="*")


def leases(call, version):
    place = ("demo", "tour", version)
    lease = call("lease_take", 201, *place, body={"job": "eval"}, of="LeaseTakeBody").parsed.lease
    assert call("lease_take", 200, *place, body={"job": "eval", "ttl_s": 600}, of="LeaseTakeBody").parsed.lease == lease
    assert call("lease_list", 200, *place).parsed.items[0].job == "eval"
    assert call("lease_renew", 200, *place, lease, body={"ttl_s": 900}, of="LeaseRenewBody").parsed.expires_s == 900
    call("checkpoint_delete", 409, *place)
    call("lease_drop", 200, *place, lease)


def events(call, version):
    newest = call("event_list", 200).parsed.items[-1].id
    assert call("run_events", 200, "demo", "tour", since=0, limit=1).parsed.items[0].id <= newest
    assert call("checkpoint_events", 200, "demo", "tour", version).parsed.items[0].version == version


def tokens(call):
    me = call("whoami", 200).parsed
    assert not me.tokens_needed and "admin" in me.scopes, me
    body = {"scopes": ["read", "write"], "name": "nightly", "project": "demo*", "expires_s": 600}
    made = call("token_make", 201, body=body, of="TokenMakeBody").parsed
    assert made.token and made.expires_at and made.project == "demo*"
    kept = [one for one in call("token_list", 200).parsed.items if one.id == made.id]
    assert kept[0].scopes == ["read", "write"] and not hasattr(kept[0], "token")
    assert call("token_revoke", 200, made.id).parsed.id == made.id
    call("token_revoke", 404, "none")
    call("token_make", 400, body={"scopes": ["all"]}, of="TokenMakeBody")


def quotas(call):
    body = {"versions": 100, "bytes": 1 << 40}
    for prefix, path in (("", ()), ("project_", ("demo",))):
        row = call(prefix + "quota_put", 200, *path, body=body, of="QuotaLimits").parsed
        assert (row.limit_versions, row.limit_bytes, row.from_) == (100, 1 << 40, prefix[:-1] or "server")
        assert call(prefix + "quota_get", 200, *path).parsed.limit_versions == 100
        call(prefix + "quota_put", 400, *path, body={}, of="QuotaLimits")
    assert call("quota_list", 200).parsed.items[0].used_versions > 0
    assert call("project_quota_delete", 200, "demo").parsed.from_ == "server"
    assert call("quota_delete", 200).parsed.from_ is None


def operations(call, folder):
    run = ("demo", "kept")
    header = b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
    (folder / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"12345678")
    body = {"kind": "safetensors", "path": str(folder / "m.safetensors"), "step": 1}
    begun = call("import_begin", 202, *run, body=body, of="ImportBeginBody").parsed
    kept = call("operation_get", 200, begun.id, wait="60s").parsed
    assert kept.state == "done" and kept.progress.done == kept.result.to_dict()["bytes"], kept
    body = {"path": str(folder / "exported"), "dtype": "keep"}
    begun = call("export_begin", 202, *run, "1", body=body, of="ExportBeginBody").parsed
    written = call("operation_get", 200, begun.id, wait="60s").parsed
    assert written.state == "done" and not written.problem, written
    assert [one.id for one in call("operation_list", 200).parsed.items] == [written.id, kept.id]
    assert call("operation_cancel", 200, kept.id).parsed.state == "done"
    call("import_begin", 403, *run, body={"kind": "hf", "path": "/", "step": 2}, of="ImportBeginBody")
    call("operation_get", 404, "op_0")


def tiers(call, version):
    place = ("demo", "tour", version)
    begun = call("promote", 202, *place, body={"to": "far"}, of="PromoteBody").parsed
    assert call("operation_get", 200, begun.id, wait="60s").parsed.state == "done"
    assert {copy.store for copy in call("checkpoint_get", 200, *place).parsed.copies} == {"main", "far"}
    call("promote", 400, *place, body={"to": "nowhere"}, of="PromoteBody")
    shown = call("demote", 202, *place, body={"from": "far"}, of="DemoteBody").parsed
    assert {copy.state for copy in shown.copies if copy.store == "far"} <= {"removing"}


def probes(call, grant):
    told = {"grant": grant, "node": "n1", "rank": 0, "code": "io-error", "reason": "the disk is full"}
    assert call("probe_put", 200, "demo", "tour", body=told, of="ProbePutBody").parsed.code == "io-error"
    assert call("probe_list", 200, "demo", "tour").parsed.items[0].reason == "the disk is full"


def retains(call):
    run, keep = ("demo", "tour"), {"keep": {"last": 5, "within_s": 21600}}
    for prefix, path in (("", ()), ("project_", ("demo",)), ("run_", run)):
        assert call(prefix + "retention_put", 200, *path, body=keep, of="Policy").parsed.text.startswith("last 5")
        assert call(prefix + "retention_get", 200, *path).parsed.from_ == (prefix[:-1] or "server")
    body = {"policy": {"keep": {"first": 1}}}
    plan = call("retention_preview", 200, *run, body=body, of="RetentionPreviewBody").parsed
    assert plan.versions[0].fate == "skip" or plan.versions[0].reasons[0].rule, plan
    call("retention_apply", 412, *run, body=body | {"plan_etag": "0"}, of="RetentionApplyBody")
    body = {"plan_etag": plan.plan_etag} | body
    assert call("retention_apply", 200, *run, body=body, of="RetentionApplyBody").parsed.left == 0
    for prefix, path in (("run_", run), ("project_", ("demo",)), ("", ())):
        call(prefix + "retention_delete", 200, *path)


def rest(call, grant, first):
    run = ("demo", "tour")
    call("checkpoint_delete", 400, *run, "latest")
    assert call("checkpoint_delete", 202, *run, first).parsed.trashed
    assert not call("undelete", 200, *run, first).parsed.trashed
    assert not call("reconcile", 200, *run).parsed.frozen
    beat = {"uploader": {"version": "1", "pid": 1, "uuid": str(uuid.uuid4())},
            "attempts": [{"grant": grant, "unsent": 0}], "versions": [{"version": first, "project": "demo", "run": "tour"}]}
    assert call("node_put", 200, "n1", body=beat, of="NodePutBody").parsed.versions[0].version == first
    assert call("node_list", 200).parsed.items[0].node == "n1"
    assert call("upload_list", 200).parsed.items == []
    try:
        call("upload_look", 202)
    except AssertionError:  # one has ended a moment ago
        call("upload_look", 200)
    assert call("webhook_list", 200).parsed.items == []
    call("letter_list", 404, "chat")
    call("webhook_redeliver", 404, "chat")
    call("upload_abort", 404, "ckpt_0f0f1c1e-5a55-8c6b-9d4b-0b3f6a5f9f01")
    assert call("orphan_list", 200).parsed.items == []
    assert call("not_freed_list", 200).parsed.items == []
    assert call("gc_get", 200).parsed.orphans == 0
    assert call("gc", 200).parsed.looking
    call("node_delete", 409, "n1")
    call("node_delete", 404, "n2")
    call("run_delete", 400, *run)
    call("run_delete", 400, *run, confirm="other")
    plan = call("run_delete", 200, *run, dry_run=True).parsed
    assert plan.versions == 2 and plan.code == "run-busy", plan  # n1 holds its attempt
    call("run_delete", 409, *run, confirm=run[1])
    assert not call("trash", 200, *run, body={"versions": ["99999"]}, of="TrashBody").parsed.items[0].trashed
    call("run_put", 201, "demo", "empty", body={}, of="RunPutBody")
    assert call("run_delete", 200, "demo", "empty").parsed.run == "empty"
    assert call("livez", 200).parsed.status == "alive"
    assert call("readyz", 200).parsed.ready
    assert call("version", 200).parsed.api == "v1"
    assert "openapi: 3.1" in call("openapi", 200).parsed
    assert b'"openapi":' in call("openapi_json", 200).content
    assert call("ui", 308).headers["Location"] == "ui/"
    assert "import" in call("ui_file", 200, "00000000/app.js").parsed
    assert "cairn_build_info" in call("metrics", 200).parsed


def growth(call, models, shown):
    """Words that a later server may use are taken by clients of today."""
    later = json.loads(shown.content) | {"state": "archived", "code": "a-new-code", "something": 1}
    assert call.model("Version").from_dict(later).state == "archived"
    assert models.Version.model_validate(later).state.root == "archived"


def fits(call, models, grant, version):
    for name, path in (("Version", f"/v1/runs/demo/tour/checkpoints/{version}"), ("Run", "/v1/runs/demo/tour"),
                       ("RunPage", "/v1/runs"), ("VersionPage", "/v1/runs/demo/tour/checkpoints"),
                       ("ShardPage", f"/v1/runs/demo/tour/checkpoints/{version}/shards"), ("NodePage", "/v1/nodes"),
                       ("Problem", "/v1/runs/demo/none")):
        getattr(models, name).model_validate(call.client.get_httpx_client().get(path).json())


def main():
    server, page = sys.argv[1:3]
    document = yaml.safe_load(pathlib.Path(page).read_text(encoding="utf-8"))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = generate(page, folder)
        (folder / "store").mkdir()
        (folder / "far").mkdir()
        with open(folder / "log", "wb") as log:
            daemon = subprocess.Popen([server, f"--store={folder}/store", f"--data-dir={folder}/data",
                                       "--listen=127.0.0.1:0", f"--port-file={folder}/port",
                                       f"--import-folders={folder}", f"--export-folders={folder}",
                                       f"--stores=main,far={folder}/far"], stderr=log)
        try:
            for _ in range(600):
                if (folder / "port").exists() or daemon.poll() is not None:
                    break
                time.sleep(0.1)  # step of a poll
            call = Caller(document, int((folder / "port").read_text()))
            grant, first, second = saves(call, folder / "store")
            reads(call, second)
            annotates(call, second)
            aliases(call, second)
            lineage(call, second)
            leases(call, second)
            events(call, second)
            tokens(call)
            quotas(call)
            operations(call, folder)
            tiers(call, second)
            probes(call, grant)
            retains(call)
            rest(call, grant, first)
            growth(call, models, call("checkpoint_get", 200, "demo", "tour", second))
            fits(call, models, grant, second)
            left = call.operations.keys() - call.called
            assert not left, f"never called: {sorted(left)}"
        finally:
            daemon.terminate()
            status = daemon.wait(300)
        assert status == 0, (folder / "log").read_text()
    print(f"{len(call.called)} operations")


if __name__ == "__main__":
    main()
