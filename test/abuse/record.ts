import { readLedger } from "../../fixtures/market/ledger.ts";
import type { WorldInfo } from "../../fixtures/market/world.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { readPlan } from "../../pipelines/4-publish/day-plan.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import { plannedSlot, recordId } from "../../pipelines/record/ids.ts";
import type { DayPlan } from "../../pipelines/record/plan.ts";
import { blockStart, DAY_MS, dayOf } from "../../pipelines/record/time.ts";
import { recordsOf } from "../helpers/prove-log.ts";

/** What happened to the honest sellers' planned payments within a window of the record's time. */
export interface Honest {
  /** Payments that the plans of the window have. */
  planned: number;
  delivered: number;
  /** Paid, and nothing came, or our own fault. */
  lost: string[];
  /** Planned, and neither paid nor begun: their block was over, or we did not pay. */
  unpaid: string[];
  /** ms, of delivered payments and of answered handshakes. */
  paidMs: number[];
  probeMs: number[];
  /** ms, of delivered payments: by how much the record has them longer than the seller itself took. */
  addedMs: number[];
}

type Json = Record<string, unknown>;

interface LogEntry {
  id: string;
  type: string;
  cap: string;
  at: number;
  body: Json;
}

/** What a topic's records say; those that are rejected are left out. */
async function entriesOf(log: Log, topic: string): Promise<LogEntry[]> {
  const entries: LogEntry[] = [];
  for (let partition = 0; partition < log.partitions; partition++) {
    for (const record of await recordsOf(log, topic, partition)) {
      const read = readRecord(record);
      if (!read.ok) continue;
      const { event_id: id, type, cap, observed_at, body } = read.envelope;
      entries.push({ id, type, cap: cap ?? "", at: Date.parse(observed_at), body: body as Json });
    }
  }
  return entries;
}

/**
 * Reads log and plans of a running service.
 * @param sellers the honest ones
 * @param window the record's time, ms: calls planned in it
 */
export async function readHonest(
  log: Log,
  privateStore: Store,
  sellers: WorldInfo["sellers"],
  window: { from: number; to: number },
): Promise<Honest> {
  const honest: Honest = { planned: 0, delivered: 0, lost: [], unpaid: [], paidMs: [], probeMs: [], addedMs: [] };
  const origins = new Set(sellers.map(({ origin }) => origin));
  const took = new Map<string, number>();
  for (const { nonce, ms } of sellers.flatMap(({ ledger }) => readLedger(ledger)))
    if (nonce !== undefined && ms !== undefined && !took.has(nonce.toLowerCase())) took.set(nonce.toLowerCase(), ms);

  const caps = new Map<string, string>();
  for (const { type, cap, body } of await entriesOf(log, "listings")) {
    const url = (body.claims as Json | undefined)?.url ?? body.normalised_url;
    if (type === "listing" && typeof url === "string" && origins.has(new URL(url).origin)) caps.set(cap, url);
  }
  const results = new Map<string, Json>();
  const nonces = new Map<string, string>();
  for (const { type, id, body } of await entriesOf(log, "observations.paid")) {
    if (type === "paid.result") results.set(String(body.intent), body);
    if (type === "paid.intent") nonces.set(id, String(body.nonce).toLowerCase());
  }
  for (const { type, cap, at, body } of await entriesOf(log, "observations.free")) {
    if (type !== "handshake" || !caps.has(cap) || at < window.from || at >= window.to) continue;
    if (typeof body.latency_ms === "number") honest.probeMs.push(body.latency_ms);
  }
  for (const plan of await plansOf(privateStore, window)) {
    for (const line of plan.lines) {
      if (!caps.has(line.cap)) continue;
      for (const call of line.calls) {
        const at = blockStart(call.block).getTime() + call.minute * 60_000;
        if (call.kind !== "paid" || at < window.from || at >= window.to) continue;
        honest.planned++;
        const id = recordId("paid.intent", line.cap, plannedSlot(call.block, call.minute));
        const result = results.get(id);
        const name = `${caps.get(line.cap)} ${id}`;
        if (!result) honest.unpaid.push(name);
        else if (result.delivered !== true || result.fault === "ours")
          honest.lost.push(`${name}: ${JSON.stringify(result).slice(0, 300)}`);
        else {
          honest.delivered++;
          if (typeof result.latency_ms !== "number") continue;
          honest.paidMs.push(result.latency_ms);
          const itself = took.get(nonces.get(id)!);
          if (itself !== undefined) honest.addedMs.push(result.latency_ms - itself);
        }
      }
    }
  }
  return honest;
}

/** The plans that the window touches; a day that was not planned has none. */
async function plansOf(privateStore: Store, { from, to }: { from: number; to: number }): Promise<DayPlan[]> {
  const days: string[] = [];
  for (let t = from - (from % DAY_MS); t < to; t += DAY_MS) days.push(dayOf(new Date(t)));
  const plans = await Promise.all(days.map((day) => readPlan(privateStore, day)));
  return plans.filter((plan) => plan !== null);
}
