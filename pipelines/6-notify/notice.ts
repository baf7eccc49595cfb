import { createHmac } from "node:crypto";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { NewRecord } from "../../infra/log/log.ts";
import type { BodyOf, Standing } from "../record/bodies.ts";
import type { SignedCard } from "../record/card.ts";
import { envelopeOf, sealEnvelope } from "../record/envelope.ts";
import { noticeId } from "../record/ids.ts";
import type { NoticeChange } from "../record/vocabulary.ts";

/** A notice that is to be sent: the card in one leaf, to one watcher. */
export interface Change {
  capability: string;
  /** Position of the card's leaf. */
  leaf: number;
  /** Number of the notice for this watcher and endpoint, from 1. */
  seq: number;
  change: NoticeChange;
  from: Standing | null;
  to: Standing;
}

/** The members of a card that notices compare. */
export const standingOf = ({ band, tier, composite, computed_at, flags = [] }: SignedCard): Standing => ({
  ...{ band, tier, composite, computed_at: computed_at ?? null, flags: [...flags] },
});

/**
 * How a card differs from the one before.
 * @param corrected a correction, or the withdrawal of one, was published between the two
 */
export function changeOf(from: Standing | null, to: Standing, corrected: boolean): NoticeChange {
  if (from === null) return "first";
  if (corrected) return "corrected";
  if (from.band !== to.band) return "band";
  if (from.tier !== to.tier) return "tier";
  return from.flags.join() === to.flags.join() ? "figures" : "flags";
}

/** A request that its receiver can verify (Standard Webhooks). */
export interface Message {
  id: string;
  headers: Record<string, string>;
  body: Buffer;
}

/**
 * Makes a message under Standard Webhooks: `webhook-signature` has `v1a,<base64>` of each signer, over
 * `id.timestamp.body`, and before them, where the receiver gave a key, `v1,<base64>`: the one kind that stock libraries know.
 * @param at time of this attempt; receivers refuse old ones @param hmacKey base64
 */
export function messageOf(
  id: string,
  text: string,
  at: Date,
  signers: readonly Pick<Signer, "sign">[],
  hmacKey: string | null = null,
): Message {
  const timestamp = String(Math.floor(at.getTime() / 1000));
  const signed = Buffer.from(`${id}.${timestamp}.${text}`);
  const hmac = (key: string): string =>
    `v1,${createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64")}`;
  const signatures = [
    ...(hmacKey === null ? [] : [hmac(hmacKey)]),
    ...signers.map((signer) => `v1a,${Buffer.from(signer.sign(signed)).toString("base64")}`),
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
  /** As {@link messageOf} takes it. */
  hmacKey: string | null;
  change: Change;
  card: SignedCard;
  /** Url or id of the endpoint as the watcher's creator wrote it. */
  asked: string;
  /** When the card's leaf was published. */
  published: string;
}

/**
 * Makes a notice, signed with two keys (egress.md, Notices): the cards key, which tells receivers who sent it, and the
 * answers key. Every attempt has the same body.
 */
export function noticeOf(parts: NoticeParts, at: Date, signers: { cards: Signer; answers: Signer }): Message {
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
  return messageOf(id, canonicalText(body), at, [signers.cards, signers.answers], hmacKey);
}

export type WatcherType =
  | "watcher.created"
  | "watcher.stopped"
  | "watcher.delivered"
  | "watcher.failed"
  | "watcher.disabled";

/**
 * Makes a record of the topic `watchers`. Its key is the watcher's id, so all records of a watcher lie in one
 * partition.
 */
export function watcherRecord<T extends WatcherType>(
  type: T,
  body: BodyOf<T>,
  by: { now: Date; producer: string },
  partitions: number,
): NewRecord {
  const { id } = body as { id: string };
  const slot = sha256hex(canonicalText(body));
  return sealEnvelope(envelopeOf({ type, key: id, slot, at: by.now, producer: by.producer, body }), partitions);
}
