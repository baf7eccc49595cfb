import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { nodeFs } from "../../../infra/store/fs.ts";
import { BadKey, type Store } from "../../../infra/store/store.ts";
import { fc } from "../../helpers/histories.ts";
import { storeContract } from "./contract.ts";
import { RecordingFs } from "./recording-fs.ts";

storeContract("directory", async () => {
  const root = await mkdtemp(join(tmpdir(), "store-"));
  return { open: () => openDirectoryStore(root), dispose: () => rm(root, { recursive: true }) };
});

storeContract("directory on the recording file system", async () => {
  const fs = new RecordingFs();
  return { open: () => openDirectoryStore("/store", { fs }), dispose: async () => {} };
});

const text = (s: string) => new TextEncoder().encode(s);

describe("directory store", () => {
  let root: string;
  let store: Store;

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "store-"));
    store = await openDirectoryStore(join(root, "made/on/the/way"));
    root = join(root, "made/on/the/way");
  });
  afterEach(async () => {
    await store.close();
    await rm(join(root, "../../../.."), { recursive: true });
  });

  it("keeps objects as plain files and leaves no temporary ones", async () => {
    await store.create("a/b.json", text("{}"));
    await store.create("a/b.json", text("lost"));
    await store.swap("c", text("c"), null);
    expect((await readdir(root)).sort()).toEqual([".~store", "a", "c"]);
    expect(await readdir(join(root, ".~store/tmp"))).toEqual([]);
  });

  it("keeps processes apart: no count of a swapped counter is lost", async () => {
    await store.create("count", text("0"));
    const child = join(import.meta.dirname, "swap-child.ts");
    const run = () => promisify(execFile)(process.execPath, ["--import", "tsx", child, root, "60"]);
    await Promise.all([run(), run()]);
    expect(Buffer.from((await store.get("count"))!.bytes).toString()).toBe("120");
    // The lock is a lock only: nothing was written into it, no journal stays.
    expect((await readdir(join(root, ".~store"))).sort()).toEqual(["lock.sqlite", "tmp"]);
  });

  it("deletes what a writer that died left behind, and never lists it", async () => {
    await writeFile(join(root, ".~store/tmp/0123"), "half");
    expect(await store.list("")).toEqual([]);
    await (await openDirectoryStore(root)).close();
    expect(await readdir(join(root, ".~store/tmp"))).toEqual([]);
  });

  it("writes its file again when a process that starts deleted it", async () => {
    let deleted = 0;
    const fs = {
      ...nodeFs,
      link: async (from: string, to: string) => {
        if (deleted++ === 0) await nodeFs.unlink(from);
        await nodeFs.link(from, to);
      },
    };
    const raced = await openDirectoryStore(root, { fs });
    expect(await raced.create("a/b", text("whole"))).toEqual({ result: "created" });
    expect(Buffer.from((await store.get("a/b"))!.bytes).toString()).toBe("whole");
    await raced.close();
  });

  it("makes folders again that somebody removed", async () => {
    await store.create("a/b/c", text("1"));
    await rm(join(root, "a"), { recursive: true });
    expect(await store.create("a/b/c", text("2"))).toEqual({ result: "created" });
  });

  it("does not take another name's kind", async () => {
    await store.create("a/b", text("1"));
    await expect(store.create("a", text("2"))).rejects.toThrow("crosses an object and a folder");
    await expect(store.swap("a", text("2"), null)).rejects.toThrow("crosses an object and a folder");
    await expect(store.create("a/b/c", text("2"))).rejects.toThrow("crosses an object and a folder");
    expect(await store.get("a")).toBeNull();
    expect(await store.get("a/b/c")).toBeNull();
    await store.delete("a");
    expect((await store.list("")).map((o) => o.key)).toEqual(["a/b"]);
  });

  it("refuses segments that a file system cannot name", async () => {
    await expect(store.create(`a/${"x".repeat(256)}`, text(""))).rejects.toThrow(BadKey);
    await store.create(`a/${"x".repeat(255)}`, text(""));
  });

  it("lists regular files with key names only, and nothing outside the root", async () => {
    await mkdir(join(root, "d"));
    await writeFile(join(root, "d/backup~"), "");
    await symlink("/etc", join(root, "d/link"));
    await store.create("d/.hidden", text("a key like any other"));
    expect((await store.list("")).map((o) => o.key)).toEqual(["d/.hidden"]);
    expect(await store.list("../")).toEqual([]);
    expect(await store.list("/")).toEqual([]);
    expect(await store.list(".~store/")).toEqual([]);
  });

  it("reads only the folders that a listing can come from", async () => {
    for (const key of ["a/1", "b/1", "b/2", "b/sub/1", "c/1"]) await store.create(key, text(""));
    const opened: string[] = [];
    const fs = {
      ...nodeFs,
      readdir: (path: string) => {
        opened.push(path.slice(root.length));
        return nodeFs.readdir(path);
      },
    };
    const watched = await openDirectoryStore(root, { fs });
    const opens = async (prefix: string, options: { startAfter?: string; limit?: number }) => {
      opened.length = 0;
      await watched.list(prefix, options);
      return [...opened];
    };
    expect(await opens("b/", { limit: 1 })).toEqual(["/b"]);
    expect(await opens("b/s", {})).toEqual(["/b", "/b/sub"]);
    expect(await opens("", { startAfter: "b/sub/0", limit: 1 })).toEqual(["", "/b", "/b/sub"]);
    expect(await opens("", { startAfter: "b0" })).toEqual(["", "/c"]);
    await watched.close();
  });

  it("lists like a sorted set of strings", async () => {
    const segment = fc.stringMatching(/^[a=.-]{1,2}$/).filter((s) => s !== "." && s !== "..");
    const key = fc.array(segment, { minLength: 1, maxLength: 3 }).map((parts) => parts.join("/"));
    const anywhere = fc.stringMatching(/^[a=./-]{0,4}$/);
    const keys = fc.uniqueArray(key, { maxLength: 12 });
    const property = fc.asyncProperty(
      keys,
      anywhere,
      anywhere,
      fc.integer({ min: 1, max: 5 }),
      async (all, p, s, n) => {
        // A folder cannot hold x and x/y at once.
        const kept = all.filter((k) => !all.some((other) => other.startsWith(`${k}/`)));
        const small = await openDirectoryStore("/s", { fs: new RecordingFs() });
        await Promise.all(kept.map((k) => small.create(k, text(k))));
        const expected = kept.filter((k) => k.startsWith(p) && k > s).sort();
        const got = await small.list(p, { startAfter: s, limit: n });
        expect(got.map((o) => o.key)).toEqual(expected.map(String).sort().slice(0, n));
      },
    );
    await fc.assert(property, { numRuns: 60 });
  });

  it.each(["disk", "recording"])("never lets an old etag fit a later object, on a %s file system", async (kind) => {
    const own = kind === "disk" ? store : await openDirectoryStore("/s", { fs: new RecordingFs() });
    const seen = new Set<string>();
    let etag: string | null = null;
    for (let i = 0; i < 30; i++) {
      if (i % 5 === 4) {
        await own.delete("k");
        if (i % 2) {
          await own.create("k", text("A"));
          etag = (await own.head("k"))!.etag;
        } else {
          etag = null;
        }
      }
      // Always the same bytes, so that nothing but the write itself tells them apart.
      const result = await own.swap("k", text("A"), etag);
      if (result.result !== "swapped") throw new Error("nobody else is here");
      expect(seen).not.toContain(result.etag);
      for (const old of seen) expect(await own.swap("k", text("B"), old)).toEqual({ result: "lost" });
      seen.add(result.etag);
      etag = result.etag;
    }
  });
});
