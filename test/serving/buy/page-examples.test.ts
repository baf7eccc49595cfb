import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decodePaymentRequiredHeader } from "@x402/core/http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { systemClock } from "../../../infra/clock.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { CompaniesAnswer } from "../../../serving/schemas/companies.ts";
import { EvidenceAnswer } from "../../../serving/schemas/evidence.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";

/** The examples of the pages, and questions about many names, bought by the protocol's own client on the local chain. */
const ROOT = join(import.meta.dirname, "../../..");
const doc = (name: string): string => readFileSync(join(ROOT, `docs/${name}.md`), "utf8");
const sample = (name: string): string => join(ROOT, `fixtures/register/${name}.csv`);
const PAGE = Buffer.from("<html><p>The money comes back within 30 days.</html>");

let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
let dir: string;
let origin: string;
const site = createServer((_, response) => response.writeHead(200, { "content-type": "text/html" }).end(PAGE));

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "page-examples-"));
  const register = registerPath(dir);
  await importRegister({
    ...{ source: sample("golden-copy"), domains: sample("domains"), to: register, clock: systemClock },
    ...{ relationships: sample("relationships"), exceptions: sample("exceptions") },
  });
  await new Promise<void>((resolve) => site.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(site.address() as AddressInfo).port}`;
  world = await marketBeside();
  service = await sellingOver(world, [], { register });
  rail = createEvmRail({
    ...{ rpcUrl: world.rpcUrl, asset: world.asset, network: `eip155:${world.chainId}`, confirmations: 1 },
  });
});
afterAll(async () => {
  site.close();
  await service?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

const post = (body: unknown): RequestInit => ({
  ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
});
/** Atomic units that a buyer paid for what it did. */
async function paidBy(buyer: OfficialBuyer, work: () => Promise<Response>): Promise<[bigint, Response]> {
  const before = (await rail.balance(buyer.address)).value;
  const answer = await work();
  return [before - (await rail.balance(buyer.address)).value, answer];
}
const LOOKUP = "/v1/companies/lookup";
const buy = async (path: string, body: unknown): Promise<[bigint, Response]> => {
  const buyer = await officialBuyer(world);
  return paidBy(buyer, () => buyer.fetch(service.url + path, post(body)));
};
/** The bodies that the page of companies shows. */
const SHOWN = [...doc("companies-lookup").matchAll(/```json\n(\{"names?"[\s\S]*?)\n```/g)].map(
  ([, text]) => JSON.parse(text!) as { name?: string; names?: string[] },
);

test("web/evidence: the page's example, with the address of a server that is there", async () => {
  const [, shown] = /\/v1\/web\/evidence -d '([^']+)'/.exec(doc("paid-operations"))!;
  const asked = JSON.parse(
    shown!.replace("https://seller.example", origin).replace("SHA256", sha256hex(PAGE)),
  ) as Record<string, string>;
  const [paid, answer] = await buy("/v1/web/evidence", asked);
  expect([answer.status, paid]).toEqual([200, 20_000n]);
  const { receipt, body } = EvidenceAnswer.parse(await answer.json());
  expect(receipt).toMatchObject({ url: `${origin}/terms`, status: 200, compared: { result: "same" } });
  expect(Buffer.from(body.base64!, "base64").equals(PAGE)).toBe(true);
});

describe("companies/lookup", () => {
  test("the page has an example of one company and one of several names", () => {
    expect(SHOWN.map(({ name, names }) => [name, names?.length])).toEqual([
      ["Siemens AG", undefined],
      [undefined, 3],
    ]);
  });

  test.each(SHOWN.map((body) => [body] as const))("%j is bought at one price a name", async (body) => {
    const [paid, answer] = await buy(LOOKUP, body);
    expect([answer.status, paid]).toEqual([200, 20_000n * BigInt(body.names?.length ?? 1)]);
    const { matches, results } = CompaniesAnswer.parse(await answer.json());
    if (!body.names) return expect(matches![0]!.company.name).toBe("Siemens Aktiengesellschaft");
    expect(results!.map(({ matches: [first] }) => [first!.score, first!.company.name])).toEqual([
      [1, expect.stringMatching(/JPMORGAN CHASE BANK/)],
      [1, "BARCLAYS BANK PLC"],
      [1, "Credit Suisse AG"],
    ]);
  });

  test("the 402 names the price of the body, whatever it is; what cannot be taken is a 400 before it", async () => {
    const priced = async (body: RequestInit) => {
      const answer = await fetch(service.url + LOOKUP, body);
      const header = answer.headers.get("payment-required");
      return [answer.status, header && decodePaymentRequiredHeader(header).accepts[0]!.amount];
    };
    const names = Array.from({ length: 51 }, (_, i) => `Bank ${i}`);
    expect(await priced(post({ names: names.slice(1) }))).toEqual([402, "1000000"]);
    for (const one of [post({}), post({ name: "SAP" }), { method: "POST", body: "no json" }, { method: "POST" }]) {
      expect(await priced(one)).toEqual([402, "20000"]);
    }
    for (const wrong of [{ names }, { names: [] }, { names: ["SAP", "sap"] }, { names: ["SAP"], name: "SAP" }]) {
      expect(await priced(post(wrong))).toEqual([400, null]);
    }
  });

  test("a payment for two names does not buy three, and is not charged", async () => {
    const buyer = await officialBuyer(world);
    const swapping: typeof fetch = async (input, init) => {
      const request = new Request(input, init);
      if (!request.headers.has("payment-signature")) return fetch(request);
      return fetch(request.url, { ...post({ names: ["SAP", "Nokia", "Siemens"] }), headers: request.headers });
    };
    const [paid, answer] = await paidBy(buyer, () =>
      buyer.over(swapping)(service.url + LOOKUP, post({ names: ["SAP", "Nokia"] })),
    );
    expect([answer.status, paid]).toEqual([402, 0n]);
    const terms = decodePaymentRequiredHeader(answer.headers.get("payment-required")!);
    expect(terms).toMatchObject({
      error: "invalid_exact_evm_payload_authorization_value",
      accepts: [{ amount: "60000" }],
    });
    expect(terms.resource.description).toContain("This body: 3 at 0.020000 USDC each");
  });

  test("names without a match are named, nothing is charged, and the others are bought after that", async () => {
    const names = ["SAP", ...Array.from({ length: 40 }, (_, i) => `Xyzzyplugh ${i}`), "Nokia"];
    const [paid, answer] = await buy(LOOKUP, { names });
    const problem = (await answer.json()) as { detail: string; errors: { pointer: string }[] };
    expect([answer.status, paid, problem.errors.length]).toEqual([422, 0n, 32]);
    const missing = [...problem.detail.matchAll(/\/names\/(\d+)/g)].map(([, place]) => Number(place));
    const others = names.filter((_, i) => !missing.includes(i));
    expect(others).toEqual(["SAP", "Nokia"]);
    const [then, bought] = await buy(LOOKUP, { names: others });
    expect([bought.status, then]).toEqual([200, 40_000n]);
  });
});
