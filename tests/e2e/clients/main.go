// SPDX-License-Identifier: Apache-2.0
// What tests/e2e/test_clients.py asks of a client: main URL, a line for each call.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	cairn "example.com/cairn/client"
)

func must[T any](value T, _ *http.Response, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	config := cairn.NewConfiguration()
	config.Servers = cairn.ServerConfigurations{{URL: os.Args[1]}}
	client, all := cairn.NewAPIClient(config), context.Background()
	checkpoints, reads := client.CheckpointsAPI, client.ReadsAPI

	page := must(checkpoints.CheckpointList(all, "demo", "tour").Limit(1).Execute())
	fmt.Println("list", len(page.Items), page.NextCursor.Get() != nil)
	version := must(checkpoints.CheckpointGet(all, "demo", "tour", "latest").Execute())
	fmt.Println("get", version.Step, version.Bytes, version.State)
	version = must(checkpoints.CheckpointGet(all, "demo", "tour", "latest").Wait("10s").For_("committed").Execute())
	fmt.Println("wait", version.Recorded)
	team := "go"
	patch := cairn.NewCheckpointPatchRequest()
	patch.SetLabels(map[string]*string{"team": &team})
	version = must(checkpoints.CheckpointPatch(all, "demo", "tour", "latest").IfMatch("*").
		CheckpointPatchRequest(*patch).Execute())
	fmt.Println("patch", version.Labels["team"] == team)
	plan := must(reads.RestorePlan(all, "demo", "tour", "latest").
		RestorePlanRequest(*cairn.NewRestorePlanRequestWithDefaults()).Execute())
	fmt.Println("plan", len(plan.Objects), plan.Objects[0].Bytes)
	file := must(reads.TensorData(all, "demo", "tour", "latest").Name("w").Execute())
	bytes, err := io.ReadAll(file)
	if err != nil {
		os.Exit(1)
	}
	fmt.Printf("tensor %x\n", bytes)
	_, reply, err := checkpoints.CheckpointGet(all, "demo", "none", "latest").Execute()
	fmt.Println("problem", err != nil, reply.StatusCode)
}
