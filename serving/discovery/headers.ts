/**
 * Request and response headers of the API, with their descriptions for OpenAPI. Headers that every HTTP server has are
 * left out.
 */

const textHeader = (description: string, more: object = {}) => ({ description, schema: { type: "string", ...more } });
const secondsHeader = (description: string) => textHeader(description, { pattern: "^\\d+$" });

/** Request headers. */
export const REQUEST_HEADERS = {
  "If-None-Match": textHeader("An ETag of an earlier answer; while it is the newest, the answer is a 304"),
  "Accept-Encoding": textHeader("Codings that the caller unpacks; zstd and gzip are known"),
  "PAYMENT-SIGNATURE": textHeader(
    "A payment of x402 version 2 (base64 of JSON) for the terms in PAYMENT-REQUIRED. Without it, or X-PAYMENT, the answer is a 402",
  ),
  "X-PAYMENT": textHeader("A payment of x402 version 1 (base64 of JSON) for the terms in the body of the 402"),
  "Touchstone-Publish": textHeader("With a payment: does the bought call go into the public record, bytes and all?", {
    enum: ["true", "false"],
  }),
  "Touchstone-Expect": textHeader(
    "JSON in ASCII: what you yourself expect of the answer, as expect of /v1/route/execute",
    {
      maxLength: 4096,
    },
  ),
};

/** Response headers. */
export const RESPONSE_HEADERS = {
  Age: secondsHeader("Seconds since the answer was made"),
  "Cache-Control": textHeader("How long anybody may keep the answer"),
  "Content-Disposition": textHeader("The name under which a client may save the answer"),
  "Content-Encoding": textHeader("Coding of the body; none: it is not packed"),
  ETag: textHeader("Names these bytes; If-None-Match with it gives a 304"),
  Link: textHeader('With rel="next": where what comes after this answer is asked for'),
  Location: textHeader("Path under which what was made is read"),
  "PAYMENT-REQUIRED": textHeader("Terms of x402 version 2, base64 of JSON"),
  "PAYMENT-RESPONSE": textHeader("Settlement of a payment of x402 version 2, base64 of JSON"),
  "X-PAYMENT-RESPONSE": textHeader("Settlement of a payment of x402 version 1, base64 of JSON"),
  RateLimit: textHeader("What is left of the limit, and in how many seconds it is whole again", {
    examples: ['"check";r=599;t=1'],
  }),
  "RateLimit-Policy": textHeader("The limit: requests, and seconds in which they may be sent", {
    examples: ['"check";q=600;w=60'],
  }),
  "Retry-After": secondsHeader("Seconds after which to ask again"),
  "Touchstone-Order": textHeader("Id of the order: /v1/orders/{order_id}"),
  "Touchstone-Judged-By": textHeader("The check that says most of the answer: truth, schema, class, parses or status"),
  "Touchstone-Salt-Request": textHeader(
    "Salt (hex) of the commitment to what was sent, of a call that is not published",
  ),
  "Touchstone-Salt-Response": textHeader("Salt (hex) of the commitment to what came, of a call that is not published"),
  Vary: textHeader("Request headers that the answer depends on"),
  "WWW-Authenticate": textHeader("The credential that is asked for"),
};

export type RequestHeader = keyof typeof REQUEST_HEADERS;
export type ResponseHeader = keyof typeof RESPONSE_HEADERS;
