import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { DirectorySource } from "../../../pipelines/published/source.ts";

it("takes regular files alone: no folder, device or named pipe, for which nobody may ever write", async () => {
  const dir = await mkdtemp(join(tmpdir(), "source-"));
  await mkdir(join(dir, "folder"));
  await symlink("/dev/zero", join(dir, "device"));
  execFileSync("mkfifo", [join(dir, "checkpoint")]);
  await writeFile(join(dir, "file"), "text");
  const source = new DirectorySource(dir);
  for (const key of ["folder", "device", "checkpoint", "missing"]) expect(await source.get(key, 100)).toBeNull();
  expect(Buffer.from((await source.get("file", 100))!).toString()).toBe("text");
  await rm(dir, { recursive: true });
});
