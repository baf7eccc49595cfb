import { BoundedMap } from "../../infra/bounded-map.ts";
import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { AppendedRecord, Log } from "../../infra/log/log.ts";
import type { Logger } from "../../infra/telemetry.ts";
import {
  checkPayee,
  disputeBody,
  disputeId,
  readDispute,
  type SignedDispute,
} from "../../pipelines/corrections/dispute.ts";
import { BadDispute, NotThePayee } from "../../pipelines/corrections/errors.ts";
import { envelopeOf, sealEnvelope } from "../../pipelines/record/envelope.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { Problem } from "../http/problem.ts";
import { ReadOnlyReplica } from "../replica/background-log.ts";
import type { View } from "../tables/view.ts";
import { correctionsOf } from "./corrections.ts";

export interface DisputeDeps {
  log: Pick<Log, "append" | "read" | "partitions">;
  view: () => View;
  clock: Clock;
  logger: Pick<Logger, "error">;
  /** Origin of this service. A seller's signed statement must name it, so that it is not valid at another service. */
  service: string;
}

/**
 * Largest number of disputes of one endpoint that are accepted over HTTP. Beyond it a seller has to write to the
 * operator.
 */
const MAX_DISPUTES_PER_ENDPOINT = 50;
/**
 * Largest number of disputes that this replica remembers after accepting them, until its view of the record has them.
 */
const MAX_REMEMBERED = 10_000;
/** Longest wait until an appended dispute can be read back from the log, real ms. */
const READ_BACK_WAIT_MS = 2_000;

/** A dispute and the position of its record in the log. */
export interface Receipt {
  dispute: ReturnType<typeof disputeBody>;
  event_id: string;
  partition: number;
  offset: number;
}

/**
 * Accepts sellers' disputes: checks that the signer is an address that the endpoint's newest 402 names, appends the
 * dispute to the log, and reads it back.
 */
export class Disputes {
  /** Capability id by dispute id of the disputes accepted here, oldest first. */
  readonly #recent = new BoundedMap<string, string>(MAX_REMEMBERED);

  constructor(private readonly deps: DisputeDeps) {}

  /**
   * Accepts a dispute about this endpoint; resolves once its record was read back from the log.
   * @throws Problem unknown_capability, bad_request with pointers, not_the_payee, already_there, too_many_disputes,
   * log_unavailable (the record may or may not be in the log: send it again)
   */
  async put(cap: string, value: unknown): Promise<Receipt> {
    const view = this.deps.view();
    if (!view.has(cap)) throw new Problem("unknown_capability", `${cap} is not in the record`);
    const now = this.deps.clock.now();
    const signed = parseDispute(value, cap, this.deps.service, now);
    await checkSigner(signed, view);
    this.#refuseCopiesAndExcess(view, cap, disputeId(signed));
    const id = disputeId(signed);
    this.#recent.set(id, cap);
    try {
      return await this.#append(cap, signed, now);
    } catch (error) {
      this.#recent.delete(id);
      if (error instanceof ReadOnlyReplica) throw new Problem("log_unavailable", error.message);
      this.deps.logger.error({ err: error }, "a dispute could not be appended");
      throw new Problem("log_unavailable", "the dispute could not be recorded; send it again", {
        headers: { "retry-after": "5" },
      });
    }
  }

  #refuseCopiesAndExcess(view: View, cap: string, id: string): void {
    const knownIds = new Set(correctionsOf(view, cap).disputes.map((one) => String(one.id)));
    for (const [recent, recentCap] of this.#recent) if (recentCap === cap) knownIds.add(recent);
    if (knownIds.has(id)) throw new Problem("already_there", `dispute ${id} is in the record already`);
    if (knownIds.size < MAX_DISPUTES_PER_ENDPOINT) return;
    throw new Problem("too_many_disputes", `${cap} has ${knownIds.size} disputes: write to the operator`);
  }

  async #append(cap: string, signed: SignedDispute, now: Date): Promise<Receipt> {
    const { log } = this.deps;
    const body = disputeBody(signed, now);
    const fields = { cap, key: cap, slot: sha256hex(canonicalText(body)), at: now, producer: "serving", body };
    const envelope = envelopeOf({ type: "dispute", ...fields });
    const { event_id } = envelope;
    const [appended] = (await log.append([sealEnvelope(envelope, log.partitions)])) as [AppendedRecord];
    const { topic, partition, offset } = appended;
    const [found] = await log.read(topic, partition, offset, { maxRecords: 1, waitMs: READ_BACK_WAIT_MS });
    if (found?.eventId !== event_id)
      throw new Error(`${event_id} was not read back at ${topic}/${partition}/${offset}`);
    return { dispute: body, event_id, partition, offset };
  }
}

function parseDispute(value: unknown, cap: string, service: string, now: Date): SignedDispute {
  try {
    const signed = readDispute(value, service, now);
    if (signed.capability_id === cap) return signed;
    throw new BadDispute([{ pointer: "/capability_id", detail: `must be ${cap}, the endpoint of this address` }]);
  } catch (error) {
    if (!(error instanceof BadDispute)) throw error;
    throw new Problem("bad_request", error.message, { errors: [...error.errors] });
  }
}

/**
 * Checks that the signer is a payee: one of the addresses that the newest 402 names. Earlier addresses are not accepted
 * here.
 */
async function checkSigner(signed: SignedDispute, view: View): Promise<void> {
  const { pay_to = null, pay_tos = [] } = view.row(signed.capability_id) ?? {};
  const payees = new Set([...(pay_to === null ? [] : [pay_to]), ...pay_tos].map(addressKey));
  try {
    await checkPayee(signed, payees);
  } catch (error) {
    if (!(error instanceof NotThePayee)) throw error;
    const pointer = payees.has(addressKey(signed.pay_to)) ? "/signature" : "/pay_to";
    throw new Problem("not_the_payee", error.message, {
      errors: [{ pointer, detail: error.message }],
      headers: { "www-authenticate": signed.pay_to.startsWith("0x") ? "EIP-191" : "Ed25519" },
    });
  }
}
