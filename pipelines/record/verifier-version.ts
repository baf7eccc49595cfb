/**
 * Versions of the checks that score samples, and how the text and the evidence list of a card depend on them. This file
 * imports no schema, so that the proof in a browser can grade with it.
 */

/** Path and fragment of the page that describes the method, relative to the service's address. */
export const METHOD_PAGE = "/docs/verification-method#svc-grade-1";

/** Version of the checks that scored the samples, and of the rules by which a card lists them. */
export const VERIFIER_VERSION = "touchstone-verifier-3";

/** The verifier version of a card that names none. */
export const FIRST_VERIFIER_VERSION = "touchstone-verifier-1";

/**
 * Does a card of this verifier version list equal answers in `evidence_sample` several times? Since version 2, each
 * answer is listed once.
 */
export const listsRepeatedAnswers = (version: string): boolean => version === FIRST_VERIFIER_VERSION;

/**
 * Does `why` of this verifier version count an endpoint as silent that answered without a readable 402, for example
 * with a 404? That of versions 1 and 2 does.
 */
export const countsUnreadableAsSilent = (version: string): boolean =>
  version === FIRST_VERIFIER_VERSION || version === "touchstone-verifier-2";
