import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { type Envelope, readRecord, sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { handshake, listing } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";

const TOOL = "add";
const urlOf = (name: string): string => `https://${name}.example/mcp`;
export const toolCap = (name: string): string => capId("POST", urlOf(name), TOOL);

function sealed(type: "mcp.probe" | "listing", cap: string, slot: string, time: string, body: object) {
  const event_id = recordId(type, cap, slot);
  const envelope = { v: 1, type, event_id, cap, key: cap, observed_at: time, producer: "test/1", body };
  return sealEnvelope(envelope as Envelope, PARTITIONS);
}

function bodyOf<T>(record: ReturnType<typeof handshake>): T {
  const read = readRecord({ ...record, offset: 0, appendedAt: new Date(0) });
  if (!read.ok) throw new Error(read.reason);
  return read.envelope.body as T;
}

/** A probe of this server's tool, which saw what a handshake would have. */
export function toolProbe(name: string, time: string, over: Partial<BodyOf<"mcp.probe">> = {}) {
  const body = {
    ...bodyOf<BodyOf<"handshake">>(handshake(name, time)),
    initialize_ms: 12,
    tool: TOOL,
    tool_present: true,
    ...over,
  };
  return sealed("mcp.probe", toolCap(name), `${body.slot.block}/${body.slot.minute}`, time, body);
}

/** Its listing, by the seller. */
export function toolListing(name: string, time: string) {
  const { claims, ...body } = bodyOf<BodyOf<"listing">>(listing(name, time, { seller_controlled: true }));
  const own = {
    ...body,
    normalised_url: urlOf(name),
    claims: { ...claims, url: urlOf(name), method: "POST", tool: TOOL },
  };
  return sealed("listing", toolCap(name), JSON.stringify([own, time]), time, own);
}
