import { Failure } from "../../infra/errors.ts";

/** The command names an endpoint, record, correction or file that is not in the record. */
export class NotInRecord extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("unknown", message, options);
  }
}

/**
 * A dispute is not signed with the key of an address at which this endpoint, according to the record, asked to be paid.
 */
export class NotThePayee extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("signature", message, options);
  }
}

/**
 * A dispute is malformed, addressed to another service, or too old or too new. `errors` has a JSON pointer for each
 * fault.
 */
export class BadDispute extends Failure {
  constructor(readonly errors: readonly { pointer: string; detail: string }[]) {
    super("usage", errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "));
  }
}
