import { Failure } from "../../infra/errors.ts";

/** The command names something that the record does not hold: an endpoint, a record, a correction, a file. */
export class NotInRecord extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("unknown", message, options);
  }
}

/** A dispute that was not signed by an address which the record has seen this endpoint be paid at. */
export class NotThePayee extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("signature", message, options);
  }
}

/** A dispute that is not of its shape, or speaks to another service or time. One pointer a fault. */
export class BadDispute extends Failure {
  constructor(readonly errors: readonly { pointer: string; detail: string }[]) {
    super("usage", errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "));
  }
}
