import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

export type Json = Record<string, unknown>;

export interface Parameter {
  name: string;
  in: "query" | "path" | "header";
  required: boolean;
  schema: Json;
}

export interface DescribedOperation {
  operationId: string;
  /** Those of headers stand in the components. */
  parameters?: (Parameter | { $ref: string })[];
  requestBody?: { required: boolean; content: Record<string, { schema: Json }> };
  responses: Record<string, { headers?: Json; content?: Record<string, { schema: Json }> }>;
}

/** As much of an OpenAPI document as tests read. */
export interface Document {
  servers: { url: string }[];
  paths: Record<string, Record<string, DescribedOperation>>;
  components: { schemas: Record<string, Json>; parameters: Record<string, Parameter>; headers: Record<string, Json> };
}

/** Headers of every HTTP server, which the description leaves out. */
const EVERYWHERE = new Set(
  [
    ...["access-control-allow-origin", "access-control-expose-headers", "connection", "content-length", "content-type"],
    ...["content-security-policy", "date", "keep-alive", "transfer-encoding", "x-content-type-options"],
  ].map((name) => name.toLowerCase()),
);

/** What the document says of a status: its own response, or that of its range (`2XX`). */
function responseOf(document: Document, path: string, method: string, status: number) {
  const responses = document.paths[path]?.[method]?.responses;
  return responses?.[String(status)] ?? responses?.[`${Math.floor(status / 100)}XX`];
}

/** Headers of an answer that its description does not name. */
export function undescribed(document: Document, path: string, method: string, { status, headers }: Response): string[] {
  const { headers: named = {} } = responseOf(document, path, method, status) ?? {};
  const known = new Set(Object.keys(named).map((name) => name.toLowerCase()));
  return [...headers.keys()].filter((name) => !known.has(name) && !EVERYWHERE.has(name));
}

/** A schema of the document, as a validator of others that knows the components. */
export function validators(document: Document): (schema: Json) => ValidateFunction {
  const ajv = new Ajv2020({ strict: true, allErrors: false, strictRequired: false, strictTypes: false });
  addFormats.default(ajv);
  ajv.addKeyword("components");
  ajv.addFormat("base64", true);
  ajv.addSchema({ $id: "doc:", components: document.components });
  const compiled = new Map<string, ValidateFunction>();
  return (schema) => {
    const key = JSON.stringify(schema);
    const known = compiled.get(key) ?? ajv.compile(JSON.parse(key.replaceAll('"#/components', '"doc:#/components')));
    compiled.set(key, known);
    return known;
  };
}

/**
 * Is an answer one that the document describes? Says what is wrong: a status, a type, or a value that does not follow its
 * schema; nothing where all is right.
 */
export function answerSchemas(document: Document) {
  const validator = validators(document);
  const wrong = (schema: Json, value: string): string[] => {
    const validate = validator(schema);
    return validate(JSON.parse(value)) ? [] : (validate.errors ?? []).map((error) => JSON.stringify(error));
  };
  return (path: string, method: string, status: number, contentType: string | null, body: string): string[] => {
    const response = responseOf(document, path, method, status);
    if (!response) return [`${status} is not described`];
    if (!response.content) return body === "" ? [] : [`${status} has a body`];
    const type = contentType?.split(";", 1)[0] ?? "";
    const content = response.content[type];
    if (!content) return [`${type} is not described`];
    const lines = content.schema.contentSchema as Json | undefined;
    if (lines) return body.split("\n").flatMap((line) => (line === "" ? [] : wrong(lines, line)));
    return type.endsWith("json") ? wrong(content.schema, body) : [];
  };
}
