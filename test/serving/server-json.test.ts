import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Ajv } from "ajv";
import formats from "ajv-formats";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../fixtures/ports.ts";
import { type Serving, serve } from "../../serving/main.ts";
import type { McpServerFile } from "../../serving/schemas/discovery.ts";
import { PublicRecord } from "../helpers/public-record.ts";
import { servingOver } from "../helpers/serving.ts";

/** server.json as it is served is held against the MCP registry's own schema, and an MCP client goes where it leads. */
const VECTOR = resolve(import.meta.dirname, "../../fixtures/vectors/mcp-registry/2025-12-11.json");
const PATH = "/.well-known/mcp/server.json";
let record: PublicRecord;
let live: Serving;
let schema: { $id: string };
let validate: ReturnType<Ajv["compile"]>;

beforeAll(async () => {
  schema = JSON.parse(await readFile(VECTOR, "utf8")) as typeof schema;
  // `example` is OpenAPI's, from which the schema is made.
  const ajv = new Ajv({ strict: false, allErrors: true });
  formats.default(ajv);
  validate = ajv.compile(schema);
  record = await PublicRecord.open();
  const port = await freePort();
  const { app } = await servingOver(record, { baseUrl: `http://127.0.0.1:${port}` });
  live = await serve({ app, port, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await live?.close();
  await record?.close();
});

const fileAt = async (base: string): Promise<McpServerFile> => (await (await fetch(base + PATH)).json()) as never;

test.each(["https://touchstone.test", "https://a.b.example:8443/under", "http://127.0.0.1:8402"])(
  "server.json of %s holds under the schema that it names",
  async (baseUrl) => {
    const { get } = await servingOver(record, { baseUrl });
    const file = (await (await get(PATH)).json()) as McpServerFile;
    expect([validate(file), validate.errors ?? []]).toEqual([true, []]);
    expect(file.$schema).toBe(schema.$id);
    // What the schema leaves to the registry: one exact version, and an address that is no template.
    expect(file.version).toMatch(/^\d+\.\d+\.\d+$/);
    expect(file.remotes.every(({ url }) => !/[{}]/.test(url))).toBe(true);
  },
);

test("the schema is one that a wrong file does not pass", async () => {
  const file = await fileAt(live.url);
  const wrongs = [
    { ...file, name: "no namespace" },
    { ...file, description: "x".repeat(101) },
    { ...file, version: undefined },
    { ...file, remotes: [{ type: "streamable-http" }] },
    { ...file, remotes: [{ type: "websocket", url: file.remotes[0]!.url }] },
  ];
  expect(wrongs.map((one) => validate(JSON.parse(JSON.stringify(one))))).toEqual(wrongs.map(() => false));
});

test("an MCP client that knows server.json alone reaches the tools", async () => {
  const { remotes, name, version } = await fileAt(live.url);
  expect(remotes.map(({ type }) => type)).toEqual(["streamable-http"]);
  const client = new Client({ name: "reader of server.json", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(remotes[0]!.url)));
  try {
    const { tools } = await client.listTools();
    expect(tools.map((tool) => tool.name)).toEqual(expect.arrayContaining(["check_grade", "search_capabilities"]));
    expect(client.getServerVersion()).toMatchObject({ version });
    expect(name).toMatch(/\/touchstone$/);
    const answer = await client.callTool({ name: "check_grade", arguments: { url: "https://seller.example/never" } });
    expect(answer.structuredContent).toMatchObject({ band: "UNRATED" });
  } finally {
    await client.close();
  }
});
