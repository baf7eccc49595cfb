import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";

/**
 * Every file below infra/deploy, and the test that runs it as a user does, or reads it against what the program does. A
 * file without a row fails, and so does a row whose test does not name its file.
 */
const ROOT = resolve(import.meta.dirname, "../..");
const RUN_BY: Record<string, string> = {
  Dockerfile: "test/deploy/containers/image.test.ts",
  "Dockerfile.dockerignore": "test/deploy/containers/image.test.ts",
  "alerts.test.yaml": "test/cluster/alarms.test.ts",
  "alerts.yaml": "test/cluster/alarms.test.ts",
  "compose.yaml": "test/deploy/containers/compose.test.ts",
  "dashboard.json": "test/cluster/alarms.test.ts",
  "env.example": "test/deploy/containers/compose.test.ts",
  "kafka/create-topics.sh": "test/cluster/log.test.ts",
  "kafka/kafka-topics": "test/cluster/log.test.ts",
  "kafka/pom.xml": "test/cluster/log.test.ts",
  "lock-platforms.mjs": "test/lock.test.ts",
  "nginx-mirror.conf": "test/cluster/nginx.test.ts",
  "nginx-service.conf": "test/deploy/containers/compose.test.ts",
  "sbom.mjs": "test/deploy/containers/image.test.ts",
  "systemd/common.env": "test/deploy/units.test.ts",
  "systemd/monitor.env": "test/deploy/units.test.ts",
  "systemd/observe.env": "test/deploy/units.test.ts",
  "systemd/own.env": "test/deploy/units.test.ts",
  "systemd/pipeline.env": "test/deploy/units.test.ts",
  "systemd/publish.env": "test/deploy/units.test.ts",
  "systemd/serve.env": "test/deploy/units.test.ts",
  "systemd/touchstone.service": "test/deploy/units.test.ts",
  "systemd/touchstone-monitor.service": "test/deploy/units.test.ts",
  "systemd/touchstone-observe@.service": "test/deploy/units.test.ts",
  "systemd/touchstone-own@.service": "test/deploy/units.test.ts",
  "systemd/touchstone-publish@.service": "test/deploy/units.test.ts",
  "systemd/touchstone-serve.service": "test/deploy/units.test.ts",
  "systemd/touchstone-witness.service": "test/deploy/units.test.ts",
  "systemd/witness.env": "test/deploy/units.test.ts",
};
/** A folder of files that one program reads by their names, and the test of that program. */
const FOLDERS: Record<string, { names: string; test: string }> = {
  "s3/": { names: "commands/buckets.ts", test: "test/cluster/policy.test.ts" },
};
/** Text for people. */
const PAGES = new Set(["kafka/topics.md"]);

const files = readdirSync(join(ROOT, "infra/deploy"), { recursive: true, encoding: "utf8" })
  .filter((name) => statSync(join(ROOT, "infra/deploy", name)).isFile())
  .sort();
const folderOf = (file: string) => Object.keys(FOLDERS).find((folder) => file.startsWith(folder));

test("every file of the deployment has a test that runs it, and every row a file", () => {
  const without = files.filter((file) => !PAGES.has(file) && !folderOf(file) && !(file in RUN_BY));
  expect(without).toEqual([]);
  expect([...Object.keys(RUN_BY), ...PAGES].filter((file) => !files.includes(file))).toEqual([]);
});

test.each(Object.entries(RUN_BY))("%s is named in %s", (file, by) => {
  expect(existsSync(join(ROOT, by)), by).toBe(true);
  expect(readFileSync(join(ROOT, by), "utf8")).toContain(file.split("/").at(-1));
});

test("a folder whose files one program reads: the program is there, and its test calls it", () => {
  for (const [folder, { names, test: by }] of Object.entries(FOLDERS)) {
    expect(files.some((file) => file.startsWith(folder))).toBe(true);
    expect(readFileSync(join(ROOT, names), "utf8")).toContain(`infra/deploy/${folder.slice(0, -1)}`);
    expect(readFileSync(join(ROOT, by), "utf8")).toContain(`/${names}"`);
  }
});
