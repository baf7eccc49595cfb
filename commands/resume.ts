import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { isSafe } from "../serving/client/ask.ts";
import { resumeThrough } from "../serving/client/index.ts";
import { conclude, purchaseFailure } from "./buy.ts";
import { createService } from "./check.ts";
import { readKept } from "./kept-payment.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone resume`: sends a payment again that `buy` kept, as it was, and ends that purchase as `buy` would have.
 * @throws Failure as `buy` does, and `unreadable`
 */
export async function resumeCommand(config: Config, file: string, options: OptionsOf<"resume">): Promise<void> {
  const { kept, paid } = readKept(file);
  const service = createService(config, kept.service);
  if (!isSafe(new URL(paid.url))) throw new Failure("unreadable", `${file}: a payment is not sent over http`);
  const bought = await resumeThrough(service, paid).catch((error: unknown) => {
    throw purchaseFailure(error, service, file);
  });
  const save = kept.save ?? undefined;
  await conclude(service, { bought, payer: kept.payer, check: null, payment: file }, { save, json: options.json });
}
