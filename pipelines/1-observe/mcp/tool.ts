import { sha256hex } from "../../../infra/canonical.ts";
import type { ChosenInput, Request } from "../input.ts";
import { isObject, show } from "../json.ts";

/** A call of one tool: what `tools/call` gets. */
export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
  /** Nothing was known of its input: `tools/list` may say what it takes, before it is called. */
  blind: boolean;
}

/** The request bytes of a tool's call. The same input always gives the same bytes. */
export function makeToolRequest(url: string, name: string, input: ChosenInput): Request {
  const { example, kind } = input;
  const given = example.body ?? example.query ?? {};
  const args = isObject(given) ? given : {};
  const body = Buffer.from(show(args));
  return {
    url,
    method: "POST",
    headers: { accept: "application/json, text/event-stream", "content-type": "application/json" },
    body,
    sha256: sha256hex(Buffer.concat([Buffer.from(`TOOL ${url} ${name}\n`), body])),
    tool: { name, arguments: args, blind: kind === "synthetic" && Object.keys(args).length === 0 },
  };
}
