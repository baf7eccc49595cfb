import { createHmac, timingSafeEqual } from "node:crypto";
import { DAY_MS } from "../time.ts";
import { RandomDraws } from "./checker.ts";

/**
 * A planted page: a page that we serve to test endpoints that read pages. Only a holder of our secret can make one,
 * and nobody else knows its content before it is fetched. Nothing is stored: the content is computed from the secret
 * and the token, which is in the page's address. A token contains the day on which it was made, and nothing about the
 * endpoint for which it was made.
 */
export interface PlantedPage {
  title: string;
  heading: string;
  rows: readonly (readonly [item: string, count: number])[];
  code: string;
}

const NONCE_BYTES = 10;
const TAG_BYTES = 8;
const TOKEN = /^[0-9a-f]{40}$/;
/**
 * Number of days before and after its token's day on which a page is served too, since clocks differ and a call may
 * end after midnight.
 */
const DAYS_AROUND = 1;

const computeMac = (secret: Uint8Array, ...parts: (string | Uint8Array)[]): Buffer => {
  const hmac = createHmac("sha256", secret);
  for (const part of parts) hmac.update(part);
  return hmac.digest();
};

const dayNumber = (at: Date): number => Math.floor(at.getTime() / DAY_MS);

/** Makes the token of a page: day (two bytes), nonce, and a tag over both, as 40 hexadecimal digits. */
export function plantedToken(secret: Uint8Array, seed: Uint8Array, at: Date): string {
  const payload = Buffer.alloc(2 + NONCE_BYTES);
  payload.writeUInt16BE(dayNumber(at) % 65_536);
  computeMac(secret, "planted nonce\n", seed).copy(payload, 2, 0, NONCE_BYTES);
  return Buffer.concat([payload, computeMac(secret, "planted tag\n", payload).subarray(0, TAG_BYTES)]).toString("hex");
}

const ADJECTIVES = (
  "amber brisk calm dusty early faint grand hollow ivory jolly keen lunar mild noble opal plain quiet rapid " +
  "silver tidal"
).split(" ");
const NOUNS = (
  "anchor bridge canyon delta ember falcon garden harbour island jetty kernel lantern meadow needle orchard " +
  "pebble quarry river summit tunnel"
).split(" ");

/** Computes the content of a page from its token and the secret alone. */
function pageContents(secret: Uint8Array, token: string): PlantedPage {
  const draws = new RandomDraws(computeMac(secret, "planted facts\n", token));
  const drawName = () => `${draws.pick(ADJECTIVES)} ${draws.pick(NOUNS)}`;
  const [title, heading] = [drawName(), drawName()];
  const rows = [0, 1, 2].map((): readonly [string, number] => [draws.pick(NOUNS), 1_000 + draws.below(9_000)]);
  return { title: `${title} ${100 + draws.below(900)}`, heading, rows, code: draws.word(8) };
}

/**
 * Returns the page of a token; null for a token that we did not make, or made more than {@link DAYS_AROUND} days
 * before or after `now`.
 */
export function plantedPage(secret: Uint8Array, token: string, now: Date): PlantedPage | null {
  if (!TOKEN.test(token)) return null;
  const bytes = Buffer.from(token, "hex");
  const [payload, tag] = [bytes.subarray(0, 2 + NONCE_BYTES), bytes.subarray(2 + NONCE_BYTES)];
  if (!timingSafeEqual(computeMac(secret, "planted tag\n", payload).subarray(0, TAG_BYTES), tag)) return null;
  const dayDifference = (dayNumber(now) - payload.readUInt16BE() + 65_536 + DAYS_AROUND) % 65_536;
  return dayDifference > 2 * DAYS_AROUND ? null : pageContents(secret, token);
}

/**
 * Returns the facts that are searched in an endpoint's answer. Each fact is within one element of the page, since
 * tools separate elements in different ways. The title is not used, since tools may leave it out.
 */
export const factsOf = ({ heading, rows, code }: PlantedPage): string[] => [
  heading,
  ...rows.map(([, count]) => String(count)),
  code,
];

const ROBOTS = "noindex, nofollow, noarchive, nosnippet";
/** Headers that keep the page out of search indexes and its address out of referrers. */
export const PLANTED_HEADERS = { "x-robots-tag": ROBOTS, "referrer-policy": "no-referrer" } as const;

/**
 * Returns the page as HTML. Its variable parts need no escaping: they are words from the lists above, digits, and the
 * code.
 */
export function plantedHtml({ title, heading, rows, code }: PlantedPage): string {
  const lines = rows.map(([item, count]) => `<tr><th scope="row">${item}</th><td>${count}</td></tr>`).join("\n");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="robots" content="${ROBOTS}"><title>${title}</title></head>
<body><main><article><h1>${heading}</h1>
<p>This page was made for one reader. Its figures describe nothing; they are there to be read, and are different on
every such page.</p>
<table><thead><tr><th scope="col">Item</th><th scope="col">Count</th></tr></thead><tbody>
${lines}
</tbody></table>
<p>The reference of this page is <strong>${code}</strong>. Whoever asked for it will know it by that.</p>
</article></main></body></html>
`;
}
