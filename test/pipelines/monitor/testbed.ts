import { cp, mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { Monitor, type MonitorParts, type RoundResult } from "../../../pipelines/monitor/monitor.ts";
import { MonitorState, type StateStep } from "../../../pipelines/monitor/state.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import type { UnsignedCard } from "../../../pipelines/record/card.ts";
import { cardOf, listingDraft, NOW, PAYEE, PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, sourceDir } from "../mirror/testbed.ts";

export const OFFER = { network: "eip155:84532", asset: null, price: "0.020000", pay_to: PAYEE };
export const SELLER = { url: "https://api.seller.example/sum" };
export const STRANGER = { url: "https://stranger.example/x" };

/** A monitor of sources in folders, with a memory of its own. */
export class MonitorBed {
  readonly clock = new FixedClock(NOW);
  readonly told: Record<string, unknown>[] = [];
  readonly said: string[] = [];

  private constructor(
    readonly dir: string,
    readonly state: MonitorState,
    readonly files: Store,
  ) {}

  static async open(onStep?: (step: StateStep) => void, dir?: string): Promise<MonitorBed> {
    const at = dir ?? (await mkdtemp(join(tmpdir(), "monitor-")));
    return new MonitorBed(at, MonitorState.open(at, onStep), await openDirectoryStore(join(at, "equivocations")));
  }

  monitor(parts: Pick<MonitorParts, "sources"> & Partial<MonitorParts>): Monitor {
    const { state, files, clock } = this;
    const tell = async (notice: Record<string, unknown>) => void this.told.push(notice);
    const own = { state, files, clock, tell, say: (text: string) => void this.said.push(text) };
    return new Monitor({ ...own, ...{ peers: [], names: [], webhook: null, keys: {} }, ...parts });
  }

  round(parts: Pick<MonitorParts, "sources"> & Partial<MonitorParts>): Promise<RoundResult> {
    return this.monitor(parts).runRound();
  }

  async close(keep = false): Promise<void> {
    this.state.close();
    await this.files.close();
    if (!keep) await rm(this.dir, { recursive: true, force: true });
  }
}

export const folder = (record: PublicRecord): DirectorySource => new DirectorySource(sourceDir(record));
export const keys = keysOf;

/** Publishes so many listings of others, in one generation. */
export const fill = (record: PublicRecord, prefix: string, count: number): Promise<void> =>
  record.publish(
    ...Array.from({ length: count }, (_, i) => [listingDraft({ url: `https://${prefix}${i}.example/x` })]),
  );

/** Two records of one log: the same keys, leaves and name up to `shared`, and other leaves after it. */
export async function forkedPair(shared: number): Promise<[PublicRecord, PublicRecord]> {
  const first = await PublicRecord.open();
  const second = await PublicRecord.open(first.keys);
  for (const one of [first, second]) if (shared > 0) await fill(one, "both", shared);
  return [first, second];
}

/** A listing of the seller under an address of payment. */
export const sellerListing = (pay_to: string | null = PAYEE, price = OFFER.price) => ({
  ...listingDraft(SELLER),
  offers: [{ ...OFFER, price, pay_to }],
});

export const sellerCard = (
  record: PublicRecord,
  band: "A" | "B" | "C" | "F",
  flags: UnsignedCard["flags"] = [],
  hour = 6,
) =>
  record.grades(
    [cardOf(SELLER, { band, flags, computed_at: `2026-11-21T${String(hour).padStart(2, "0")}:00:00.000Z` })],
    `${band}.`,
  );

/** A copy of a record's public folder as it is now. */
export async function copyOf(record: PublicRecord): Promise<{ dir: string; source: DirectorySource }> {
  const dir = await mkdtemp(join(tmpdir(), "monitor-copy-"));
  await cp(sourceDir(record), dir, { recursive: true });
  return { dir, source: new DirectorySource(dir) };
}

/** A server that answers as a test wants. */
export async function listening(
  answer: (url: string, body: string, headers: Record<string, unknown>) => { status: number; body?: string },
): Promise<{ url: string; close(): Promise<void> }> {
  const server: Server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => {
      const { status, body: text = "" } = answer(request.url!, body, request.headers);
      response.writeHead(status, { "content-type": "application/json" }).end(text);
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => new Promise((done) => void server.close(() => done())),
  };
}
