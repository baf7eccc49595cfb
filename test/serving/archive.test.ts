import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import { ARCHIVE_SUBJECTS } from "../../pipelines/record/vocabulary.ts";
import { createApp } from "../../serving/app.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { ArchiveList, ArchiveManifest } from "../../serving/schemas/archive.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { AppendOnly, validateUrl } from "../helpers/serving.ts";
import { handshake, later } from "../pipelines/2-ingest/records.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../pipelines/4-publish/world.ts";
import { ArchiveWorld } from "../pipelines/5-archive/world.ts";

/** 30 days of four subjects, the first with rows: 120 manifests, so two pages. */
const D1 = "2026-11-10T01:00:00.000Z";
const DAYS = 30;
const DAY_MS = 86_400_000;

let world: ArchiveWorld;
let server: Serving;
let base: string;
beforeAll(async () => {
  world = await ArchiveWorld.open();
  const logger = createLogger("silent");
  const follower = new Follower({
    ...{ tree: new PublishedTree(world.publicStore, TRUST), store: world.publicStore, origin: ORIGIN },
    ...{ clock: systemClock, logger, metrics: createMetrics() },
  });
  const app = createApp({
    ...{
      store: world.publicStore,
      follower,
      log: new AppendOnly(),
      answers: SIGNERS.answers,
      validateUrl,
      jwks: () => JWKS,
    },
    ...{ clock: systemClock, logger, metrics: createMetrics(), baseUrl: "http://127.0.0.1" },
  });
  server = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
  base = server.url;
  const many = Array.from({ length: 400 }, (_, n) => handshake(`s${n}`, later(D1, n * 1_000)));
  await world.ingest.append(...many, handshake("a", later(D1, (DAYS - 1) * DAY_MS)));
  await world.archive(later(D1, (DAYS + 110) * DAY_MS), { baseUrl: base });
  await follower.refresh();
});
afterAll(async () => {
  await server?.close();
  await world?.close();
});

const get = (path: string, headers: Record<string, string> = {}) => fetch(base + path, { headers });
const listOf = async (query = ""): Promise<ArchiveList> =>
  ArchiveList.parse(await (await get(`/v1/archive${query}`)).json());

describe("GET /v1/archive", () => {
  test("has every manifest once over its pages, oldest first, and no other property", async () => {
    const first = await listOf();
    expect(first.manifests).toHaveLength(100);
    expect(first.next).toBe("/v1/archive?page=2");
    const second = ArchiveList.parse(await (await get(first.next!)).json());
    expect([second.manifests.length, second.next]).toEqual([20, null]);
    const all = [...first.manifests, ...second.manifests];
    expect(new Set(all.map(({ id }) => id)).size).toBe(120);
    expect(all.map(({ from }) => from)).toEqual(all.map(({ from }) => from).sort());
    expect(all.slice(0, 4).map(({ subject }) => subject)).toEqual([...ARCHIVE_SUBJECTS]);
    for (const page of ["9", "999999999", "1000000000", "9".repeat(100)]) {
      const past = await listOf(`?page=${page}`);
      expect([page, past.manifests, past.next]).toEqual([page, [], null]);
    }
  });

  test("says how long each table keeps a row, and what always stays", async () => {
    const { kept_in_the_database_for: kept, never_moved } = await listOf();
    for (const subject of ARCHIVE_SUBJECTS) expect(kept[subject]).toBe("P110D");
    for (const table of ["paid_calls", "corrections", "orders"]) expect(never_moved).toContain(table);
  });

  test("of one subject, with its name in the next page's address", async () => {
    const { manifests, next } = await listOf("?subject=grades");
    expect(manifests).toHaveLength(DAYS);
    expect(new Set(manifests.map(({ subject }) => subject))).toEqual(new Set(["grades"]));
    expect(next).toBeNull();
  });

  test.each([
    ["?page=0", "/page"],
    ["?page=", "/page"],
    ["?page=1.5", "/page"],
    ["?page=1e9", "/page"],
    [`?page=${"9".repeat(101)}`, "/page"],
    ["?page=1&page=2", "/page"],
    ["?subject=orders", "/subject"],
    ["?subject=", "/subject"],
  ])("%s is refused and says where", async (query, pointer) => {
    const response = await get(`/v1/archive${query}`);
    expect(response.status).toBe(400);
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    expect(((await response.json()) as { errors: { pointer: string }[] }).errors[0]!.pointer).toBe(pointer);
  });

  test("every manifest is signed by the key that signs cards", async () => {
    for (const manifest of (await listOf()).manifests) {
      expect(verifyObject(JWKS, manifest, { purpose: "cards", at: manifest.verified_at })).toEqual({ ok: true });
      expect(manifest.signing_key_id).toBe(SIGNERS.cards.kid);
    }
  });
});

describe("GET /v1/archive/{id}", () => {
  test("is the manifest of the list, and the object beside the file", async () => {
    const [listed] = (await listOf()).manifests;
    const response = await get(`/v1/archive/${listed!.id}`);
    expect(response.headers.get("cache-control")).toContain("immutable");
    expect(ArchiveManifest.parse(await response.json())).toEqual(listed);
    expect(await (await get(`/archive/${listed!.id}.json`)).text()).toBe(canonicalText(listed));
  });

  test("an unknown id is a 404, what is none a 400", async () => {
    expect((await get(`/v1/archive/arc_${"0".repeat(26)}`)).status).toBe(404);
    expect((await get("/v1/archive/cap_1")).status).toBe(400);
  });
});

describe("a file of the archive", () => {
  test("is served whole and in ranges, for good, with its digest and without a coding", async () => {
    const [manifest] = (await listOf()).manifests;
    const path = manifest!.file.slice(base.length);
    const whole = await get(path, { "accept-encoding": "gzip, zstd" });
    const bytes = Buffer.from(await whole.arrayBuffer());
    expect(whole.headers.get("content-type")).toBe("application/zstd");
    expect(whole.headers.get("content-encoding")).toBeNull();
    expect(whole.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(bytes.length).toBe(manifest!.bytes);
    const digest = `sha-256=:${Buffer.from(sha256hex(bytes), "hex").toString("base64")}:`;
    expect(whole.headers.get("repr-digest")).toBe(digest);
    const part = await get(path, { range: "bytes=10-19" });
    expect([part.status, part.headers.get("content-range")]).toEqual([206, `bytes 10-19/${bytes.length}`]);
    // Of a part, too, it is the digest of the whole (RFC 9530).
    expect(part.headers.get("repr-digest")).toBe(digest);
    expect(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(10, 20))).toBe(true);
    const etag = whole.headers.get("etag")!;
    expect((await get(path, { "if-none-match": etag })).status).toBe(304);
  });

  /** The words of the manifest, as anybody would paste them. */
  test("comes out as its manifest says by the manifest's own command", async () => {
    const run = promisify(execFile);
    const missing: string[] = [];
    for (const tool of ["curl", "zstd", "sha256sum"]) {
      await run("sh", ["-c", `command -v ${tool}`]).catch(() => missing.push(tool));
    }
    if (missing.length > 0) {
      process.stderr.write(
        `\n*** NOT PROVEN: ${missing.join(", ")} missing; the command of a manifest was not run ***\n`,
      );
      expect((await listOf()).manifests[0]!.reproduce).toContain("| zstd -dc | sha256sum");
      return;
    }
    const { manifests } = await listOf();
    for (const manifest of [manifests[0]!, manifests[1]!]) {
      const { stdout } = await run("sh", ["-c", manifest.reproduce]);
      expect(stdout.split(" ")[0]).toBe(manifest.content_hash);
    }
    expect([manifests[0]!.rows, manifests[1]!.rows]).toEqual([400, 0]);
  });
});
