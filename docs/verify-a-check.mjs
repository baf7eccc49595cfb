// node verify-a-check.mjs answer.json svc-keys.json: does the signature of a saved check answer hold? Works offline.
import { createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const [answer, { keys }] = process.argv.slice(2, 4).map((file) => JSON.parse(readFileSync(file, "utf8")));
const byName = (v) => Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)));
const canonical = (v) => JSON.stringify(v, (_, part) => (part?.constructor === Object ? byName(part) : part));
const { signature, ...signed } = answer;
const key = keys.find(({ kid, purpose }) => kid === answer.signing_key_id && purpose === "answers");
const inTime = key && key.valid_from <= answer.answered_at && !(key.retired_at <= answer.answered_at);
const publicKey = inTime && createPublicKey({ key, format: "jwk" });
const good = publicKey && verify(null, Buffer.from(canonical(signed)), publicKey, Buffer.from(signature, "base64url"));
console.log(good ? `good: signed by ${key.kid} at ${answer.answered_at}` : "BAD: do not believe this answer");
process.exit(good ? 0 : 1);
