import { type AgentCard as SdkCard, verifyAgentCardSignature } from "@a2a-js/sdk";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Settings } from "../../infra/config.ts";
import { makeX402Manifest } from "../../serving/discovery/cards.ts";
import { DISCOVERY } from "../../serving/operations/discovery.ts";
import type { Operation } from "../../serving/operations/operation.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import type { AgentCard, AgentRegistration, McpServerFile, X402Manifest } from "../../serving/schemas/discovery.ts";
import { outsideText } from "../helpers/outside.ts";
import { listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";

const BASE = "https://touchstone.test";
let record: PublicRecord;
let serving: TestServing;
beforeAll(async () => {
  record = await PublicRecord.open();
  serving = await servingOver(record);
});
afterAll(() => record.close());
const MCP_HEADERS = {
  host: "touchstone.test",
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
};
const read = async <T>(path: string): Promise<T> => (await (await serving.get(path)).json()) as T;

test.each(DISCOVERY.map(({ path }) => path))(
  "%s is kept, open to every page, and the same from each process",
  async (path) => {
    const first = await serving.get(path);
    const text = await first.text();
    expect([
      first.status,
      first.headers.get("cache-control"),
      first.headers.get("access-control-allow-origin"),
    ]).toEqual([...[200, "public, max-age=300", "*"]]);
    const again = await serving.get(path, { headers: { "if-none-match": first.headers.get("etag")! } });
    expect(again.status).toBe(304);
    const other = await servingOver(record);
    expect(await (await other.get(path)).text()).toBe(text);
  },
);

test("every address of this service that a description names is one that answers", async () => {
  const texts = await Promise.all(DISCOVERY.map(async ({ path }) => (await serving.get(path)).text()));
  const named = new Set(texts.join("\n").match(/https:\/\/touchstone\.test\/[\w./-]*\w/g));
  expect(named.size).toBeGreaterThan(20);
  for (const address of named) {
    const path = address.slice(BASE.length);
    const init = path === "/mcp" ? { method: "POST", headers: MCP_HEADERS, body: "{}" } : {};
    const { status } = await serving.get(path, init);
    // A check without a url, and a message that is none, are refused; this record has published nothing yet (503).
    const there = path === "/v1/check" || path === "/mcp" ? [400] : /^\/v1\/trust\//.test(path) ? [200, 503] : [200];
    expect([path, there]).toEqual([path, expect.arrayContaining([status])]);
  }
});

describe("the A2A agent card", () => {
  interface Bundle {
    definitions: Record<string, { title: string }>;
  }
  /** The project's schemas, each under the name that the others refer to it by. */
  function a2aSchema(text: string, name: string) {
    const { definitions } = JSON.parse(text) as Bundle;
    const ajv = new Ajv2020({ strict: false, allErrors: true });
    addFormats.default(ajv);
    const isGoogle = (title: string): boolean => ["Struct", "Timestamp", "Value"].includes(title);
    for (const [title, schema] of Object.entries(definitions)) {
      const bare = title.replaceAll(" ", "");
      const id = `${isGoogle(title) ? "google.protobuf" : "lf.a2a.v1"}.${bare}.jsonschema.json`;
      ajv.addSchema({ ...schema, $id: id });
    }
    return ajv.getSchema(`lf.a2a.v1.${name}.jsonschema.json`)!;
  }

  test("follows the project's own schema, which refuses another card", async () => {
    const text = outsideText("a2a/a2a.json");
    if (text === null) return;
    const valid = a2aSchema(text, "AgentCard");
    const card = await read<AgentCard>("/.well-known/agent-card.json");
    expect([valid(card), valid.errors]).toEqual([true, null]);
    expect(valid({ ...card, skills: [{ ...card.skills[0], id: 5 }] })).toBe(false);
    expect(valid({ ...card, registered: true })).toBe(false);
  });

  test("claims the tools as skills, and none of A2A's own bindings, since none is served", async () => {
    const card = await read<AgentCard>("/.well-known/agent-card.json");
    expect(card.skills.map(({ id }) => id)).toEqual(expect.arrayContaining(["check_grade", "search_capabilities"]));
    expect(card.supportedInterfaces).toEqual([
      {
        url: `${BASE}/mcp`,
        protocolBinding: "https://modelcontextprotocol.io/specification/2026-07-28",
        protocolVersion: "1.0",
      },
    ]);
  });

  test("is signed: its SDK verifies it with the key that the card says where to find, and no other card", async () => {
    const card = await read<SdkCard>("/.well-known/agent-card.json");
    const asked: unknown[] = [];
    const verified = verifyAgentCardSignature(async (kid, jku) => {
      asked.push(jku);
      const { keys } = await read<{ keys: { kid: string }[] }>(jku!.slice(BASE.length));
      return keys.find((key) => key.kid === kid)! as never;
    });
    await verified(card);
    expect(asked).toEqual([`${BASE}/.well-known/svc-keys.json`]);
    await expect(verified({ ...card, description: "another" })).rejects.toThrow();
    await expect(verified({ ...card, signatures: [] })).rejects.toThrow();
  });
});

test("the ERC-8004 registration names no agent id that was not minted", async () => {
  const file = await read<AgentRegistration>("/.well-known/agent-registration.json");
  expect(file).toMatchObject({
    type: "https://eips.ethereum.org/EIPS/eip-8004#registration-v1",
    x402Support: false,
    active: true,
    registrations: [],
  });
  expect(file.services.map(({ endpoint }) => endpoint)).toContain(`${BASE}/mcp`);
});

test("the ERC-8004 registration names the agent that the operator minted", async () => {
  const agentRegistry = "eip155:8453:0x8004A169FB4a3325136EB29fA0ceB6D2e539a432";
  const { agent } = Settings.parse({ agent: `${agentRegistry}/22` });
  const minted = await servingOver(record, { agent });
  const file = (await (await minted.get("/.well-known/agent-registration.json")).json()) as AgentRegistration;
  expect(file.registrations).toEqual([{ agentId: 22, agentRegistry }]);
  for (const agent of ["22", `${agentRegistry}/`, `${agentRegistry}/-1`, "eip155:8453:0x8004/22"])
    expect(Settings.safeParse({ agent }).success).toBe(false);
});

describe("the x402 manifest", () => {
  test("is an honest empty list where nothing is sold", async () => {
    const manifest = await read<X402Manifest>("/.well-known/x402");
    expect(manifest).toEqual({ version: 1, resources: [], x402Version: 2, items: [] });
  });

  test("has every row that has a price, with its terms", () => {
    const accepts = [{ scheme: "exact", network: "eip155:84532", amount: "20000" }];
    const paid: Operation = {
      ...OPERATIONS[0]!,
      method: "POST",
      path: "/v1/docs/extract",
      price: { mode: "fixed", amount: "0.02", accepts: () => accepts, since: "2026-11-23" },
    };
    const template = { ...paid, path: "/v1/via/:capability_id" };
    expect(makeX402Manifest([OPERATIONS[0]!, paid, template], serving.deps as never)).toEqual({
      version: 1,
      resources: ["POST /v1/docs/extract"],
      x402Version: 2,
      items: [
        {
          resource: `${BASE}/v1/docs/extract`,
          ...{ type: "http", method: "POST", x402Version: 2, accepts, lastUpdated: 1_795_392_000 },
        },
      ],
    });
  });
});

test.each([
  ["https://touchstone.test", "test.touchstone/touchstone"],
  ["https://api.grades.example:8443/x", "example.grades.api/touchstone"],
  ["http://localhost:8402", "localhost/touchstone"],
  ["http://127.0.0.1:8402", "127.0.0.1/touchstone"],
  ["http://[::1]:8402", "-1-/touchstone"],
])("the MCP server of %s is called %s in a registry", async (baseUrl, name) => {
  const moved = await servingOver(record, { baseUrl });
  const file = (await (await moved.get("/.well-known/mcp/server.json")).json()) as McpServerFile;
  expect(file.name).toBe(name);
  expect(file.name).toMatch(/^[a-zA-Z0-9.-]+\/[a-zA-Z0-9._-]+$/);
  expect(file.remotes).toEqual([{ type: "streamable-http", url: `${baseUrl}/mcp` }]);
  expect(file.description.length).toBeLessThanOrEqual(100);
});

test("llms.txt names every described operation, every tool and every page", async () => {
  const response = await serving.get("/llms.txt");
  const text = await response.text();
  expect(response.headers.get("content-type")).toBe("text/plain; charset=utf-8");
  expect(text.split("\n")[0]).toBe("# Touchstone");
  for (const name of [
    "/v1/check",
    "POST /v1/trust/{id}/disputes",
    "`check_grade`",
    "/docs/check-before-you-pay",
    "/openapi.json",
  ])
    expect(text).toContain(name);
  expect(text).not.toContain("undefined");
});

test.each([
  ["a built client", { text: "export {};\n", sha256: "0", integrity: "sha256-x" }],
  ["no client", null],
])("every address that llms.txt links answers, with %s", async (_, clientFile) => {
  const published = await PublicRecord.open();
  await published.publish([listingDraft({ url: "https://seller.example/sum" })]);
  const { get } = await servingOver(published, { clientFile, proveFile: clientFile });
  const text = await (await get("/llms.txt")).text();
  const links = [...text.matchAll(/\]\((https:\/\/touchstone\.test)([^)]*)\)/g)].map(([, , path]) => path!);
  expect(links.length).toBeGreaterThan(30);
  for (const path of links) expect([path, (await get(path)).status]).toEqual([path, 200]);
  for (const file of ["/client.mjs", "/prove.mjs"]) expect(links.includes(file)).toBe(clientFile !== null);
  await published.close();
});

test("pages say where a program finds their description", async () => {
  const { headers } = await serving.get("/docs/api");
  expect(headers.get("link")).toContain('</openapi.json>; rel="service-desc"');
});
