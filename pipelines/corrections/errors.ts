import { Failure } from "../../infra/errors.ts";

/** The command names something that the record does not hold: an endpoint, a record, a correction, a file. */
export class NotInRecord extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("unknown", message, options);
  }
}

/** It is recorded already: the record is withdrawn, the correction taken back, the dispute there. Nothing was written. */
export class AlreadyRecorded extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("already", message, options);
  }
}

/** Words that cannot be used: a fault that is none of ours, a time that is none, too long a text. */
export class BadCorrection extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("usage", message, options);
  }
}

/** A dispute that was not signed by an address which the record has seen this endpoint be paid at. */
export class NotThePayee extends Failure {
  constructor(message: string, options?: ErrorOptions) {
    super("signature", message, options);
  }
}

/** A dispute that is not of its shape, or speaks to another service or time. One pointer a fault. */
export class BadDispute extends BadCorrection {
  constructor(readonly errors: readonly { pointer: string; detail: string }[]) {
    super(errors.map(({ pointer, detail }) => `${pointer} ${detail}`).join("; "));
  }
}
