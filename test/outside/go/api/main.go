// Command api asks a service through the client that oapi-codegen makes of its description (gen.go beside this file, which the
// test generates), and prints what it read as one JSON text.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

// text is what a header held, or nothing.
func text(header *string) string {
	if header == nil {
		return ""
	}
	return *header
}

func main() {
	base, url, capability := os.Args[1], os.Args[2], os.Args[3]
	ctx := context.Background()
	client := must(NewClientWithResponses(base))

	check := must(client.CheckWithResponse(ctx, &CheckParams{Url: url}))
	etag := text(check.Headers200.ETag)
	again := must(client.CheckWithResponse(ctx, &CheckParams{Url: url, IfNoneMatch: &etag}))
	bad := must(client.CheckWithResponse(ctx, &CheckParams{Url: "seller.example"}))

	var lines []string
	for line := range strings.Lines(string(must(client.TrustIndexWithResponse(ctx, nil)).Body)) {
		var read IndexLine
		if err := json.Unmarshal([]byte(line), &read); err != nil {
			must(0, err)
		}
		lines = append(lines, string(read.Band))
	}
	feed := must(client.TrustFeedWithResponse(ctx, &TrustFeedParams{}))
	trust := must(client.TrustWithResponse(ctx, capability, nil))
	page := 1
	archive := must(client.ArchiveWithResponse(ctx, &ArchiveParams{Page: &page}))

	var dependency ExposureRequest_Dependencies_Item
	if err := dependency.FromExposureRequestDependencies0(url); err != nil {
		must(0, err)
	}
	request := ExposureRequest{Dependencies: []ExposureRequest_Dependencies_Item{dependency}}
	exposure := must(client.ExposureWithResponse(ctx, request))

	body, class := `{"sum":5}`, "arithmetic"
	evaluation := must(client.EvaluateWithResponse(ctx, EvaluateBody{Status: 200, Body: &body, Class: &class}))
	plan := must(client.RoutePlanWithResponse(ctx, RoutePlanBody{Need: "sum"}))

	publish := ViaGetParamsTouchstonePublish("true")
	via := must(client.ViaGetWithResponse(ctx, capability, &ViaGetParams{TouchstonePublish: &publish}))
	execute := must(client.RouteExecuteWithResponse(ctx, nil, RouteExecuteBody{Need: &class, MaxTotal: "1.00"}))

	must(0, json.NewEncoder(os.Stdout).Encode(map[string]any{
		"check":    []any{check.JSON200.Band, check.JSON200.Matched, text(check.Headers200.RateLimit) != ""},
		"again":    again.StatusCode(),
		"bad":      (*bad.ApplicationproblemJSON400.Errors)[0].Pointer,
		"index":    lines,
		"feed":     text(feed.Headers200.Link),
		"trust":    trust.JSON200.Scorecards[0].CapabilityId,
		"archive":  archive.JSON200.Schema,
		"exposure": exposure.JSON200.Lines[0].Standing,
		"evaluate": []any{evaluation.JSON200.Schema, evaluation.JSON200.Pass, evaluation.JSON200.SchemaOk},
		"plan":     plan.JSON200.Candidates[0].CapabilityId,
		"via":      []any{via.JSON402.X402Version, text(via.Headers402.PAYMENTREQUIRED) != ""},
		"execute":  execute.StatusCode(),
	}))
}
