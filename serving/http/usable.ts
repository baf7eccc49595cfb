import type { Reader } from "../../pipelines/1-observe/reading/reader.ts";
import type { BuyersExpectation } from "../../pipelines/record/expectation.ts";
import { Problem } from "./problem.ts";

/**
 * Refuses a buyer's expectation that no answer can be checked against.
 * @param expectPointer JSON pointer to the expectation in the request
 * @throws Problem bad_request with a pointer to each fault
 */
export async function refuseUnusableExpectation(
  reader: Reader,
  expect: BuyersExpectation,
  expectPointer: string,
): Promise<void> {
  const reply = await reader.ask("faults", { expect });
  const faults = reply.ok ? reply.value : [{ pointer: "", detail: "is more than is tried" }];
  if (faults.length === 0) return;
  const errors = faults.map(({ pointer, detail }) => ({ pointer: expectPointer + pointer, detail }));
  const says = errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; ");
  throw new Problem("bad_request", says, { errors });
}
