import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EXIT } from "../../../commands/exit.ts";
import { ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { buildImage, IMAGE, inspectImage } from "./our-image.ts";
import { attempt, configure, run } from "./podman.ts";
import { makeStandIns } from "./stand-ins.ts";

/**
 * Our image, out of the Dockerfile with its Dockerfile.dockerignore and sbom.mjs: what it weighs, who it runs as, what it
 * says of itself, and that it writes nowhere but in volumes.
 */
const ROOT = resolve(import.meta.dirname, "../../..");
const BASE = "node:22-bookworm-slim";
/** Bytes of all layers. */
const MOST = 400e6;
let dir: string;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "image-"));
  configure(dir);
  for (const line of await makeStandIns(dir, [BASE])) process.stdout.write(`${line}\n`);
  const began = performance.now();
  buildImage(ROOT, BASE);
  process.stdout.write(`the image is built, in ${Math.round((performance.now() - began) / 1000)} s\n`);
}, 1_800_000);
afterAll(() => {
  attempt("podman", ["volume", "rm", "--force", "image-test"]);
  rmSync(dir, { recursive: true, force: true });
});

const inside = (...words: string[]): string =>
  run("podman", ["run", "--rm", "--entrypoint", words[0]!, IMAGE, ...words.slice(1)]);

test("it is small, runs as nobody, checks itself, and makes no volume behind anybody's back", () => {
  const { Size, Config, Labels, ...rest } = inspectImage();
  process.stdout.write(`the image: ${Math.round(Size / 1e6)} MB\n`);
  process.stdout.write(inside("du", "-sm", "/usr", "/opt/touchstone/node_modules", "/opt/touchstone/dist"));
  expect(Size).toBeLessThan(MOST);
  expect(Config.User).toBe("8402");
  expect(Config.Entrypoint).toEqual(["node", "dist/touchstone.mjs"]);
  expect(Config.Volumes ?? {}).toEqual({});
  expect((rest.Healthcheck ?? rest.HealthCheck)?.Test.join(" ")).toContain("/health");
  expect(inside("id", "-u").trim()).toBe("8402");
  const { version } = JSON.parse(inside("cat", "package.json")) as { version: string };
  expect(Labels).toMatchObject({
    "org.opencontainers.image.title": "touchstone",
    "org.opencontainers.image.version": version,
    "org.opencontainers.image.revision": run("git", ["rev-parse", "HEAD"], { cwd: ROOT }).trim(),
    "org.opencontainers.image.licenses": "Apache-2.0",
  });
  expect(run("podman", ["run", "--rm", IMAGE, "--version"]).trim()).toBe(version);
});

test("its list of parts names what is in it, with licences and hashes", () => {
  const text = inside("cat", "sbom.cdx.json");
  // As docs/deploy.md takes it out, for whoever keeps such lists.
  writeFileSync(join(tmpdir(), "touchstone.sbom.cdx.json"), text);
  const { bomFormat, components } = JSON.parse(text) as {
    bomFormat: string;
    components: { name: string; group?: string; version: string; licenses?: unknown[]; hashes?: unknown[] }[];
  };
  expect(bomFormat).toBe("CycloneDX");
  const listed = new Set(components.map(({ group, name, version }) => `${group ? `${group}/` : ""}${name}@${version}`));
  const script = `for (const [path, { version, link }] of Object.entries(require("./node_modules/.package-lock.json").packages))
    if (path.startsWith("node_modules/") && !link) console.log(path.split("node_modules/").at(-1) + "@" + version);`;
  const there = inside("node", "-e", script).trim().split("\n");
  expect(there.length).toBeGreaterThan(50);
  expect(there.filter((one) => !listed.has(one))).toEqual([]);
  // What is built in is no package of npm's any more, and in it all the same.
  for (const name of ["viem", "hono", "zod"]) {
    expect([name, components.some((one) => one.name === name)]).toEqual([name, true]);
    expect(there.some((one) => one.startsWith(`${name}@`))).toBe(false);
  }
  for (const name of ["vitest", "esbuild"]) expect(components.some((one) => one.name === name)).toBe(false);
  for (const { name, hashes } of components) expect([name, (hashes ?? []).length > 0]).toEqual([name, true]);
});

test("nothing of development and nothing of the machine that built it is in it", () => {
  const found = inside("find", "/opt/touchstone", "-maxdepth", "1", "-mindepth", "1").trim().split("\n").sort();
  expect(found.map((path) => path.replace("/opt/touchstone/", ""))).toEqual(
    ["LICENSE", "dist", "node_modules", "package.json", "sbom.cdx.json"].sort(),
  );
  for (const name of ["typescript", "vitest", "tsx", "@foundry-rs/anvil", "@biomejs/biome"]) {
    expect([
      name,
      attempt("podman", ["run", "--rm", "--entrypoint", "test", IMAGE, "-e", `node_modules/${name}`]).status,
    ]).toEqual([name, 1]);
  }
  expect(attempt("podman", ["run", "--rm", "--entrypoint", "npm", IMAGE, "-v"]).status).not.toBe(0);
});

/** A root that nobody writes, no rights, and no network. */
const least = [
  ...["--read-only", "--tmpfs", "/tmp", "--cap-drop", "all", "--security-opt", "no-new-privileges"],
  ...["--network", "none"],
];

test("with a root that nobody writes, a named volume and no right at all, keys are made and a turn is done", () => {
  const touchstone = (...words: string[]) =>
    run("podman", ["run", "--rm", ...least, "--volume", "image-test:/data", IMAGE, ...words]);
  expect(touchstone("keygen")).toContain("Made four keys in /data/keys.");
  expect(touchstone("keygen")).toContain("nothing was changed");
  expect(touchstone("publish", "--once", "--json")).toContain('"tree_size":1');
  expect(touchstone("own", "--once", "--json")).toContain('"run":null');
  // Without a volume there is nowhere to write, and no key is made that would be gone with the container.
  const none = attempt("podman", ["run", "--rm", ...least, "--read-only-tmpfs=false", IMAGE, "keygen"]);
  expect([none.status, none.stderr]).toEqual([EXIT.keys, expect.stringContaining("touchstone: /data/keys/")]);
});

test("a witness in it is healthy by the image's own check, though it has no role of the service", async () => {
  const name = "image-test-witness";
  const log = formatVkey({ name: "log.example", publicKey: Buffer.alloc(32, 7) }, ED25519);
  const words = ["witness", "/data/witness", "--name", "witness.example/w1", "--log", log];
  run("podman", ["run", "--detach", "--name", name, ...least, "--volume", "image-test:/data", IMAGE, ...words]);
  try {
    const check = () => attempt("podman", ["healthcheck", "run", name]).status;
    await expect.poll(check, { timeout: 120_000, interval: 1_000 }).toBe(0);
  } finally {
    run("podman", ["rm", "--force", name]);
  }
});
