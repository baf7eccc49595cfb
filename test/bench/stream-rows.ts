import type { NewRecord } from "../../infra/log/log.ts";
import { capId, partitionOf, plannedSlot, recordId } from "../../pipelines/record/ids.ts";

/** Bytes of one row, as the figures of the design pages have them. */
const ROW_BYTES = 514;

/**
 * Handshakes as text in the form that we write, padded to one length: sealing a million records takes a minute. Every
 * endpoint has a payee of its own, and so bodies of its own, of which time and slot differ from one to the next.
 */
export function* streamRows(rows: number, partitions: number, endpoints: number): Generator<NewRecord> {
  const caps = Array.from({ length: endpoints }, (_, i) => capId("GET", `https://seller-${i}.example/paid`));
  const places = caps.map((cap) => partitionOf(cap, partitions));
  for (let i = 0; i < rows; i++) {
    const cap = caps[i % endpoints]!;
    const [block, minute] = [80_000 + Math.floor(i / endpoints), 100 + (i % 260)];
    const eventId = recordId("handshake", cap, plannedSlot(block, minute));
    const before =
      `"differs":[],"fault":null,"honest":true,"latency_ms":${100 + (i % 900)},"live":true,` +
      `"pay_to":"0x${String(i % endpoints).padStart(40, "1")}","planned":"free","price":"0.020000"`;
    const after = `"slot":{"block":${block},"minute":${minute}},"state":"asked","status":402,"terms":null,"wall":false`;
    const rest =
      `"cap":"${cap}","event_id":"${eventId}","key":"${cap}",` +
      `"observed_at":"${new Date(block * 21_600_000 + minute * 60_000).toISOString()}","producer":"bench/1",` +
      `"type":"handshake","v":1}`;
    const padding = Math.max(0, ROW_BYTES - `{"body":{${before},"says":"",${after}},${rest}`.length);
    const value = Buffer.from(`{"body":{${before},"says":"${"-".repeat(padding)}",${after}},${rest}`);
    yield { topic: "observations.free", partition: places[i % endpoints]!, eventId, key: cap, value };
  }
}
