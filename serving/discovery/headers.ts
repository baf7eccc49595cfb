/**
 * Request and response headers of the API, with their descriptions for OpenAPI. Headers that every HTTP server has are
 * left out.
 */

const text = (description: string, more: object = {}) => ({ description, schema: { type: "string", ...more } });
const seconds = (description: string) => text(description, { pattern: "^\\d+$" });

/** Request headers. */
export const TAKEN = {
  "If-None-Match": text("An ETag of an earlier answer; while it is the newest, the answer is a 304"),
  "Accept-Encoding": text("Codings that the caller unpacks; zstd and gzip are known"),
  "PAYMENT-SIGNATURE": text(
    "A payment of x402 version 2 (base64 of JSON) for the terms in PAYMENT-REQUIRED. Without it, or X-PAYMENT, the answer is a 402",
  ),
  "X-PAYMENT": text("A payment of x402 version 1 (base64 of JSON) for the terms in the body of the 402"),
  "Touchstone-Publish": text("With a payment: does the bought call go into the public record, bytes and all?", {
    enum: ["true", "false"],
  }),
};

/** Response headers. */
export const GIVEN = {
  Age: seconds("Seconds since the answer was made"),
  "Cache-Control": text("How long anybody may keep the answer"),
  "Content-Disposition": text("The name under which a client may save the answer"),
  "Content-Encoding": text("Coding of the body; none: it is not packed"),
  ETag: text("Names these bytes; If-None-Match with it gives a 304"),
  Link: text('With rel="next": where what comes after this answer is asked for'),
  Location: text("Path under which what was made is read"),
  "PAYMENT-REQUIRED": text("Terms of x402 version 2, base64 of JSON"),
  "PAYMENT-RESPONSE": text("Settlement of a payment of x402 version 2, base64 of JSON"),
  "X-PAYMENT-RESPONSE": text("Settlement of a payment of x402 version 1, base64 of JSON"),
  RateLimit: text("What is left of the limit, and in how many seconds it is whole again", {
    examples: ['"check";r=599;t=1'],
  }),
  "RateLimit-Policy": text("The limit: requests, and seconds in which they may be sent", {
    examples: ['"check";q=600;w=60'],
  }),
  "Retry-After": seconds("Seconds after which to ask again"),
  "Touchstone-Order": text("Id of the order: /v1/orders/{order_id}"),
  "Touchstone-Salt-Request": text("Salt (hex) of the commitment to what was sent, of a call that is not published"),
  "Touchstone-Salt-Response": text("Salt (hex) of the commitment to what came, of a call that is not published"),
  Vary: text("Request headers that the answer depends on"),
  "WWW-Authenticate": text("The credential that is asked for"),
};

export type Taken = keyof typeof TAKEN;
export type Given = keyof typeof GIVEN;
