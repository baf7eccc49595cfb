// node verify-a-check.mjs answer.json svc-keys.json [bundle.json policy [seconds]]: does the signature of a saved check answer
// hold? With a card bundle and a witness policy: was its card seen by enough witnesses (witness-policy.mjs)? Works offline.
import { verify } from "node:crypto";
import { readFileSync } from "node:fs";

if (process.argv.length < 4) process.exit(console.error("node verify-a-check.mjs answer.json svc-keys.json") ?? 2);
const [answer, { keys }] = process.argv.slice(2, 4).map((file) => JSON.parse(readFileSync(file, "utf8")));
const byName = (v) => Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)));
const canonical = (v) => JSON.stringify(v, (_, part) => (part?.constructor === Object ? byName(part) : part));
const bytes = Buffer.from(canonical({ ...answer, signature: undefined }));
const isCard = /^svc\.scorecard\.v[12]$/.test(answer.schema); // the older ones may leave out their key and their moment
const [by, at] = isCard ? ["cards", answer.computed_at] : ["answers", answer.answered_at];
const named = keys.filter(({ kid, purpose }) => purpose === by && kid === (answer.signing_key_id ?? (isCard && kid)));
const fit = named.filter((key) => (isCard && !at) || (key.valid_from <= at && !(key.retired_at <= at)));
const key = fit.find((key) => verify(null, bytes, { key, format: "jwk" }, Buffer.from(answer.signature, "base64url")));
console.log(key ? `good: signed by ${key.kid} at ${at ?? "an unsaid time"}` : "BAD: do not believe this answer");
const seen = key && process.argv[4] ? await import("./witness-policy.mjs") : null;
process.exit(key && (seen?.isSeen(answer, ...process.argv.slice(4)) ?? true) ? 0 : 1);
