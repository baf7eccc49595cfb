/** Name and description of the service in every document that describes it. */
export const ABOUT = {
  name: "Touchstone",
  /** Version of the interface. */
  version: "0.1.0",
  summary: "What happened when buyers paid machine endpoints, and what to know before you pay one.",
  description:
    "Touchstone keeps the public record of what happened when buyers paid HTTP endpoints that answer 402 (x402 and mpp). It probes them for free, pays them, checks what came back, and publishes a signed card with a letter for each. Ask before you pay: the answer is free, signed, and needs no key. UNRATED means unknown, not bad.",
  license: "Apache-2.0",
} as const;
