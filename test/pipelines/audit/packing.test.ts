import { expect, test } from "vitest";
import { PackedBytesCheck } from "../../../pipelines/audit/findings.ts";

const [theirs, ours] = [Buffer.from("their packing"), Buffer.from("our packing")];

/** What is found of a row of bundles, of which these are packed otherwise. */
function found(length: number, otherwise: (i: number) => boolean, mode: "strict" | "content" = "strict") {
  const packing = new PackedBytesCheck(mode);
  for (let i = 0; i < length; i++) packing.add("entry bundles", `bundle ${i}`, otherwise(i) ? theirs : ours, ours);
  const { result, checked, open, problems } = packing.finding;
  return [result, checked, open, problems.map(({ key }) => key).join()];
}

test.each<[string, unknown[], unknown[]]>([
  ["all as we pack them", found(20, () => false), ["ok", 20, 0, ""]],
  ["one changed", found(20, (i) => i === 7), ["broken", 20, 0, "bundle 7"]],
  ["the only one", found(1, () => true), ["broken", 1, 0, "bundle 0"]],
  ["the last two", found(20, (i) => i > 17), ["broken", 20, 0, "bundle 18,bundle 19"]],
  ["all by another build", found(20, () => true), ["ok", 0, 20, ""]],
  [
    "the older half by another build, one changed later",
    found(20, (i) => i < 10 || i === 15),
    ["broken", 10, 10, "bundle 15"],
  ],
  ["one changed, contents alone checked", found(20, (i) => i === 7, "content"), ["ok", 0, 0, ""]],
])("%s", (_, got, want) => expect(got).toEqual(want));
