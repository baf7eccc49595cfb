import { generateKeyPairSync, randomBytes } from "node:crypto";
import type { CardBundle } from "../../pipelines/published/card-bundle.ts";

const flipped = (text: string, at: number): string => {
  const other = text[at] === "A" ? "B" : "A";
  return text.slice(0, at) + other + text.slice(at + 1);
};

/** Lines of a note: text, then the signature of the log, then the cosignature. */
function withLine(
  { checkpoint, ...rest }: CardBundle,
  which: (line: string) => boolean,
  change: (line: string) => string[],
) {
  const lines = checkpoint.split("\n").flatMap((line) => (which(line) ? change(line) : [line]));
  return { ...rest, checkpoint: lines.join("\n") };
}

const isLog = (line: string) => line.startsWith("— ") && !line.includes("/witness ");
const isWitness = (line: string) => line.startsWith("— ") && line.includes("/witness ");

function withKeys(bundle: CardBundle, purpose: string, change: (key: CardBundle["keys"]["keys"][number]) => object) {
  const keys = bundle.keys.keys.map((key) => (key.purpose === purpose ? { ...key, ...change(key) } : key));
  return { ...bundle, keys: { keys } };
}

const strangersX = (): string => {
  const { x } = generateKeyPairSync("ed25519").publicKey.export({ format: "jwk" });
  return x!;
};

/** Ways in which a bundle can lie, each as the bundle that does; none may be proven, whoever verifies. */
export function liesOf(bundle: CardBundle): [lie: string, bundle: CardBundle][] {
  const { leaf, proof, index } = bundle;
  const hash = randomBytes(32).toString("base64");
  return [
    ["another letter in the card", { ...bundle, leaf: leaf.replace(/"band":"[A-Z]+"/, '"band":"A"') }],
    ["another sentence in the leaf", { ...bundle, leaf: leaf.replace('"why":"', '"why":"Surely: ') }],
    ["a leaf in another order of members", { ...bundle, leaf: JSON.stringify({ kind: "grade", ...JSON.parse(leaf) }) }],
    ["another endpoint's name", { ...bundle, capability_id: "cap_00000000000000000000000000" }],
    ["another position", { ...bundle, index: index + 1 }],
    ["a position past the tree", { ...bundle, index: index + 2 ** 40 }],
    ["a hash of the proof changed", { ...bundle, proof: [hash, ...proof.slice(1)] }],
    ["a hash of the proof left out", { ...bundle, proof: proof.slice(1) }],
    ["a hash more in the proof", { ...bundle, proof: [...proof, hash] }],
    [
      "another root in the checkpoint",
      withLine(
        bundle,
        (line) => /^[A-Za-z0-9+/]{43}=$/.test(line),
        () => [hash],
      ),
    ],
    [
      "another size in the checkpoint",
      withLine(
        bundle,
        (line) => /^\d+$/.test(line),
        (line) => [String(Number(line) + 1)],
      ),
    ],
    ["the log's signature changed", withLine(bundle, isLog, (line) => [flipped(line, line.length - 20)])],
    ["the log's signature left out", withLine(bundle, isLog, () => [])],
    ["the cosignature changed", withLine(bundle, isWitness, (line) => [flipped(line, line.length - 20)])],
    [
      "the time of the cosignature changed",
      withLine(bundle, isWitness, (line) => [flipped(line, line.indexOf("/witness ") + 22)]),
    ],
    ["the cosignature left out", withLine(bundle, isWitness, () => [])],
    ["a stranger's cards key under the old id", withKeys(bundle, "cards", () => ({ x: strangersX() }))],
    ["a cards key that was valid later", withKeys(bundle, "cards", () => ({ valid_from: "2126-01-01T00:00:00.000Z" }))],
    [
      "a cards key that had been retired",
      withKeys(bundle, "cards", () => ({ retired_at: "2020-01-01T00:00:00.000Z" })),
    ],
    ["a cards key for another purpose", withKeys(bundle, "cards", () => ({ purpose: "answers" }))],
    ["a stranger's log key", withKeys(bundle, "log", () => ({ x: strangersX() }))],
    ["no keys", { ...bundle, keys: { keys: [] } }],
  ];
}
