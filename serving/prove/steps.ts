import type { Jwks, PublicJwk } from "../../infra/keys/jwk.ts";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { verifyObject } from "../../infra/keys/portable.ts";
import { PARAMS_SHA256, params } from "../../pipelines/3-grade/params.ts";
import type { EvidenceLine } from "../../pipelines/record/evidence.ts";
import { base64, bytesOf, hex, sha256 } from "../client/bytes.ts";
import { NotProven, type ProofPart, type ProvenCard, witnessPolicy } from "../client/proof.ts";
import { proveContinuation, type TreeRoot } from "./consistent.ts";
import { readLaterLeaves } from "./newest.ts";
import { type Card, findContradictions } from "./numbers.ts";
import { type Get, type Progress, parseObject, readEvidenceLines } from "./objects.ts";
import { type GradeLeaf, regrade } from "./regrade.ts";

/**
 * Proves one card (signed grade of an endpoint) step by step, in a browser or another runtime with WebCrypto. No step
 * trusts a statement of the service: each reports what it proves, what contradicts the card, or why it can do neither.
 */

/** A card bundle (docs/card-bundle.md) that is not verified yet: a card, and the proof that the log contains it. */
export interface Bundle {
  capability_id: string;
  /** Position in the log of the leaf (entry) with the card. */
  index: number;
  leaf: string;
  proof: string[];
  checkpoint: string;
  keys: Jwks;
}

/** Answer of GET /v1/trust/{id}/proof, not verified yet. It is also made from a saved card bundle, without evidence. */
export interface CardProof {
  capability_id: string;
  bundle: Bundle;
  /** The newest card whose evidence is published; null: none. */
  graded: Bundle | null;
  evidence: { day: string; key: string }[];
}

/** State of a step. `shown`: proven. `failed`: contradicted. `open`: neither; the reported text gives the reason. */
export type Outcome = "running" | "shown" | "failed" | "open";

/** The steps in their order, each with its title. */
export const STEPS = {
  keys: "Keys follow from each other",
  checkpoint: "Checkpoint is signed by the log",
  witnesses: "Witnesses have seen it, and lately",
  history: "It goes on from what this browser saw before",
  inclusion: "Card is in the log",
  card: "Card is signed",
  page: "Page shows this card",
  newest: "No newer card in this tree",
  numbers: "Letter does not contradict its figures",
  evidence: "Letter made again from the rows",
} as const;
export type StepId = keyof typeof STEPS;

export interface ProveOptions {
  /** Id of the endpoint whose card is to be proven. */
  cap: string;
  /** The reader's witness policy; null: the reader has none. */
  policy: string | null;
  /** Largest age of the witnesses' cosignatures that is accepted, seconds. */
  maxAge_s: number;
  /** The reader's clock, unix ms. */
  now_ms: number;
  get: Get;
  /**
   * Letter and sentence that the page shows beside the proof, and the time at which the page's card was computed (null:
   * not known). null: the proof is not in the page of an endpoint.
   */
  shown: { letter: string; sentence: string; computedAt: string | null } | null;
  /** Returns the largest tree of this log that was proven in this browser before; null: none. */
  seenOf: (origin: string) => TreeRoot | null;
  /** Called once or more for each step; the last call has the step's outcome. */
  tell: (step: StepId, outcome: Outcome, says: string) => void;
}

export interface Proven {
  card: Card;
  why: string;
  origin: string;
  /** Tree of the proven checkpoint, which {@link ProveOptions.seenOf} returns in later proofs. */
  seen: TreeRoot;
}

const PROOF_PARTS: readonly ProofPart[] = ["checkpoint", "witnesses", "inclusion", "card"];
const MAX_KEYS_DOCUMENTS = 256;
const MAX_KEYS_BYTES = 256 * 1024;
const NOT_REACHED = "not looked at, since a step above fails";

const errorText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
const countText = (n: number, singular: string, plural = `${singular}s`): string =>
  `${n.toLocaleString("en-US")} ${n === 1 ? singular : plural}`;
const leafCountText = (n: number): string => countText(n, "leaf", "leaves");

/** Returns a verifier key (c2sp.org/signed-note). @param type key type: 1 for a log, 4 for a witness */
async function vkeyOf(name: string, { x }: Pick<PublicJwk, "x">, type: number): Promise<string> {
  const key = fromBase64url(String(x)) ?? new Uint8Array();
  const id = hex(await sha256(bytesOf(`${name}\n`), [type], key)).slice(0, 8);
  return `${name}+${id}+${base64(Uint8Array.of(type, ...key))}`;
}

/** Returns the policy for a reader who has none: it accepts the log and witness keys in the service's own bundle. */
async function policyOfService({ checkpoint, keys }: Bundle): Promise<string> {
  const origin = String(checkpoint).split("\n", 1)[0]!;
  const serviceKeys = Array.isArray(keys?.keys) ? keys.keys.slice(0, 64) : [];
  const lines: string[] = [];
  const witnessNames: string[] = [];
  for (const key of serviceKeys.filter((one) => one?.purpose === "log"))
    lines.push(`log ${await vkeyOf(origin, key, 1)}`);
  for (const key of serviceKeys.filter((one) => one?.purpose === "witness")) {
    witnessNames.push(`own${witnessNames.length}`);
    lines.push(`witness ${witnessNames.at(-1)} ${await vkeyOf(`${origin}/witness`, key, 4)}`);
  }
  const quorumLines =
    witnessNames.length > 0 ? [`group own any ${witnessNames.join(" ")}`, "quorum own"] : ["quorum none"];
  return `${[...lines, ...quorumLines].join("\n")}\n`;
}

/**
 * Verifies the service's keys documents from the first. Each must name the hash of the document before it, be dated no
 * earlier, and be signed by a key of that document (the first: by a key of its own). The newest must contain the cards
 * and log keys of the bundle.
 * @returns `says` with what is proven, or a plain text that explains why the documents could not be read
 * @throws Error for an invalid document
 */
async function keysStep(get: Get, bundle: Bundle, progress: Progress): Promise<{ says: string } | string> {
  const hint = await get("hint/keys.json", MAX_KEYS_BYTES);
  const lastNumber = hint && /^keys\/(\d{1,6})\.json$/.exec(String(parseObject("hint/keys.json", hint).key))?.[1];
  if (!lastNumber) return "the keys documents were not given";
  const last = Number(lastNumber);
  if (last >= MAX_KEYS_DOCUMENTS) return `there are ${last + 1} keys documents, more than a page reads`;
  let [previousKeys, hash, previousDate]: [Jwks | null, string | null, string] = [null, null, ""];
  for (let n = 0; n <= last; n++) {
    progress(n, last + 1, "keys documents");
    const key = `keys/${n}.json`;
    const bytes = await get(key, MAX_KEYS_BYTES);
    if (!bytes) return `${key} was not given`;
    const document = parseObject(key, bytes);
    if (document.n !== n || document.previous !== hash)
      throw new Error(`${key} does not follow the document before it`);
    const date = String(document.computed_at);
    if (Date.parse(date) < Date.parse(previousDate)) throw new Error(`${key} is dated before the document before it`);
    const documentKeys = { keys: document.keys } as Jwks;
    const verdict = await verifyObject(previousKeys ?? documentKeys, document, { purpose: "cards", at: date });
    if (!verdict.ok) throw new Error(`the signature of ${key} does not hold (${verdict.reason})`);
    [previousKeys, hash, previousDate] = [documentKeys, hex(await sha256(bytes)), date];
  }
  const bundleKeys = (bundle.keys?.keys ?? []).filter(({ purpose }) => purpose === "cards" || purpose === "log");
  for (const { kid, x, purpose } of bundleKeys) {
    const published = previousKeys!.keys.find((key) => key.kid === kid && key.purpose === purpose);
    if (published?.x !== x) throw new Error(`the ${purpose} key ${kid} that came with the card is in no keys document`);
  }
  return {
    says: `${countText(last + 1, "keys document")}, each naming the hash of the one before and signed under it; the newest has the keys that came with the card. They are the service's own: your policy says whose log it is`,
  };
}

/**
 * Checks that the checkpoint's tree `current` continues the tree `seen` that this browser proved before.
 * @returns outcome and sentence
 * @throws BadObject if the tiles of the tree do not lead to both roots
 */
async function historyStep(seen: TreeRoot | null, current: TreeRoot, get: Get): Promise<[Outcome, string]> {
  if (!seen || !(seen.size > 0)) {
    return ["open", "this browser has proven no checkpoint of this log before; it remembers this one"];
  }
  if (current.size < seen.size) {
    return ["failed", `rolled back: ${leafCountText(current.size)}, and this browser has proven ${seen.size} before`];
  }
  if (current.size === seen.size && current.root !== seen.root) {
    return ["failed", `fork: another root for ${leafCountText(current.size)} than this browser has proven before`];
  }
  if (current.size === seen.size)
    return ["shown", `the tree of ${leafCountText(current.size)} that this browser has proven before`];
  const whyNotRead = await proveContinuation(seen, current, get);
  if (whyNotRead !== null) return ["open", whyNotRead];
  return [
    "shown",
    `the first ${leafCountText(seen.size)} are those that this browser has proven before, and ${current.size - seen.size} follow`,
  ];
}

/** Checks that the page shows the letter and the sentence of the proven card. @returns outcome and sentence */
function pageStep(shown: ProveOptions["shown"], card: Card, why: string): [Outcome, string] {
  if (!shown) return ["open", "no page is compared here"];
  const isSameLetter = shown.letter.toUpperCase() === card.band.toUpperCase();
  if (isSameLetter && shown.sentence.includes(why)) {
    return ["shown", `letter ${card.band} and its sentence are those of the proven leaf`];
  }
  if (Date.parse(shown.computedAt ?? "") < Date.parse(String(card.computed_at))) {
    return ["open", `the page is older than this card, which was computed at ${card.computed_at}: load the page again`];
  }
  if (shown.letter.toUpperCase() === "UNRATED" && card.band !== "UNRATED") {
    return [
      "open",
      `the page shows no letter, and the card has ${card.band}: records of it may have been withdrawn since`,
    ];
  }
  if (!isSameLetter) return ["failed", `the page shows ${shown.letter}, and the proven card has ${card.band}`];
  if (card.band === "UNRATED") {
    return [
      "open",
      `page and card have no letter, and the page says it in other words, as where its newest handshake asked for no payment or records were withdrawn; the leaf says: ${why}`,
    ];
  }
  return ["failed", `the page shows another sentence than the proven leaf: ${why}`];
}

/**
 * Takes the newest card whose evidence is published, and computes it again from the evidence files.
 * @returns outcome and sentence
 */
async function evidenceStep(
  { graded, evidence }: CardProof,
  provenCard: { leaf: GradeLeaf; index: number },
  prove: (bundle: Bundle) => Promise<{ leaf: GradeLeaf; index: number }>,
  { get, cap }: ProveOptions,
  progress: Progress,
): Promise<[Outcome, string]> {
  if (!graded) return ["open", "the evidence of none of its days is published yet, or was not given"];
  const { leaf, index } = graded.index === provenCard.index ? provenCard : await prove(graded);
  const since = String(leaf.card.window_start).slice(0, 10);
  const files = (Array.isArray(evidence) ? evidence : []).slice(0, 256).filter(({ day }) => day >= since);
  const lines: EvidenceLine[] = [];
  let missingFiles = 0;
  for (const [i, { key }] of files.entries()) {
    progress(i, files.length, "evidence files");
    const found = await readEvidenceLines(get, key, cap);
    if (!found) missingFiles++;
    for (const line of found ?? []) lines.push(JSON.parse(line) as EvidenceLine);
  }
  if (missingFiles > 0)
    return ["open", `${missingFiles} of ${countText(files.length, "evidence file")} were not given`];
  const regraded = await regrade(leaf, lines);
  if (typeof regraded === "string") return ["failed", regraded];
  if (regraded.differences.length > 0) return ["failed", regraded.differences.slice(0, 3).join("; ")];
  const cardPhrase =
    index === provenCard.index
      ? "This card"
      : `Of an earlier card, leaf ${index} of ${String(leaf.card.computed_at)} with the letter ${leaf.card.band} (the newest whose evidence is published; a day follows six hours after its end):`;
  const undecidedText =
    regraded.undecided.length > 0 ? ` Not decided by its rows alone: ${regraded.undecided.join(", ")}.` : "";
  return [
    "shown",
    `${cardPhrase} ${countText(regraded.rowCount, "row")} in ${countText(files.length, "evidence file")} have the hash in the leaf; the rules of ${params.method} (parameters ${PARAMS_SHA256.slice(0, 16)}…) make the raw letter ${regraded.rawLetter} of them, and ${regraded.equalMemberCount} members as published.${undecidedText}`,
  ];
}

/**
 * Proves a card, and reports each step as it ends. After a failed step the later steps are still tried, except those
 * that depend on the failed one.
 * @returns the proven card; null when it is not proven
 */
export async function proveCard(proof: CardProof, options: ProveOptions): Promise<Proven | null> {
  const { cap, policy: readerPolicy, maxAge_s, now_ms, get, tell } = options;
  const endedSteps = new Set<StepId>();
  const endStep = (step: StepId, outcome: Outcome, says: string): void => {
    endedSteps.add(step);
    tell(step, outcome, says);
  };
  const progressOf =
    (step: StepId): Progress =>
    (done, of, what) =>
      tell(step, "running", `${done} of ${of} ${what}`);
  const endRemainingSteps = (): null => {
    for (const step of Object.keys(STEPS) as StepId[]) if (!endedSteps.has(step)) endStep(step, "open", NOT_REACHED);
    return null;
  };
  const { bundle } = proof;

  tell("keys", "running", "");
  await keysStep(get, bundle, progressOf("keys")).then(
    (found) => (typeof found === "string" ? endStep("keys", "open", found) : endStep("keys", "shown", found.says)),
    (error) => endStep("keys", "failed", errorText(error)),
  );

  tell("checkpoint", "running", "");
  const policy = await witnessPolicy(readerPolicy ?? (await policyOfService(bundle)), {
    maxAge_s,
    now: () => now_ms,
  }).catch(errorText);
  if (typeof policy === "string") {
    endStep("checkpoint", "failed", policy);
    return endRemainingSteps();
  }
  const proven = await policy.prove(bundle).catch((error) => {
    if (error instanceof NotProven) return error;
    return new NotProven("tampered", errorText(error), "checkpoint");
  });
  const failedPartIndex = proven instanceof NotProven ? PROOF_PARTS.indexOf(proven.part) : PROOF_PARTS.length;
  const outcomes = partOutcomes(proven, bundle, readerPolicy !== null);
  for (const [i, part] of PROOF_PARTS.entries()) {
    if (i < failedPartIndex) endStep(part, ...outcomes[part]);
    if (i === failedPartIndex) endStep(part, "failed", (proven as NotProven).says);
  }
  const [origin = "", sizeText = "", root = ""] = String(bundle.checkpoint).split("\n");
  const tree = { size: Number(sizeText), root };
  if (failedPartIndex > 1) {
    await historyStep(options.seenOf(origin), tree, get).then(
      (found) => endStep("history", ...found),
      (error) => endStep("history", "failed", errorText(error)),
    );
  }
  if (proven instanceof NotProven) return endRemainingSteps();
  const leaf = leafOf(bundle.leaf);
  if (bundle.capability_id !== cap || proof.capability_id !== cap) {
    endStep("card", "failed", `the card is of ${bundle.capability_id}, and ${cap} was asked for`);
    return endRemainingSteps();
  }

  const { card } = leaf;
  endStep("page", ...pageStep(options.shown, card, leaf.why));
  tell("newest", "running", "");
  const place = { index: proven.index, size: proven.treeSize, root, proof: bundle.proof };
  await readLaterLeaves(place, { cap, computedAt: card.computed_at }, get, progressOf("newest")).then(
    (behind) => {
      if (typeof behind === "string") return endStep("newest", "open", behind);
      const { newerLeaf, leafCount, bundleCount, correctionCount } = behind;
      if (newerLeaf !== null)
        return endStep("newest", "failed", `leaf ${newerLeaf} of the same tree is a newer card of this endpoint`);
      const correctionsText =
        correctionCount > 0 ? `; ${countText(correctionCount, "correction or dispute")} of it came since` : "";
      endStep(
        "newest",
        "shown",
        `all ${leafCountText(leafCount)} behind it (${countText(bundleCount, "entry bundle")}) lead to the root, and none is a newer headline card of it${correctionsText}. A later checkpoint may hold one`,
      );
    },
    (error) => endStep("newest", "failed", errorText(error)),
  );

  try {
    const contradictions = findContradictions(card);
    if (contradictions.length > 0) endStep("numbers", "failed", contradictions.slice(0, 3).join("; "));
    else
      endStep(
        "numbers",
        "shown",
        "the composite is the weighted sum of the lower bounds, no bound is above what its figures allow, and the letter is not better than composite, bounds, tier, flags and number of paid calls allow",
      );
  } catch (error) {
    endStep("numbers", "failed", `the card's figures cannot be read: ${errorText(error)}`);
  }

  tell("evidence", "running", "");
  const provenCard = { leaf, index: proven.index };
  const proveAnother = async (other: Bundle) => {
    await policy.prove(other);
    if (other.capability_id !== cap) throw new Error(`a card of ${other.capability_id}`);
    return { leaf: leafOf(other.leaf), index: other.index };
  };
  await evidenceStep(proof, provenCard, proveAnother, options, progressOf("evidence")).then(
    (found) => endStep("evidence", ...found),
    (error) => endStep("evidence", "failed", errorText(error)),
  );
  return { card, why: leaf.why, origin: proven.origin, seen: tree };
}

/** Parses a proven leaf. */
const leafOf = (text: string): GradeLeaf => JSON.parse(text) as GradeLeaf;

/**
 * Returns for each part of a proof the outcome and the sentence to report if that part is valid. It does not judge
 * validity: the caller leaves out the parts that are not valid.
 * @param hasReaderPolicy true: the reader gave the policy. false: it was made from the service's own keys
 */
function partOutcomes(
  proven: ProvenCard | NotProven,
  { checkpoint, index }: Bundle,
  hasReaderPolicy: boolean,
): Record<ProofPart, [Outcome, string]> {
  const [origin = "", size = ""] = String(checkpoint).split("\n");
  const cosignedAt = proven instanceof NotProven ? null : (proven.cosignedAt?.toISOString() ?? null);
  const signer = hasReaderPolicy
    ? "a log key of your policy"
    : "the log key that the service itself shows, since you gave no policy";
  const witnesses: [Outcome, string] = hasReaderPolicy
    ? cosignedAt === null
      ? ["open", "your policy asks for no witness"]
      : ["shown", `the quorum of your policy has seen it at ${cosignedAt} or later`]
    : [
        "open",
        `only the log's own witness is asked${cosignedAt ? `, which saw it at ${cosignedAt}` : ""}. With a policy of yours, witnesses that others run are asked; one that this service names proves less`,
      ];
  return {
    checkpoint: ["shown", `${size} leaves of ${origin}, signed under ${signer}`],
    witnesses,
    inclusion: ["shown", `leaf ${index} of ${size}`],
    card: ["shown", "under a cards key that was in force when the card was computed"],
  };
}
