import type { Config } from "../infra/config.ts";
import { Failure } from "../infra/errors.ts";
import { isSafe } from "../serving/client/ask.ts";
import { resumeThrough } from "../serving/client/index.ts";
import { finishPurchase, purchaseFailure } from "./buy.ts";
import { createService } from "./check.ts";
import { readPaymentFile } from "./payment-file.ts";
import type { OptionsOf } from "./table.ts";

/**
 * `touchstone resume`: sends again, unchanged, a payment that `buy` saved, and completes that purchase as `buy` would
 * have.
 * @throws Failure as `buy` does, and `unreadable`
 */
export async function resumeCommand(config: Config, file: string, options: OptionsOf<"resume">): Promise<void> {
  const { payment, paid } = readPaymentFile(file);
  const service = createService(config, payment.service);
  if (!isSafe(new URL(paid.url))) throw new Failure("unreadable", `${file}: its url is not https, so nothing is sent`);
  const bought = await resumeThrough(service, paid).catch((error: unknown) => {
    throw purchaseFailure(error, service, file);
  });
  const save = payment.save ?? undefined;
  await finishPurchase(
    service,
    { bought, payer: payment.payer, check: null, payment: file },
    { save, json: options.json },
  );
}
