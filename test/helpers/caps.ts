import { loadConfig } from "../../infra/config.ts";
import { capsOf } from "../../pipelines/orders/caps.ts";

/** The caps of a service whose settings say nothing of them. */
export const ORDER_CAPS = capsOf(loadConfig(undefined, {}).sell);
