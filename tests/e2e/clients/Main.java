// SPDX-License-Identifier: Apache-2.0
// What tests/e2e/test_clients.py asks of a client: Main URL, a line for each call.
import java.nio.file.Files;
import java.util.HexFormat;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CheckpointsApi;
import org.openapitools.client.api.ReadsApi;
import org.openapitools.client.model.CheckpointPatchRequest;
import org.openapitools.client.model.RestorePlanRequest;

public class Main {
    public static void main(String[] words) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(words[0]);
        CheckpointsApi checkpoints = new CheckpointsApi(client);
        ReadsApi reads = new ReadsApi(client);

        var page = checkpoints.checkpointList("demo", "tour", null, null, null, null, null, null, null, null, 1, null,
            null, null);
        System.out.println("list " + page.getItems().size() + " " + (page.getNextCursor() != null));
        var version = checkpoints.checkpointGet("demo", "tour", "latest", null, null, null, null);
        System.out.println("get " + version.getStep() + " " + version.getBytes() + " " + version.getState());
        version = checkpoints.checkpointGet("demo", "tour", "latest", "10s", "committed", null, null);
        System.out.println("wait " + version.getRecorded());
        version = checkpoints.checkpointPatch("demo", "tour", "latest",
            new CheckpointPatchRequest().putLabelsItem("team", "java"), "*");
        System.out.println("patch " + version.getLabels().get("team").equals("java"));
        var plan = reads.restorePlan("demo", "tour", "latest", null, new RestorePlanRequest());
        System.out.println("plan " + plan.getObjects().size() + " " + plan.getObjects().get(0).getBytes());
        var file = reads.tensorData("demo", "tour", "latest", "w", null, null, null, null, null, null);
        System.out.println("tensor " + HexFormat.of().formatHex(Files.readAllBytes(file.toPath())));
        try {
            checkpoints.checkpointGet("demo", "none", "latest", null, null, null, null);
        } catch (ApiException problem) {
            System.out.println("problem true " + problem.getCode());
        }
    }
}
