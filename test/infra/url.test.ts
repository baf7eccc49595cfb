import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";
import { parseUrl } from "../../infra/url.ts";

const ROOT = resolve(import.meta.dirname, "../..");

test.each(["https://bücher.example/", "https://例え.example/", "https://example.com/é?q=ü"])(
  "%s is read after a hundred thousand others as before them",
  (text) => {
    for (let nth = 0; nth < 100_000; nth++) parseUrl(`http://example.com/${nth}`);
    expect(parseUrl(text)?.href).toBe(new URL(text).href);
  },
);

test("relative to a base, and null for what is no url", () => {
  expect(parseUrl("../b", "https://example.com/a/c")?.href).toBe("https://example.com/b");
  for (const text of ["", "example.com", "http://", "http://a b/"]) expect(parseUrl(text)).toBeNull();
});

test("nobody asks URL.canParse, which is wrong once it is compiled", () => {
  const asks = ["infra", "pipelines", "serving", "commands", "fixtures"].flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && /\.(ts|mjs)$/.test(entry.name))
      .map((entry) => join(entry.parentPath, entry.name))
      .filter((file) => /\bURL\.canParse\(/.test(readFileSync(file, "utf8"))),
  );
  expect(asks).toEqual([]);
});
