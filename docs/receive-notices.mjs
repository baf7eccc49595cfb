// node receive-notices.mjs https://HOST/.well-known/svc-keys.json 8080: a receiver of notices, in full.
import { createPublicKey, verify } from "node:crypto";
import { createServer } from "node:http";

const [keysUrl, port] = process.argv.slice(2);
if (!port) {
  console.error("usage: node receive-notices.mjs https://HOST/.well-known/svc-keys.json 8080");
  process.exit(2);
}
const OLDEST_S = 300;
const MAX_BODY_BYTES = 262_144;
const KEYS_EVERY_MS = 60_000;
const seen = new Set(); // ids of notices: the same one may come twice. Keep yours in your database.
let keys = [];
let askedAt = 0; // when the keys were asked for last, ms since the start

/** Is one of the signatures made, now, by a key of this purpose? */
async function isSignedBy(purpose, { id, timestamp, signatures, body }) {
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  const now = new Date().toISOString();
  const good = (key) =>
    key.purpose === purpose &&
    key.valid_from <= now &&
    !(key.retired_at <= now) &&
    signatures.some((one) => verify(null, signed, createPublicKey({ key, format: "jwk" }), one));
  if (keys.some(good)) return true;
  // Keys are replaced now and then. Anybody can send what is not signed, so they are asked for once a minute at most.
  if (keys.length > 0 && performance.now() - askedAt < KEYS_EVERY_MS) return false;
  askedAt = performance.now();
  const answer = await fetch(keysUrl, { signal: AbortSignal.timeout(5000) });
  const { keys: fresh } = await answer.json();
  if (answer.ok && Array.isArray(fresh)) keys = fresh; // an error of the service leaves the keys as they are
  return keys.some(good);
}

const server = createServer(async (request, response) => {
  const end = (status, text) => response.writeHead(status).end(text);
  try {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
      size += chunk.length;
      if (size > MAX_BODY_BYTES) return response.writeHead(413, { connection: "close" }).end();
      chunks.push(chunk);
    }
    const message = {
      id: request.headers["webhook-id"],
      timestamp: request.headers["webhook-timestamp"],
      signatures: (request.headers["webhook-signature"] ?? "")
        .split(" ")
        .filter((one) => one.startsWith("v1a,"))
        .map((one) => Buffer.from(one.slice(4), "base64")),
      body: Buffer.concat(chunks),
    };
    if (!(Math.abs(Date.now() / 1000 - Number(message.timestamp)) < OLDEST_S)) return end(400, "too old");
    const notice = JSON.parse(message.body);
    if (notice.type === "watcher.challenge") {
      if (!(await isSignedBy("answers", message))) return end(401, "not signed");
      return end(200, notice.challenge);
    }
    // Only what the key that signs cards has signed is a notice.
    if (!(await isSignedBy("cards", message))) return end(401, "not signed");
    if (!seen.has(message.id)) {
      seen.add(message.id);
      const { asked, seq, change, from, to } = notice;
      console.log(`${asked} #${seq} ${change}: ${from?.band ?? "no card"} -> ${to.band} (${notice.card.computed_at})`);
    }
    end(204);
  } catch {
    end(400, "not understood");
  }
});
server.listen(Number(port), "127.0.0.1", () => console.log(`listening on port ${server.address().port}`));
