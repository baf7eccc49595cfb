import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { FixedClock } from "../../infra/clock.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { HttpSource } from "../../pipelines/published/open-source.ts";
import { DirectorySource } from "../../pipelines/published/source.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { createMirrorApp } from "../../serving/mirror-app.ts";
import { NOW, PublicRecord } from "../helpers/public-record.ts";
import { keysOf, Mirror, publishAll, sourceDir } from "../pipelines/mirror/testbed.ts";

let record: PublicRecord;
let mirror: Mirror;
let serving: Serving;

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 270);
  mirror = await Mirror.open();
  await mirror.run(new DirectorySource(sourceDir(record)), { keys: keysOf(record) });
  const app = createMirrorApp(mirror.publicStore, createLogger("silent"));
  serving = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
});

afterAll(async () => {
  await serving.close();
  await mirror.close();
  await record.close();
});

/** A path as it is, without the clean-up that URL parsers do. */
const raw = (path: string, method = "GET"): Promise<{ status: number; body: string; type: string }> =>
  new Promise((resolve, reject) => {
    const asked = request({ host: "127.0.0.1", port: serving.port, path, method }, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.on("end", () =>
        resolve({
          status: answer.statusCode!,
          body: Buffer.concat(chunks).toString("utf8"),
          type: answer.headers["content-type"] ?? "",
        }),
      );
    });
    asked.on("error", reject);
    asked.end();
  });

test("/health is 200 once a checkpoint is copied, and 503 before", async () => {
  expect(await raw("/health")).toMatchObject({ status: 200, body: expect.stringContaining('"ok":true') });
  const empty = await Mirror.open();
  const app = createMirrorApp(empty.publicStore, createLogger("silent"));
  const answer = await app.request("/health");
  expect([answer.status, await answer.json()]).toEqual([503, expect.objectContaining({ ok: false })]);
  await empty.close();
});

test("another mirror copies and proves it, as it would the service itself", async () => {
  const second = await Mirror.open();
  const source = new HttpSource(serving.url, { clock: new FixedClock(NOW) });
  try {
    const done = await second.run(source, { keys: keysOf(record) });
    expect(done).toMatchObject({ result: "synced", tree_size: record.committer.fold.size });
    expect(await second.proven(record, true)).toBe(done.tree_size);
    expect(await second.run(source)).toMatchObject({ result: "idle" });
  } finally {
    await source.close();
    await second.close();
  }
});

test("objects come with the headers of the service: types, caching, packed bundles, ranges", async () => {
  const checkpoint = await fetch(`${serving.url}/checkpoint`);
  expect(checkpoint.headers.get("cache-control")).toBe("no-store");
  const bundle = await fetch(`${serving.url}/tile/entries/000`);
  expect(bundle.headers.get("content-encoding")).toBe("gzip");
  expect(bundle.headers.get("cache-control")).toContain("immutable");
  const part = await fetch(`${serving.url}/tile/0/000`, { headers: { range: "bytes=32-63" } });
  expect(part.status).toBe(206);
  expect((await part.arrayBuffer()).byteLength).toBe(32);
});

test("the checkpoint's file is read again only when it was replaced, and then at once", async () => {
  const dir = await mkdtemp(join(tmpdir(), "replaced-"));
  const store = await openDirectoryStore(dir);
  const read = vi.spyOn(store, "get");
  const app = createMirrorApp(store, createLogger("silent"));
  const served = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
  const checkpoint = async (headers: Record<string, string> = {}) => {
    const answer = await fetch(`${served.url}/checkpoint`, { headers });
    return { status: answer.status, text: await answer.text(), etag: answer.headers.get("etag")! };
  };
  try {
    expect((await checkpoint()).status).toBe(404);
    await store.create("checkpoint", Buffer.from("first"));
    const first = await checkpoint();
    expect([first.status, first.text, await checkpoint()]).toEqual([200, "first", first]);
    expect(await checkpoint({ "if-none-match": first.etag })).toEqual({ status: 304, text: "", etag: first.etag });
    expect(read).toHaveBeenCalledTimes(1);
    await store.swap("checkpoint", Buffer.from("other"), (await store.head("checkpoint"))!.etag);
    const second = await checkpoint({ "if-none-match": first.etag });
    expect([second.status, second.text, second.etag === first.etag]).toEqual([200, "other", false]);
    expect(await checkpoint()).toEqual(second);
    expect(read).toHaveBeenCalledTimes(2);
  } finally {
    await served.close();
    await store.close();
    await rm(dir, { recursive: true, force: true });
  }
});

test.each([
  ["/state/trusted.json", 404],
  ["/tile/../../state/pins.json", 404],
  ["/tile/..%2f..%2fstate%2fpins.json", 404],
  ["/keys/%2e%2e/%2e%2e/state/pins.json", 404],
  ["/v1/check?url=https://a.example/x", 404],
  ["/tile/0/999", 404],
  ["/%ff", 400],
])("%s is a problem document, never a file beside the public ones", async (path, status) => {
  const answer = await raw(path);
  expect(answer.status).toBe(status);
  expect(answer.type).toBe("application/problem+json");
  expect(answer.body).not.toContain(record.trust.log.name);
});

test("a mirror can only be read", async () => {
  expect((await raw("/checkpoint", "DELETE")).status).toBe(405);
  expect((await raw("/", "GET")).body).toContain(`${record.committer.fold.size} leaves`);
});
