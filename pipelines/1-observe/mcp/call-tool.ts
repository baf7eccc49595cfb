import type { Egress, Profile } from "../../../infra/egress/egress.ts";
import { isObject } from "../json.ts";
import { sample } from "../synthetic.ts";
import { absent, readAnswer, type ToolAnswer } from "./answer.ts";
import { type Listed, Session } from "./session.ts";
import type { ToolCall } from "./tool.ts";

/** Member of the call's `_meta` that a payment travels in (x402 over MCP). */
export const PAYMENT_KEY = "x402/payment";

export interface ToolExchange extends ToolAnswer {
  /** For the record, beside what every exchange has. */
  seen: { initialize_ms: number | null; tool: string; tool_present: boolean | null };
  /** What the list said of the tool's input and output; absent when it was not asked. */
  listed?: Pick<Listed, "inputSchema" | "outputSchema">;
}

export interface ToolQuestion {
  url: string;
  tool: ToolCall;
  profile: Profile;
  totalMs: number;
  /** The signed payment, base64 of its JSON: with it the tool is called at once, without asking for the list. */
  payment?: string | undefined;
  signal?: AbortSignal | undefined;
}

const NO_LIST: Listed = { present: null, inputSchema: undefined, outputSchema: undefined };

/**
 * One call of a tool from `initialize` to its answer, in a session of its own. The payment leaves with `tools/call`
 * only. `result.totalMs` is the time of that call alone; `initialize_ms` stands beside it.
 */
export async function callTool(egress: Egress, ask: ToolQuestion): Promise<ToolExchange> {
  const { tool, payment } = ask;
  const session = new Session(egress, ask.url, ask);
  const opened = await session.open();
  const answered = opened.http.outcome === "answered" && opened.rpc !== null;
  const initialize_ms = answered ? Math.round(opened.http.totalMs) : null;
  const seen = { initialize_ms, tool: tool.name, tool_present: null };
  if (!opened.ok) return { ...refused(readAnswer(opened)), seen };
  const listed = payment === undefined ? await session.list(tool.name) : NO_LIST;
  const known = { ...seen, tool_present: listed.present };
  if (listed.present === false) {
    await session.close();
    return { ...absent(tool.name), seen: known };
  }
  const meta = payment === undefined ? null : { [PAYMENT_KEY]: JSON.parse(Buffer.from(payment, "base64").toString()) };
  const said = await session.call(tool.name, argumentsOf(tool, listed), meta);
  await session.close();
  return { ...readAnswer(said), seen: known, ...(listed.present === null ? {} : { listed }) };
}

/** Whatever was said in place of a welcome, it was not the tool that said it: neither its answer nor its price. */
function refused(said: ToolAnswer): ToolAnswer {
  const { result } = said;
  const ours = result.outcome === "answered" && result.raw !== undefined;
  const says = said.says ?? "it is no MCP server of a revision that we speak";
  return ours ? { result: { ...result, status: 502 }, payable: false, says } : { ...said, payable: false };
}

function argumentsOf(tool: ToolCall, listed: Listed): Record<string, unknown> {
  if (!tool.blind || !isObject(listed.inputSchema)) return tool.arguments;
  const made = sample(listed.inputSchema);
  return isObject(made) ? made : tool.arguments;
}
