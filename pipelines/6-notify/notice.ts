import { createHmac } from "node:crypto";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { NewRecord } from "../../infra/log/log.ts";
import type { BodyOf, Standing } from "../record/bodies.ts";
import type { SignedCard } from "../record/card.ts";
import { envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { noticeId } from "../record/ids.ts";
import type { NoticeChange } from "../record/vocabulary.ts";

/**
 * A change to report to one watcher: the card (signed grade) in one leaf of the tree differs from the endpoint's card
 * before it.
 */
export interface Change {
  capability: string;
  /** Position of the card's leaf in the tree. */
  leaf: number;
  /** Number of the notice for this watcher and endpoint, from 1. */
  seq: number;
  change: NoticeChange;
  /** The compared members of the endpoint's card before this one; null if there was none. */
  from: Standing | null;
  /** The compared members of this card. */
  to: Standing;
}

/** Returns the members of a card that notices compare. */
export const comparedMembers = ({ band, tier, composite, computed_at, flags = [] }: SignedCard): Standing => ({
  ...{ band, tier, composite, computed_at: computed_at ?? null, flags: [...flags] },
});

/**
 * Classifies how a card differs from the endpoint's card before it.
 * @param wasCorrected true if a correction, or the withdrawal of one, was published between the two cards
 */
export function classifyChange(from: Standing | null, to: Standing, wasCorrected: boolean): NoticeChange {
  if (from === null) return "first";
  if (wasCorrected) return "corrected";
  if (from.band !== to.band) return "band";
  if (from.tier !== to.tier) return "tier";
  return from.flags.join() === to.flags.join() ? "figures" : "flags";
}

/** A signed request that its receiver can verify (Standard Webhooks). */
export interface Message {
  id: string;
  headers: Record<string, string>;
  body: Buffer;
}

/**
 * Signs a message under Standard Webhooks. Header `webhook-signature` contains `v1a,<base64>` of each signer, over
 * `id.timestamp.body`. If the receiver gave a key, a signature `v1,<base64>` (HMAC) precedes these, since the common
 * libraries verify no other kind.
 * @param attemptAt time of this attempt; receivers refuse messages with an old time
 * @param hmacKey base64
 */
export function signMessage(
  id: string,
  text: string,
  attemptAt: Date,
  signers: readonly Pick<Signer, "sign">[],
  hmacKey: string | null = null,
): Message {
  const timestamp = String(Math.floor(attemptAt.getTime() / 1000));
  const signedBytes = Buffer.from(`${id}.${timestamp}.${text}`);
  const hmac = (key: string): string =>
    `v1,${createHmac("sha256", Buffer.from(key, "base64")).update(signedBytes).digest("base64")}`;
  const signatures = [
    ...(hmacKey === null ? [] : [hmac(hmacKey)]),
    ...signers.map((signer) => `v1a,${Buffer.from(signer.sign(signedBytes)).toString("base64")}`),
  ];
  return {
    id,
    headers: {
      "content-type": "application/json",
      "webhook-id": id,
      "webhook-timestamp": timestamp,
      "webhook-signature": signatures.join(" "),
    },
    body: Buffer.from(text),
  };
}

export interface NoticeParts {
  watcher: string;
  /** Base64, or null if the receiver gave no key. */
  hmacKey: string | null;
  change: Change;
  card: SignedCard;
  /** Url or id of the endpoint as the watcher's creator wrote it. */
  asked: string;
  /** When the card's leaf was published. */
  published: string;
}

/**
 * Makes a notice, signed with two keys (egress.md, Notices): the key that signs cards, which identifies the sender,
 * and the key that signs answers of the API. All attempts of one notice have equal bodies.
 */
export function createNotice(
  parts: NoticeParts,
  attemptAt: Date,
  signers: { cards: Signer; answers: Signer },
): Message {
  const { watcher, hmacKey, change, card, asked, published } = parts;
  const body = {
    type: "card.changed",
    watcher_id: watcher,
    capability_id: change.capability,
    asked,
    seq: change.seq,
    change: change.change,
    from: change.from,
    to: change.to,
    card,
    leaf: change.leaf,
    at: published,
  };
  const id = noticeId(watcher, card.signature);
  return signMessage(id, canonicalText(body), attemptAt, [signers.cards, signers.answers], hmacKey);
}

export type WatcherType =
  | "watcher.created"
  | "watcher.stopped"
  | "watcher.delivered"
  | "watcher.failed"
  | "watcher.disabled";

/**
 * Makes a record of the topic `watchers`. The record's key is the watcher's id, so all records of a watcher are in
 * one partition.
 */
export function createWatcherRecord<T extends WatcherType>(
  type: T,
  body: BodyOf<T>,
  context: { now: Date; producer: string },
  partitions: number,
): NewRecord {
  const { id } = body as { id: string };
  const slot = sha256hex(canonicalText(body));
  return sealEnvelope(
    envelopeOf({ type, key: id, slot, at: context.now, producer: context.producer, body }),
    partitions,
  );
}
