import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../../fixtures/ports.ts";
import { FixedClock } from "../../infra/clock.ts";
import { OBJECTS, type ObjectHeaders } from "../../pipelines/published/objects.ts";
import { HttpSource } from "../../pipelines/published/open-source.ts";
import { DirectorySource } from "../../pipelines/published/source.ts";
import { NOW, PublicRecord } from "../helpers/public-record.ts";
import { keysOf, Mirror, publishAll, sourceDir } from "../pipelines/mirror/testbed.ts";

/** A mirror's folder handed on by plain nginx with the settings of infra/deploy/nginx-mirror.conf. */
let record: PublicRecord;
let mirror: Mirror;
let dir: string;
let nginx: ChildProcess;
let url: string;

/** At once where nothing else runs; only a hang reaches the bound. */
async function untilUp(): Promise<void> {
  for (let tries = 0; tries < 4_800 && nginx.exitCode === null; tries++) {
    const up = await fetch(`${url}/checkpoint`).catch(() => null);
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error("nginx did not come up");
}

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 270);
  mirror = await Mirror.open();
  await mirror.run(new DirectorySource(sourceDir(record)), { keys: keysOf(record) });
  dir = await mkdtemp(join(tmpdir(), "nginx-"));
  const port = await freePort();
  url = `http://127.0.0.1:${port}`;
  const conf = await readFile(new URL("../../infra/deploy/nginx-mirror.conf", import.meta.url), "utf8");
  const own = conf.replace("127.0.0.1:8404", `127.0.0.1:${port}`).replace("root ROOT;", `root ${mirror.dir}/public;`);
  // Started as root nginx would read as another user, to whom a folder in /tmp is closed.
  const user = process.getuid?.() === 0 ? "user root;\n" : "";
  await writeFile(join(dir, "nginx.conf"), user + own);
  nginx = spawn("nginx", ["-p", dir, "-c", join(dir, "nginx.conf"), "-g", "daemon off;"], { stdio: "inherit" });
  await untilUp();
});

afterAll(async () => {
  const gone = new Promise((resolve) => nginx.once("exit", resolve));
  nginx.kill("SIGTERM");
  await gone;
  await mirror.close();
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

test("a mirror copies and proves everything through it", async () => {
  const second = await Mirror.open();
  const source = new HttpSource(url, { clock: new FixedClock(NOW) });
  try {
    const done = await second.run(source, { keys: keysOf(record) });
    expect(done).toMatchObject({ result: "synced", tree_size: record.committer.fold.size });
    expect(await second.proven(record, true)).toBe(done.tree_size);
  } finally {
    await source.close();
    await second.close();
  }
});

function newestIndex(): string {
  return `index/${record.committer.fold.index?.tree_size}.json`;
}

const SERVED: [string, () => string, ObjectHeaders][] = [
  ["checkpoint", () => "checkpoint", OBJECTS.checkpoint.headers],
  ["a tile", () => "tile/0/000", OBJECTS.tile.headers],
  ["an entry bundle", () => "tile/entries/000", OBJECTS.entries.headers],
  ["the list of shards", newestIndex, OBJECTS.indexList.headers],
  ["a hint", () => "hint/index.json", OBJECTS.hint.headers],
];

test.each(SERVED)("%s has the headers of the service itself", async (_, key, headers) => {
  const answer = await fetch(`${url}/${key()}`, { method: "HEAD" });
  expect(answer.status).toBe(200);
  expect(answer.headers.get("content-type")).toBe(headers.contentType);
  expect(answer.headers.get("cache-control")).toBe(headers.cacheControl);
  expect(answer.headers.get("content-encoding")).toBe(headers.contentEncoding ?? null);
  expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
});

test("ranges work, and what is missing is a 404 that nobody keeps", async () => {
  const part = await fetch(`${url}/tile/0/000`, { headers: { range: "bytes=32-63" } });
  expect([part.status, (await part.arrayBuffer()).byteLength]).toEqual([206, 32]);
  for (const path of ["tile/0/999", "state/trusted.json", "../state/trusted.json", ""]) {
    const none = await fetch(`${url}/${path}`);
    expect([path, none.status]).toEqual([path, 404]);
    expect(none.headers.get("cache-control")).toBeNull();
  }
});
