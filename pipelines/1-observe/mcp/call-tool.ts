import type { Egress, Profile } from "../../../infra/egress/egress.ts";
import type { ToolCall } from "../probe/request.ts";
import { ownReader, type Reader } from "../reading/reader.ts";
import { absent, type ListedTool, type Replied, type ToolAnswer, unread } from "./answers.ts";
import { type Listed, Session } from "./session.ts";

/** Member of the call's `_meta` that a payment travels in (x402 over MCP). */
export const PAYMENT_KEY = "x402/payment";

export interface ToolExchange extends ToolAnswer {
  /** For the record, beside what every exchange has. */
  seen: { initialize_ms: number | null; tool: string; tool_present: boolean | null };
  /** What the list said of the tool's input and output; absent when it was not asked. */
  listed?: Partial<Pick<ListedTool, "inputSchema" | "outputSchema">>;
}

export interface ToolQuestion {
  url: string;
  tool: ToolCall;
  profile: Profile;
  totalMs: number;
  /** The signed payment, base64 of its JSON: with it the tool is called at once, without asking for the list. */
  payment?: string | undefined;
  signal?: AbortSignal | undefined;
  /** Of a leg of a blind call: in whose name it leaves (stock.ts). */
  stock?: string | undefined;
}

const NO_LIST: Listed = { present: null, tool: null };

/**
 * One call of a tool from `initialize` to its answer, in a session of its own. The payment leaves with `tools/call`
 * only. `result.totalMs` is the time of that call alone; `initialize_ms` stands beside it.
 */
export async function callTool(egress: Egress, ask: ToolQuestion, reader: Reader = ownReader): Promise<ToolExchange> {
  const { tool, payment } = ask;
  const session = new Session(egress, reader, ask.url, ask);
  const { replied, ...opened } = await session.open();
  const answered = replied.http.outcome === "answered" && opened.answered;
  const initialize_ms = answered ? Math.round(replied.http.totalMs) : null;
  const seen = { initialize_ms, tool: tool.name, tool_present: null };
  if (!opened.ok) return { ...refused(await answerOf(reader, replied)), seen };
  const listed = payment === undefined ? await session.list(tool.name) : NO_LIST;
  const known = { ...seen, tool_present: listed.present };
  if (listed.present === false) {
    await session.close();
    return { ...absent(tool.name), seen: known };
  }
  const meta = payment === undefined ? null : { [PAYMENT_KEY]: JSON.parse(Buffer.from(payment, "base64").toString()) };
  const said = await session.call(tool.name, argumentsOf(tool, listed), meta);
  await session.close();
  return { ...(await answerOf(reader, said)), seen: known, ...(listed.tool === null ? {} : { listed: listed.tool }) };
}

async function answerOf(reader: Reader, replied: Replied): Promise<ToolAnswer> {
  const read = await reader.ask("reply", replied);
  return read.ok ? read.said : unread(replied.http, read.says);
}

/** Whatever was said in place of a welcome, it was not the tool that said it: neither its answer nor its price. */
function refused(said: ToolAnswer): ToolAnswer {
  const { result } = said;
  const ours = result.outcome === "answered" && result.raw !== undefined;
  const says = said.says ?? "it is no MCP server of a revision that we speak";
  return ours ? { result: { ...result, status: 502 }, payable: false, says } : { ...said, payable: false };
}

const argumentsOf = (tool: ToolCall, listed: Listed): Record<string, unknown> =>
  (tool.blind && listed.tool?.made) || tool.arguments;
