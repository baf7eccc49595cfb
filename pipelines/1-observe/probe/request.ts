import { sha256hex } from "../../../infra/canonical.ts";
import type { Claims } from "../../record/bodies.ts";
import type { Example, KnownAnswer } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { fillTemplate } from "../../record/template.ts";
import { isObject, show } from "../json.ts";
import type { Declared } from "../terms/declared.ts";
import { sample } from "./synthetic.ts";

/** A request as it is sent, without payment. */
export interface Request {
  url: string;
  method: NonNullable<Claims["method"]>;
  headers: Record<string, string>;
  body?: Uint8Array;
  /** sha256 of `METHOD url`, a newline and the body's bytes: identifies what was asked, without the payment. */
  sha256: string;
  /** Set for a tool of an MCP server, which is called in a session; `body` is then its arguments alone. */
  tool?: ToolCall;
}

/** A call of one tool: the parameters of `tools/call`. */
export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
  /** Nothing was known of its input: then the arguments are made from what `tools/list` declares. */
  blind: boolean;
}

export interface ChosenInput {
  kind: "example" | "known_answer" | "synthetic";
  example: Example;
  known: KnownAnswer | null;
}

/** What is known of how an endpoint is called: by its seller (`own`: its listing, its 402), and by others. */
export interface InputSources {
  own: readonly Pick<Claims, "example" | "input_schema">[];
  others: readonly Pick<Claims, "example" | "input_schema">[];
}

const SIMPLE_MIME = /^[\w.+-]{1,60}\/[\w.+-]{1,60}$/;

const exampleOf = (from: InputSources["own"]): ChosenInput["example"] | null => {
  const found = from.find((one) => one.example !== null)?.example;
  return found ? (found as ChosenInput["example"]) : null;
};

/**
 * The input of a call: the question whose answer we know where there is one, else the seller's own example, else one
 * made from a schema. A third party's example counts as made up (`synthetic`), so that a catalogue cannot make somebody
 * else's endpoint fail.
 * An example of the path alone is kept, and the rest of the input is made from the schema.
 * @param known null for a free probe, which asks no question
 */
export function chooseInput(sources: InputSources, inBody: boolean, known: KnownAnswer | null): ChosenInput {
  if (known) return { kind: "known_answer", example: known.input, known };
  const schema = [...sources.own, ...sources.others].find((one) => one.input_schema !== undefined)?.input_schema;
  const isWhole = (one: Example): boolean => schema === undefined || one.query !== undefined || one.body !== undefined;
  const example = exampleOf(sources.own);
  if (example && isWhole(example)) return { kind: "example", example, known: null };
  const lent = exampleOf(sources.others);
  if (lent && isWhole(lent)) return { kind: "synthetic", example: lent, known: null };
  const path = example?.path ?? lent?.path;
  const named = path === undefined ? {} : { path };
  const value = schema === undefined ? {} : sample(schema);
  if (inBody) return { kind: "synthetic", example: { ...named, body: value }, known: null };
  const query = isObject(value) ? value : {};
  return { kind: "synthetic", example: { ...named, query: asText(query) }, known: null };
}

const asText = (map: Record<string, unknown>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(map).map(([name, value]) => [name, typeof value === "string" ? value : show(value)]),
  );

/**
 * Fills a template's placeholders from the example's `path`, else with "1": most sellers ask for payment whatever
 * stands there.
 */
function filled(url: string, path: Record<string, string>): string {
  const own = fillTemplate(url, (name) => (Object.hasOwn(path, name) ? path[name]! : "1"));
  return own ?? fillTemplate(url, () => "1")!;
}

/** The request for an input. The same input always gives the same bytes. */
export function makeRequest(
  url: string,
  method: Request["method"],
  input: ChosenInput["example"],
  mime: string | null,
): Request {
  const target = new URL(filled(url, input.path ?? {}));
  for (const [name, value] of Object.entries(input.query ?? {})) target.searchParams.set(name, value);
  const declared = mime !== null && SIMPLE_MIME.test(mime) && !/json/i.test(mime) ? mime : null;
  const headers: Record<string, string> = {
    accept: declared ? `${declared}, application/json;q=0.9` : "application/json",
  };
  const withBody = input.body !== undefined && method !== "GET";
  const body = withBody ? Buffer.from(show(input.body)) : undefined;
  if (body) headers["content-type"] = "application/json";
  const digest = sha256hex(Buffer.concat([Buffer.from(`${method} ${target.href}\n`), body ?? Buffer.alloc(0)]));
  return { url: target.href, method, headers, ...(body ? { body } : {}), sha256: digest };
}

/** The request for a tool's call. The same input always gives the same bytes. */
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

const hasBody = (method: string): boolean => method !== "GET" && method !== "DELETE";

/**
 * What the seller declares of its answer: its listing first, then its 402. A catalogue's claims are not the seller's.
 */
export interface SellerSays {
  schema: unknown;
  mime: string | null;
}

export function sellerSays(one: ListedCap, declared: Declared | null): SellerSays {
  const own = one.sellerClaims;
  return {
    schema: own?.output_schema ?? declared?.outputSchema,
    mime: own?.output_mime ?? declared?.mime ?? null,
  };
}

/**
 * The request of a call, from the listing and, once there is one, from the 402.
 * @param asked the question of a paid call, if it has one; null for a free probe
 */
export function requestOf(
  one: ListedCap,
  declared: Declared | null,
  asked: { known: KnownAnswer | null } | null,
): { input: ChosenInput; request: Request } {
  const says = sellerSays(one, declared);
  const own = [
    ...(one.sellerClaims ? [one.sellerClaims] : []),
    ...(declared ? [{ example: declared.example, input_schema: declared.inputSchema }] : []),
  ];
  const method = one.method as Request["method"];
  const inBody = one.tool !== null || hasBody(method);
  const input = chooseInput({ own, others: [one.claims] }, inBody, asked?.known ?? null);
  if (one.tool !== null) return { input, request: makeToolRequest(one.url, one.tool, input) };
  return { input, request: makeRequest(one.url, method, input.example, asked === null ? null : says.mime) };
}
