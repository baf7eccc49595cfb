import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { deflateSync } from "node:zlib";
import type { WorldInfo } from "../../commands/world.ts";
import { officialBuyer } from "../helpers/buying.ts";
import { fetchFrom, offered } from "./buyers.ts";

/**
 * One stranger with money, in a process of its own: three wallets of one network in the slowest seller that is sold,
 * prices asked from four networks without end, and documents that burn the readers. Prints what came back.
 *
 * Usage: hostile-buyers.ts <service> <world.json> <url of the slow seller> <seconds>
 */
const [service = "", path = "", slow = "", seconds] = process.argv.slice(2);
const world = JSON.parse(readFileSync(path, "utf8")) as WorldInfo;
const until = AbortSignal.timeout(1_000 * Number(seconds));

/** A PDF of some 80 KB that takes a reader ten seconds. */
function burner(seal: string): string {
  const content = deflateSync(Buffer.alloc(80 * 2 ** 20, "q Q\n"), { level: 9 });
  const head =
    "%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n" +
    "3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << >> >>\nendobj\n" +
    `4 0 obj\n<< /Length ${content.length} /Filter /FlateDecode >>\nstream\n`;
  const tail = `\nendstream\nendobj\ntrailer\n<< /Root 1 0 R /Size 5 >>\n%%EOF\n%${seal}`;
  return Buffer.concat([Buffer.from(head), content, Buffer.from(tail)]).toString("base64");
}

/** Works again and again, so many at once. */
const crowd = (atOnce: number, work: (n: number) => Promise<unknown>): Promise<unknown> =>
  Promise.all(
    Array.from({ length: atOnce }, async (_, n) => {
      for (let i = 0; !until.aborted; i++) {
        await work(n + i * atOnce).catch(() => {});
        await sleep(200);
      }
    }),
  );

const wallets = await Promise.all([1, 2, 3, 4].map(() => officialBuyer(world)));
const offer = await offered(service, slow);
const [one, two] = [fetchFrom("127.5.0.1"), fetchFrom("127.5.0.2")];
const statuses: Record<string, number> = {};
const count = async (what: string, asked: Promise<Response>): Promise<void> => {
  const answer = await asked.catch(() => null);
  const name = `${what} ${answer?.status ?? "none"}`;
  statuses[name] = (statuses[name] ?? 0) + 1;
};
const document = Array.from({ length: 4 }, (_, n) => burner(String(n)));
await Promise.all([
  crowd(offer ? 48 : 0, (n) => count("slow", wallets[n % 3]!.over(one)(`${offer!.via}&n=${n}`))),
  crowd(offer ? 32 : 0, (n) => count("price", fetchFrom(`127.5.1.${1 + (n % 4)}`)(offer!.via))),
  crowd(8, (n) => {
    const body = JSON.stringify({ bytes: document[n % 4] });
    const init = { method: "POST", headers: { "content-type": "application/json" }, body };
    return count("document", wallets[3]!.over(two)(`${service}/v1/docs/extract`, init));
  }),
]);
process.stdout.write(`${JSON.stringify(statuses)}\n`);
process.exit(0);
