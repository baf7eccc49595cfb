import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

const CHILD = join(import.meta.dirname, "open-child.ts");
const [PROCESSES, LOGS] = [3, 60];

test("whoever opens a new log at the same moment opens the same log", async () => {
  const dir = await mkdtemp(join(tmpdir(), "together-"));
  const children = Array.from({ length: PROCESSES }, () =>
    fork(CHILD, [dir, String(LOGS)], { execArgv: ["--import", "tsx"] }),
  );
  await Promise.all(children.map((child) => once(child, "message")));
  const first = Date.now() + 50;
  const said = await Promise.all(
    children.map(async (child) => {
      child.send(first);
      const [ids] = (await once(child, "message")) as [string[]];
      return ids;
    }),
  );
  for (let n = 0; n < LOGS; n++) {
    const [one, ...others] = said.map((ids) => ids[n]!);
    expect(one).toMatch(/^[0-9a-f]{32}$/);
    expect(new Set(others)).toEqual(new Set([one]));
  }
  await rm(dir, { recursive: true });
});
