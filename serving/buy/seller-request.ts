import { sha256hex } from "../../infra/canonical.ts";
import { makeToolRequest } from "../../pipelines/1-observe/probe/request.ts";
import type { CallRequest } from "../../pipelines/orders/seller.ts";
import { cannotBeSent, findInexact, pointerOf, type SchemaFault } from "../../pipelines/record/faults.ts";
import { isObject, type JsonObject, parseJson } from "../../pipelines/record/json.ts";
import { fillTemplate, variablesOf } from "../../pipelines/record/template.ts";
import { type FieldError, Problem } from "../http/problem.ts";
import type { SellableEndpoint } from "./eligible.ts";

/** The parts of a buyer's request that a call of the seller is built from. */
export interface BuyerInput {
  /** Values of the variables of the endpoint's url; missing ones are taken from the query. */
  path?: Readonly<Record<string, string>> | undefined;
  query: URLSearchParams;
  body: Uint8Array | null;
  headers: Headers;
}

/** Longest value of a variable of a url, characters. */
const MAX_VALUE_LENGTH = 1_000;
/** Largest number of variable names in a problem. */
const MAX_NAMES = 20;

const PRINTABLE_TEXT = /^[\x20-\x7e]{1,200}$/;

/** Returns a header of the buyer's request for the seller, or a default when its value is absent or unusual. */
const headerForSeller = (name: string, value: string | null, defaultValue: string): Record<string, string> => ({
  [name]: value !== null && PRINTABLE_TEXT.test(value) ? value : defaultValue,
});

/** @throws Problem bad_input with a pointer to each of the fields */
function refuse(fields: readonly SchemaFault[]): never {
  const errors: FieldError[] = fields.slice(0, MAX_NAMES).map(({ path, detail }) => ({
    pointer: path.length === 0 ? "" : pointerOf(path).slice(0, 300),
    detail,
  }));
  const detail = errors.map((error) => `${error.pointer.slice(1) || "the body"} ${error.detail}`).join("; ");
  throw new Problem("bad_input", detail, { errors });
}

/**
 * Builds the request to the seller. For a plain endpoint: its url, with variables filled from the buyer's input and the
 * rest of the buyer's query added; the buyer's body (of a POST), `accept` and `content-type`. For a tool of an MCP
 * server: the tool's arguments. Nothing else of the buyer's request reaches the seller.
 * @throws Problem bad_input
 */
export function sellerRequest({ url, method, tool }: SellableEndpoint, input: BuyerInput): CallRequest {
  if (tool !== null) return toolRequest(url, tool, input);
  const { body, headers } = input;
  const query = new URLSearchParams(input.query);
  const target = new URL(fillUrl(url, { ...input, query }));
  for (const name of new Set(query.keys())) {
    target.searchParams.delete(name);
    for (const value of query.getAll(name)) target.searchParams.append(name, value);
  }
  const sentBody = method === "POST" ? (body ?? new Uint8Array()) : null;
  return {
    ...{ url: target.href, method },
    headers: {
      ...headerForSeller("accept", headers.get("accept"), "application/json"),
      ...(sentBody === null ? {} : headerForSeller("content-type", headers.get("content-type"), "application/json")),
    },
    body: sentBody,
    sha256: sha256hex(Buffer.concat([Buffer.from(`${method} ${target.href}\n`), sentBody ?? new Uint8Array()])),
  };
}

/**
 * Returns the url with its variables filled. Values that are taken from the query are removed from `query`.
 * @throws Problem bad_input
 */
function fillUrl(listed: string, { path = {}, query }: Pick<BuyerInput, "path" | "query">): string {
  const url = withoutOverridden(listed, query);
  const names = new Set(variablesOf(url));
  const values = new Map<string, string>();
  const faults: { path: string[]; detail: string }[] = [];
  const placeOf = (name: string): string[] => [Object.hasOwn(path, name) ? "path" : "query", name];
  for (const name of variablesOf(listed)) {
    const isFromPath = Object.hasOwn(path, name);
    // The buyer's query sets the parameter of an overridden variable. If the variable has the parameter's name, its
    // value stays in `query`, and must not be in `path` too.
    const isOverridden = !names.has(name);
    const inQuery = isFromPath && !isOverridden ? [] : query.getAll(name);
    const givenValues = isFromPath ? [path[name]!, ...inQuery] : inQuery;
    const pointerPath = placeOf(name);
    const [value] = givenValues;
    if (isOverridden && value === undefined) continue;
    if (!isFromPath && !isOverridden) query.delete(name);
    if (value === undefined)
      faults.push({ path: pointerPath, detail: `must be given: it is a variable of ${readableUrl(listed)}` });
    else if (givenValues.length > 1) faults.push({ path: pointerPath, detail: "must be given once" });
    else if (isOverridden && isFromPath)
      faults.push({ path: pointerPath, detail: "must not be given: `query` sets the parameter that it stands for" });
    else if (value === "") faults.push({ path: pointerPath, detail: "must not be empty: it is a part of the url" });
    else if (value.length > MAX_VALUE_LENGTH)
      faults.push({ path: pointerPath, detail: `must have at most ${MAX_VALUE_LENGTH} characters` });
    else values.set(name, value);
  }
  if (faults.length > 0) return refuse(faults);
  if (names.size === 0) return url;
  const filledUrl = fillTemplate(url, (name) => values.get(name)!);
  if (filledUrl !== null) return filledUrl;
  const dotNames = [...names].filter((name) => /^\.+$/.test(values.get(name)!));
  return refuse(
    dotNames.map((name) => ({
      path: placeOf(name),
      detail: "must not be dots alone: it would leave its path",
    })),
  );
}

/**
 * Returns the url without the query parameters that have a placeholder as value and that the buyer's query also sets.
 */
function withoutOverridden(url: string, query: URLSearchParams): string {
  const parsedUrl = new URL(url);
  const inPath = new Set(variablesOf(parsedUrl.origin + parsedUrl.pathname));
  for (const [name, text] of [...parsedUrl.searchParams])
    if (text.includes("{") && query.has(name) && !inPath.has(name)) parsedUrl.searchParams.delete(name);
  return parsedUrl.href;
}

const readableUrl = (url: string): string => url.replace(/%7B/gi, "{").replace(/%7D/gi, "}").slice(0, 300);

/** Builds the request that our own calls of this tool would send with these arguments. @throws Problem bad_input */
function toolRequest(url: string, name: string, { query, body }: BuyerInput): CallRequest {
  const queryNames = [...new Set(query.keys())];
  if (queryNames.length > 0)
    refuse(
      queryNames.map((one) => ({ path: ["query", one], detail: "is not sent to a tool: its arguments are the body" })),
    );
  const example = { body: argumentsOf(body) };
  const request = makeToolRequest(url, name, { kind: "example", example, known: null });
  return { ...request, body: request.body ?? null };
}

/**
 * Parses the arguments of a tool's call, a JSON object; an empty body gives none. Numbers that JavaScript cannot
 * represent are refused, since the tool would get another number.
 * @throws Problem bad_input
 */
function argumentsOf(body: Uint8Array | null): JsonObject {
  if (body === null || body.length === 0) return {};
  const args = parseJson(body);
  if (!isObject(args)) return refuse([{ path: [], detail: "must be a JSON object: the arguments of the tool" }]);
  const fault = findInexact(args);
  return fault === null ? args : refuse([{ ...fault, detail: cannotBeSent(fault) }]);
}
