import { systemClock } from "../../infra/clock.ts";
import type { Rail, Settlement } from "../../infra/rails/rails.ts";
import type { BodyOf } from "../record/bodies.ts";

/** What the chain said. `down` is the reason when it could not be asked: then nothing is known, neither way. */
export interface ChainSaid {
  seen: Settlement | null;
  down: string | null;
}

type Payment = Pick<BodyOf<"paid.intent">, "wallet" | "nonce" | "since_block">;

/** A Transfer as the record has it. */
export const settlementOf = (row: BodyOf<"settlement">): Settlement => ({
  tx: row.tx,
  blockNumber: row.block_number,
  blockTime: row.block_time,
  from: row.from,
  to: row.to,
  amountAtomic: BigInt(row.amount_atomic),
  asset: row.asset,
  network: row.network,
  final: row.final,
});

/** Asks the chain once for the Transfer of one authorization. */
export async function lookUp(rail: Pick<Rail, "settlementOf">, intent: Payment): Promise<ChainSaid> {
  try {
    const query = { from: intent.wallet, nonce: intent.nonce, sinceBlock: intent.since_block };
    return { seen: await rail.settlementOf(query), down: null };
  } catch (error) {
    return { seen: null, down: (error as Error).message ?? String(error) };
  }
}

/**
 * Asks the chain, again after each pause (real ms: a chain does not lapse), until the Transfer is there. A seller's
 * word on its own settlement is never read. What comes later is found by the sweep.
 */
export async function pollSettlement(
  rail: Pick<Rail, "settlementOf">,
  intent: Payment,
  pausesMs: readonly number[],
): Promise<ChainSaid> {
  let said = await lookUp(rail, intent);
  for (const pause of pausesMs) {
    if (said.seen) break;
    await systemClock.sleep(pause);
    said = await lookUp(rail, intent);
  }
  return said;
}
