import { Failure } from "../../infra/errors.ts";

/** The error of a command or request that names an endpoint, a record or a correction which the log does not have. */
export class NotInRecord extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("unknown", message, options);
  }
}

/**
 * The error of a dispute that is not signed with the key of an address at which the endpoint, according to our records,
 * asked to be paid.
 */
export class NotThePayee extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("signature", message, options);
  }
}

/**
 * The error of a dispute that is malformed, addressed to another service, or signed too long ago or in the future.
 * `errors` has a JSON pointer for each fault.
 */
export class BadDispute extends Failure {
  constructor(readonly errors: readonly { pointer: string; detail: string }[]) {
    super("usage", errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "));
  }
}
