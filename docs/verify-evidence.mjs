// node verify-evidence.mjs answer.json proof.json svc-keys.json [body] [--witness-policy policy]: did this address answer these
// bytes, and by when is that certain? Works offline. answer.json: of POST /v1/web/evidence; proof.json: of its proof.href.
// With a policy: has its quorum cosigned the tree head (witness-policy.mjs)?
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const args = process.argv.slice(2);
if (args.length < 3) {
  console.error(
    "usage: node verify-evidence.mjs answer.json proof.json svc-keys.json [body] [--witness-policy policy]",
  );
  process.exit(2);
}
const at = args.indexOf("--witness-policy");
const [, policyFile] = at < 0 ? [] : args.splice(at, 2);
const [answer, proof, { keys }] = args.slice(0, 3).map((file) => JSON.parse(readFileSync(file, "utf8")));
const file = args[3];
const end = (code, says) => {
  console.log(says);
  process.exit(code);
};
const bad = (why) => end(1, `BAD: ${why}`);
const sha256 = (...parts) =>
  createHash("sha256")
    .update(Buffer.concat(parts.map((part) => Buffer.from(part))))
    .digest();
const byName = (v) => Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)));
const canonical = (v) => JSON.stringify(v, (_, part) => (part?.constructor === Object ? byName(part) : part));
/** Does a key of this purpose, valid at this moment, verify these bytes? */
const isSigned = (purpose, at, bytes, signature, only = () => true) =>
  keys
    .filter((key) => key.purpose === purpose && key.valid_from <= at && !(key.retired_at <= at) && only(key))
    .some((key) => verify(null, bytes, createPublicKey({ key, format: "jwk" }), signature));

// 1. The receipt is signed by the service, and the body is the one that it names.
const { receipt, body } = answer;
const { signature, ...signed } = receipt;
const isOurs = isSigned(
  "answers",
  receipt.answered_at,
  Buffer.from(canonical(signed)),
  Buffer.from(signature, "base64url"),
);
if (!isOurs) bad("the receipt is not signed by this service");
const bytes = file ? readFileSync(file) : body.base64 === null ? null : Buffer.from(body.base64, "base64");
if (bytes && sha256(bytes).toString("hex") !== receipt.body.sha256)
  bad("the body is another one than the receipt names");

// 2. The leaf holds the hash of this receipt.
const leaf = JSON.parse(proof.leaf);
if (leaf.kind !== "receipt" || leaf.sha256 !== sha256(canonical(receipt)).toString("hex"))
  bad("the leaf is of another receipt");

// 3. The tree holds the leaf (RFC 9162 section 2.1.3.2).
let [hash, fn, sn] = [sha256([0], proof.leaf), BigInt(leaf.index), BigInt(proof.tree_size) - 1n];
if (fn > sn || leaf.index !== proof.index) bad("the leaf lies outside of the tree");
for (const step of proof.path.map((hex) => Buffer.from(hex, "hex"))) {
  if (sn === 0n) bad("the path is too long");
  const isRight = (fn & 1n) === 1n || fn === sn;
  hash = isRight ? sha256([1], step, hash) : sha256([1], hash, step);
  if (isRight) for (; (fn & 1n) === 0n && fn !== 0n; fn >>= 1n) sn >>= 1n;
  [fn, sn] = [fn >> 1n, sn >> 1n];
}
const [text, lines] = [
  proof.checkpoint.slice(0, proof.checkpoint.indexOf("\n\n") + 1),
  proof.checkpoint.split("\n\n")[1],
];
const [origin, size, root, ...more] = text.trimEnd().split("\n");
if (sn !== 0n || Number(size) !== proof.tree_size || hash.toString("base64") !== root)
  bad("the path does not lead to the tree head");

// 4. The log signed the tree head, and the witness says when it saw it (c2sp.org/tlog-cosignature).
const signatures = lines
  .trimEnd()
  .split("\n")
  .map((line) => {
    const [, name, blob] = line.split(" ");
    return { name, id: Buffer.from(blob, "base64").subarray(0, 4), bytes: Buffer.from(blob, "base64").subarray(4) };
  });
const isNamed =
  ({ name, id }, type) =>
  ({ x }) =>
    sha256(`${name}\n`, [type], Buffer.from(x, "base64url")).subarray(0, 4).equals(id);
const timeOf = ({ bytes: stamped }) => new Date(Number(stamped.readBigUInt64BE(0)) * 1000).toISOString();
const seen = signatures
  .filter(({ name, bytes: stamped }) => name === `${origin}/witness` && stamped.length === 72)
  .filter((line) => {
    const said = Buffer.from(`cosignature/v1\ntime ${line.bytes.readBigUInt64BE(0)}\n${text}`);
    return isSigned("witness", timeOf(line), said, line.bytes.subarray(8), isNamed(line, 4));
  })
  .map(timeOf)
  .sort()[0];
if (!seen) bad("no witness of this log has seen the tree head");
const ofLog = (line) => line.name === origin && isSigned("log", seen, Buffer.from(text), line.bytes, isNamed(line, 1));
if (!signatures.some(ofLog)) bad("the tree head is not signed by the log");

// 5. Witnesses that are not the log's have seen it too.
let others = "";
if (at >= 0) {
  const { openWitnessed, readPolicy } = await import("./witness-policy.mjs");
  try {
    // A proof may be old: it shows that the receipt was there by then.
    const { by, since } = openWitnessed(proof.checkpoint, readPolicy(readFileSync(policyFile, "utf8")), Infinity);
    others = `, cosigned by ${by} of the policy${since ? ` by ${since.toISOString()}` : ""}`;
  } catch (error) {
    bad(error.message);
  }
}

const what = bytes ? "these bytes" : `bytes with the sha256 ${receipt.body.sha256} (give their file to compare them)`;
const simulated = more.includes("simulated-time") ? " (in a record of simulated time)" : "";
end(
  0,
  `good: ${receipt.final_url} answered ${receipt.status} with ${what}, said at ${receipt.fetched_at}, in the log by ${seen}${others}${simulated}
seen from ${receipt.seen_from}`,
);
