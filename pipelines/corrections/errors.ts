import { Failure } from "../../infra/errors.ts";

/** The command names something that is not in the record: an endpoint, a record, a correction, a file. */
export class NotInRecord extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("unknown", message, options);
  }
}

/** A dispute is not signed by an address to which the record has seen this endpoint ask to be paid. */
export class NotThePayee extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("signature", message, options);
  }
}

/** A dispute does not have its form, or is meant for another service or time. One pointer for each fault. */
export class BadDispute extends Failure {
  constructor(readonly errors: readonly { pointer: string; detail: string }[]) {
    super("usage", errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "));
  }
}
