# SPDX-License-Identifier: Apache-2.0
"""What tests/e2e/test_clients.py asks of a client: main URL, a line for each call."""
import sys

import openapi_client as cairn

client = cairn.ApiClient(cairn.Configuration(host=sys.argv[1]))
checkpoints, reads = cairn.CheckpointsApi(client), cairn.ReadsApi(client)

page = checkpoints.checkpoint_list("demo", "tour", limit=1)
print("list", len(page.items), str(page.next_cursor is not None).lower())
version = checkpoints.checkpoint_get("demo", "tour", "latest")
print("get", version.step, version.bytes, version.state)
version = checkpoints.checkpoint_get("demo", "tour", "latest", wait="10s", var_for="committed")
print("wait", str(version.recorded).lower())
patch = cairn.CheckpointPatchRequest(labels={"team": "python"})
version = checkpoints.checkpoint_patch("demo", "tour", "latest", patch, if_match="*")
print("patch", str(version.labels["team"] == "python").lower())
plan = reads.restore_plan("demo", "tour", "latest", restore_plan_request=cairn.RestorePlanRequest())
print("plan", len(plan.objects), plan.objects[0].bytes)
print("tensor", bytes(reads.tensor_data("demo", "tour", "latest", "w")).hex())
try:
    checkpoints.checkpoint_get("demo", "none", "latest")
except cairn.ApiException as problem:
    print("problem true", problem.status)
