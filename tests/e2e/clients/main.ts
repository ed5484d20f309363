// SPDX-License-Identifier: Apache-2.0
// What tests/e2e/test_clients.py asks of a client: main URL, a line for each call.
import { CheckpointsApi, Configuration, ReadsApi, ResponseError } from "./client";

declare const process: { argv: string[] };

async function main() {
    const config = new Configuration({ basePath: process.argv[2] });
    const checkpoints = new CheckpointsApi(config), reads = new ReadsApi(config);
    const run = { project: "demo", run: "tour" }, latest = { ...run, ref: "latest" };

    const page = await checkpoints.checkpointList({ ...run, limit: 1 });
    console.log("list", page.items.length, page.nextCursor !== null);
    let version = await checkpoints.checkpointGet(latest);
    console.log("get", version.step, version.bytes, version.state);
    version = await checkpoints.checkpointGet({ ...latest, wait: "10s", _for: "committed" });
    console.log("wait", version.recorded);
    const change = { labels: { team: "ts" } };
    version = await checkpoints.checkpointPatch({ ...latest, ifMatch: "*", checkpointPatchRequest: change });
    console.log("patch", version.labels["team"] === "ts");
    const plan = await reads.restorePlan({ ...latest, restorePlanRequest: {} });
    console.log("plan", plan.objects.length, plan.objects[0].bytes);
    const data = new Uint8Array(await (await reads.tensorData({ ...latest, name: "w" })).arrayBuffer());
    console.log("tensor", Array.from(data, one => one.toString(16).padStart(2, "0")).join(""));
    try {
        await checkpoints.checkpointGet({ ...run, run: "none", ref: "latest" });
    } catch (problem) {
        console.log("problem", true, (problem as ResponseError).response.status);
    }
}
main();
