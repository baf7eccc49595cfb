import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

export type Json = Record<string, unknown>;

export interface Parameter {
  name: string;
  in: "query" | "path";
  required: boolean;
  schema: Json;
}

export interface DescribedOperation {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Json }> };
  responses: Record<string, { headers?: Json; content?: Record<string, { schema: Json }> }>;
}

/** As much of an OpenAPI document as tests read. */
export interface Document {
  servers: { url: string }[];
  paths: Record<string, Record<string, DescribedOperation>>;
  components: { schemas: Record<string, Json> };
}

/**
 * Is an answer one that the document describes? Says what is wrong: a status, a type, or a value that does not follow its
 * schema; nothing where all is right.
 */
export function answerSchemas(document: Document) {
  const ajv = new Ajv2020({ strict: true, allErrors: false, strictRequired: false, strictTypes: false });
  addFormats.default(ajv);
  ajv.addKeyword("components");
  ajv.addSchema({ $id: "doc:", components: document.components });
  const compiled = new Map<string, ReturnType<typeof ajv.compile>>();
  const validator = (schema: Json) => {
    const key = JSON.stringify(schema);
    const known = compiled.get(key);
    if (known) return known;
    const made = ajv.compile(JSON.parse(key.replaceAll('"#/components', '"doc:#/components')) as Json);
    compiled.set(key, made);
    return made;
  };
  return (path: string, method: string, status: number, contentType: string | null, body: string): string[] => {
    const response = document.paths[path]?.[method]?.responses[String(status)];
    if (!response) return [`${status} is not described`];
    if (!response.content) return body === "" ? [] : [`${status} has a body`];
    const type = contentType?.split(";", 1)[0] ?? "";
    const content = response.content[type];
    if (!content) return [`${type} is not described`];
    if (!type.endsWith("json")) return [];
    const validate = validator(content.schema);
    return validate(JSON.parse(body)) ? [] : (validate.errors ?? []).map((error) => JSON.stringify(error));
  };
}
