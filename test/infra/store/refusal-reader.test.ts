import { expect, it } from "vitest";
import { type KeyState, RefusalReader } from "../../../infra/store/refusal-reader.ts";

const KEY = "tile/0/x001/234";
const RANDOM = /^tile\/0\/x001\/[0-9a-f]{32}$/;

/** What a store says, in the order in which it is asked: of a key that cannot exist, of the known one, of the key again. */
function storeOf(...said: KeyState[]) {
  const asked: string[] = [];
  const ask = async (key: string): Promise<KeyState> => said[asked.push(key) - 1]!;
  return { asked, reader: new RefusalReader({ ask, known: "checkpoint" }) };
}

it.each<[string, boolean, KeyState[]]>([
  ["a bucket that is read and not listed", true, ["refused", "there", "refused"]],
  ["it says 404 of what it has not, so it means its refusals", false, ["missing", "there", "refused"]],
  ["it gives anything for any key", false, ["there", "there", "refused"]],
  ["a refusal that is not S3's", false, ["other", "there", "refused"]],
  ["everything is refused: credentials, a policy taken back", false, ["refused", "refused", "refused"]],
  ["nothing was published, or everything is gone", false, ["refused", "missing", "refused"]],
  ["the refusal passed", false, ["refused", "there", "there"]],
  ["a firewall joined in", false, ["refused", "there", "other"]],
])("%s", async (_what, hidden, said) => {
  const { reader, asked } = storeOf(...said);
  expect(await reader.isMissing(KEY)).toBe(hidden);
  expect(asked[0]).toMatch(RANDOM);
  expect(asked.slice(1)).toEqual(["checkpoint", KEY].slice(0, asked.length - 1));
});

it("never takes the known object for missing, and asks nothing for it", async () => {
  const { reader, asked } = storeOf("refused", "there", "refused");
  expect(await reader.isMissing("checkpoint")).toBe(false);
  expect(asked).toEqual([]);
});

it("asks for a key that cannot exist once a folder, and whether the store can be read each time", async () => {
  const { reader, asked } = storeOf("refused", "there", "refused", "refused", "there", "refused");
  expect(await reader.isMissing(KEY)).toBe(true);
  expect(await reader.isMissing("tile/1/000")).toBe(false);
  expect(asked.slice(3)).toEqual(["checkpoint"]);
  // Another folder may be under another rule of the policy.
  expect(await reader.isMissing("hint/keys.json")).toBe(false);
  expect(asked[4]).toMatch(/^hint\/[0-9a-f]{32}$/);
});
