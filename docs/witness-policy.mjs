// Reads a witness policy (c2sp.org/tlog-policy) and the checkpoint of a log, for verify-a-check.mjs and verify-evidence.mjs
// beside it. Works offline. Every function throws an Error that says why nothing is to be believed.
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

export const sha256 = (...parts) =>
  createHash("sha256")
    .update(Buffer.concat(parts.map((part) => Buffer.from(part))))
    .digest();
const bad = (why) => {
  throw new Error(why);
};

/** A verifier key `name+id+base64`: type 1 of a log, 4 of a witness (Ed25519; ML-DSA-44 keys, type 6, are not read). */
function keyOf(vkey, type, line) {
  const [name, id, ...rest] = vkey.split("+");
  const key = Buffer.from(rest.join("+"), "base64");
  const isGood = key.length === 33 && key[0] === type && sha256(`${name}\n`, key).toString("hex").slice(0, 8) === id;
  if (!name || !isGood) bad(`policy, line ${line}: not an Ed25519 verifier key of type ${type}: ${vkey.slice(0, 80)}`);
  const jwk = { kty: "OKP", crv: "Ed25519", x: key.subarray(1).toString("base64url") };
  return {
    name,
    id,
    verifies: (text, bytes) => verify(null, Buffer.from(text), createPublicKey({ key: jwk, format: "jwk" }), bytes),
  };
}

/** Logs, witnesses by their names, and the rule that the quorum names: when a set of times meets it, ms, or -Infinity. */
export function readPolicy(text) {
  const [logs, witnesses, rules, members] = [[], new Map(), new Map([["none", () => Infinity]]), new Set()];
  let quorum = null;
  const define = (line, name, rule) => {
    if (rules.has(name)) bad(`policy, line ${line}: the name ${name} is taken`);
    rules.set(name, rule);
  };
  if (!text.endsWith("\n")) bad("policy: no newline at the end");
  for (const [i, written] of text.split("\n").entries()) {
    const [word, ...rest] = written.split(/[ \t]+/).filter(Boolean);
    const [at, n] = [i + 1, rest.length];
    if (word === undefined || word.startsWith("#")) continue;
    if (word === "log" && (n === 1 || n === 2)) logs.push(keyOf(rest[0], 1, at));
    else if (word === "witness" && (n === 2 || n === 3)) {
      const key = keyOf(rest[1], 4, at);
      if ([...witnesses.values()].some(({ id }) => id === key.id)) bad(`policy, line ${at}: a key that stands above`);
      define(at, rest[0], (times) => times.get(key) ?? -Infinity);
      witnesses.set(rest[0], key);
    } else if (word === "group" && n >= 3) {
      const [name, least, ...of] = rest;
      const k = least === "all" ? of.length : least === "any" ? 1 : /^[1-9]\d{0,3}$/.test(least) ? Number(least) : 0;
      if (k < 1 || k > of.length) bad(`policy, line ${at}: not any, all or a number up to ${of.length}`);
      for (const one of of) {
        if (one === "none" || !rules.has(one) || members.has(one))
          bad(`policy, line ${at}: ${one} is no member for it`);
        members.add(one);
      }
      const parts = of.map((one) => rules.get(one));
      define(at, name, (times) => parts.map((part) => part(times)).sort((a, b) => b - a)[k - 1]);
    } else if (word === "quorum" && n === 1 && quorum === null && rules.has(rest[0])) quorum = rest[0];
    else bad(`policy, line ${at}: ${written.slice(0, 80)}`);
  }
  if (quorum === null) bad("policy: no quorum line");
  if (logs.length === 0) bad("policy: no log line");
  return { logs, witnesses, quorum, metAt: rules.get(quorum) };
}

/** Opens a checkpoint that a log of the policy signed and its quorum cosigned at most so many seconds ago. */
export function openWitnessed(checkpoint, { logs, witnesses, quorum, metAt }, maxAgeS = 86_400, nowMs = Date.now()) {
  const split = checkpoint.lastIndexOf("\n\n");
  const text = checkpoint.slice(0, split + 1);
  const [origin, size, root] = text.split("\n");
  const lines = checkpoint
    .slice(split + 2, -1)
    .split("\n")
    .map((line) => {
      const [dash, name, blob = ""] = line.split(" ");
      const bytes = Buffer.from(blob, "base64");
      if (dash !== "\u2014" || bytes.toString("base64") !== blob) bad("a line of the checkpoint is no signature");
      return { name, id: bytes.subarray(0, 4).toString("hex"), bytes: bytes.subarray(4) };
    });
  const lineOf = (key) => lines.find(({ name, id }) => name === key.name && id === key.id)?.bytes;
  const signing = logs.filter((log) => log.name === origin && lineOf(log));
  if (signing.length === 0) bad(`no log of the policy signed for ${origin}`);
  if (!signing.every((log) => log.verifies(text, lineOf(log)))) bad(`the signature of ${origin} does not hold`);
  const [times, lacking] = [new Map(), []];
  for (const [name, key] of witnesses) {
    const line = lineOf(key);
    const seconds = line?.length === 72 ? line.readBigUInt64BE(0) : 0n;
    const holds = line?.length === 72 && key.verifies(`cosignature/v1\ntime ${seconds}\n${text}`, line.subarray(8));
    if (line && !holds) bad(`the cosignature of ${name} does not hold`);
    // Five minutes for clocks that differ; what is later would make an old checkpoint look fresh.
    if (line && Number(seconds) * 1000 <= nowMs + 300_000) times.set(key, Number(seconds) * 1000);
    else lacking.push(name);
  }
  const since = metAt(times);
  if (since === -Infinity) bad(`below the quorum ${quorum}: no cosignature of ${lacking.join(", ")}`);
  if (nowMs - since > maxAgeS * 1000) bad(`the quorum cosigned ${Math.round((nowMs - since) / 1000)} s ago`);
  return { origin, size: Number(size), root, by: times.size, since: Number.isFinite(since) ? new Date(since) : null };
}

/** Does the path lead from this leaf to the root? (RFC 9162 section 2.1.3.2) */
export function isIncluded(leaf, index, size, path, root) {
  let [hash, fn, sn] = [sha256([0], leaf), BigInt(index), BigInt(size) - 1n];
  if (fn > sn || fn < 0n) return false;
  for (const step of path) {
    if (sn === 0n) return false;
    const isRight = (fn & 1n) === 1n || fn === sn;
    hash = isRight ? sha256([1], step, hash) : sha256([1], hash, step);
    if (isRight) for (; (fn & 1n) === 0n && fn !== 0n; fn >>= 1n) sn >>= 1n;
    [fn, sn] = [fn >> 1n, sn >> 1n];
  }
  return sn === 0n && hash.toString("base64") === root;
}

const byName = (v) => Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)));
const canonical = (v) => JSON.stringify(v, (_, part) => (part?.constructor === Object ? byName(part) : part));

/** Has a quorum seen the card of this answer (or this card) in the log? Prints what it found. Seconds: a day by default. */
export function isSeen(answer, bundleFile, policyFile, seconds) {
  try {
    const bundle = JSON.parse(readFileSync(bundleFile, "utf8"));
    if (policyFile === undefined) bad("policy: name its file after the bundle");
    const head = openWitnessed(
      bundle.checkpoint,
      readPolicy(readFileSync(policyFile, "utf8")),
      seconds && Number(seconds),
    );
    const path = bundle.proof.map((hash) => Buffer.from(hash, "base64"));
    if (!isIncluded(bundle.leaf, bundle.index, head.size, path, head.root)) bad("the leaf is not in the tree");
    const { kind, card } = JSON.parse(bundle.leaf);
    const shown = answer.schema?.startsWith("svc.scorecard.") ? canonical(answer) : answer.scorecard;
    if (kind !== "grade" || canonical(card) !== shown) bad("the answer shows another card than the bundle");
    if (answer.band !== "UNRATED" && answer.band !== card.band) bad(`its card says ${card.band}`);
    const since = head.since ? `since ${head.since.toISOString()}` : "and the policy asks for none";
    console.log(
      `good: leaf ${bundle.index} of ${head.size} of ${head.origin}, cosigned by ${head.by} of the policy, ${since}`,
    );
    return true;
  } catch (error) {
    console.log(`BAD: ${error.message}`);
    return false;
  }
}
