import { sha256hex } from "../../../infra/canonical.ts";
import type { Claims } from "../../record/bodies.ts";
import type { Example, KnownAnswer } from "../../record/classes.ts";
import type { ListedCap } from "../../record/memory.ts";
import { fillTemplate, variablesOf } from "../../record/template.ts";
import { isObject, show } from "../json.ts";
import type { Declared } from "../terms/declared.ts";
import { sampleValue } from "./synthetic.ts";

/** A request as it is sent, without payment. */
export interface Request {
  url: string;
  method: NonNullable<Claims["method"]>;
  headers: Record<string, string>;
  body?: Uint8Array;
  /**
   * sha256 of `METHOD url` (for a tool `TOOL url name`), a newline and the body's bytes. It identifies the request
   * without the payment.
   */
  sha256: string;
  /** Set for a tool of an MCP server, which is called in a session. Then `body` holds only the tool's arguments. */
  tool?: ToolCall;
}

/** The parameters of `tools/call`. */
export interface ToolCall {
  name: string;
  arguments: Record<string, unknown>;
  /** True if nothing is known about the tool's input. Then the arguments are made from the schema in `tools/list`. */
  isInputUnknown: boolean;
}

/** The input that was chosen for a call, and its origin. */
export interface ChosenInput {
  kind: "example" | "known_answer" | "synthetic";
  example: Example;
  /** The question and its right answer, for the kind `known_answer`; else null. */
  known: KnownAnswer | null;
}

/**
 * Descriptions of an endpoint's input: from its seller (`sellerOwn`: the listing and the 402), and from other listings.
 */
export interface InputSources {
  sellerOwn: readonly Pick<Claims, "example" | "input_schema">[];
  others: readonly Pick<Claims, "example" | "input_schema">[];
}

const SIMPLE_MIME = /^[\w.+-]{1,60}\/[\w.+-]{1,60}$/;

/**
 * Returns the first example. One that has only headers, values of the path or the body's form beside a schema comes after
 * those of other descriptions.
 */
const firstExample = (descriptions: InputSources["sellerOwn"]): Example | null => {
  const given = descriptions.filter((one) => one.example !== null);
  const hasInput = ({ example, input_schema: schema }: (typeof given)[number]): boolean =>
    schema === undefined || example?.query !== undefined || example?.body !== undefined;
  return ((given.find(hasInput) ?? given[0])?.example as Example | undefined) ?? null;
};

/**
 * Chooses the input of a call: a question whose answer we know if there is one, else the seller's own example, else an
 * input made from a schema. A third party's example counts as `synthetic`, so that a catalogue cannot make another
 * seller's endpoint fail. If an example has no query and no body, they are made from the schema. If it lacks a value of
 * the path, the call is `synthetic` too, since the seller never named our filler.
 * @param known the question of a paid call; null for a free probe
 * @param pathVariables names of the placeholders in the url's path
 */
export function chooseInput(
  sources: InputSources,
  isInputInBody: boolean,
  known: KnownAnswer | null,
  pathVariables: readonly string[] = [],
): ChosenInput {
  const example = firstExample(sources.sellerOwn);
  if (known) {
    const headers = known.input.headers ?? example?.headers;
    return { kind: "known_answer", example: headers ? { ...known.input, headers } : known.input, known };
  }
  const schema = [...sources.sellerOwn, ...sources.others].find((one) => one.input_schema !== undefined)?.input_schema;
  const isComplete = (one: Example): boolean =>
    (schema === undefined || one.query !== undefined || one.body !== undefined) &&
    pathVariables.every((name) => one.path !== undefined && Object.hasOwn(one.path, name));
  if (example && isComplete(example)) return { kind: "example", example, known: null };
  // Headers are sent for the seller alone: a catalogue's could make another's server do something else.
  const { headers: _, ...othersInput } = firstExample(sources.others) ?? { headers: null };
  const othersExample: Example | null = firstExample(sources.others) && othersInput;
  if (othersExample && isComplete(othersExample)) return { kind: "synthetic", example: othersExample, known: null };
  const path = example?.path ?? othersExample?.path;
  const declared: Example = { ...(example ?? othersExample), ...(path === undefined ? {} : { path }) };
  const isMade = declared.query === undefined && declared.body === undefined;
  if (!isMade) return { kind: "synthetic", example: declared, known: null };
  const value = schema === undefined ? {} : sampleValue(schema);
  if (isInputInBody) return { kind: "synthetic", example: { ...declared, body: value }, known: null };
  const query = isObject(value) ? value : {};
  return { kind: "synthetic", example: { ...declared, query: toTextMap(query) }, known: null };
}

const toTextMap = (map: Record<string, unknown>): Record<string, string> =>
  Object.fromEntries(
    Object.entries(map).map(([name, value]) => [name, typeof value === "string" ? value : show(value)]),
  );

/** Value of a placeholder that no example names; most sellers ask for payment whatever it is. */
const FILLER = "1";

/** Fills a template's placeholders from the example's `path`, else with the filler. */
function fillPath(url: string, path: Record<string, string>): string {
  const filledUrl = fillTemplate(url, (name) => (Object.hasOwn(path, name) ? path[name]! : FILLER));
  return filledUrl ?? fillTemplate(url, () => FILLER)!;
}

/**
 * Leaves out the path of an example in a 402 if it may be an echo of our filler: the server library of x402 writes the
 * values of the request that it answers.
 */
function withoutEcho(example: Claims["example"]): Claims["example"] {
  const { path, ...rest } = example ?? {};
  const isEcho = isObject(path) && Object.values(path).every((value) => value === FILLER);
  return example && isEcho ? rest : example;
}

/**
 * Writes a map as multipart/form-data. The boundary is a hash in the form of that of Node's fetch, so that equal inputs
 * give equal bytes.
 */
function toFormData(fields: Record<string, unknown>): { bytes: Buffer; type: string } {
  const hash = BigInt(`0x${sha256hex(show(fields)).slice(0, 32)}`);
  const boundary = `----formdata-undici-0${String(hash % 10n ** 11n).padStart(11, "0")}`;
  const nameOf = (name: string): string => name.replace(/\r\n|\r|\n/g, "%0D%0A").replace(/"/g, "%22");
  const parts = Object.entries(toTextMap(fields)).map(
    ([name, value]) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${nameOf(name)}"\r\n\r\n${value.replace(/\r?\n|\r/g, "\r\n")}\r\n`,
  );
  return {
    bytes: Buffer.from(`${parts.join("")}--${boundary}--\r\n`),
    type: `multipart/form-data; boundary=${boundary}`,
  };
}

const JSON_TYPE = "application/json";

function encodeBody({ body, body_type }: Example): { bytes: Buffer; type: string } {
  if (body_type === "text" && typeof body === "string") return { bytes: Buffer.from(body), type: "text/plain" };
  if (body_type === "form-data" && isObject(body)) return toFormData(body);
  return { bytes: Buffer.from(show(body)), type: JSON_TYPE };
}

/** Returns the headers that a request has besides those of every request with JSON: what its seller declares. */
export function declaredHeadersOf({ headers }: Pick<Request, "headers">): Record<string, string> {
  const { accept: _, "content-type": type, ...declared } = headers;
  return { ...declared, ...(type === undefined || type === JSON_TYPE ? {} : { "content-type": type }) };
}

/** Makes the request for an input. Equal inputs give equal bytes. */
export function makeRequest(
  url: string,
  method: Request["method"],
  input: ChosenInput["example"],
  mime: string | null,
): Request {
  const target = new URL(fillPath(url, input.path ?? {}));
  for (const [name, value] of Object.entries(input.query ?? {})) target.searchParams.set(name, value);
  const nonJsonMime = mime !== null && SIMPLE_MIME.test(mime) && !/json/i.test(mime) ? mime : null;
  const headers: Record<string, string> = {
    ...input.headers,
    accept: nonJsonMime ? `${nonJsonMime}, application/json;q=0.9` : JSON_TYPE,
  };
  const sendsBody = input.body !== undefined && method !== "GET";
  const { bytes: body, type } = sendsBody ? encodeBody(input) : {};
  if (type) headers["content-type"] = type;
  const digest = sha256hex(Buffer.concat([Buffer.from(`${method} ${target.href}\n`), body ?? Buffer.alloc(0)]));
  return { url: target.href, method, headers, ...(body ? { body } : {}), sha256: digest };
}

/** Makes the request for a tool's call. Equal inputs give equal bytes. */
export function makeToolRequest(url: string, name: string, input: ChosenInput): Request {
  const { example, kind } = input;
  const toolInput = example.body ?? example.query ?? {};
  const args = isObject(toolInput) ? toolInput : {};
  const body = Buffer.from(show(args));
  return {
    url,
    method: "POST",
    headers: { accept: "application/json, text/event-stream", "content-type": "application/json" },
    body,
    sha256: sha256hex(Buffer.concat([Buffer.from(`TOOL ${url} ${name}\n`), body])),
    tool: { name, arguments: args, isInputUnknown: kind === "synthetic" && Object.keys(args).length === 0 },
  };
}

const hasBody = (method: string): boolean => method !== "GET" && method !== "DELETE";

/** The seller's declaration of the answer, from its listing or else from its 402. Claims of catalogues are not used. */
export interface SellerOutput {
  /** JSON Schema of the answer; undefined if the seller declares none. */
  schema: unknown;
  /** Media type of the answer; null if the seller declares none. */
  mime: string | null;
}

export function readSellerOutput(endpoint: ListedCap, declared: Declared | null): SellerOutput {
  const sellerClaims = endpoint.sellerClaims;
  return {
    schema: sellerClaims?.output_schema ?? declared?.outputSchema,
    mime: sellerClaims?.output_mime ?? declared?.mime ?? null,
  };
}

/**
 * Makes the request of a call from the listing and, if there is one, from the 402.
 * @param question for a paid call, an object with its question in `known`, which is null if the call has no question;
 * null for a free probe
 */
export function buildRequest(
  endpoint: ListedCap,
  declared: Declared | null,
  question: { known: KnownAnswer | null } | null,
): { input: ChosenInput; request: Request } {
  const output = readSellerOutput(endpoint, declared);
  const sellerDescriptions = [
    ...(endpoint.sellerClaims ? [endpoint.sellerClaims] : []),
    ...(declared ? [{ example: withoutEcho(declared.example), input_schema: declared.inputSchema }] : []),
  ];
  const method = endpoint.method as Request["method"];
  const isInputInBody = endpoint.tool !== null || hasBody(method);
  const input = chooseInput(
    { sellerOwn: sellerDescriptions, others: [endpoint.claims] },
    isInputInBody,
    question?.known ?? null,
    variablesOf(endpoint.url.split("?")[0]!),
  );
  if (endpoint.tool !== null) return { input, request: makeToolRequest(endpoint.url, endpoint.tool, input) };
  return { input, request: makeRequest(endpoint.url, method, input.example, question === null ? null : output.mime) };
}
